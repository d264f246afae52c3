//! What opening and looking up read, counted: it does not grow with the log's past.

use std::path::Path;
use std::sync::Arc;

use latent_bridge::embedded::{EngineLimits, EngineOptions};
use latent_bridge::{EmbeddedBroker, EventBus};

use crate::support::counting::CountingStorage;
use crate::support::fixtures::{manifest, record, scratch, segments};
use crate::support::history::wait_for_merges;

fn limits() -> EngineLimits {
    EngineLimits { segment_bytes: 65_536, segment_records: 400, preallocation_bytes: 8_192, ..EngineLimits::default() }
}

fn options(storage: &CountingStorage) -> EngineOptions {
    EngineOptions { storage: Arc::new(storage.clone()), limits: limits(), ..EngineOptions::default() }
}

fn filled(count: usize) -> tempfile::TempDir {
    let directory = scratch();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 4)]), options(&CountingStorage::default())).unwrap();
    let records: Vec<_> = (0..count).map(|n| record(&format!("uid-{n}"), &format!("key-{}", n % 11), vec![b'x'; 60])).collect();
    assert!(broker.publish_batch("t", &records).into_iter().all(|ack| ack.is_ok()));
    wait_for_merges(&broker);
    directory
}

fn largest_segment(directory: &Path) -> u64 {
    segments(directory, "t").iter().map(|path| std::fs::metadata(path).unwrap().len()).max().unwrap()
}

#[test]
fn opening_reads_the_last_segment_and_a_page_or_two_of_each_full_one() {
    for count in [1_500, 20_000] {
        let directory = filled(count);
        let full = segments(directory.path(), "t").len() as u64 - 1;
        let storage = CountingStorage::default();
        let broker = EmbeddedBroker::open_with(directory.path(), options(&storage)).unwrap();
        let read = storage.take("seg");
        let bound = 2 * largest_segment(directory.path()) + full * 4_096;
        assert!(full >= 3 && read.bytes <= bound, "{count} records: {read:?} of {full} full segments, at most {bound}");
        let index = storage.take("idx");
        assert!(index.bytes <= full * 4_096 && index.calls <= full * 2, "{count} records: {index:?} of {full} indexes");
        drop(broker);
    }
}

#[test]
fn what_was_opened_from_evidence_or_zeros_is_not_read_whole_again() {
    let directory = filled(1_500);
    let all = segments(directory.path(), "t");
    for (path, tail) in all.iter().zip([&[0; 9_000][..], b"evidence"]) {
        let mut content = std::fs::read(path).unwrap();
        content.extend_from_slice(tail);
        std::fs::write(path, content).unwrap();
    }
    drop(EmbeddedBroker::open_with(directory.path(), options(&CountingStorage::default())).unwrap());
    let storage = CountingStorage::default();
    let _broker = EmbeddedBroker::open_with(directory.path(), options(&storage)).unwrap();
    let read = storage.take("seg");
    let bound = 2 * largest_segment(directory.path()) + all.len() as u64 * 4_096;
    assert!(read.bytes <= bound, "{read:?}, at most {bound}");
}

/// The most reads and bytes that any of these look-ups takes.
fn worst(storage: &CountingStorage, count: usize, mut look_up: impl FnMut(usize)) -> (u64, u64) {
    let each = (0..200).map(|turn| {
        storage.take_all();
        look_up(turn * 7_919 % count);
        storage.take_all()
    });
    each.fold((0, 0), |(calls, bytes), read| (calls.max(read.calls), bytes.max(read.bytes)))
}

#[test]
fn looking_up_reads_as_little_in_a_long_log_as_in_a_short_one() {
    for count in [1_500, 20_000] {
        let directory = filled(count);
        let storage = CountingStorage::default();
        let broker = EmbeddedBroker::open_with(directory.path(), options(&storage)).unwrap();
        wait_for_merges(&broker);
        let (calls, bytes) = worst(&storage, count, |n| {
            assert!(broker.find_event_by_uid("t", "", &format!("uid-{n}")).unwrap().is_some());
        });
        // A page or two of a run for each that the filter lets pass, and the record.
        assert!(calls <= 12 && bytes <= 49_152, "{count} records: a uid took {calls} reads of {bytes} bytes");
        let (calls, bytes) = worst(&storage, count, |n| {
            assert_eq!(broker.find_event_by_uid("t", "", &format!("absent-{n}")), Ok(None));
        });
        assert!(calls <= 8 && bytes <= 32_768, "{count} records: an absent uid took {calls} reads of {bytes} bytes");
        let (calls, bytes) = worst(&storage, count, |n| {
            broker.fetch("t", u32::try_from(n % 4).unwrap(), (n / 16) as u64, 1).unwrap();
        });
        // The index's header and a page, and the record.
        assert!(calls <= 4 && bytes <= 16_384, "{count} records: an offset took {calls} reads of {bytes} bytes");
    }
}
