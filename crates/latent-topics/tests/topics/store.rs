//! What is remembered of deliveries survives, and only what is settled is settled.

use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus};
use latent_core::{Attributes, BindingId, MediaType, NewRecord, Offset, Partition, TopicName, UnixMillis};
use latent_node::delivery::{HeadContent, Postponement, Settlement, Source, TerminationReason};
use latent_testkit::ManualClock;
use latent_topics::{DeliveryStore, StartAt, TopicSource, TopicsError, UnitKey};

const MANIFEST: &str = "manifest_version: 1\nname: test\ntopics:\n  - name: in\n    partitions: 1\n  - name: other\n    partitions: 1\n";

pub(crate) struct Bench {
    pub(crate) bus: Arc<EmbeddedBroker>,
    pub(crate) store: Arc<DeliveryStore>,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    pub(crate) fn open(directory: &std::path::Path) -> Self {
        let manifest = BridgeManifest::from_yaml(MANIFEST).unwrap();
        // A reading thread of an earlier bench may hold the directory for a moment after its answer.
        let mut opened = None;
        latent_testkit::wait_until("the directory to be free", || {
            opened = match EmbeddedBroker::open_or_apply(directory, &manifest) {
                Err(BusError::InUse { .. }) => None,
                result => Some(result.unwrap()),
            };
            opened.is_some()
        });
        let bus = Arc::new(opened.unwrap());
        let store = DeliveryStore::open(&bus).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        Self { bus, store, runtime }
    }

    pub(crate) fn publish(&self, count: usize) {
        for n in 0..count {
            let payload = Bytes::from(format!("event {n}"));
            let record = NewRecord::new(None, &format!("k{n}"), MediaType::octet_stream(), Attributes::default(), payload).unwrap();
            self.bus.publish_record("in", &record).unwrap();
        }
    }

    pub(crate) fn source(&self, start: StartAt) -> (TopicSource, u32) {
        self.source_of("b", start)
    }

    pub(crate) fn source_of(&self, binding: &str, start: StartAt) -> (TopicSource, u32) {
        let (_, end) = self.bus.bounds("in", Partition(0)).unwrap();
        let unit = self.store.declare(&[(key(binding, "in"), start, end)]).unwrap()[0];
        let bus = Arc::clone(&self.bus) as Arc<dyn EventBus>;
        (TopicSource::new(bus, Arc::clone(&self.store), key(binding, "in"), unit, self.runtime.handle().clone()), unit)
    }
}

pub(crate) fn clock() -> ManualClock {
    ManualClock::starting_at(UnixMillis(1_000_000))
}

pub(crate) fn key(binding: &str, topic: &str) -> UnitKey {
    UnitKey { binding: BindingId::parse(binding).unwrap(), topic: TopicName::parse(topic).unwrap(), partition: Partition(0) }
}

#[test]
fn attempts_delays_and_settlements_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = clock();
    {
        let bench = Bench::open(directory.path());
        bench.publish(4);
        let (mut source, _) = bench.source(StartAt::Earliest);
        let event = source.begin(Offset(1), 1).wait().unwrap();
        assert_eq!((&event.payload[..], event.delivery, event.key.as_str()), (&b"event 1"[..], 1, "k1"));
        source.settle(Offset(0), Settlement::Acknowledged).wait().unwrap();
        source.settle(Offset(3), Settlement::Terminated(TerminationReason::Rejected)).wait().unwrap();
        let not_before = UnixMillis(latent_core::Clock::unix(&clock).0 + 700);
        source.begin(Offset(2), 1).wait().unwrap();
        source.postpone(Offset(2), Postponement { attempts: 1, not_before }).wait().unwrap();
    }
    let bench = Bench::open(directory.path());
    let (_, unit) = bench.source(StartAt::Latest);
    let remembered = bench.store.remembered(unit, &clock, 60_000);
    assert_eq!(remembered.settled.floor(), Offset(1));
    assert!(remembered.settled.contains(Offset(3)) && !remembered.settled.contains(Offset(2)));
    let now = latent_core::Clock::mono(&clock);
    assert_eq!(remembered.attempts, [(Offset(1), 1, now), (Offset(2), 1, now.plus_millis(700))]);
}

#[test]
fn a_new_binding_starts_where_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    bench.publish(3);
    let (_, unit) = bench.source(StartAt::Latest);
    assert_eq!(bench.store.remembered(unit, &clock(), 60_000).settled.floor(), Offset(3));
}

#[test]
fn a_binding_keeps_its_topic() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    bench.source(StartAt::Earliest);
    let refused = bench.store.declare(&[(key("b", "other"), StartAt::Earliest, Offset(0))]);
    assert!(matches!(refused, Err(TopicsError::TopicChanged { .. })), "{refused:?}");
}

#[test]
fn a_pull_lists_keys_and_a_key_has_one_id() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    bench.publish(2);
    bench.publish(1);
    let (mut source, _) = bench.source(StartAt::Earliest);
    let heads = source.pull(Offset(0), 10).wait().unwrap().heads;
    let keys: Vec<_> = heads.iter().map(|head| head.content).collect();
    assert_eq!(heads.iter().map(|head| head.offset.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(matches!(keys[0], HeadContent::Event(_)) && keys[0] != keys[1] && keys[0] == keys[2]);
    assert_eq!(source.pull(Offset(1), 1).wait().unwrap().heads.len(), 1);
    assert!(source.pull(Offset(3), 10).wait().unwrap().heads.is_empty());
}

#[test]
fn a_large_log_of_deliveries_is_compacted_and_keeps_what_it_knows() {
    let directory = tempfile::tempdir().unwrap();
    {
        let bench = Bench::open(directory.path());
        bench.publish(1);
        let (mut source, _) = bench.source(StartAt::Earliest);
        // Notes are small: this many are well above the size at which the log is compacted.
        let mut last = None;
        for attempt in 1..=40_000 {
            last = Some(source.postpone(Offset(0), Postponement { attempts: attempt, not_before: UnixMillis(0) }));
            if attempt % 1_000 == 0 {
                last.take().unwrap().wait().unwrap();
            }
        }
        drop(last);
    }
    let bench = Bench::open(directory.path());
    let (_, unit) = bench.source(StartAt::Earliest);
    assert_eq!(bench.store.remembered(unit, &clock(), 60_000).attempts[0].1, 40_000);
    let bytes = std::fs::metadata(directory.path().join("state/deliveries.log")).unwrap().len();
    assert!(bytes < 2_000_000, "{bytes}");
}

#[test]
fn offsets_that_were_delivered_and_then_lost_are_not_given_to_new_events() {
    let directory = tempfile::tempdir().unwrap();
    {
        let bench = Bench::open(directory.path());
        bench.publish(3);
        let (mut source, _) = bench.source(StartAt::Earliest);
        for offset in 0..3 {
            source.settle(Offset(offset), Settlement::Acknowledged).wait().unwrap();
        }
    }
    // The disk gives back an empty log and no watermark, but the notes of deliveries.
    let topic = directory.path().join("topics/in");
    for entry in std::fs::read_dir(&topic).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let bench = Bench::open(directory.path());
    bench.store.give_up_lost_offsets(&bench.bus).unwrap();
    bench.store.give_up_lost_offsets(&bench.bus).unwrap();
    let (_, unit) = bench.source(StartAt::Earliest);
    bench.publish(1);
    assert_eq!(bench.bus.bounds("in", Partition(0)).unwrap().1, Offset(4));
    assert!(!bench.store.remembered(unit, &clock(), 60_000).settled.contains(Offset(3)), "the new event is delivered");
}

#[test]
fn compaction_goes_on_after_a_restart_with_a_long_log() {
    let directory = tempfile::tempdir().unwrap();
    let postpone = |bench: &Bench, attempts: std::ops::Range<u32>| {
        let (mut source, _) = bench.source(StartAt::Earliest);
        let last = attempts.end - 1;
        for attempt in attempts {
            let noted = source.postpone(Offset(0), Postponement { attempts: attempt, not_before: UnixMillis(0) });
            if attempt % 500 == 0 || attempt == last {
                noted.wait().unwrap();
            }
        }
    };
    for round in 0..4_u32 {
        let bench = Bench::open(directory.path());
        if round == 0 {
            bench.publish(1);
        }
        postpone(&bench, round * 25_000 + 1..(round + 1) * 25_000);
    }
    let bytes = std::fs::metadata(directory.path().join("state/deliveries.log")).unwrap().len();
    assert!(bytes < 3_000_000, "{bytes}");
}

#[test]
fn no_noted_delay_is_longer_than_the_binding_s_longest() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    bench.publish(1);
    let (mut source, unit) = bench.source(StartAt::Earliest);
    for not_before in [UnixMillis(1_000_000 + 3_600_000), UnixMillis(u64::MAX)] {
        source.postpone(Offset(0), Postponement { attempts: 1, not_before }).wait().unwrap();
        let clock = clock();
        let longest = latent_core::Clock::mono(&clock).plus_millis(2_000);
        assert_eq!(bench.store.remembered(unit, &clock, 2_000).attempts, [(Offset(0), 1, longest)]);
    }
}

#[test]
fn a_damaged_declaration_makes_its_events_run_again_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let asked = [(key("b", "in"), StartAt::Earliest, Offset(0)), (key("c", "in"), StartAt::Earliest, Offset(0))];
    {
        let bench = Bench::open(directory.path());
        bench.publish(2);
        for (unit, (key, ..)) in bench.store.declare(&asked).unwrap().into_iter().zip(&asked) {
            let bus = Arc::clone(&bench.bus) as Arc<dyn EventBus>;
            let mut source = TopicSource::new(bus, Arc::clone(&bench.store), key.clone(), unit, bench.runtime.handle().clone());
            source.settle(Offset(0), Settlement::Acknowledged).wait().unwrap();
        }
    }
    let path = directory.path().join("state/deliveries.log");
    let mut content = std::fs::read(&path).unwrap();
    // The first declaration's binding is the only `b` that follows its length.
    let at = content.windows(4).position(|window| window == [1, b'b', 2, b'i']).unwrap();
    content[at + 1] ^= 1;
    std::fs::write(&path, content).unwrap();
    let bench = Bench::open(directory.path());
    let units = bench.store.declare(&asked).unwrap();
    let floors = units.iter().map(|unit| bench.store.remembered(*unit, &clock(), 1_000).settled.floor().0);
    assert_eq!(floors.collect::<Vec<_>>(), [0, 1]);
}
