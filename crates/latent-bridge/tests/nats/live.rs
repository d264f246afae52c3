//! Brokers, manifests and records of these tests, and what a broker says beside the bus.

use std::net::SocketAddrV4;
use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;
use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, NatsRoots};
use latent_bridge::{BridgeManifest, EventBus, NatsBus, PublishAck, RetentionSpec, TopicSpec};
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, StoredRecord, Uid, UnixMillis};
use latent_testkit::broker::{Admin, Broker, BrokerAuth, BrokerSpec, BrokerUser, Connection, SERVER_NAME, TestCa};
use latent_testkit::{ManualClock, wait_until};

pub(crate) const USER: &str = "bus";
pub(crate) const PASSWORD: &str = "of a broker that lives as long as one test";
/// The stream of the topic `t`.
pub(crate) const STREAM: &str = "av_t";
/// Room on disk for everything that one test keeps.
const DISK_BYTES_MAX: i64 = 512 << 20;

/// A broker whose only user may do everything.
pub(crate) fn spec() -> BrokerSpec {
    BrokerSpec::with_users([BrokerUser::unlimited(USER, PASSWORD)]).disk(DISK_BYTES_MAX)
}

pub(crate) fn options_at(addresses: &[SocketAddrV4], ca: &TestCa) -> NatsOptions {
    options_with(addresses, ca.root_der())
}

/// As [`options_at`], with the root's certificate itself.
pub(crate) fn options_with(addresses: &[SocketAddrV4], root_der: Vec<u8>) -> NatsOptions {
    let mut options = NatsOptions::new("");
    options.servers = addresses.iter().map(|address| format!("tls://{address}")).collect();
    options.credentials = Some(NatsCredentials::UserPassword { user: USER.to_owned(), password: PASSWORD.to_owned() });
    options.roots = NatsRoots::Der(vec![root_der]);
    options.server_name = Some(SERVER_NAME.to_owned());
    options.tls_first = true;
    options
}

pub(crate) fn options(broker: &Broker) -> NatsOptions {
    options_at(&[broker.address()], broker.ca())
}

/// As [`with_topic`], with a clock that only the test moves: nothing in flight is ever late but by that.
pub(crate) fn with_clock(spec: BrokerSpec, partitions: u32) -> (Broker, NatsBus, Arc<ManualClock>) {
    let broker = Broker::start(spec);
    let clock = Arc::new(ManualClock::starting_at(UnixMillis(1_800_000_000_000)));
    let options = NatsOptions { clock: Arc::clone(&clock) as _, ..options(&broker) };
    let bus = NatsBus::provision_with(options, &manifest(partitions)).unwrap();
    (broker, bus, clock)
}

/// The topic `t` with this many partitions.
pub(crate) fn manifest(partitions: u32) -> BridgeManifest {
    let topic = TopicSpec { name: "t".to_owned(), partitions, retention: RetentionSpec::default(), schema_ref: None };
    BridgeManifest { manifest_version: 1, name: "test".to_owned(), replication_factor: 1, topics: vec![topic] }
}

/// A broker with the topic `t`, and a bus on it.
pub(crate) fn with_topic(spec: BrokerSpec, partitions: u32) -> (Broker, NatsBus) {
    let broker = Broker::start(spec);
    let bus = NatsBus::provision_with(options(&broker), &manifest(partitions)).unwrap();
    (broker, bus)
}

pub(crate) fn record(uid: &str, key: &str, payload: impl Into<Bytes>) -> NewRecord {
    let attributes = Attributes::parse(vec![("Source".to_owned(), "test".to_owned())]).unwrap();
    NewRecord::new(Some(Uid::parse(uid).unwrap()), key, MediaType::octet_stream(), attributes, payload.into()).unwrap()
}

/// Every record of the topic `t`, partition after partition, as the bus reads it page after page.
pub(crate) fn stored(bus: &dyn EventBus) -> Vec<StoredRecord> {
    (0..bus.partitions("t").unwrap()).flat_map(|partition| stored_in(bus, Partition(partition))).collect()
}

pub(crate) fn stored_in(bus: &dyn EventBus, partition: Partition) -> Vec<StoredRecord> {
    let mut records: Vec<StoredRecord> = Vec::new();
    loop {
        let next = records.last().map_or(Offset(0), |last| Offset(last.offset.0 + 1));
        let page = bus.submit_fetch("t", partition, next, 1_000).wait().unwrap();
        if page.is_empty() {
            return records;
        }
        assert!(page.iter().all(|stored| stored.offset >= next && stored.partition == partition));
        records.extend(page);
    }
}

/// Runs `call` with a client that may do everything, beside the bus.
pub(crate) fn beside<T>(broker: &Broker, call: impl AsyncFnOnce(Admin) -> T) -> T {
    runtime().block_on(async { call(broker.admin().await).await })
}

/// The one connection of the bus, as the broker sees it now.
pub(crate) fn connection(broker: &Broker) -> Connection {
    let mut connections = beside(broker, async |admin| admin.connections());
    assert_eq!(connections.len(), 1, "{connections:?}");
    connections.remove(0)
}

/// A user with these rights to publish and any inbox, beside the one that may do everything.
pub(crate) fn restricted(name: &str, publish: &[&str]) -> BrokerUser {
    BrokerUser {
        name: name.to_owned(),
        password: PASSWORD.to_owned(),
        publish: publish.iter().map(|subject| (*subject).to_owned()).collect(),
        subscribe: vec!["_INBOX.>".to_owned()],
    }
}

/// [`spec`] with one more user.
pub(crate) fn spec_with(user: BrokerUser) -> BrokerSpec {
    BrokerSpec { auth: BrokerAuth::Users(vec![BrokerUser::unlimited(USER, PASSWORD), user]), ..spec() }
}

/// As [`options`], as another user.
pub(crate) fn options_as(broker: &Broker, user: &str) -> NatsOptions {
    let credentials = NatsCredentials::UserPassword { user: user.to_owned(), password: PASSWORD.to_owned() };
    NatsOptions { credentials: Some(credentials), ..options(broker) }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Publishes what the bus would not: another program's message. Gives its sequence.
pub(crate) async fn plant(admin: &Admin, subject: &str, headers: &[(&str, &str)], body: &str) -> u64 {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, *value);
    }
    let acknowledged = admin.jetstream().publish_with_headers(subject.to_owned(), map, body.to_owned().into()).await.unwrap();
    acknowledged.await.unwrap().sequence
}

/// Publishes again and again until it is acknowledged: while the broker is away it is not.
pub(crate) fn acknowledged(bus: &NatsBus, event: &NewRecord) -> PublishAck {
    let mut acknowledged = None;
    wait_until("it is acknowledged", || {
        acknowledged = match bus.publish_record("t", event) {
            Ok(ack) => Some(ack),
            Err(error) if error.is_permanent() => panic!("{error}"),
            Err(_) => None,
        };
        acknowledged.is_some()
    });
    acknowledged.unwrap()
}
