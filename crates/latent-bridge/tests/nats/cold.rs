//! Topics of a broker that are archived (B-054, B-057, B-058, B-067, B-068, B-070, B-074 to B-080).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use latent_bridge::cold::{ArchiveOptions, ColdStore, ColdStores};
use latent_bridge::nats_bus::NatsOptions;
use latent_bridge::{BridgeManifest, BusError, EventBus, NatsBus, PublishAck};
use latent_core::{NewRecord, UncertainCause, UnixMillis};
use latent_testkit::broker::{Broker, BrokerSpec};
use latent_testkit::proxy::{At, Direction, Fault as Cut, FaultProxy};
use latent_testkit::{require_broker, wait_until};
use serde_json::Value;

use crate::doubles::MemoryStore;
use crate::live::{STREAM, acknowledged, beside, manifest, options, options_at, plant, record, spec, stored};
use crate::storage::{self, Op, TestStorage};

pub(crate) const KEY: [u8; 32] = [7; 32];
/// Longer than the grace of an intent.
pub(crate) const LATER: u64 = 120_000;

/// Every `cold_uri` is this store.
pub(crate) struct One<S>(pub(crate) Arc<S>);

impl<S: ColdStore + 'static> ColdStores for One<S> {
    fn open(&self, _uri: &str) -> Result<Arc<dyn ColdStore>, BusError> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn check(&self, _uri: &str) -> Result<(), BusError> {
        Ok(())
    }
}

/// The topic `t`, archived.
pub(crate) fn archived(partitions: u32) -> BridgeManifest {
    let mut manifest = manifest(partitions);
    manifest.topics[0].retention.cold_uri = Some("place".to_owned());
    manifest
}

pub(crate) fn archive(outbox: &Path, store: &Arc<MemoryStore>) -> ArchiveOptions {
    ArchiveOptions {
        control_keys: vec![KEY],
        outbox: Some(outbox.join("outbox")),
        stores: Some(Arc::new(One(Arc::clone(store)))),
        ..ArchiveOptions::default()
    }
}

/// A broker, an outbox and a store, which outlive buses.
pub(crate) struct Site {
    pub(crate) broker: Broker,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Arc<MemoryStore>,
    /// A `cold_uri` names a folder, and not `store`.
    pub(crate) folders: bool,
}

impl Site {
    pub(crate) fn start() -> Self {
        let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
        Self { broker: Broker::start(spec()), folder, store, folders: false }
    }

    pub(crate) fn options(&self) -> NatsOptions {
        let mut archive = archive(self.folder.path(), &self.store);
        if self.folders {
            archive.stores = None;
        }
        NatsOptions { archive: Some(archive), ..options(&self.broker) }
    }

    pub(crate) fn bus(&self) -> NatsBus {
        NatsBus::provision_with(self.options(), &archived(2)).unwrap()
    }

    /// A bus whose outbox is on another file system.
    fn bus_on(&self, storage: &Arc<TestStorage>) -> NatsBus {
        let mut options = self.options();
        options.archive.as_mut().unwrap().storage = Arc::clone(storage) as _;
        NatsBus::provision_with(options, &archived(2)).unwrap()
    }

    pub(crate) fn intents(&self) -> usize {
        let names = std::fs::read_dir(self.folder.path().join("outbox")).unwrap();
        names.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "json")).count()
    }

    /// Waits for the uploads that follow an acknowledgement.
    pub(crate) fn uploaded(&self) {
        wait_until("every intent is finished", || self.intents() == 0);
    }

    /// The cold object of what was acknowledged.
    pub(crate) fn object(&self, ack: &PublishAck) -> Value {
        let path = format!("t/p{}/{:020}.json", ack.partition, ack.offset);
        serde_json::from_slice(&self.store.objects()[&path]).unwrap()
    }

    /// Cold objects of events.
    pub(crate) fn objects(&self) -> usize {
        self.store.objects().keys().filter(|path| path.starts_with("t/")).count()
    }

    /// Every id that came so far is out of the duplicate window. Plants messages that are no records in partition 1.
    pub(crate) fn forget_ids(&self) {
        // The broker forgets ids after a moment, and a restart begins that anew.
        beside(&self.broker, async |admin| {
            let mut stream = admin.jetstream().get_stream(STREAM).await.unwrap();
            let mut config = stream.info().await.unwrap().config.clone();
            config.duplicate_window = std::time::Duration::from_millis(100);
            admin.jetstream().update_stream(config).await.unwrap();
        });
        self.broker.restart();
        // Once an id that comes later is forgotten, so is this one.
        beside(&self.broker, async |admin| {
            let headers = [("Nats-Msg-Id", "probe")];
            let first = plant(&admin, "t.p1", &headers, "{}").await;
            while plant(&admin, "t.p1", &headers, "{}").await == first {}
        });
    }

    pub(crate) fn messages(&self) -> u64 {
        beside(&self.broker, async |admin| admin.count(STREAM).await)
    }
}

pub(crate) fn in_a_while() -> UnixMillis {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    UnixMillis(u64::try_from(now.as_millis()).unwrap() + LATER)
}

/// B-054, B-055, B-077.
#[test]
fn an_event_is_stored_acknowledged_and_then_archived_as_it_is_stored() {
    require_broker!();
    let site = Site::start();
    let bus = site.bus();
    let json = NewRecord::new(None, "k", latent_core::MediaType::json(), latent_core::Attributes::default(), r#"{"b":1, "a":2.50}"#.into());
    let acks: Vec<_> = bus.publish_batch("t", &[record("u", "k", "x"), json.unwrap(), record("v", "other", "y")]);
    site.uploaded();
    assert_eq!((site.messages(), site.objects()), (3, 3));
    let stored = stored(&bus);
    for ack in acks.iter().map(|ack| ack.as_ref().unwrap()) {
        let lies = stored.iter().find(|stored| stored.record.uid.as_str() == ack.uid).unwrap();
        let object = site.object(ack);
        assert_eq!((&object["uid"], &object["offset"]), (&Value::from(&*ack.uid), &Value::from(ack.offset)));
        assert_eq!(object["stored_at"], lies.record.stored_at.0);
    }
    assert!(site.store.objects().values().any(|object| object.windows(17).any(|window| window == br#"{"b":1, "a":2.50}"#)));
    assert_eq!(bus.maintain(in_a_while()).unwrap(), latent_bridge::MaintenanceReport::default());
}

/// B-075: publication is not about the store at all.
#[test]
fn while_the_store_is_away_events_are_acknowledged_and_wait_and_then_they_are_archived_once() {
    require_broker!();
    let site = Site::start();
    let bus = site.bus();
    site.store.set_down(true);
    let acks: Vec<_> = (0..30).map(|n| bus.publish_record("t", &record(&format!("u{n}"), "k", "x")).unwrap()).collect();
    wait_until("nothing is uploading any more", || site.intents() == 30);
    let now = in_a_while();
    let report = bus.maintain(now).unwrap();
    assert_eq!((report.intents_completed, report.intents_pending, &*report.unreachable_topics), (0, 30, &["t".to_owned()][..]));
    assert_eq!(bus.archive_statistics().unwrap().intents, 30);
    site.store.set_down(false);
    let report = bus.maintain(UnixMillis(now.0 + LATER)).unwrap();
    assert_eq!((report.intents_pending, report.intents_quarantined, site.messages()), (0, 0, 30));
    assert_eq!((report.intents_completed, site.objects(), site.intents()), (30, 30, 0));
    acks.iter().for_each(|ack| assert_eq!(site.object(ack)["uid"], ack.uid));
}

/// B-056, B-057, B-067, BUG-15: the acknowledgement is lost; the event is asked for again, or maintenance finds it.
#[test]
fn bug_15_an_event_whose_acknowledgement_was_lost_is_completed_with_its_first_sequence_by_a_retry_or_by_maintenance() {
    require_broker!();
    for by_retry in [true, false] {
        let site = Site::start();
        drop(site.bus());
        let proxy = FaultProxy::start(&site.broker);
        let mut options = options_at(&[proxy.address()], site.broker.ca());
        options.archive = site.options().archive;
        let bus = NatsBus::open_with(options, &archived(2)).unwrap();
        let event = record("u", "k", "x");
        proxy.inject(None, Direction::ToClient, At::Before(b"{\"stream\":\"av_t\",\"seq\"".to_vec()), Cut::Cut);
        let lost = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| bus.submit_record("t", event.clone()));
            let ticket = publishing.join().unwrap();
            wait_until("the broker stores it", || site.messages() == 1);
            drop(proxy);
            ticket
        });
        drop(bus);
        let lost = lost.wait();
        assert!(matches!(lost, Err(BusError::Uncertain { .. })), "{lost:?}");
        assert_eq!((site.intents(), site.objects()), (1, 0));
        let bus = site.bus();
        if by_retry {
            let ack = acknowledged(&bus, &event);
            assert_eq!(ack.offset, 1);
            site.uploaded();
        } else {
            assert_eq!(bus.maintain(UnixMillis(0)).unwrap().intents_pending, 1, "left to its publisher");
            let report = bus.maintain(in_a_while()).unwrap();
            assert_eq!((report.intents_completed, report.intents_failed, report.intents_pending), (1, 0, 0));
        }
        assert_eq!((site.messages(), site.objects(), site.intents()), (1, 1, 0));
    }
}

/// B-025: a schema is looked at before an event is staged, and again before maintenance publishes what was staged.
#[test]
fn what_the_schema_refuses_is_neither_staged_nor_published_by_maintenance() {
    require_broker!();
    let site = Site::start();
    drop(site.bus());
    let proxy = FaultProxy::start(&site.broker);
    let mut options = options_at(&[proxy.address()], site.broker.ca());
    options.archive = site.options().archive;
    let bus = NatsBus::open_with(options, &archived(2)).unwrap();
    proxy.inject(None, Direction::ToClient, At::Before(b"{\"stream\":\"av_t\",\"seq\"".to_vec()), Cut::Cut);
    let lost = bus.submit_record("t", record("u", "k", "no JSON"));
    wait_until("the broker stores it", || site.messages() == 1);
    drop((proxy, bus));
    assert!(matches!(lost.wait(), Err(BusError::Uncertain { .. })));
    // The stream loses it, so that it would have to be published again.
    beside(&site.broker, async |admin| admin.purge_stream(STREAM).await);
    std::fs::write(site.folder.path().join("t.json"), r#"{ "type": "object", "required": ["n"] }"#).unwrap();
    let mut wanted = archived(2);
    wanted.topics[0].schema_ref = Some("t.json".to_owned());
    let mut options = site.options();
    options.schema_roots = vec![site.folder.path().to_owned()];
    let bus = NatsBus::open_with(options, &wanted).unwrap();
    assert!(bus.publish_record("t", &record("v", "k", "no JSON either")).unwrap_err().is_permanent());
    assert_eq!(site.intents(), 1, "nothing of it was staged");
    let report = bus.maintain(in_a_while()).unwrap();
    assert_eq!((report.intents_completed, report.intents_pending, site.messages(), site.objects()), (0, 1, 0, 0));
}

/// B-058: stored, and the intent cannot be told so.
#[test]
fn a_commit_that_fails_after_the_broker_stored_the_event_is_uncertain_and_a_retry_gives_the_first_acknowledgement() {
    require_broker!();
    let site = Site::start();
    let storage = TestStorage::new();
    let bus = site.bus_on(&storage);
    // The first file with this ending is the intent, the second its offset.
    storage.inject(&[storage::Fault::once(Op::Write, ".json.tmp", 1)]);
    let event = record("u", "k", "x");
    let uncertain = bus.publish_record("t", &event).unwrap_err();
    assert!(matches!(uncertain, BusError::Uncertain { cause: UncertainCause::Storage, .. }), "{uncertain:?}");
    assert_eq!((site.messages(), site.intents(), site.objects()), (1, 1, 0));
    let ack = bus.publish_record("t", &event).unwrap();
    assert_eq!((ack.offset, ack.duplicate), (1, true));
    site.uploaded();
    assert_eq!((site.messages(), site.objects()), (1, 1));
    // B-057: of an event that is there a failed commit is a warning.
    storage.inject(&[storage::Fault::once(Op::Write, ".json.tmp", 1)]);
    bus.publish_record("t", &record("v", "k", "x")).unwrap_err();
    storage.inject(&[storage::Fault::once(Op::Write, ".json.tmp", 0)]);
    assert_eq!(bus.publish_record("t", &record("v", "k", "x")).unwrap().offset, 2);
    assert_eq!(site.intents(), 1, "kept for maintenance");
    storage.inject(&[]);
    bus.maintain(in_a_while()).unwrap();
    assert_eq!((site.messages(), site.objects(), site.intents()), (2, 2, 0));
}

/// B-057, BUG-14: outside the broker's memory of ids the intent is what keeps an event from being stored twice; what is published late is
/// published as it was staged (D-18).
#[test]
fn bug_14_with_an_archive_a_retry_is_looked_up_first_and_stores_nothing_twice() {
    require_broker!();
    let site = Site::start();
    let storage = TestStorage::new();
    let bus = site.bus_on(&storage);
    storage.inject(&[storage::Fault::once(Op::Write, ".json.tmp", 1)]);
    let event = record("u", "k", "x");
    bus.publish_record("t", &event).unwrap_err();
    storage.inject(&[]);
    site.forget_ids();
    let before = site.messages();
    let ack = acknowledged(&bus, &event);
    assert_eq!((ack.offset, site.messages()), (1, before), "no second record");
    site.uploaded();
    assert_eq!(site.objects(), 1);
}

/// B-074.
#[test]
fn a_uid_that_is_staged_for_one_event_is_refused_for_another_one() {
    require_broker!();
    let site = Site::start();
    let bus = site.bus();
    site.store.set_down(true);
    bus.publish_record("t", &record("u", "k", "x")).unwrap();
    for other in [record("u", "k", "y"), record("u", "other", "x")] {
        let refused = bus.publish_record("t", &other).unwrap_err();
        assert!(matches!(&refused, BusError::Backend(text) if text.contains("uid is bound to a different event")), "{refused:?}");
    }
    assert_eq!(site.messages(), 1);
}

/// B-076, B-068: without a key nothing is staged and nothing is sent.
#[test]
fn without_a_control_key_nothing_is_staged_or_sent_and_other_topics_go_on() {
    require_broker!();
    let site = Site::start();
    let mut options = site.options();
    options.archive.as_mut().unwrap().control_keys = Vec::new();
    let mut manifest = archived(1);
    let mut plain = manifest.topics[0].clone();
    plain.name = "plain".to_owned();
    plain.retention.cold_uri = None;
    manifest.topics.push(plain);
    let bus = NatsBus::provision_with(options, &manifest).unwrap();
    let refused = bus.publish_record("t", &record("u", "k", "x")).unwrap_err();
    assert!(matches!(refused, BusError::Config { .. }), "{refused:?}");
    assert_eq!((site.messages(), site.intents()), (0, 0));
    bus.publish_record("plain", &record("u", "k", "x")).unwrap();
    for weak in [[0; 32], [0xff; 32]] {
        assert!(matches!(bus.set_control_key(weak), Err(BusError::Config { .. })));
    }
    bus.set_control_key(KEY).unwrap();
    bus.publish_record("t", &record("u", "k", "x")).unwrap();
    site.uploaded();
}

/// B-072, BUG-59: an intent that cannot be written means an event that is not sent.
#[test]
fn an_event_whose_intent_cannot_be_written_is_not_sent() {
    require_broker!();
    let site = Site::start();
    let storage = TestStorage::new();
    let bus = site.bus_on(&storage);
    for (op, ending) in [(Op::Create, ".json.tmp"), (Op::Write, ".json.tmp"), (Op::Sync, ".json.tmp"), (Op::Rename, ".json")] {
        storage.inject(&[storage::Fault::once(op, ending, 0)]);
        let failed = bus.publish_record("t", &record("u", "k", "x")).unwrap_err();
        assert!(matches!(failed, BusError::Io { .. }), "{op:?}: {failed:?}");
        assert_eq!((site.messages(), site.intents()), (0, 0), "{op:?}");
    }
    storage.inject(&[storage::Fault::once(Op::SyncDirectory, "outbox", 0)]);
    let failed = bus.publish_record("t", &record("u", "k", "x")).unwrap_err();
    assert!(matches!(failed, BusError::Uncertain { .. }), "the intent may be durable: {failed:?}");
    storage.inject(&[]);
    let poisoned = bus.publish_record("t", &record("v", "k", "x")).unwrap_err();
    assert!(matches!(poisoned, BusError::Poisoned { .. }), "{poisoned:?}");
    assert_eq!(site.messages(), 0);
    drop(bus);
    let bus = site.bus();
    bus.maintain(in_a_while()).unwrap();
    assert_eq!((site.messages(), site.objects(), site.intents()), (1, 1, 0), "its intent exists, so it is stored once");
}

/// What is known not to be sent leaves no intent that would send it later.
#[test]
fn an_event_that_the_broker_refuses_is_taken_back() {
    require_broker!();
    let site = Site::start();
    let bus = site.bus();
    beside(&site.broker, async |admin| {
        let mut stream = admin.jetstream().get_stream(STREAM).await.unwrap();
        let config = async_nats::jetstream::stream::Config { max_message_size: 1_000, ..stream.info().await.unwrap().config.clone() };
        admin.jetstream().update_stream(config).await.unwrap();
    });
    let refused = bus.publish_record("t", &record("u", "k", vec![b'x'; 2_000])).unwrap_err();
    assert!(matches!(refused, BusError::Rejected { permanent: true, .. }), "{refused:?}");
    assert_eq!(site.intents(), 0);
    site.broker.stop();
    let away = bus.publish_record("t", &record("v", "k", "x")).unwrap_err();
    let left = usize::from(away.is_uncertain());
    assert!(matches!(away, BusError::NotSent { .. }) || away.is_uncertain(), "{away:?}");
    assert_eq!(site.intents(), left);
}

/// BUG-16 with an archive: what the broker could never take is refused before anything is staged.
#[test]
fn bug_16_an_event_above_the_brokers_limit_leaves_no_intent() {
    require_broker!();
    let broker = Broker::start(BrokerSpec { max_payload: Some(65_536), ..spec() });
    let site = Site { broker, folder: tempfile::tempdir().unwrap(), store: Arc::new(MemoryStore::new()), folders: false };
    let bus = site.bus();
    let refused = bus.publish_record("t", &record("u", "k", vec![b'x'; 65_536])).unwrap_err();
    assert!(matches!(refused, BusError::Rejected { permanent: true, .. }), "{refused:?}");
    assert_eq!((site.intents(), site.messages(), bus.archive_statistics().unwrap().intents), (0, 0, 0));
    bus.publish_record("t", &record("u", "k", vec![b'x'; 10_000])).unwrap();
    site.uploaded();
    assert_eq!((site.messages(), site.objects()), (1, 1));
}

/// B-070, BUG-62: two buses pointed at one outbox.
#[test]
fn an_outbox_serves_one_bus_and_no_other_deployment_ever() {
    require_broker!();
    let site = Site::start();
    let bus = site.bus();
    let second = NatsBus::open_with(site.options(), &archived(2)).map(drop).unwrap_err();
    assert!(matches!(&second, BusError::OutboxInUse { outbox, holder } if outbox == "outbox" && holder.contains("test")), "{second}");
    // Reading needs no outbox.
    let reader = NatsBus::open_with(NatsOptions { archive: None, ..site.options() }, &archived(2)).unwrap();
    bus.publish_record("t", &record("u", "k", "x")).unwrap();
    assert_eq!(stored(&reader).len(), 1);
    assert!(matches!(reader.publish_record("t", &record("v", "k", "x")), Err(BusError::Config { .. })));
    drop((bus, reader));
    let other = BridgeManifest { name: "another".to_owned(), ..archived(2) };
    let refused = NatsBus::open_with(site.options(), &other).map(drop).unwrap_err();
    assert!(matches!(&refused, BusError::Config { problem } if problem.contains("belongs to")), "{refused}");
    drop(site.bus());
}

/// BUG-72: bad intents are counted and kept, and the others complete.
#[test]
fn bug_72_what_is_unreadable_or_not_ours_is_counted_and_kept_and_the_rest_is_finished() {
    require_broker!();
    let site = Site::start();
    let bus = site.bus();
    site.store.set_down(true);
    (0..8).for_each(|n| drop(bus.publish_record("t", &record(&format!("u{n}"), "k", "x")).unwrap()));
    let outbox = site.folder.path().join("outbox");
    let name =
        std::fs::read_dir(&outbox).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some_and(|e| e == "json"));
    let content = std::fs::read(name.unwrap()).unwrap();
    // A copy under another name, one flipped byte, no JSON, a folder.
    std::fs::write(outbox.join(format!("{}.json", "0".repeat(64))), &content).unwrap();
    let flipped = String::from_utf8(content).unwrap().replace("\"partition\":", "\"partition\": ");
    std::fs::write(outbox.join(format!("{}.json", "1".repeat(64))), flipped).unwrap();
    std::fs::write(outbox.join("x.json"), "not json").unwrap();
    std::fs::create_dir(outbox.join("folder.json")).unwrap();
    site.store.set_down(false);
    let report = bus.maintain(in_a_while()).unwrap();
    assert_eq!((report.intents_completed, report.intents_failed), (8, 4), "{report:?}");
    assert_eq!((report.intents_pending, report.intents_quarantined, site.objects(), site.messages()), (4, 4, 8, 8));
    let again = bus.maintain(in_a_while()).unwrap();
    assert_eq!((again.intents_failed, again.intents_pending), (0, 4), "looked at seldom");
}

/// A stream made anew on the broker: its sequences begin again, and nothing archived is replaced.
#[test]
fn after_a_stream_was_made_anew_what_lies_in_the_archive_stays_and_a_clash_is_told() {
    require_broker!();
    let site = Site::start();
    let bus = site.bus();
    let first = bus.publish_record("t", &record("u", "k", "x")).unwrap();
    site.uploaded();
    drop(bus);
    beside(&site.broker, async |admin| admin.jetstream().delete_stream(STREAM).await.map(drop).unwrap());
    let bus = site.bus();
    let anew = bus.publish_record("t", &record("v", "k", "y")).unwrap();
    assert_eq!((first.partition, first.offset), (anew.partition, anew.offset));
    let mut report = None;
    wait_until("the clash is noticed", || {
        report = Some(bus.maintain(in_a_while()).unwrap());
        report.as_ref().unwrap().intents_quarantined == 1
    });
    assert_eq!(report.unwrap().intents_pending, 1);
    assert_eq!(site.object(&first)["uid"], "u", "never overwritten");
}

/// Publications while maintenance runs, again and again.
#[test]
fn publications_and_passes_of_maintenance_at_once_store_and_archive_each_event_once() {
    require_broker!();
    let site = Site::start();
    let bus = site.bus();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let maintaining: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        let report = bus.maintain(in_a_while()).unwrap();
                        assert_eq!((report.intents_failed, report.intents_quarantined), (0, 0), "{report:?}");
                    }
                })
            })
            .collect();
        let publishing: Vec<_> = (0..4)
            .map(|writer| {
                let bus = &bus;
                // Every second one by all of them.
                let uid = move |n: usize| if n.is_multiple_of(2) { format!("all-{n}") } else { format!("{writer}-{n}") };
                scope.spawn(move || (0..40).for_each(|n| drop(bus.publish_record("t", &record(&uid(n), "k", "x")).unwrap())))
            })
            .collect();
        publishing.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        maintaining.into_iter().for_each(|thread| thread.join().unwrap());
    });
    wait_until("everything is archived", || bus.maintain(in_a_while()).unwrap().intents_pending == 0);
    assert_eq!((site.messages(), site.objects()), (4 * 20 + 20, 4 * 20 + 20));
}
