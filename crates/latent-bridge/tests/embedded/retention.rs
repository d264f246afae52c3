//! What retention removes, when, and what is left: dates, offsets, uids and files. A segment takes three records.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use latent_bridge::embedded::{EngineLimits, EngineOptions, Storage};
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus, HeadContent, MaintenanceReport};
use latent_core::{Offset, Partition, UnixMillis};

use crate::support::fixtures::{
    Published, SetClock, count, data_end, fates, forget_watermark, manifest, publish, record, scratch, segments,
};
use crate::support::storage::{Failing, TestStorage};

pub(super) const HOUR: u64 = 3_600_000;
/// When the first record is stored.
pub(super) const START: u64 = 1_000 * HOUR;
pub(super) const HOT_HOURS: u64 = 10;
pub(super) const SEGMENT_RECORDS: usize = 3;

/// A directory whose clock a test sets.
pub(super) struct Aging {
    pub(super) directory: tempfile::TempDir,
    pub(super) clock: Arc<SetClock>,
    pub(super) broker: EmbeddedBroker,
}

pub(super) fn hot(topics: &[(&str, u32)], hours: u64) -> BridgeManifest {
    let mut manifest = manifest(topics);
    manifest.topics.iter_mut().for_each(|topic| topic.retention.hot_hours = hours.try_into().unwrap());
    manifest
}

pub(super) fn limits() -> EngineLimits {
    EngineLimits { segment_records: SEGMENT_RECORDS as u64, preallocation_bytes: 512, ..EngineLimits::default() }
}

pub(super) fn options(storage: Arc<dyn Storage>, clock: &Arc<SetClock>) -> EngineOptions {
    EngineOptions { storage, limits: limits(), clock: Arc::clone(clock) as _, ..EngineOptions::default() }
}

impl Aging {
    pub(super) fn new(topics: &[(&str, u32)]) -> Self {
        Self::over(TestStorage::without_syncs(), topics)
    }

    pub(super) fn over(storage: Arc<dyn Storage>, topics: &[(&str, u32)]) -> Self {
        let (directory, clock) = (scratch(), Arc::new(SetClock::default()));
        clock.set(START);
        let broker = EmbeddedBroker::provision_with(directory.path(), &hot(topics, HOT_HOURS), options(storage, &clock)).unwrap();
        Self { directory, clock, broker }
    }

    pub(super) fn reopened(self) -> Self {
        self.reopened_after(|_| ())
    }

    /// Opened again after something was done to the closed directory.
    pub(super) fn reopened_after(self, change: impl FnOnce(&Path)) -> Self {
        let Self { directory, clock, broker } = self;
        drop(broker);
        change(directory.path());
        let broker = EmbeddedBroker::open_with(directory.path(), options(TestStorage::without_syncs(), &clock)).unwrap();
        Self { directory, clock, broker }
    }

    /// Publishes to `t`, one record after the other, when the clock shows `stored_at`.
    pub(super) fn publish_at(&self, stored_at: u64, prefix: &str, count: usize) -> Vec<Published> {
        self.clock.set(stored_at);
        (0..count).flat_map(|n| publish(&self.broker, "t", &format!("{prefix}-{n}"), 1)).collect()
    }

    pub(super) fn maintain(&self, now: u64) -> MaintenanceReport {
        self.broker.maintain(UnixMillis(now)).unwrap()
    }

    pub(super) fn bounds(&self) -> (u64, u64) {
        bounds(&self.broker, 0)
    }

    fn topic(&self) -> PathBuf {
        self.directory.path().join("topics/t")
    }
}

pub(super) fn bounds(broker: &EmbeddedBroker, partition: u32) -> (u64, u64) {
    let (first, next) = broker.bounds("t", Partition(partition)).unwrap();
    (first.0, next.0)
}

pub(super) fn offsets(broker: &EmbeddedBroker, from: u64) -> Vec<u64> {
    let read = broker.submit_fetch("t", Partition(0), Offset(from), 1_000).wait().unwrap();
    let heads = broker.submit_heads("t", Partition(0), Offset(from), 1_000).wait().unwrap();
    assert!(heads.iter().all(|head| head.content != HeadContent::Damaged), "{heads:?}");
    let offsets: Vec<_> = read.iter().map(|stored| stored.offset.0).collect();
    assert_eq!(heads.iter().map(|head| head.offset.0).collect::<Vec<_>>(), offsets);
    assert_eq!(broker.fetch("t", 0, from, 1_000).unwrap().iter().map(|event| event.offset).collect::<Vec<_>>(), offsets);
    offsets
}

/// Files of `t` by their extension, with the sequences in their names.
pub(super) fn files(topic: &Path, extension: &str) -> Vec<String> {
    let names = std::fs::read_dir(topic).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(extension)).collect();
    names.sort();
    names
}

#[test]
fn a_record_expires_when_it_is_too_old_and_not_earlier_and_at_the_latest_with_its_segment() {
    let aging = Aging::new(&[("t", 1)]);
    aging.publish_at(START, "full", 3);
    aging.publish_at(START, "mixed", 2);
    aging.publish_at(START + HOUR, "mixed-later", 1);
    aging.publish_at(START + 2 * HOUR, "written-now", 2);
    // When, what expires then, and the first offset after it.
    let steps = [
        (START + 10 * HOUR, 0, 0),
        (START + 10 * HOUR + 1, 3, 3),
        (START + 11 * HOUR, 0, 3),
        (START + 11 * HOUR + 1, 3, 6),
        (START + 12 * HOUR, 0, 6),
        (START + 12 * HOUR + 1, 2, 8),
        (u64::MAX, 0, 8),
    ];
    for (now, expired, first) in steps {
        let report = aging.maintain(now);
        assert_eq!((report.expired_records, aging.bounds()), (expired, (first, 8)), "{now}");
        assert_eq!((report.expired_segments, report.unremoved_files), (u64::from(expired > 0), 0), "{now}");
        assert_eq!(offsets(&aging.broker, 0), (first..8).collect::<Vec<_>>());
    }
    let statistics = aging.broker.statistics();
    assert_eq!(statistics[0].partitions.iter().map(|of| (of.records, of.damaged)).collect::<Vec<_>>(), [(0, 0)]);
}

#[test]
fn enforcing_retention_says_how_many_records_went_over_all_topics() {
    let aging = Aging::new(&[("s", 2), ("t", 2)]);
    publish(&aging.broker, "s", "of-s", 7);
    publish(&aging.broker, "t", "of-t", 5);
    let now = START + HOT_HOURS * HOUR;
    assert_eq!([now, now + 1, now + 1].map(|now| aging.broker.enforce_retention(now)), [Ok(0), Ok(12), Ok(0)]);
}

/// The offsets that BUG-49 asks for, from a partition that has `first..next`.
fn asked(first: u64, next: u64) -> [u64; 9] {
    let last = next.saturating_sub(1);
    [0, 1, first.saturating_sub(1), first, last, next, last + 1_000, 1 << 63, u64::MAX]
}

#[test]
fn a_read_below_the_first_offset_begins_with_it_and_one_beyond_the_last_is_empty() {
    let never = Aging::new(&[("t", 1)]);
    let emptied = Aging::new(&[("t", 1)]);
    let cut = Aging::new(&[("t", 1)]);
    for aging in [&emptied, &cut] {
        aging.publish_at(START, "old", 6);
    }
    cut.publish_at(START + HOUR, "new", 4);
    let now = START + HOT_HOURS * HOUR + 1;
    assert_eq!([&never, &emptied, &cut].map(|aging| aging.maintain(now).expired_records), [0, 6, 6]);
    for (aging, expected) in [(never, (0, 0)), (emptied, (6, 6)), (cut, (6, 10))] {
        let check = |aging: &Aging| {
            let (first, next) = aging.bounds();
            assert_eq!((first, next), expected);
            for from in asked(first, next) {
                assert_eq!(offsets(&aging.broker, from), (from.max(first)..next).collect::<Vec<_>>(), "{expected:?} from {from}");
            }
            let found = ["old-5-0", "new-0-0"].map(|uid| aging.broker.find_event_by_uid("t", "", uid).unwrap().map(|ack| ack.offset));
            assert_eq!(found, [None, (next > first).then_some(6)]);
        };
        check(&aging);
        let aging = aging.reopened();
        check(&aging);
        // What comes later lies where it was said that nothing is yet.
        publish(&aging.broker, "t", "later", 3);
        assert_eq!(offsets(&aging.broker, expected.1), [expected.1, expected.1 + 1, expected.1 + 2]);
        assert!(offsets(&aging.broker, expected.1 + 999).is_empty());
    }
}

#[test]
fn odd_dates_neither_expire_what_is_newer_nor_pin_what_is_old() {
    const NOW: u64 = START + 10 * HOUR;
    const YOUNG: u64 = NOW - HOUR;
    const OLD: u64 = START - 1;
    // Dates of segments, oldest first, and how many of them have expired.
    let cases: [(&[u64], u64); 13] = [
        (&[OLD, YOUNG, OLD], 1),
        (&[YOUNG, 0], 0),
        (&[OLD, 0, YOUNG], 2),
        (&[0, 0, 0], 3),
        (&[u64::MAX, YOUNG], 0),
        (&[u64::MAX, OLD, YOUNG], 2),
        (&[u64::MAX, YOUNG, 0], 0),
        (&[OLD, u64::MAX, OLD, YOUNG], 3),
        (&[u64::MAX], 0),
        (&[u64::MAX, u64::MAX, OLD], 3),
        (&[NOW + HOUR, OLD - HOUR, YOUNG], 2),
        (&[OLD + HOUR, OLD, YOUNG], 0),
        (&[NOW, NOW - 1], 0),
    ];
    for (dates, expired) in cases {
        let aging = Aging::new(&[("t", 1)]);
        let published: Vec<_> = dates.iter().enumerate().map(|(n, date)| aging.publish_at(*date, &format!("u{n}"), 3)).collect();
        let next = dates.len() as u64 * 3;
        let dense: Vec<_> = published.iter().flatten().map(|published| published.ack.offset).collect();
        assert_eq!(dense, (0..next).collect::<Vec<_>>(), "{dates:?}");
        // Of a time so long ago that every date lies after it, no date is so old.
        for past in [0, 1, HOT_HOURS * HOUR] {
            assert_eq!(aging.maintain(past).expired_records, 0, "{dates:?} at {past}");
        }
        assert_eq!(aging.maintain(NOW).expired_records, expired * 3, "{dates:?}");
        let aging = aging.reopened();
        assert_eq!((aging.bounds(), aging.maintain(NOW).expired_records), ((expired * 3, next), 0), "{dates:?}");
        assert_eq!(publish(&aging.broker, "t", "later", 1)[0].ack.offset, next, "{dates:?}");
    }
}

#[test]
fn a_clock_that_steps_an_hour_changes_what_expires_by_that_hour_and_no_offset() {
    let aging = Aging::new(&[("t", 1)]);
    for (n, stored_at) in [START, START + HOUR, START, START + 2 * HOUR].into_iter().enumerate() {
        assert_eq!(aging.publish_at(stored_at, &format!("u{n}"), 3)[0].ack.offset, 3 * n as u64);
    }
    // The third segment says that it is older than the second: it goes with what it came after.
    let steps = [(START + 10 * HOUR + 1, 3), (START + 9 * HOUR, 0), (START + 11 * HOUR + 1, 6), (START + 12 * HOUR + 1, 3)];
    assert_eq!(steps.map(|(now, _)| aging.maintain(now).expired_records), steps.map(|(_, expired)| expired));
    assert_eq!(aging.bounds(), (12, 12));
}

#[test]
fn an_emptied_topic_goes_on_with_the_next_offset_of_each_partition() {
    for forgotten in [false, true] {
        let aging = Aging::new(&[("t", 3)]);
        let published = aging.publish_at(START, "old", 4);
        let published = [published, publish(&aging.broker, "t", "many", 20)].concat();
        let next = |aging: &Aging| [0, 1, 2].map(|partition| bounds(&aging.broker, partition));
        let before = next(&aging);
        assert_eq!(aging.maintain(u64::MAX - 1).expired_records, published.len() as u64);
        let emptied = before.map(|(_, next)| (next, next));
        assert_eq!(next(&aging), emptied);
        let aging = aging.reopened_after(|directory| {
            if forgotten {
                forget_watermark(directory, "t");
            }
        });
        assert_eq!(next(&aging), emptied, "watermark forgotten: {forgotten}");
        let new = publish(&aging.broker, "t", "new", 20);
        for published in &new {
            let (_, before) = before[published.ack.partition as usize];
            assert!(published.ack.offset >= before, "{published:?}");
        }
        let aging = aging.reopened();
        assert_eq!(count(&fates(&aging.broker, &new)), (20, 0, 0));
        let given: u64 = next(&aging).iter().map(|(_, next)| next).sum();
        assert_eq!(given, published.len() as u64 + 20, "no offset was skipped");
    }
}

#[test]
fn a_topic_can_be_emptied_again_and_again() {
    let mut aging = Aging::new(&[("t", 1)]);
    for round in 0..6_u64 {
        let stored_at = START + 20 * HOUR * round;
        assert_eq!(aging.publish_at(stored_at, &format!("r{round}"), 2)[0].ack.offset, 2 * round);
        assert_eq!(aging.maintain(stored_at + 11 * HOUR).expired_records, 2);
        assert_eq!(aging.maintain(stored_at + 11 * HOUR).expired_records, 0);
        if round % 2 == 1 {
            aging = aging.reopened();
        }
        assert_eq!(aging.bounds(), (2 * round + 2, 2 * round + 2));
        assert_eq!(files(&aging.topic(), ".seg").len(), 1, "the one that says which numbers were given");
    }
}

#[test]
fn an_emptied_topic_takes_a_group_that_is_larger_than_a_segment() {
    let (directory, clock) = (scratch(), Arc::new(SetClock::default()));
    let small =
        EngineOptions { limits: EngineLimits { segment_bytes: 1_024, ..limits() }, ..options(TestStorage::without_syncs(), &clock) };
    let broker = EmbeddedBroker::provision_with(directory.path(), &hot(&[("t", 1)], HOT_HOURS), small).unwrap();
    publish(&broker, "t", "old", 1);
    assert_eq!(broker.enforce_retention(11 * HOUR), Ok(1));
    let acks = [0, 1].map(|n| broker.publish_record("t", &record(&format!("big-{n}"), "k", vec![b'x'; 5_000])).map(|ack| ack.offset));
    assert_eq!(acks, [Ok(1), Ok(2)]);
    assert_eq!(offsets(&broker, 0), [1, 2]);
}

#[test]
fn the_uid_of_an_expired_record_is_free_and_that_of_a_kept_one_is_not() {
    let aging = Aging::new(&[("t", 4)]);
    let old = publish(&aging.broker, "t", "u", 9);
    let kept = aging.publish_at(START + HOUR, "kept", 3);
    assert_eq!(aging.maintain(START + HOT_HOURS * HOUR + 1).expired_records, 9);
    let find = |aging: &Aging, uid: &str| aging.broker.find_event_by_uid("t", "", uid).unwrap();
    assert!(old.iter().all(|published| find(&aging, &published.ack.uid).is_none()));
    // Once with the content of old, once with another.
    let again = publish(&aging.broker, "t", "u", 4);
    let changed: Vec<_> = (4..9).map(|n| aging.broker.publish_record("t", &record(&format!("u-{n}"), "k", "changed")).unwrap()).collect();
    let new: Vec<_> = again.iter().map(|published| published.ack.clone()).chain(changed).collect();
    let check = |aging: &Aging| {
        for (ack, old) in new.iter().zip(&old) {
            assert!(!ack.duplicate && ack.uid == old.ack.uid && (ack.partition, ack.offset) != (old.ack.partition, old.ack.offset));
            assert_eq!(find(aging, &ack.uid).as_ref(), Some(ack));
        }
        let repeated = publish(&aging.broker, "t", "kept-1", 1);
        assert_eq!((repeated[0].ack.duplicate, repeated[0].ack.offset), (true, kept[1].ack.offset));
    };
    check(&aging);
    let aging = aging.reopened();
    check(&aging);
}

#[test]
fn what_has_expired_leaves_the_disk() {
    let aging = Aging::new(&[("t", 2)]);
    aging.publish_at(START, "old", 30);
    aging.publish_at(START + HOUR, "new", 7);
    // Opened again, everything that can be sealed and merged is.
    let aging = aging.reopened();
    let topic = aging.topic();
    assert!(files(&topic, ".seg").len() == 13 && files(&topic, ".idx").len() == 12 && !files(&topic, ".uids").is_empty());
    assert_eq!(aging.maintain(START + HOT_HOURS * HOUR + 1).expired_segments, 10);
    assert_eq!((files(&topic, ".seg").len(), files(&topic, ".idx").len()), (3, 2));
    assert!(aging.maintain(u64::MAX).expired_records == 7);
    let directory = aging.reopened().directory;
    assert_eq!(["", ".seg", ".idx", ".uids", ".tmp"].map(|extension| files(&topic, extension).len()), [2, 1, 0, 0, 0]);
    assert_eq!(files(&topic, ""), ["00000000000000000037.seg", "watermark"]);
    drop(directory);
}

#[test]
fn changed_hours_apply_from_the_next_opening_on() {
    let aging = Aging::new(&[("t", 1)]);
    let old = aging.publish_at(START, "old", 4);
    let Aging { directory, clock, mut broker } = aging;
    let now = START + 15 * HOUR;
    for (hours, expired) in [(16, 0), (15, 0), (14, 4)] {
        drop(broker);
        broker =
            EmbeddedBroker::open_or_apply_with(directory.path(), &hot(&[("t", 1)], hours), options(TestStorage::without_syncs(), &clock))
                .unwrap();
        assert_eq!(broker.enforce_retention(now), Ok(expired), "{hours} hours");
        assert!(expired > 0 || count(&fates(&broker, &old)) == (4, 0, 0));
    }
}

#[test]
fn a_record_that_cannot_be_read_expires_with_its_segment_and_is_not_counted() {
    let aging = Aging::new(&[("t", 1)]);
    aging.publish_at(START, "old", 4);
    aging.publish_at(START + HOUR, "new", 3);
    let aging = aging.reopened_after(|directory| {
        let segment = segments(directory, "t").remove(0);
        let mut content = std::fs::read(&segment).unwrap();
        let at = content.windows(15).position(|bytes| bytes == b"payload old-1 0").unwrap();
        content[at] ^= 1;
        std::fs::write(&segment, content).unwrap();
        std::fs::remove_file(segment.with_extension("idx")).unwrap();
    });
    let unreadable = |offset| BusError::Unreadable { topic: "t".to_owned(), partition: 0, offset };
    let fetch = |from| aging.broker.submit_fetch("t", Partition(0), Offset(from), 1).wait().map(|read| read[0].offset.0);
    assert_eq!((fetch(0), fetch(1), fetch(2)), (Ok(0), Err(unreadable(1)), Ok(2)));
    assert_eq!(aging.maintain(START + HOT_HOURS * HOUR).expired_records, 0);
    let report = aging.maintain(START + HOT_HOURS * HOUR + 1);
    assert_eq!((report.expired_records, report.expired_segments), (2, 1));
    assert_eq!((aging.bounds(), fetch(1)), ((3, 7), Ok(3)));
}

#[test]
fn a_segment_whose_records_are_all_unreadable_stays_until_what_came_after_it_is_old() {
    let aging = Aging::new(&[("t", 1)]);
    aging.publish_at(START + HOUR, "lost", 3);
    aging.publish_at(START + HOUR, "young", 1);
    let aging = aging.reopened_after(|directory| {
        let segment = segments(directory, "t").remove(0);
        let mut content = std::fs::read(&segment).unwrap();
        for n in 0..3 {
            let payload = format!("payload lost-{n} 0");
            let at = content.windows(payload.len()).position(|bytes| bytes == payload.as_bytes()).unwrap();
            content[at] ^= 1;
        }
        assert_eq!(data_end(&content), content.len());
        std::fs::write(&segment, content).unwrap();
        std::fs::remove_file(segment.with_extension("idx")).unwrap();
    });
    let steps = [(START + HOT_HOURS * HOUR + 1, 0), (START + (HOT_HOURS + 1) * HOUR + 1, 2)];
    assert_eq!(steps.map(|(now, _)| aging.maintain(now).expired_segments), steps.map(|(_, segments)| segments));
}

#[test]
fn a_topic_whose_end_is_not_known_is_left_alone_and_named() {
    let storage = TestStorage::without_syncs();
    let aging = Aging::over(Arc::clone(&storage) as _, &[("fine", 1), ("t", 1)]);
    publish(&aging.broker, "fine", "old", 5);
    let old = aging.publish_at(START, "old", 5);
    storage.fail(Failing::From(1));
    assert!(aging.broker.publish_record("t", &record("perhaps", "k", "x")).unwrap_err().is_uncertain());
    storage.fail(Failing::Never);
    let report = aging.maintain(START + 11 * HOUR);
    assert_eq!((report.expired_records, report.skipped_topics), (5, vec!["t".to_owned()]));
    assert_eq!(count(&fates(&aging.broker, &old)), (5, 0, 0));
    let aging = aging.reopened();
    let report = aging.maintain(START + 11 * HOUR);
    assert!(report.expired_records >= 5 && report.skipped_topics.is_empty(), "{report:?}");
}

#[test]
fn what_lies_in_a_file_named_before_numbers_were_given_up_is_not_taken_for_expired() {
    let aging = Aging::new(&[("t", 2)]);
    aging.publish_at(START, "old", 3);
    // A crash between the creation of a segment and its first record leaves such a file.
    let aging = aging.reopened_after(|directory| {
        std::fs::write(segments(directory, "t")[0].with_file_name("00000000000000000003.seg"), "").unwrap();
    });
    aging.broker.raise_next("t", Partition(0), Offset(50)).unwrap();
    let aging = aging.reopened();
    let young = aging.publish_at(START + 5 * HOUR, "young", 5);
    assert_eq!(aging.maintain(START + 11 * HOUR).expired_records, 3);
    assert_eq!(count(&fates(&aging.broker, &young)), (5, 0, 0));
    let aging = aging.reopened();
    assert_eq!(count(&fates(&aging.broker, &young)), (5, 0, 0), "{:?}", files(&aging.topic(), ""));
}
