//! Damage done to a closed log, byte by byte: nothing moves, nothing is lost that is still there, no offset is given twice.

use std::collections::BTreeSet;
use std::path::Path;

use latent_bridge::embedded::EngineLimits;
use latent_bridge::{BusError, EmbeddedBroker, EventBus, HeadContent};
use latent_core::{Offset, Partition};

use crate::support::fixtures::{
    Fate, Published, Seeded, copy_directory, count, data_end, fates, filled, forget_watermark, publish, quick, segments, small_limits,
};

fn limits() -> EngineLimits {
    EngineLimits { preallocation_bytes: 512, ..EngineLimits::default() }
}

fn open(directory: &Path) -> EmbeddedBroker {
    EmbeddedBroker::open_with(directory, quick(limits())).unwrap()
}

/// How a closed log came to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    Cleanly,
    ByKill,
}

/// Changes the only segment of topic `t` in a copy of `directory`.
fn damaged(directory: &Path, closed: Closed, change: impl FnOnce(&mut Vec<u8>)) -> tempfile::TempDir {
    let copy = copy_directory(directory);
    if closed == Closed::ByKill {
        forget_watermark(copy.path(), "t");
    }
    let segment = segments(copy.path(), "t").remove(0);
    let mut content = std::fs::read(&segment).unwrap();
    change(&mut content);
    std::fs::write(&segment, content).unwrap();
    copy
}

/// Opens, appends, closes, opens again. Returns the fates of the old records and the torn tails counted, having checked that the new
/// records are there both times, that nothing changes between the openings, and that no offset in `taken` is given again.
fn reopen_twice(directory: &Path, old: &[Published], taken: &BTreeSet<(u32, u64)>) -> (Vec<Fate>, u64) {
    let first = open(directory);
    let torn = first.recovered_torn_records();
    let before = fates(&first, old);
    let new = publish(&first, "t", "new", 6);
    assert!(new.iter().all(|new| !taken.contains(&(new.ack.partition, new.ack.offset))), "an offset is given twice");
    assert_eq!(count(&fates(&first, &new)), (6, 0, 0));
    drop(first);
    let second = open(directory);
    assert_eq!(second.recovered_torn_records(), 0);
    assert_eq!(count(&fates(&second, &new)), (6, 0, 0));
    let kept: Vec<_> = old.iter().zip(&before).filter(|(_, fate)| **fate != Fate::Cut).map(|(old, _)| old.clone()).collect();
    let expected: Vec<_> = before.iter().copied().filter(|fate| *fate != Fate::Cut).collect();
    assert_eq!(fates(&second, &kept), expected);
    for (published, fate) in old.iter().zip(&before) {
        match second.find_event_by_uid("t", "", &published.ack.uid) {
            Ok(found) => assert_eq!(found.is_some(), *fate == Fate::Intact, "{published:?}"),
            // The uid index of a full segment still names it, so it is neither found nor absent.
            Err(error) => assert!(*fate == Fate::Damaged && !error.is_permanent(), "{published:?}: {error}"),
        }
    }
    (before, torn)
}

/// Bytes of a frame's footer.
const FOOTER_BYTES: usize = 28;

/// Where each frame ends, by its footer.
fn frame_ends(content: &[u8]) -> Vec<usize> {
    (0..content.len()).filter(|at| content[*at..].starts_with(b"LTE1")).map(|at| at + FOOTER_BYTES).collect()
}

fn places(records: &[Published]) -> BTreeSet<(u32, u64)> {
    records.iter().map(|record| (record.ack.partition, record.ack.offset)).collect()
}

#[test]
fn a_log_cut_at_any_byte_keeps_what_is_whole_and_goes_on() {
    let (directory, old) = filled(2, 10, limits());
    let content = std::fs::read(segments(directory.path(), "t").remove(0)).unwrap();
    let ends = frame_ends(&content);
    let end = ends[9];
    for closed in [Closed::Cleanly, Closed::ByKill] {
        for cut in ends[6]..=end {
            let copy = damaged(directory.path(), closed, |content| content.truncate(cut));
            let known = open(copy.path());
            let (intact, torn) = (count(&fates(&known, &old)).0, known.recovered_torn_records());
            drop(known);
            // A record is whole without its footer. What follows the last whole one is torn, or known to be damage after a clean close.
            let whole = ends.iter().filter(|end| **end - FOOTER_BYTES <= cut).count();
            let is_torn = closed == Closed::ByKill && cut > ends[whole - 1];
            assert_eq!((intact, torn), (whole, u64::from(is_torn)), "{closed:?}, cut at {cut}");
            // After a clean close every offset is known to have been given; after a kill only what is still there.
            let taken = if closed == Closed::Cleanly { places(&old) } else { places(&old[..intact]) };
            let (fates, _) = reopen_twice(copy.path(), &old, &taken);
            let expected = if closed == Closed::Cleanly { Fate::Damaged } else { Fate::Cut };
            assert!(fates[..intact].iter().all(|fate| *fate == Fate::Intact));
            assert!(fates[intact..].iter().all(|fate| *fate == expected), "cut at {cut}: {fates:?}");
        }
    }
}

#[test]
fn a_record_zeroed_in_the_middle_costs_its_own_offset_and_no_other() {
    let (directory, old) = filled(1, 10, limits());
    let ends = frame_ends(&std::fs::read(segments(directory.path(), "t").remove(0)).unwrap());
    for closed in [Closed::Cleanly, Closed::ByKill] {
        let copy = damaged(directory.path(), closed, |content| content[ends[3]..ends[4]].fill(0));
        let (fates, torn) = reopen_twice(copy.path(), &old, &places(&old));
        let damaged: Vec<_> = (0..10).filter(|at| fates[*at] != Fate::Intact).collect();
        assert_eq!((damaged, fates[4], torn), (vec![4], Fate::Damaged, 0), "{closed:?}");
    }
}

#[test]
fn a_torn_tail_is_counted_once_and_a_whole_one_not() {
    let (directory, old) = filled(1, 3, limits());
    let content = std::fs::read(segments(directory.path(), "t").remove(0)).unwrap();
    let end = data_end(&content);
    // The last frame is cut within its header, its body, and nowhere.
    for (missing, torn) in [(40, 1), (100, 1), (0, 0)] {
        let copy = damaged(directory.path(), Closed::ByKill, |content| content.truncate(end - missing));
        assert_eq!(reopen_twice(copy.path(), &old, &places(&old[..2])).1, torn, "{missing} bytes missing");
    }
}

#[test]
fn zeros_after_the_end_are_no_records_and_no_damage() {
    let (directory, old) = filled(2, 10, limits());
    for zeros in [1, 7, 4_096, 1_048_576] {
        let copy = damaged(directory.path(), Closed::ByKill, |content| content.resize(content.len() + zeros, 0));
        let (fates, torn) = reopen_twice(copy.path(), &old, &places(&old));
        assert_eq!((count(&fates), torn), ((10, 0, 0), 0), "{zeros}");
    }
}

#[test]
fn garbage_after_the_end_is_cut_and_counted() {
    let (directory, old) = filled(2, 10, limits());
    let mut seeded = Seeded(7);
    for length in [1, 7, 47, 48, 500, 4_096, 300_000] {
        let garbage: Vec<u8> = (0..length).map(|_| u8::try_from(1 + seeded.below(255)).unwrap()).collect();
        let copy = damaged(directory.path(), Closed::ByKill, |content| {
            content.truncate(data_end(content));
            content.extend_from_slice(&garbage);
        });
        let (fates, torn) = reopen_twice(copy.path(), &old, &places(&old));
        assert_eq!((count(&fates), torn), ((10, 0, 0), 1), "{length}");
    }
}

#[test]
fn a_zeroed_end_costs_the_last_record_only() {
    let (directory, old) = filled(2, 10, limits());
    let zeroed = |content: &mut Vec<u8>| {
        let end = data_end(content);
        content[end - 100..end].fill(0);
    };
    let (fates, torn) = reopen_twice(damaged(directory.path(), Closed::Cleanly, zeroed).path(), &old, &places(&old));
    assert_eq!((count(&fates), torn, fates[9]), ((9, 1, 0), 0, Fate::Damaged), "it was acknowledged for certain: damage, not a torn write");
    let (fates, torn) = reopen_twice(damaged(directory.path(), Closed::ByKill, zeroed).path(), &old, &places(&old[..9]));
    assert_eq!((count(&fates), torn, fates[9]), ((9, 0, 1), 1, Fate::Cut));
}

#[test]
fn a_file_of_zeros_or_nothing_is_an_empty_log_that_gives_no_known_offset_again() {
    let (directory, old) = filled(2, 10, limits());
    for length in [0, 1, 8_192, 64 * 1_048_576] {
        let copy = damaged(directory.path(), Closed::Cleanly, |content| *content = vec![0; length]);
        assert_eq!(count(&reopen_twice(copy.path(), &old, &places(&old)).0), (0, 10, 0), "{length}");
        let copy = damaged(directory.path(), Closed::ByKill, |content| *content = vec![0; length]);
        let broker = open(copy.path());
        assert_eq!(count(&fates(&broker, &old)), (0, 0, 10), "{length}");
        assert_eq!(publish(&broker, "t", "new", 3).len(), 3);
    }
}

#[test]
fn one_flipped_bit_anywhere_costs_at_most_one_record_and_moves_none() {
    let (directory, old) = filled(3, 100, limits());
    let end = data_end(&std::fs::read(segments(directory.path(), "t").remove(0)).unwrap());
    let frame = end / 100;
    let mut seeded = Seeded(20_260_901);
    let random = (0..1_500).map(|_| (seeded.below(end), 1_u8 << seeded.below(8)));
    // Every byte around record 50, and around the last one, so that no field of a frame is left out.
    let every = (49 * frame..52 * frame).chain(end - frame - 10..end).map(|at| (at, 1));
    let mut harmless = 0;
    for (turn, (at, bit)) in random.chain(every).enumerate() {
        let closed = if turn % 2 == 0 { Closed::Cleanly } else { Closed::ByKill };
        let copy = damaged(directory.path(), closed, |content| content[at] ^= bit);
        let (fates, torn) = reopen_twice(copy.path(), &old, &places(&old));
        let (intact, lost, cut) = count(&fates);
        assert!(
            (intact, lost, cut, torn) == (99, 1, 0, 0) || (intact, lost, cut, torn) == (100, 0, 0, 0),
            "byte {at}, bit {bit}: {fates:?} {torn}"
        );
        harmless += usize::from(intact == 100);
    }
    // A footer repeats what the header says, so damage to it alone costs nothing. Nothing else may be harmless.
    assert!(harmless > 0 && harmless < 800, "{harmless}");
}

#[test]
fn a_damaged_record_is_named_and_reading_goes_on_after_it() {
    let (directory, old) = filled(1, 10, limits());
    let copy = damaged(directory.path(), Closed::ByKill, |content| {
        let at = content.windows(13).position(|bytes| bytes == b"payload old 4").unwrap();
        content[at] ^= 0x20;
    });
    let broker = open(copy.path());
    let page = |offset| broker.submit_fetch("t", Partition(0), Offset(offset), 100).wait();
    assert_eq!(page(0).unwrap().len(), 4, "the page ends before it");
    let refused = page(4).unwrap_err();
    assert_eq!(refused, BusError::Unreadable { topic: "t".to_owned(), partition: 0, offset: 4 });
    assert!(refused.to_string().contains("continue at offset 5") && !refused.is_permanent());
    assert_eq!(broker.fetch("t", 0, 0, 100), Err(refused), "no list is silently shorter");
    assert_eq!(broker.fetch("t", 0, 0, 4).unwrap().len(), 4);
    assert_eq!(broker.fetch("t", 0, 5, 100).unwrap().len(), 5);
    let heads = broker.submit_heads("t", Partition(0), Offset(3), 3).wait().unwrap();
    let damaged: Vec<_> = heads.iter().map(|head| (head.offset.0, head.content == HeadContent::Damaged)).collect();
    assert_eq!(damaged, [(3, false), (4, true), (5, false)]);
    let statistics = broker.statistics().remove(0).partitions[0];
    assert_eq!((statistics.next, statistics.damaged), (Offset(10), 1));
    assert_eq!(broker.find_event_by_uid("t", "", &old[4].ack.uid), Ok(None), "a lost uid is not acknowledged");
}

#[test]
fn damage_after_opening_is_noticed_when_read() {
    let (directory, _) = filled(1, 3, limits());
    let broker = open(directory.path());
    let segment = segments(directory.path(), "t").remove(0);
    let mut content = std::fs::read(&segment).unwrap();
    let at = content.windows(13).position(|bytes| bytes == b"payload old 1").unwrap();
    content[at] ^= 1;
    std::fs::write(&segment, content).unwrap();
    assert_eq!(broker.submit_fetch("t", Partition(0), Offset(0), 10).wait().unwrap().len(), 1);
    let unreadable = BusError::Unreadable { topic: "t".to_owned(), partition: 0, offset: 1 };
    assert!((0..2).all(|offset| broker.fetch("t", 0, offset, 10) == Err(unreadable.clone())));
    assert_eq!(broker.find_event_by_uid("t", "", "old-1"), Err(unreadable));
}

#[test]
fn lost_sectors_and_lost_segments_leave_every_other_record_in_place() {
    let (directory, old) = filled(3, 60, small_limits());
    let all = segments(directory.path(), "t");
    assert!(all.len() > 3, "{}", all.len());
    for closed in [Closed::Cleanly, Closed::ByKill] {
        for index in 0..all.len() {
            for change in ["sector", "gone", "empty"] {
                let copy = copy_directory(directory.path());
                if closed == Closed::ByKill {
                    forget_watermark(copy.path(), "t");
                }
                let segment = segments(copy.path(), "t").remove(index);
                let mut content = std::fs::read(&segment).unwrap();
                match change {
                    "sector" => content[512..1_024].fill(0),
                    "empty" => content.clear(),
                    _ => {}
                }
                if change == "gone" {
                    std::fs::remove_file(&segment).unwrap()
                } else {
                    std::fs::write(&segment, content).unwrap()
                }
                let last = index + 1 == all.len();
                let fates = fates(&open(copy.path()), &old);
                let still_known: Vec<_> =
                    old.iter().zip(&fates).filter(|(_, fate)| **fate != Fate::Cut).map(|(old, _)| old.clone()).collect();
                assert!(last && closed == Closed::ByKill || still_known.len() == old.len(), "{closed:?} {change} {index}: {fates:?}");
                // Without a watermark nothing tells a lost first segment from an expired one.
                let may_seem_expired = index == 0 && change == "gone" && closed == Closed::ByKill;
                assert!(may_seem_expired || !fates.contains(&Fate::Before), "{closed:?} {change} {index}: {fates:?}");
                reopen_twice(copy.path(), &old, &places(&still_known));
            }
        }
    }
}

#[test]
fn repeated_frames_are_never_shown_twice() {
    let (directory, old) = filled(1, 5, limits());
    let copy = damaged(directory.path(), Closed::ByKill, |content| {
        content.truncate(data_end(content));
        let again = content.clone();
        content.extend_from_slice(&again);
    });
    assert_eq!(count(&reopen_twice(copy.path(), &old, &places(&old)).0), (5, 0, 0));
    let broker = open(copy.path());
    let offsets: Vec<_> = broker.fetch("t", 0, 0, 100).unwrap().iter().map(|event| event.offset).collect();
    assert!(offsets.is_sorted_by(|a, b| a < b) && offsets.len() == 11, "{offsets:?}");
}

#[test]
fn a_lost_or_unusable_watermark_is_rebuilt_from_the_log() {
    let (directory, old) = filled(2, 10, limits());
    let contents: [&[u8]; 5] = [b"", b"12", b"not a number", &[0xff; 25], &[0; 2_097_152]];
    for content in contents {
        let copy = copy_directory(directory.path());
        let watermark = copy.path().join("topics/t/watermark");
        std::fs::write(&watermark, content).unwrap();
        assert_eq!(count(&reopen_twice(copy.path(), &old, &places(&old)).0), (10, 0, 0));
        assert!(std::fs::metadata(&watermark).unwrap().len() < 100, "it was written again");
    }
    let copy = copy_directory(directory.path());
    forget_watermark(copy.path(), "t");
    std::fs::create_dir(copy.path().join("topics/t/watermark")).unwrap();
    assert_eq!(count(&fates(&open(copy.path()), &old)), (10, 0, 0));
}

#[test]
fn offsets_that_another_file_has_seen_are_given_up_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = "manifest_version: 1\nname: n\ntopics: [{ name: t, partitions: 1 }]\n";
    let manifest = latent_bridge::BridgeManifest::from_yaml(manifest).unwrap();
    let first = EmbeddedBroker::provision_with(directory.path(), &manifest, quick(limits())).unwrap();
    publish(&first, "t", "old", 2);
    first.raise_next("t", Partition(0), Offset(1)).unwrap();
    assert_eq!(first.bounds("t", Partition(0)).unwrap().1, Offset(2), "what the log has passed changes nothing");
    first.raise_next("t", Partition(0), Offset(5)).unwrap();
    let most = latent_bridge::limits::RAISED_OFFSETS.max;
    for (partition, next) in [(0, 5 + most + 1), (1, 5)] {
        let refused = first.raise_next("t", Partition(partition), Offset(next));
        assert!(matches!(refused, Err(BusError::OutOfRange { .. })), "{refused:?}");
    }
    drop(first);
    let second = open(directory.path());
    let heads = second.submit_heads("t", Partition(0), Offset(0), 10).wait().unwrap();
    let damaged: Vec<_> = heads.iter().map(|head| head.content == HeadContent::Damaged).collect();
    assert_eq!(damaged, [false, false, true, true, true]);
    assert_eq!(publish(&second, "t", "new", 1)[0].ack.offset, 5);
    assert!(matches!(second.fetch("t", 0, 3, 1), Err(BusError::Unreadable { offset: 3, .. })));
    second.raise_next("t", Partition(0), Offset(6 + most)).unwrap();
}
