//! No offset is given twice, whatever was expired, lost or cut, as long as one file of the log has seen it (B-030).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use latent_bridge::embedded::EngineOptions;
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::Partition;

use crate::support::fixtures::{SetClock, copy_directory, manifest, quick, scratch, segments};
use crate::support::history::{Kept, check_complete, files, keep, records, tiny};

const HOUR: u64 = 3_600_000;
const PARTITIONS: u32 = 3;

fn open(directory: &Path, clock: &Arc<SetClock>) -> EmbeddedBroker {
    EmbeddedBroker::open_with(directory, EngineOptions { clock: Arc::clone(clock) as _, ..quick(tiny()) }).unwrap()
}

/// A closed directory of topic `a`, whose first half was stored in hour 0 and the second in hour 900.
fn halves() -> (tempfile::TempDir, Arc<SetClock>, Vec<Kept>) {
    let directory = scratch();
    let clock = Arc::new(SetClock::default());
    let options = EngineOptions { clock: Arc::clone(&clock) as _, ..quick(tiny()) };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("a", PARTITIONS)]), options).unwrap();
    let mut kept = keep(&broker, "a", records("old", 30));
    clock.set(900 * HOUR);
    kept.extend(keep(&broker, "a", records("young", 30)));
    (directory, clock, kept)
}

fn bounds(broker: &dyn EventBus) -> Vec<(u64, u64)> {
    (0..PARTITIONS).map(|partition| broker.bounds("a", Partition(partition)).unwrap()).map(|(first, next)| (first.0, next.0)).collect()
}

/// Publishes to every partition and checks that nothing lies below what `seen` says was given.
fn check_ahead(broker: &dyn EventBus, seen: &[(u64, u64)], context: &str) {
    let new = keep(broker, "a", records("ahead", 20));
    for Kept { ack, .. } in &new {
        let next = seen[ack.partition as usize].1;
        assert!(!ack.duplicate && ack.offset >= next, "{context}: {ack:?} was given before, all below {next} were");
    }
    let partitions: BTreeMap<_, _> = new.iter().map(|new| (new.ack.partition, ())).collect();
    assert_eq!(partitions.len(), PARTITIONS as usize, "every partition is asked");
}

fn remove(directory: &Path, endings: &[&str]) {
    files(directory, "a", endings).iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn what_expired_stays_given_when_the_watermark_is_lost_and_the_log_begins_where_it_did() {
    let (directory, clock, kept) = halves();
    let broker = open(directory.path(), &clock);
    assert!(broker.enforce_retention(1_000 * HOUR).unwrap() > 20);
    let after = bounds(&broker);
    assert!(after.iter().all(|(first, next)| 0 < *first && first < next), "{after:?}");
    let first: Vec<_> = after.iter().map(|(first, _)| *first).collect();
    let left: Vec<_> = kept.into_iter().filter(|kept| kept.ack.offset >= first[kept.ack.partition as usize]).collect();
    drop(broker);
    for lost in [&["watermark"][..], &["watermark", ".idx", ".uids"]] {
        let copy = copy_directory(directory.path());
        remove(copy.path(), lost);
        let broker = open(copy.path(), &clock);
        assert_eq!(bounds(&broker), after, "{lost:?}");
        check_complete(&broker, &left, "after retention");
        check_ahead(&broker, &after, "after retention");
    }
}

#[test]
fn a_log_that_expired_to_its_end_goes_on_where_it_was_with_and_without_its_watermark() {
    let (directory, clock, _) = halves();
    let broker = open(directory.path(), &clock);
    let before = bounds(&broker);
    assert_eq!(broker.enforce_retention(10_000 * HOUR), Ok(60));
    let after: Vec<_> = before.iter().map(|(_, next)| (*next, *next)).collect();
    assert_eq!(bounds(&broker), after);
    drop(broker);
    for endings in [&[][..], &["watermark"], &["watermark", ".idx", ".uids"]] {
        let copy = copy_directory(directory.path());
        remove(copy.path(), endings);
        // Opened several times before anything is published: nothing may be forgotten by that.
        (0..2).for_each(|_| assert_eq!(bounds(&open(copy.path(), &clock)), after, "{endings:?}"));
        check_ahead(&open(copy.path(), &clock), &before, &format!("everything expired, {endings:?} lost"));
        check_expired_again(copy.path(), &clock);
    }
    // The same by a process that goes on.
    let broker = open(directory.path(), &clock);
    check_ahead(&broker, &before, "everything expired");
}

fn check_expired_again(directory: &Path, clock: &Arc<SetClock>) {
    let broker = open(directory, clock);
    let before = bounds(&broker);
    assert_eq!(broker.enforce_retention(10_000 * HOUR), Ok(20));
    assert_eq!(broker.enforce_retention(10_000 * HOUR), Ok(0), "nothing is left");
    check_ahead(&broker, &before, "expired twice");
}

#[test]
fn the_end_of_the_log_may_be_lost_as_long_as_one_file_has_seen_it() {
    let (directory, clock, _) = halves();
    let whole = bounds(&open(directory.path(), &clock));
    let all = segments(directory.path(), "a");
    // Of all full segments an index and a run know where they ended.
    let full = {
        let copy = copy_directory(directory.path());
        segments(copy.path(), "a")[all.len() - 1..].iter().for_each(|path| std::fs::remove_file(path).unwrap());
        remove(copy.path(), &["watermark", ".idx", ".uids"]);
        bounds(&open(copy.path(), &clock))
    };
    for dropped in 1..4 {
        for left in ["watermark", ".idx", ".uids"] {
            let copy = copy_directory(directory.path());
            let seen = if left == "watermark" { &whole } else { &full };
            let of_copy = segments(copy.path(), "a");
            of_copy[all.len() - dropped..].iter().for_each(|path| std::fs::remove_file(path).unwrap());
            let content = std::fs::read(&of_copy[all.len() - 1 - dropped]).unwrap();
            std::fs::write(&of_copy[all.len() - 1 - dropped], &content[..content.len() / 2]).unwrap();
            let gone: Vec<_> = ["watermark", ".idx", ".uids"].into_iter().filter(|ending| *ending != left).collect();
            remove(copy.path(), &gone);
            let context = format!("{dropped} segments and a half lost, {left} left");
            let broker = open(copy.path(), &clock);
            let found = bounds(&broker);
            assert!(found.iter().zip(seen).all(|((_, found), (_, seen))| found >= seen), "{context}: {found:?} {seen:?}");
            check_ahead(&broker, seen, &context);
            drop(broker);
            assert!(open(copy.path(), &clock).enforce_retention(u64::MAX).unwrap() > 0, "{context}");
        }
    }
}

#[test]
fn a_watermark_that_lies_within_a_segment_expires_only_what_is_before_it() {
    let (directory, clock, kept) = halves();
    // In another copy segments end elsewhere, and the first of them expire.
    let other = copy_directory(directory.path());
    segments(other.path(), "a").iter().for_each(|path| std::fs::remove_file(path).unwrap());
    remove(other.path(), &["watermark", ".idx", ".uids"]);
    let broker = open(other.path(), &clock);
    clock.set(0);
    keep(&broker, "a", records("first", 1));
    keep(&broker, "a", records("old", 30));
    clock.set(900 * HOUR);
    keep(&broker, "a", records("young", 30));
    assert!(broker.enforce_retention(1_000 * HOUR).unwrap() > 20);
    let after = bounds(&broker);
    drop(broker);
    std::fs::copy(other.path().join("topics/a/watermark"), directory.path().join("topics/a/watermark")).unwrap();
    let broker = open(directory.path(), &clock);
    let left = |kept: &&Kept| kept.ack.offset >= after[kept.ack.partition as usize].0;
    let left: Vec<_> = kept.iter().filter(left).cloned().collect();
    assert!(left.len() > 20, "{}", left.len());
    check_complete(&broker, &left, "a watermark of another history");
}

#[test]
fn files_of_expired_segments_that_stayed_behind_are_removed_at_opening() {
    let (directory, clock, _) = halves();
    let before = copy_directory(directory.path());
    let broker = open(directory.path(), &clock);
    assert!(broker.enforce_retention(1_000 * HOUR).unwrap() > 0);
    let after = bounds(&broker);
    drop(broker);
    let left = files(directory.path(), "a", &[".seg", ".idx"]);
    for endings in [&[".seg", ".idx", ".uids"][..], &[".idx"], &[".uids"]] {
        for file in files(before.path(), "a", endings) {
            let target = directory.path().join("topics/a").join(file.file_name().unwrap());
            if !target.exists() {
                std::fs::copy(&file, target).unwrap();
            }
        }
        assert_eq!(bounds(&open(directory.path(), &clock)), after, "{endings:?}");
        assert_eq!(files(directory.path(), "a", &[".seg", ".idx"]), left, "{endings:?}");
    }
}
