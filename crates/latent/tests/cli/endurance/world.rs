//! The brokers of a run and what they say: one with a file store, or three with three replicas. Everything on them is made by the
//! operator's commands, with the users that `latent broker permissions` prints.

use std::net::SocketAddrV4;
use std::sync::Mutex;

use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, NatsRoots};
use latent_bridge::{BridgeManifest, EventBus, NatsBus};
use latent_core::{Offset, Partition, StoredRecord};
use latent_test_guests::BEHAVE;
use latent_testkit::broker::{Admin, Broker, Cluster, TestCa};

use super::super::lanes::{PASSWORD, as_operator, folder, knowing, put_passwords};
use serde_json::{Value, json};

use super::PARTITIONS;
use crate::cli::CliEnv;

/// Room on disk for one broker.
const DISK_BYTES_MAX: i64 = 1 << 30;

pub(super) enum Brokers {
    One(Box<Broker>),
    Three(Cluster),
}

pub(super) struct World {
    pub(super) brokers: Brokers,
    root: Vec<u8>,
    runtime: tokio::runtime::Runtime,
    manifest: String,
    triggers: String,
    admin: Mutex<Option<Admin>>,
}

fn manifest(replicas: usize) -> String {
    // Uids are known for as long as events are kept, which is longer than any run.
    let topic = |name: &str, partitions: u32| format!("  - {{ name: {name}, partitions: {partitions}, retention: {{ hot_hours: 24 }} }}\n");
    format!(
        "manifest_version: 1\nname: endurance\nreplication_factor: {replicas}\ntopics:\n{}{}{}",
        topic("in", PARTITIONS),
        topic("out", 4),
        topic("dead", 1)
    )
}

impl World {
    /// With topics and consumers.
    pub(super) fn start(brokers: usize, triggers: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let manifest = manifest(brokers);
        let ca = TestCa::new();
        let printing = env("edge", "127.0.0.1:4222", &ca.root_der(), (&manifest, triggers));
        let spec = knowing(&printing).disk(DISK_BYTES_MAX);
        let (brokers, root) = match brokers {
            1 => (Brokers::One(Box::new(Broker::start_with_ca(spec, ca))), None),
            _ => {
                let cluster = Cluster::start(&spec);
                let root = cluster.ca().root_der();
                (Brokers::Three(cluster), Some(root))
            }
        };
        let root = root.unwrap_or_else(|| match &brokers {
            Brokers::One(broker) => broker.ca().root_der(),
            Brokers::Three(cluster) => cluster.ca().root_der(),
        });
        let world = Self { brokers, root, runtime, manifest, triggers: triggers.to_owned(), admin: Mutex::default() };
        let operating = world.node("operating", world.addresses()[0]);
        assert!(as_operator(&operating, &["broker", "provision", "--apply"], 0).contains("done"));
        if let Brokers::Three(cluster) = &world.brokers {
            cluster.wait_until_ready();
        }
        world
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddrV4> {
        match &self.brokers {
            Brokers::One(broker) => vec![broker.address()],
            Brokers::Three(cluster) => cluster.addresses(),
        }
    }

    /// A node's folder, with its passwords for what listens at `address`.
    pub(super) fn node(&self, name: &str, address: SocketAddrV4) -> CliEnv {
        let env = env(name, &address.to_string(), &self.root, (&self.manifest, &self.triggers));
        put_passwords(&env, address.port());
        env
    }

    /// A bus with the rights of a node's.
    pub(super) fn bus(&self) -> NatsBus {
        let mut options = NatsOptions::new("");
        options.servers = self.addresses().iter().map(|address| format!("tls://{address}")).collect();
        options.credentials = Some(NatsCredentials::UserPassword { user: "bus".to_owned(), password: PASSWORD.to_owned() });
        options.roots = NatsRoots::Der(vec![self.root.clone()]);
        options.server_name = Some("broker.latent.test".to_owned());
        options.tls_first = true;
        NatsBus::open_with(options, &BridgeManifest::from_yaml(&self.manifest).unwrap()).unwrap()
    }

    fn running(&self) -> &Broker {
        match &self.brokers {
            Brokers::One(broker) => broker,
            Brokers::Three(cluster) => cluster.members().iter().find(|member| member.pid().is_some()).unwrap(),
        }
    }

    /// Answers to questions about streams and consumers; `null` where there was none.
    fn ask(&self, questions: &[String]) -> Vec<Value> {
        let mut kept = self.admin.lock().unwrap();
        self.runtime.block_on(async {
            let admin = match kept.take() {
                Some(admin) => admin,
                None => self.running().admin().await,
            };
            let mut answers = Vec::new();
            for question in questions {
                let reply = admin.client().request(format!("$JS.API.{question}"), "".into()).await;
                answers.push(reply.map_or(Value::Null, |reply| serde_json::from_slice(&reply.payload).unwrap_or(Value::Null)));
            }
            // Its broker may be one that was killed.
            *kept = Some(admin).filter(|_| answers.iter().all(|answer| !answer.is_null()));
            answers
        })
    }

    /// What the broker says of each partition's consumer.
    pub(super) fn consumers(&self) -> Vec<Value> {
        self.ask(&(0..PARTITIONS).map(|partition| format!("CONSUMER.INFO.av_in.latent_work_p{partition}")).collect::<Vec<_>>())
    }

    /// Events that are not settled, as the consumers count them. A consumer that does not answer counts one.
    pub(super) fn left(&self) -> u64 {
        let left = |info: &Value| info["num_pending"].as_u64().zip(info["num_ack_pending"].as_u64()).map_or(1, |(new, open)| new + open);
        self.consumers().iter().map(left).sum()
    }

    /// Records that the functions wrote.
    pub(super) fn written(&self) -> u64 {
        self.ask(&["STREAM.INFO.av_out".to_owned()])[0]["state"]["messages"].as_u64().unwrap_or_default()
    }

    /// Nothing is left, and nothing was given up: every consumer has everything behind it.
    pub(super) fn must_be_settled(&self) {
        for info in self.consumers() {
            assert_eq!((&info["num_pending"], &info["num_ack_pending"]), (&json!(0), &json!(0)), "{info}");
            assert_eq!(info["ack_floor"]["stream_seq"], info["delivered"]["stream_seq"], "stranded: {info}");
        }
    }
}

fn env(name: &str, address: &str, root: &[u8], (manifest, triggers): (&str, &str)) -> CliEnv {
    let env = folder(name, address, root, (BEHAVE, triggers));
    env.write("bridge.yaml", manifest);
    env
}

/// Every record of a topic, partition after partition.
pub(super) fn stored(bus: &NatsBus, topic: &str) -> Vec<StoredRecord> {
    let mut all = Vec::new();
    for partition in (0..bus.partitions(topic).unwrap()).map(Partition) {
        let mut next = Offset(0);
        loop {
            let page = bus.submit_fetch(topic, partition, next, 1_000).wait().unwrap();
            let Some(last) = page.last() else { break };
            next = Offset(last.offset.0 + 1);
            all.extend(page);
        }
    }
    all
}
