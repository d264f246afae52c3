//! What an operator may do to an archive in segments and what a disk or a store may do to it: states from a backup, rotated control keys, a
//! full disk, a store that says "exists". Nothing leaves the log because of any of it, and it goes on when it is mended.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::cold::export::NO_SUCH_KEY;
use latent_bridge::cold::segment::Segment;
use latent_bridge::cold::verify::{FindingKind, Known, Verification};
use latent_bridge::cold::{ArchiveOptions, ControlKeys};
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::{Partition, UnixMillis};

use super::cold_segments::{OLD, THEN, YOUNG, aged, fill, finished, hot, open, open_with, options, segmented, verified};
use super::cold_segments_crash::assert_safely_cold;
use crate::support::cold::{HOUR, KEY, archive, objects_in};
use crate::support::doubles::{Call, Fault, MemoryStore};
use crate::support::fixtures::{SetClock, copy_directory, publish, scratch};
use crate::support::storage::{self, Op, TestStorage};

const NEW_KEY: [u8; 32] = [8; 32];
/// Everything has expired then.
const LATE: u64 = 3 * HOUR;

fn quick(directory: &Path, store: &Arc<MemoryStore>) -> EmbeddedBroker {
    open(directory, &TestStorage::without_syncs(), store).unwrap()
}

/// Whether a pass at `now` left everything hot and said so.
fn is_held(broker: &EmbeddedBroker, now: u64) -> bool {
    let before = hot(broker);
    let report = broker.maintain(UnixMillis(now)).unwrap();
    report.unarchived_topics == ["t"] && report.expired_records == 0 && hot(broker) == before
}

/// Everything is in the archive and nothing is wrong with it.
fn assert_all_cold(broker: &EmbeddedBroker, store: &MemoryStore, context: &str) {
    for pass in 0..8 {
        // An hour apart: what somebody had to look at is looked at again.
        broker.maintain(UnixMillis(LATE + pass * (HOUR + 1))).unwrap();
    }
    assert_safely_cold(broker, store, context);
    assert_eq!((hot(broker), verified(broker, store, context).records), (0, (OLD + YOUNG) as u64), "{context}");
}

fn segments_of(store: &MemoryStore, partition: u32) -> Vec<String> {
    let prefix = format!("t/p{partition}/");
    store.objects().into_keys().filter(|path| path.starts_with(&prefix)).collect()
}

fn head_file(directory: &Path, partition: u32) -> PathBuf {
    directory.join(format!("cold-outbox/segments/t.p{partition}.head"))
}

/// A store restored from an older backup, or emptied: what lies there is less than what the log has given away, and less than what it would
/// give away next because of its heads.
#[test]
fn a_store_that_was_set_back_lets_nothing_leave_and_nothing_go_on_behind_the_gap_until_it_is_whole_again() {
    for restarted in [false, true] {
        for lost in [1, usize::MAX] {
            let context = format!("restarted: {restarted}, lost: {lost}");
            let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
            let mut broker = quick(directory.path(), &store);
            finished(&broker, &*store, &context);
            let taken: Vec<_> = segments_of(&store, 0).into_iter().rev().take(lost).collect();
            let taken: Vec<_> = taken.into_iter().map(|path| (store.lose(&path).unwrap(), path)).collect();
            let before = store.objects();
            if restarted {
                drop(broker);
                broker = quick(directory.path(), &store);
            }
            assert!(is_held(&broker, LATE), "{context}");
            assert_eq!(store.objects(), before, "{context}");
            // It rests for an hour, and each pass meanwhile says why.
            for pass in 0..3 {
                let report = broker.maintain(UnixMillis(LATE + pass)).unwrap();
                let [problem] = &*report.archive_problems else { panic!("{context}: {report:?}") };
                assert!(report.unarchived_topics == ["t"] && problem.contains("segments that were written to it"), "{context}: {problem}");
            }
            // The backup that has them is found.
            taken.into_iter().for_each(|(bytes, path)| store.plant(&path, bytes));
            assert_all_cold(&broker, &store, &context);
        }
    }
}

/// No backup has them. Without its head a partition goes on behind what is there, with all that the log still has; a head that was kept
/// elsewhere tells that it is not what it was.
#[test]
fn what_a_set_back_store_lost_and_the_log_still_has_is_archived_again_when_its_head_is_moved_away() {
    let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
    let broker = quick(directory.path(), &store);
    // Segments are closed with what the log has, so the last ones hold young records, too, which are still hot.
    broker.maintain(UnixMillis(THEN)).unwrap();
    let kept = broker.archive_head("t", Partition(0)).unwrap().unwrap().head;
    let (hot_first, next) = broker.bounds("t", Partition(0)).unwrap();
    let lost = store.lose(segments_of(&store, 0).last().unwrap()).unwrap();
    let lost: Vec<_> = offsets_of(lost).into_iter().filter(|offset| *offset < hot_first.0).collect();
    assert!(!lost.is_empty() && kept.last >= hot_first, "it has both");
    drop(broker);
    let broker = quick(directory.path(), &store);
    assert!(is_held(&broker, LATE));
    drop(broker);
    std::fs::remove_file(head_file(directory.path(), 0)).unwrap();
    let broker = quick(directory.path(), &store);
    for pass in 0..8 {
        broker.maintain(UnixMillis(LATE + pass * (HOUR + 1))).unwrap();
    }
    assert_eq!(hot(&broker), 0);
    let cold: Vec<_> = segments_of(&store, 0).iter().flat_map(|path| offsets_of(store.objects()[path].clone())).collect();
    let expected: Vec<_> = (0..next.0).filter(|offset| !lost.contains(offset)).collect();
    assert_eq!(cold, expected);
    let keys = ControlKeys::new(&[KEY]).unwrap();
    let heads = [kept, broker.archive_head("t", Partition(0)).unwrap().unwrap().head];
    let verification = Verification {
        store: &*store,
        topic: None,
        partition: Some(Partition(0)),
        keys: Some(&keys),
        heads: &heads[..1],
        log: None,
        dense: true,
        known: Known::default(),
    };
    let report = verification.run(&mut |_| {}).unwrap();
    let [finding] = report.findings.kept() else { panic!("{:?}", report.findings) };
    assert_eq!(finding.kind, FindingKind::Replaced, "{finding}");
    let report = Verification { heads: &heads[1..], ..verification }.run(&mut |_| {}).unwrap();
    assert_eq!(report.findings.kept(), [], "as a chain it is sound");
}

fn offsets_of(segment: Bytes) -> Vec<u64> {
    Segment::open(segment).unwrap().items().map(|item| item.unwrap().offset().0).collect()
}

/// The outbox from an older backup than the store: its heads are behind what was written.
#[test]
fn heads_that_were_set_back_find_what_was_written_since_and_adopt_it() {
    let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
    let broker = quick(directory.path(), &store);
    broker.maintain(UnixMillis(THEN)).unwrap();
    let old: Vec<_> = (0..3).map(|partition| std::fs::read(head_file(directory.path(), partition)).unwrap()).collect();
    drop(broker);
    let broker = quick(directory.path(), &store);
    publish(&broker, "t", "more", 60);
    let copy = copy_directory(directory.path());
    let now = UnixMillis(LATE);
    assert_eq!(broker.maintain(now).unwrap().unarchived_topics, [""; 0]);
    let objects = store.objects();
    drop(broker);
    // The log of before with the heads of before, beside the store of now; and the heads alone, under a log that has given away more.
    for (root, more) in [(copy.path(), 0), (directory.path(), 9)] {
        (0..).zip(&old).for_each(|(partition, head)| std::fs::write(head_file(root, partition), head).unwrap());
        let broker = quick(root, &store);
        publish(&broker, "t", "behind", more);
        for pass in 0..4 {
            broker.maintain(UnixMillis(LATE + pass * (HOUR + 1))).unwrap();
        }
        assert_eq!(hot(&broker), 0);
        assert_safely_cold(&broker, &store, "set back");
        assert_eq!(verified(&broker, &*store, "set back").records, (OLD + YOUNG + 60 + more) as u64);
        assert_eq!(store.objects() == objects, more == 0, "nothing is written twice");
    }
}

/// The whole directory from a backup, and then other events than before: their offsets are those of archived ones.
#[test]
fn a_log_that_was_set_back_and_went_another_way_is_never_archived_over_what_is_there() {
    let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
    let copy = copy_directory(directory.path());
    let broker = quick(directory.path(), &store);
    publish(&broker, "t", "one-way", 60);
    broker.maintain(UnixMillis(LATE)).unwrap();
    let objects = store.objects();
    drop(broker);
    let broker = quick(copy.path(), &store);
    publish(&broker, "t", "another-way", 60);
    for pass in 0..4 {
        let report = broker.maintain(UnixMillis(LATE + pass * (HOUR + 1))).unwrap();
        assert_eq!(report.unarchived_topics, ["t"]);
    }
    assert!(hot(&broker) >= 60, "{}", hot(&broker));
    assert_eq!(store.objects(), objects);
}

fn with_keys(store: &Arc<MemoryStore>, keys: &[[u8; 32]]) -> ArchiveOptions {
    ArchiveOptions { control_keys: keys.to_vec(), ..archive(store) }
}

fn open_with_keys(directory: &Path, store: &Arc<MemoryStore>, keys: &[[u8; 32]]) -> EmbeddedBroker {
    open_with(directory, &TestStorage::without_syncs(), with_keys(store, keys)).unwrap()
}

fn kinds_with(broker: &EmbeddedBroker, store: &MemoryStore, keys: &[[u8; 32]]) -> Vec<FindingKind> {
    let keys = ControlKeys::new(keys).unwrap();
    let log = Some(broker as &dyn EventBus);
    let verification =
        Verification { store, topic: None, partition: None, keys: Some(&keys), heads: &[], log, dense: true, known: Known::default() };
    verification.run(&mut |_| {}).unwrap().findings.kept().iter().map(|finding| finding.kind).collect()
}

/// Put before the old key, the new one proves what is written from now on, and the heads; then the old one can go from the node. Who
/// verifies needs it as long as there are segments of it.
#[test]
fn a_rotated_key_proves_heads_at_the_start_and_new_segments_and_the_old_one_can_go_then() {
    let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
    finished(&quick(directory.path(), &store), &*store, "the old key");
    let sealed = |partition| std::fs::read(head_file(directory.path(), partition)).unwrap();
    let old: Vec<_> = (0..3).map(sealed).collect();
    drop(open_with_keys(directory.path(), &store, &[NEW_KEY, KEY]));
    assert!((0..3).zip(&old).all(|(partition, old)| sealed(partition) != *old), "proven anew although nothing was due");
    let broker = open_with_keys(directory.path(), &store, &[NEW_KEY]);
    broker.maintain(UnixMillis(LATE)).unwrap();
    assert_eq!((hot(&broker), kinds_with(&broker, &store, &[NEW_KEY, KEY])), (0, Vec::new()));
    assert_safely_cold(&broker, &store, "rotated");
    let unknown = kinds_with(&broker, &store, &[NEW_KEY]);
    assert!(!unknown.is_empty() && unknown.iter().all(|kind| *kind == FindingKind::UnknownKey), "{unknown:?}");
}

/// The same while the process runs.
#[test]
fn a_key_that_is_set_while_the_process_runs_proves_heads_as_well() {
    let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
    let broker = quick(directory.path(), &store);
    finished(&broker, &*store, "the old key");
    broker.set_control_keys(&[NEW_KEY, KEY]).unwrap();
    drop(broker);
    let broker = open_with_keys(directory.path(), &store, &[NEW_KEY]);
    broker.maintain(UnixMillis(LATE)).unwrap();
    assert_eq!((hot(&broker), kinds_with(&broker, &store, &[KEY, NEW_KEY])), (0, Vec::new()));
}

#[test]
fn an_old_key_that_goes_too_early_lets_nothing_leave_until_it_is_back() {
    let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
    finished(&quick(directory.path(), &store), &*store, "the old key");
    let before = store.objects();
    let broker = open_with_keys(directory.path(), &store, &[NEW_KEY]);
    assert!(is_held(&broker, LATE));
    let told = broker.archive_head("t", Partition(0)).unwrap_err().to_string();
    assert!(told.contains("proven with the control key ") && told.ends_with(NO_SUCH_KEY), "and who asks is told: {told}");
    drop(broker);
    // Without a head as well: the last segment of the store is nothing to go on behind.
    let copy = copy_directory(directory.path());
    (0..3).for_each(|partition| std::fs::remove_file(head_file(copy.path(), partition)).unwrap());
    assert!(is_held(&open_with_keys(copy.path(), &store, &[NEW_KEY]), LATE));
    assert_eq!(store.objects(), before);
    let broker = open_with_keys(directory.path(), &store, &[NEW_KEY, KEY]);
    broker.maintain(UnixMillis(LATE)).unwrap();
    assert_eq!((hot(&broker), kinds_with(&broker, &store, &[NEW_KEY, KEY])), (0, Vec::new()));
}

/// What was staged under a key that is gone is built again of the log, under the one that is there.
#[test]
fn a_segment_that_was_staged_under_a_key_that_is_gone_is_built_again() {
    let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
    let broker = quick(directory.path(), &store);
    store.every_put(Some(Fault::Fail));
    assert!(is_held(&broker, THEN));
    assert!(directory.path().join("cold-outbox/segments/t.p0.seg").is_file());
    drop(broker);
    store.every_put(None);
    let broker = open_with_keys(directory.path(), &store, &[NEW_KEY]);
    for pass in 0..4 {
        broker.maintain(UnixMillis(LATE + pass * (HOUR + 1))).unwrap();
    }
    assert_eq!((hot(&broker), kinds_with(&broker, &store, &[NEW_KEY])), (0, Vec::new()));
}

/// BUG-59: the disk is full, where a segment is staged, where the head is written, and where the store's folder is; then there is room again.
#[test]
fn while_the_disk_is_full_nothing_leaves_that_is_not_cold_and_no_half_of_a_file_stays() {
    let cold = scratch();
    for (at, (op, ending)) in
        [(Op::Write, ".seg.tmp"), (Op::Write, ".head.tmp"), (Op::Create, ".seg.tmp"), (Op::Rename, ".head"), (Op::Write, "store")]
            .into_iter()
            .enumerate()
    {
        for number in [0, 1, 2] {
            let context = format!("{op:?} {ending} {number}");
            let (directory, folder) = (scratch(), cold.path().join(format!("{at}-{number}")));
            let keys = ArchiveOptions { control_keys: vec![KEY], uploads: 1, ..ArchiveOptions::default() };
            drop(fill(directory.path(), TestStorage::without_syncs(), keys.clone(), folder.to_str().unwrap()));
            let test = TestStorage::without_syncs();
            let broker = open_with(directory.path(), &test, keys.clone()).unwrap();
            let id = std::fs::read_to_string(directory.path().join("cold-outbox/owner")).unwrap();
            let id = id.lines().find_map(|line| line.strip_prefix("id ")).unwrap().to_owned();
            let ending: &'static str = if ending == "store" { Box::leak(format!(".{id}.tmp").into_boxed_str()) } else { ending };
            test.inject(&[storage::Fault::full_from(op, ending, number)]);
            let report = broker.maintain(UnixMillis(THEN)).unwrap();
            assert!(test.failed() > 0 && report.unarchived_topics == ["t"] && report.expired_records < OLD as u64, "{context}: {report:?}");
            let store = MemoryStore::new();
            objects_in(&folder).into_iter().for_each(|(path, bytes)| store.plant(&path, bytes));
            assert_safely_cold(&broker, &store, &context);
            let left = |folder: &Path| objects_in(folder).into_keys().filter(|path| path.ends_with(".tmp")).count();
            assert_eq!(left(&folder) + left(&directory.path().join("cold-outbox")), 0, "{context}");
            test.inject(&[]);
            let folder_store = latent_bridge::cold::open_archive(folder.to_str().unwrap()).unwrap();
            finished(&broker, &*folder_store, &context);
        }
    }
}

/// What a store that says "exists" has, and what it says of it then.
struct Existing {
    name: &'static str,
    planted: Option<fn(&[u8]) -> Bytes>,
    faults: &'static [Option<Fault>],
    /// It is the same segment, so that nothing is wrong.
    is_ours: bool,
}

/// BUG-66, BUG-70: "exists" in every variant.
#[test]
fn exists_is_believed_of_the_same_segment_alone_and_everything_else_keeps_the_records_hot() {
    let variants = [
        Existing { name: "the same bytes", planted: Some(Bytes::copy_from_slice), faults: &[], is_ours: true },
        Existing { name: "other bytes", planted: Some(|_| Bytes::from_static(b"something else")), faults: &[], is_ours: false },
        Existing { name: "an empty object", planted: Some(|_| Bytes::new()), faults: &[], is_ours: false },
        Existing { name: "half of it", planted: Some(|ours| Bytes::copy_from_slice(&ours[..ours.len() / 2])), faults: &[], is_ours: false },
        Existing { name: "it, unreadable", planted: Some(Bytes::copy_from_slice), faults: &[None, Some(Fault::Fail)], is_ours: false },
        Existing {
            name: "it, not there when it is read",
            planted: Some(Bytes::copy_from_slice),
            faults: &[None, Some(Fault::SayAbsent)],
            is_ours: false,
        },
        Existing { name: "nothing", planted: None, faults: &[Some(Fault::SayExists)], is_ours: false },
    ];
    let whole = {
        let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
        quick(directory.path(), &store).maintain(UnixMillis(THEN)).unwrap();
        store.objects()
    };
    let first = "t/p0/00000000000000000000.seg";
    let directory = aged();
    for Existing { name, planted, faults, is_ours } in variants {
        let (copy, store) = (copy_directory(directory.path()), Arc::new(MemoryStore::new()));
        let broker = quick(copy.path(), &store);
        let planted = planted.map(|planted| planted(&whole[first]));
        planted.iter().for_each(|planted| store.plant(first, planted.clone()));
        // Nobody kept a head yet, so the store is listed once: as a listing that does not have it, or not yet.
        store.plan([Some(Fault::SayAbsent)].into_iter().chain(faults.iter().copied()));
        let calls = store.calls().len();
        if is_ours {
            assert_eq!(broker.maintain(UnixMillis(THEN)).unwrap().expired_records, OLD as u64, "{name}");
        } else {
            assert!(is_held(&broker, THEN), "{name}");
        }
        let made: Vec<_> = store.calls().into_iter().skip(calls).take(2).collect();
        assert_eq!(made, [Call::List("t/p0/".to_owned()), Call::Put(first.to_owned())], "{name}");
        let there = store.objects().get(first).cloned();
        assert_eq!(there.filter(|_| !is_ours), planted.filter(|_| !is_ours), "{name}: never overwritten");
        // Somebody moves away what is not ours; the rest heals by itself.
        if store.objects().get(first).is_some_and(|there| *there != whole[first]) {
            store.lose(first);
        }
        assert_all_cold(&broker, &store, name);
    }
}

/// A listing that omits what is there is a store that was set back, as long as it does.
#[test]
fn a_listing_that_is_behind_keeps_records_hot_and_nothing_else() {
    let (directory, store) = (aged(), Arc::new(MemoryStore::new()));
    finished(&quick(directory.path(), &store), &*store, "first");
    let broker = quick(directory.path(), &store);
    store.plan([Some(Fault::SayAbsent)]);
    assert!(is_held(&broker, LATE));
    assert_all_cold(&broker, &store, "the listing is right again");
}

/// Another `cold_uri`: the archive begins anew there, with what the log still has. Moved with everything that was in it, it goes on as it was.
#[test]
fn an_archive_at_another_place_begins_anew_and_one_that_was_moved_goes_on() {
    let directory = aged();
    let at = |uri: &str, store: &Arc<MemoryStore>| {
        let clock = Arc::new(SetClock::default());
        clock.set(HOUR / 2);
        let options = options(TestStorage::without_syncs(), &clock, archive(store));
        EmbeddedBroker::open_or_apply_with(directory.path(), &segmented(&[("t", 3)], uri), options).unwrap()
    };
    let (first, second) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let broker = at("x", &first);
    finished(&broker, &*first, "where it was");
    let (objects, old_head) = (first.objects(), std::fs::read(head_file(directory.path(), 0)).unwrap());
    drop(broker);

    let broker = at("y", &second);
    assert_eq!(broker.archive_head("t", Partition(0)).unwrap(), None);
    broker.maintain(UnixMillis(LATE)).unwrap();
    assert_eq!((hot(&broker), verified(&broker, &*second, "elsewhere").records), (0, YOUNG as u64));
    assert_eq!(first.objects(), objects, "nothing more comes to where it was");
    let aside = std::fs::read_dir(directory.path().join("cold-outbox/segments")).unwrap();
    let aside = aside.map(|entry| entry.unwrap().path()).filter(|path| path.to_str().unwrap().contains("t.p0.head."));
    assert_eq!(aside.map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>(), [old_head], "for who verifies that one");
    drop(broker);

    let broker = at("z", &second);
    publish(&broker, "t", "later", YOUNG);
    broker.maintain(UnixMillis(2 * LATE)).unwrap();
    assert_eq!((hot(&broker), verified(&broker, &*second, "moved").records), (0, 2 * YOUNG as u64));
}
