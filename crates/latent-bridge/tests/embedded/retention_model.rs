//! Publishing, expiring and opening again in any order and at any time, beside a model that is a list.

use std::collections::HashMap;

use latent_bridge::EventBus;
use latent_core::{Offset, Partition, UnixMillis};
use proptest::prelude::*;

use super::retention::{Aging, HOT_HOURS, HOUR, SEGMENT_RECORDS, START, bounds};
use crate::support::fixtures::{forget_watermark, record};

const PARTITIONS: u32 = 3;
const UIDS: usize = 12;

#[derive(Debug, Clone)]
enum Step {
    Publish {
        uid: usize,
    },
    /// The clock goes on by so many minutes.
    Wait(u64),
    /// It jumps to so many hours after the start.
    Jump(u64),
    Maintain,
    Reopen {
        forgetting: bool,
    },
}

fn step(any_date: bool) -> impl Strategy<Value = Step> {
    let jump = prop_oneof![0..40_u64, Just(u64::MAX / HOUR), Just(0)];
    prop_oneof![
        8 => (0..UIDS).prop_map(|uid| Step::Publish { uid }),
        4 => (0..400_u64).prop_map(Step::Wait),
        u32::from(any_date) * 2 => jump.prop_map(Step::Jump),
        3 => Just(Step::Maintain),
        1 => any::<bool>().prop_map(|forgetting| Step::Reopen { forgetting }),
    ]
}

#[derive(Debug, Clone)]
struct Stored {
    uid: usize,
    partition: u32,
    offset: u64,
    stored_at: u64,
}

struct Model {
    aging: Aging,
    now: u64,
    /// Every record, in the order of the log.
    stored: Vec<Stored>,
    /// How many of them have expired.
    expired: usize,
    live: HashMap<usize, usize>,
}

fn name(uid: usize) -> String {
    format!("uid-{uid}")
}

impl Model {
    fn new() -> Self {
        Self { aging: Aging::new(&[("t", PARTITIONS)]), now: START, stored: Vec::new(), expired: 0, live: HashMap::new() }
    }

    fn publish(&mut self, uid: usize) {
        self.aging.clock.set(self.now);
        let ack = self.aging.broker.publish_record("t", &record(&name(uid), &format!("k{uid}"), format!("of {uid}"))).unwrap();
        if let Some(known) = self.live.get(&uid).map(|at| &self.stored[*at]) {
            assert_eq!((ack.duplicate, ack.partition, ack.offset), (true, known.partition, known.offset));
            return;
        }
        let next = self.stored.iter().filter(|stored| stored.partition == ack.partition).count() as u64;
        assert_eq!((ack.duplicate, ack.offset), (false, next), "offsets are dense and never given again");
        self.live.insert(uid, self.stored.len());
        self.stored.push(Stored { uid, partition: ack.partition, offset: ack.offset, stored_at: self.now });
    }

    fn maintain(&mut self) {
        let report = self.aging.broker.maintain(UnixMillis(self.now)).unwrap();
        let cutoff = self.now.saturating_sub(HOT_HOURS * HOUR);
        let expired = self.expired + usize::try_from(report.expired_records).unwrap();
        for at in self.expired..expired {
            let stored = &self.stored[at];
            // Who shares a segment with a record from the future goes when what came after the segment is old.
            let segment = at.saturating_sub(SEGMENT_RECORDS - 1)..self.stored.len().min(at + SEGMENT_RECORDS);
            let future = self.stored[segment].iter().any(|stored| stored.stored_at > self.now);
            assert!(stored.stored_at < cutoff || future, "{stored:?} expired at {}", self.now);
            self.live.remove(&stored.uid);
        }
        self.expired = expired;
        let left = &self.stored[expired..];
        let sane = left.is_sorted_by_key(|stored| stored.stored_at) && left.iter().all(|stored| stored.stored_at <= self.now);
        let old = left.iter().filter(|stored| stored.stored_at < cutoff).count();
        assert!(!sane || old < SEGMENT_RECORDS, "{old} old records stayed at {}", self.now);
    }

    fn reopen(&mut self, forgetting: bool) {
        let fresh = Aging::new(&[("t", 1)]);
        let aging = std::mem::replace(&mut self.aging, fresh);
        self.aging = aging.reopened_after(|directory| {
            if forgetting && directory.join("topics/t/watermark").exists() {
                forget_watermark(directory, "t");
            }
        });
    }

    fn check(&self) {
        let broker = &self.aging.broker;
        for partition in 0..PARTITIONS {
            let of = |stored: &[Stored]| stored.iter().filter(|stored| stored.partition == partition).count() as u64;
            let first = of(&self.stored[..self.expired]);
            assert_eq!(bounds(broker, partition), (first, of(&self.stored)));
            let read = broker.submit_fetch("t", Partition(partition), Offset(0), 1_000).wait().unwrap();
            let expected: Vec<_> = self.stored[self.expired..].iter().filter(|stored| stored.partition == partition).collect();
            let found: Vec<_> =
                read.iter().map(|read| (read.offset.0, read.record.uid.as_str().to_owned(), read.record.stored_at.0)).collect();
            let expected: Vec<_> = expected.iter().map(|stored| (stored.offset, name(stored.uid), stored.stored_at)).collect();
            assert_eq!(found, expected);
        }
        for uid in 0..UIDS {
            let found = broker.find_event_by_uid("t", "", &name(uid)).unwrap().map(|ack| (ack.partition, ack.offset));
            let expected = self.live.get(&uid).map(|at| (self.stored[*at].partition, self.stored[*at].offset));
            assert_eq!(found, expected, "uid {uid}");
        }
    }

    fn run(steps: Vec<Step>) {
        let mut model = Self::new();
        for step in steps {
            match step {
                Step::Publish { uid } => model.publish(uid),
                Step::Wait(minutes) => model.now = model.now.saturating_add(minutes * HOUR / 60),
                Step::Jump(hours) => model.now = hours.saturating_mul(HOUR).saturating_add(START * u64::from(hours > 0)),
                Step::Maintain => model.maintain(),
                Step::Reopen { forgetting } => model.reopen(forgetting),
            }
            model.check();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_under_a_clock_that_goes_on_is_its_model(steps in proptest::collection::vec(step(false), 1..120)) {
        Model::run(steps);
    }

    #[test]
    fn a_log_under_a_clock_that_jumps_is_its_model(steps in proptest::collection::vec(step(true), 1..120)) {
        Model::run(steps);
    }
}
