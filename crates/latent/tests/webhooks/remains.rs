//! What lies on the disk of a node that is gone: what it settled, and what came out. Read with the engine itself, without a node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use latent_bridge::{EmbeddedBroker, EventBus as _};
use latent_core::{BindingId, DeadLetter, Offset, Partition, StoredRecord, SystemClock, TopicName};
use latent_topics::{DeliveryStore, UnitKey};

const INPUT: &str = "github.events";
const RESULTS: &str = "triage.results";
const LETTERS: &str = "triage.dead";
const TRIGGER: &str = "triage-github";

/// Records of one key, in order: uid, media type and payload.
type ByKey = BTreeMap<String, Vec<(String, String, Vec<u8>)>>;

/// What came out in the end: what must be the same in every run.
pub(crate) struct End {
    /// Events that went in.
    pub(crate) events: u64,
    pub(crate) results: ByKey,
    pub(crate) letters: ByKey,
    /// Of each letter's original: why it was parked and where it lies.
    reasons: BTreeMap<String, (&'static str, String)>,
}

impl End {
    pub(crate) fn of(data: &Path) -> Self {
        let log = EmbeddedBroker::open(data).unwrap();
        let letters = records(&log, LETTERS);
        let reasons = letters.iter().map(|stored| {
            let letter = DeadLetter::read(&stored.record.attributes).unwrap();
            (letter.uid.unwrap().to_string(), (letter.verdict.reason.kind(), letter.place.to_string()))
        });
        let reasons = reasons.collect();
        Self { events: records(&log, INPUT).len() as u64, results: by_key(&records(&log, RESULTS)), letters: by_key(&letters), reasons }
    }

    /// Fails with the first difference: whole documents could not be read.
    #[track_caller]
    pub(crate) fn must_equal(&self, other: &Self) {
        assert_eq!((self.events, &self.reasons), (other.events, &other.reasons));
        for (one, other) in [(&self.results, &other.results), (&self.letters, &other.letters)] {
            let keys = |records: &ByKey| records.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(keys(one), keys(other));
            for (key, records) in one {
                assert_eq!(records, &other[key], "key {key}");
            }
        }
    }
}

fn records(log: &EmbeddedBroker, topic: &str) -> Vec<StoredRecord> {
    let mut records = Vec::new();
    for partition in (0..log.partitions(topic).unwrap()).map(Partition) {
        let mut next = Offset(0);
        loop {
            let page = log.submit_fetch(topic, partition, next, 10_000).wait().unwrap();
            let Some(last) = page.last() else { break };
            next = Offset(last.offset.0 + 1);
            records.extend(page);
        }
    }
    records
}

fn by_key(records: &[StoredRecord]) -> ByKey {
    let mut by_key = ByKey::new();
    for StoredRecord { record, .. } in records {
        let content = (record.uid.to_string(), record.media_type.to_string(), record.payload.to_vec());
        by_key.entry(record.key.clone()).or_default().push(content);
    }
    by_key
}

/// Places of the input that are settled, and where each partition ends.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    offsets: BTreeSet<(u32, u64)>,
    ends: BTreeMap<u32, u64>,
}

impl Settled {
    pub(crate) fn of(data: &Path) -> Self {
        let log = EmbeddedBroker::open(data).unwrap();
        let mut settled = Self::default();
        let store = DeliveryStore::open(&log).unwrap();
        for partition in (0..log.partitions(INPUT).unwrap()).map(Partition) {
            let (_, end) = log.bounds(INPUT, partition).unwrap();
            settled.ends.insert(partition.0, end.0);
            let key = UnitKey { binding: BindingId::parse(TRIGGER).unwrap(), topic: TopicName::parse(INPUT).unwrap(), partition };
            // A node that was killed while it started for the first time has no memory of deliveries yet.
            let Some(unit) = store.unit_of(&key) else { continue };
            let remembered = store.remembered(unit, &SystemClock::start(), 1).settled;
            settled.offsets.extend((0..end.0).filter(|offset| remembered.contains(Offset(*offset))).map(|offset| (partition.0, offset)));
        }
        settled
    }

    pub(crate) fn count(&self) -> u64 {
        self.offsets.len() as u64
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.ends.values().sum::<u64>() == self.count()
    }

    /// Nothing that was settled is open again.
    #[track_caller]
    pub(crate) fn must_contain(&self, earlier: &Self) {
        let lost: Vec<_> = earlier.offsets.difference(&self.offsets).collect();
        assert!(lost.is_empty(), "settled once and not any more (partition, offset): {lost:?}");
    }
}
