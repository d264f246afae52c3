//! A log cut at every byte of its last two commits: what is before the cut is there, what is not is named or was never promised.

use std::collections::BTreeSet;
use std::path::Path;

use latent_bridge::{EmbeddedBroker, EventBus};

use crate::support::fixtures::{Fate, Published, Seeded, copy_directory, count, data_end, fates, manifest, quick, scratch, segments};
use crate::support::history::{Kept, TOPICS, check_complete, keep, past, records, tiny};

fn published(kept: &[Kept]) -> Vec<Published> {
    kept.iter().map(|kept| Published { ack: kept.ack.clone(), payload: kept.record.payload().clone() }).collect()
}

/// What a frame ends with.
const FOOTER_BYTES: usize = 28;

/// What is left of the directory's derived files when it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Derived {
    /// As they were, the watermark with them.
    Kept,
    /// As a killed process left them: the watermark is older than the last commits.
    WatermarkGone,
    AllGone,
}

fn leave(directory: &Path, derived: Derived) {
    let endings: &[&str] = match derived {
        Derived::Kept => &[],
        Derived::WatermarkGone => &["watermark"],
        Derived::AllGone => &["watermark", ".idx", ".uids"],
    };
    for topic in TOPICS {
        crate::support::history::files(directory, topic.0, endings).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

/// Opens what was cut; checks that the records before it are complete, that those behind it are gone as one end and not twice, and that
/// no offset is given again which the log could know.
fn check_cut(directory: &Path, kept: &[Kept], derived: Derived, context: &str) {
    let broker = EmbeddedBroker::open_with(directory, quick(tiny())).unwrap_or_else(|error| panic!("{context}: {error}"));
    let all = published(kept);
    let before = fates(&broker, &all);
    let (_, damaged, cut) = count(&before);
    assert!(damaged + cut <= 8 && !before.contains(&Fate::Before), "{context}: {before:?}");
    match derived {
        Derived::Kept => assert_eq!(cut, 0, "{context}: the watermark has seen them: {before:?}"),
        // Where the segment was full, its index has.
        Derived::WatermarkGone => {}
        Derived::AllGone => assert_eq!(damaged, 0, "{context}: {before:?}"),
    }
    let intact: Vec<Kept> = kept.iter().zip(&before).filter(|(_, fate)| **fate == Fate::Intact).map(|(kept, _)| kept.clone()).collect();
    check_complete(&broker, &intact, context);
    let taken = kept.iter().zip(&before).filter(|(_, fate)| **fate != Fate::Cut);
    let taken: BTreeSet<_> = taken.map(|(kept, _)| (&kept.ack.topic, kept.ack.partition, kept.ack.offset)).collect();
    for (lost, _) in kept.iter().zip(&before).filter(|(_, fate)| **fate != Fate::Intact) {
        assert_eq!(broker.find_event_by_uid(&lost.ack.topic, "", &lost.ack.uid), Ok(None), "{context}");
        let again = broker.publish_record(&lost.ack.topic, &lost.record).unwrap();
        assert!(!again.duplicate && !taken.contains(&(&again.topic, again.partition, again.offset)), "{context}: {again:?}");
    }
    let new = keep(&broker, "a", records("new", 7));
    drop(broker);
    let broker = EmbeddedBroker::open_with(directory, quick(tiny())).unwrap();
    assert_eq!(broker.recovered_torn_records(), 0, "{context}: what was torn is gone");
    check_complete(&broker, &[intact, new].concat(), context);
}

/// A log whose last two commits are batches of four records over several partitions.
fn two_commits() -> (tempfile::TempDir, Vec<Kept>) {
    let (directory, mut kept) = past(20);
    let broker = EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap();
    kept.extend(keep(&broker, "b", records("more", 1)));
    for batch in ["last-but-one", "last"] {
        kept.extend(keep(&broker, "a", records(batch, 4)));
    }
    (directory, kept)
}

#[test]
fn a_log_of_many_segments_cut_at_any_byte_of_its_last_two_commits_keeps_what_is_before() {
    let (directory, kept) = two_commits();
    let all = segments(directory.path(), "a");
    // The last two commits fill the last segment, and perhaps the end of the one before, which is cut as a last one then.
    for derived in [Derived::Kept, Derived::WatermarkGone, Derived::AllGone] {
        for dropped in 0..2 {
            let last = &all[all.len() - 1 - dropped];
            let end = data_end(&std::fs::read(last).unwrap());
            // Every byte; without any derived file, a sample.
            for cut in (0..=end).step_by(if derived == Derived::AllGone { 7 } else { 1 }) {
                let copy = copy_directory(directory.path());
                leave(copy.path(), derived);
                let of_copy = segments(copy.path(), "a");
                of_copy[all.len() - dropped..].iter().for_each(|path| std::fs::remove_file(path).unwrap());
                let mut content = std::fs::read(last).unwrap();
                content.truncate(cut);
                std::fs::write(&of_copy[all.len() - 1 - dropped], content).unwrap();
                check_cut(copy.path(), &kept, derived, &format!("{derived:?}, {dropped} segments gone, cut at {cut} of {end}"));
            }
        }
    }
}

#[test]
fn zeros_or_garbage_from_any_byte_of_the_last_two_commits_on_are_an_end_like_any_other() {
    let (directory, kept) = two_commits();
    let last = segments(directory.path(), "a").pop().unwrap();
    let content = std::fs::read(&last).unwrap();
    let end = data_end(&content);
    let mut seeded = Seeded(56);
    for derived in [Derived::WatermarkGone, Derived::Kept] {
        for (turn, from) in (0..end).step_by(3).enumerate() {
            let copy = copy_directory(directory.path());
            leave(copy.path(), derived);
            let mut changed = content.clone();
            changed[from..].fill(0);
            changed.resize(end + [0, 1, 511, 4_096][turn % 4], 0);
            if turn % 3 == 0 {
                // A torn write and what else the file system had at hand.
                changed.truncate(from);
                changed.extend((0..[1, 7, 4_096][turn / 3 % 3]).map(|_| u8::try_from(1 + seeded.below(255)).unwrap()));
            }
            std::fs::write(segments(copy.path(), "a").pop().unwrap(), changed).unwrap();
            check_cut(copy.path(), &kept, derived, &format!("{derived:?}, zeros or garbage from {from}"));
        }
    }
}

#[test]
fn a_full_segment_cut_at_any_byte_is_evidence_and_every_other_one_is_whole() {
    let (directory, kept) = two_commits();
    let all = segments(directory.path(), "a");
    let victim = all.len() / 2 - 1;
    let content = std::fs::read(&all[victim]).unwrap();
    for derived in [Derived::Kept, Derived::WatermarkGone, Derived::AllGone] {
        for cut in (0..content.len()).step_by(5) {
            let copy = copy_directory(directory.path());
            leave(copy.path(), derived);
            let path = &segments(copy.path(), "a")[victim];
            std::fs::write(path, &content[..cut]).unwrap();
            let context = format!("{derived:?}, full segment cut at {cut}");
            let broker = EmbeddedBroker::open_with(copy.path(), quick(tiny())).unwrap_or_else(|error| panic!("{context}: {error}"));
            let all = published(&kept);
            let before = fates(&broker, &all);
            let (_, damaged, gone) = count(&before);
            // Cut within its last footer it lacks nothing that is needed.
            let lost = if cut < content.len() - FOOTER_BYTES { 1..=6 } else { 0..=0 };
            assert!(gone == 0 && lost.contains(&damaged), "{context}: {before:?}");
            let intact: Vec<Kept> = kept.iter().zip(&before).filter(|(_, fate)| **fate == Fate::Intact).map(|(k, _)| k.clone()).collect();
            check_complete(&broker, &intact, &context);
            drop(broker);
            assert_eq!(std::fs::read(path).unwrap(), content[..cut], "{context}: evidence is kept as it is");
            let broker = EmbeddedBroker::open_with(copy.path(), quick(tiny())).unwrap();
            check_complete(&broker, &intact, &context);
        }
    }
}

#[test]
fn a_segment_of_which_only_its_start_is_left_takes_the_next_record_whatever_its_size() {
    for bytes in [10, 1_900, 5_000] {
        let directory = scratch();
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("a", 2)]), quick(tiny())).unwrap();
        let lost = keep(&broker, "a", records("lost", 1));
        drop(broker);
        std::fs::remove_file(directory.path().join("topics/a/watermark")).unwrap();
        let segment = segments(directory.path(), "a").remove(0);
        let content = std::fs::read(&segment).unwrap();
        let start = content.windows(4).position(|bytes| bytes == b"LTR1").unwrap();
        std::fs::write(&segment, &content[..start + 10]).unwrap();
        let broker = EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap();
        let large = crate::support::fixtures::record("large", "k", vec![7; bytes]);
        let kept = keep(&broker, "a", vec![large, lost[0].record.clone()]);
        check_complete(&broker, &kept, "after the first torn write");
        drop(broker);
        check_complete(&EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap(), &kept, "opened again");
    }
}

#[test]
fn a_gigabyte_of_zeros_is_an_end_like_any_other() {
    let (directory, kept) = past(20);
    let last = segments(directory.path(), "a").pop().unwrap();
    std::fs::OpenOptions::new().write(true).open(&last).unwrap().set_len(1 << 30).unwrap();
    check_cut(directory.path(), &kept, Derived::Kept, "a gigabyte of zeros");
    assert!(std::fs::metadata(&last).unwrap().len() < 1 << 20, "they are given back");
}
