//! What expires from the embedded log is archived first (B-028, B-041 to B-043, B-069, B-070, B-080).

use std::sync::Arc;

use latent_bridge::cold::ArchiveOptions;
use latent_bridge::embedded::EngineOptions;
use latent_bridge::manifest::ColdFormat;
use latent_bridge::{BusError, EmbeddedBroker, EventBus};
use latent_core::UnixMillis;

use crate::support::cold::{HOUR, KEY, archive, assert_archived, intents, maintain_to_the_end, manifest, objects_in, path_of};
use crate::support::doubles::{Call, Fault, MemoryStore};
use crate::support::fixtures::{Published, SetClock, publish, scratch, small_limits};
use crate::support::storage::{self, Op, TestStorage};

/// When what was stored at 0 has expired.
const THEN: u64 = HOUR + 1;

fn options(clock: &Arc<SetClock>, archive: ArchiveOptions) -> EngineOptions {
    with_storage(TestStorage::without_syncs(), clock, archive)
}

fn with_storage(storage: Arc<TestStorage>, clock: &Arc<SetClock>, archive: ArchiveOptions) -> EngineOptions {
    EngineOptions { storage, clock: Arc::clone(clock) as _, limits: small_limits(), archive, ..EngineOptions::default() }
}

/// A log with records that have expired at `THEN`.
struct Aged {
    directory: tempfile::TempDir,
    clock: Arc<SetClock>,
    broker: EmbeddedBroker,
    old: Vec<Published>,
}

impl Aged {
    fn new(archive: ArchiveOptions, uri: &str) -> Self {
        Self::of(archive, uri, ColdFormat::Objects)
    }

    fn of(archive: ArchiveOptions, uri: &str, format: ColdFormat) -> Self {
        let (directory, clock) = (scratch(), Arc::new(SetClock::default()));
        let options = options(&clock, archive);
        let mut manifest = manifest(&[("t", 3)], uri);
        manifest.topics[0].retention.cold_format = Some(format);
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest, options).unwrap();
        let old = publish(&broker, "t", "old", 40);
        clock.set(HOUR / 2);
        assert_eq!(broker.maintain(UnixMillis(0)).unwrap().expired_records, 0);
        Self { directory, clock, broker, old }
    }

    fn reopen(self, archive: ArchiveOptions) -> Self {
        let Self { directory, clock, broker, old } = self;
        drop(broker);
        let broker = EmbeddedBroker::open_with(directory.path(), options(&clock, archive)).unwrap();
        Self { directory, clock, broker, old }
    }

    fn hot(&self) -> u64 {
        self.broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum()
    }

    fn outbox(&self) -> Vec<String> {
        intents(&self.directory.path().join("cold-outbox"))
    }
}

/// B-041, B-042.
#[test]
fn what_has_expired_lies_in_the_folder_and_then_leaves_and_a_second_pass_does_nothing() {
    let cold = scratch();
    let keys = ArchiveOptions { control_keys: vec![KEY], ..ArchiveOptions::default() };
    let aged = Aged::new(keys.clone(), cold.path().join("new/folder").to_str().unwrap());
    let report = aged.broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, report.archived_records, report.intents_completed, report.intents_pending), (40, 40, 40, 0));
    assert_eq!((aged.hot(), aged.outbox().len()), (0, 0));
    let objects = objects_in(&cold.path().join("new/folder"));
    assert_archived(&objects, &aged.old, "first pass");
    let again = aged.broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((again.expired_records, again.archived_records, again.intents_completed), (0, 0, 0));
    let aged = aged.reopen(keys);
    assert_eq!(aged.broker.maintain(UnixMillis(THEN)).unwrap().archived_records, 0);
    assert_eq!(objects_in(&cold.path().join("new/folder")), objects, "nothing else was written");
}

/// B-041: the same export again changes nothing, as after a crash before the watermark.
#[test]
fn an_object_of_the_same_bytes_is_success_and_one_of_other_bytes_keeps_its_record_hot() {
    let store = Arc::new(MemoryStore::new());
    let aged = Aged::new(archive(&store), "x");
    let copy = crate::support::fixtures::copy_directory(aged.directory.path());
    maintain_to_the_end(&aged.broker, THEN);
    let objects = store.objects();
    drop(aged);
    let clock = Arc::new(SetClock::default());
    let broker = EmbeddedBroker::open_with(copy.path(), options(&clock, archive(&store))).unwrap();
    let foreign = store.objects().keys().find(|path| path.starts_with("t/")).unwrap().clone();
    store.plant(&foreign, &b"something else"[..]);
    let report = broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, &*report.unarchived_topics), (0, &["t".to_owned()][..]));
    assert_eq!((report.intents_pending, report.intents_quarantined), (1, 1));
    let [problem] = &*report.archive_problems else { panic!("told once: {report:?}") };
    assert!(problem.contains(&foreign) && problem.contains("of topic \"t\"") && problem.contains("move one away"), "{problem}");
    assert_eq!(&store.objects()[&foreign][..], b"something else", "never overwritten");
    assert_eq!(broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum::<u64>(), 40);
    // Somebody moves it away.
    store.lose(&foreign);
    assert_eq!(broker.maintain(UnixMillis(THEN + HOUR)).unwrap().expired_records, 40);
    assert_eq!(store.objects(), objects);
}

/// B-069, B-077, BUG-69, BUG-73: archiving lists nothing.
#[test]
fn a_store_that_denies_listing_serves_and_is_asked_to_create_each_object_once() {
    let store = Arc::new(MemoryStore::new());
    store.set_lists(false);
    let aged = Aged::new(archive(&store), "x");
    maintain_to_the_end(&aged.broker, THEN);
    assert_archived(&store.objects(), &aged.old, "no listing");
    for published in &aged.old {
        let puts = store.calls().iter().filter(|call| **call == Call::Put(path_of(published))).count();
        assert_eq!(puts, 1);
    }
    assert!(!store.calls().iter().any(|call| matches!(call, Call::List(_))));
}

/// B-069, BUG-69.
#[test]
fn a_store_that_overwrites_or_has_no_conditional_writes_is_refused_at_the_start() {
    for unfit in [|store: &MemoryStore| store.set_overwrites(true), |store: &MemoryStore| store.every_put(Some(Fault::SayUnconditional))] {
        let (store, directory) = (Arc::new(MemoryStore::new()), scratch());
        unfit(&store);
        let clock = Arc::new(SetClock::default());
        let provision =
            || EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)], "place"), options(&clock, archive(&store)));
        let refused = provision().map(drop).unwrap_err();
        assert!(matches!(&refused, BusError::Config { problem } if problem.contains("\"place\"")), "{refused}");
        let again = EmbeddedBroker::open_with(directory.path(), options(&clock, archive(&store))).map(drop).unwrap_err();
        assert!(matches!(again, BusError::Config { .. }), "{again}");
        assert!(!store.objects().keys().any(|path| path.starts_with("t/")));
    }
}

/// B-028.
#[test]
fn a_scheme_that_is_not_known_is_refused_before_anything_is_touched_and_the_corrected_manifest_succeeds() {
    let directory = scratch();
    let root = directory.path().join("data");
    for uri in ["gs://bucket/x", "ftp://host/x"] {
        let refused = EmbeddedBroker::provision(&root, &manifest(&[("t", 1)], uri)).map(drop).unwrap_err();
        assert!(matches!(&refused, BusError::Config { problem } if problem.contains(uri) && problem.contains("\"t\"")), "{refused}");
        assert!(!root.exists());
    }
    let cold = directory.path().join("cold");
    drop(EmbeddedBroker::provision(&root, &manifest(&[("t", 1)], cold.to_str().unwrap())).unwrap());
    let refused = EmbeddedBroker::open_or_apply(&root, &manifest(&[("t", 1)], "gs://b/x")).map(drop).unwrap_err();
    assert!(matches!(refused, BusError::Config { .. }));
    drop(EmbeddedBroker::open(&root).unwrap());
}

/// B-076.
#[test]
fn without_a_key_nothing_is_staged_and_nothing_leaves_until_one_is_set() {
    let store = Arc::new(MemoryStore::new());
    let aged = Aged::new(ArchiveOptions { control_keys: Vec::new(), ..archive(&store) }, "x");
    let report = aged.broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, report.unarchived_topics.len(), aged.outbox().len()), (0, 1, 0));
    assert!(report.archive_problems[0].starts_with("topic \"t\": ") && report.archive_problems[0].contains("no control key"), "{report:?}");
    for weak in [[0; 32], [0xff; 32]] {
        assert!(matches!(aged.broker.set_control_key(weak), Err(BusError::Config { .. })));
    }
    aged.broker.set_control_key(KEY).unwrap();
    assert_eq!(maintain_to_the_end(&aged.broker, THEN + HOUR), 40);
    assert_archived(&store.objects(), &aged.old, "with a key");
}

/// As a command on the log of a stopped node: one reason, the same words for both formats, whether there is something in the archive or
/// on its way already, and nothing is written anywhere, not even a probe.
#[test]
fn without_a_key_there_is_one_reason_in_both_formats_and_nothing_is_touched() {
    let keyless = |store: &Arc<MemoryStore>| ArchiveOptions { control_keys: Vec::new(), probes_at_start: false, ..archive(store) };
    let expected = "topic \"t\": the command has no control key; start the node, which archives what has expired";
    for format in [ColdFormat::Objects, ColdFormat::Segments] {
        let store = Arc::new(MemoryStore::new());
        let aged = Aged::of(keyless(&store), "x", format);
        let report = aged.broker.maintain(UnixMillis(THEN)).unwrap();
        assert_eq!((report.archive_problems, report.unarchived_topics.len()), (vec![expected.to_owned()], 1), "{format:?}");
        assert_eq!((store.calls(), aged.outbox().len()), (Vec::new(), 0), "{format:?}");
        // Something is archived, and then something more expires.
        let aged = aged.reopen(archive(&store));
        assert_eq!(maintain_to_the_end(&aged.broker, THEN), 40, "{format:?}");
        publish(&aged.broker, "t", "later", 10);
        let aged = aged.reopen(keyless(&store));
        let calls = store.calls();
        let report = aged.broker.maintain(UnixMillis(3 * HOUR)).unwrap();
        assert_eq!((report.archive_problems, report.expired_records), (vec![expected.to_owned()], 0), "{format:?}");
        assert_eq!(store.calls(), calls, "{format:?}");
    }
    let store = Arc::new(MemoryStore::new());
    let aged = Aged::new(archive(&store), "x");
    store.set_down(true);
    aged.broker.maintain(UnixMillis(THEN)).unwrap();
    let report = aged.reopen(keyless(&store)).broker.maintain(UnixMillis(THEN + HOUR)).unwrap();
    assert_eq!((report.intents_pending, report.intents_failed, report.intents_quarantined), (40, 0, 0), "{report:?}");
    let expected = "exports that wait: the command has no control key; start the node, which archives what has expired";
    assert_eq!(report.archive_problems, [expected]);
}

/// A rotated key: what was staged under the old one is finished while the old one is in the ring, and kept while it is not.
#[test]
fn intents_of_an_older_key_are_finished_by_a_ring_that_has_it_and_kept_by_one_that_has_not() {
    let store = Arc::new(MemoryStore::new());
    let aged = Aged::new(archive(&store), "x");
    store.set_down(true);
    aged.broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!(aged.outbox().len(), 40);
    store.set_down(false);
    let aged = aged.reopen(ArchiveOptions { control_keys: vec![[8; 32]], ..archive(&store) });
    let report = aged.broker.maintain(UnixMillis(THEN + HOUR)).unwrap();
    assert_eq!((report.intents_completed, report.intents_quarantined, report.intents_pending), (0, 40, 40));
    assert!(!store.objects().keys().any(|path| path.starts_with("t/")));
    aged.broker.set_control_keys(&[[8; 32], KEY]).unwrap();
    let report = aged.broker.maintain(UnixMillis(THEN + HOUR)).unwrap();
    assert_eq!((report.intents_completed, report.intents_quarantined, report.intents_pending), (40, 0, 0));
    assert_archived(&store.objects(), &aged.old, "after the rotation");
}

/// BUG-59, BUG-60: nothing is removed from hot, and no temporary file stays, after a failed write or sync of an intent or a cold copy.
#[test]
fn while_an_intent_cannot_be_written_or_synced_nothing_leaves() {
    let faults = [
        storage::Fault::full_from(Op::Write, ".json.tmp", 0),
        storage::Fault::full_from(Op::Write, ".json.tmp", 17),
        storage::Fault::once(Op::Create, ".json.tmp", 3),
        storage::Fault::once(Op::Sync, ".json.tmp", 5),
        storage::Fault::once(Op::Rename, ".json", 7),
        storage::Fault::once(Op::SyncDirectory, "cold-outbox", 0),
    ];
    for fault in faults {
        let store = Arc::new(MemoryStore::new());
        let aged = Aged::new(archive(&store), "x");
        let Aged { directory, clock, broker, old, .. } = aged;
        drop(broker);
        let test = TestStorage::without_syncs();
        let broker = EmbeddedBroker::open_with(directory.path(), with_storage(Arc::clone(&test), &clock, archive(&store))).unwrap();
        test.inject(&[fault]);
        let report = broker.maintain(UnixMillis(THEN)).unwrap();
        assert_eq!(report.unarchived_topics, ["t"], "{fault:?}");
        assert!(!report.archive_problems.is_empty(), "{fault:?}: {report:?}");
        assert!(report.expired_records <= report.intents_completed && report.expired_records < 40, "{fault:?}: {report:?}");
        let names = std::fs::read_dir(directory.path().join("cold-outbox")).unwrap();
        let temporary = names.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp")).count();
        assert_eq!(temporary, 0, "{fault:?}");
        test.inject(&[]);
        drop(broker);
        let broker = EmbeddedBroker::open_with(directory.path(), options(&clock, archive(&store))).unwrap();
        assert_eq!(report.expired_records + maintain_to_the_end(&broker, THEN), 40, "{fault:?}");
        assert_archived(&store.objects(), &old, &format!("{fault:?}"));
    }
}

#[test]
fn a_full_disk_below_the_cold_folder_keeps_what_has_expired_in_intents() {
    let cold = scratch();
    let folder = cold.path().to_str().unwrap().to_owned();
    let keys = ArchiveOptions { control_keys: vec![KEY], uploads: 1, ..ArchiveOptions::default() };
    let Aged { directory, clock, broker, old, .. } = Aged::new(keys.clone(), &folder);
    drop(broker);
    let test = TestStorage::without_syncs();
    let broker = EmbeddedBroker::open_with(directory.path(), with_storage(Arc::clone(&test), &clock, keys)).unwrap();
    let id = std::fs::read_to_string(directory.path().join("cold-outbox/owner")).unwrap();
    let id = id.lines().find_map(|line| line.strip_prefix("id ")).unwrap().to_owned();
    let ending: &'static str = Box::leak(format!(".{id}.tmp").into_boxed_str());
    test.inject(&[storage::Fault::full_from(Op::Write, ending, 10)]);
    let report = broker.maintain(UnixMillis(THEN)).unwrap();
    assert_eq!((report.expired_records, report.intents_completed, report.intents_pending), (40, 10, 30));
    assert_eq!(report.unreachable_topics, ["t"]);
    assert!(!objects_in(cold.path()).keys().any(|path| path.ends_with(".tmp")));
    test.inject(&[]);
    maintain_to_the_end(&broker, THEN + HOUR);
    assert_archived(&objects_in(cold.path()), &old, "with room again");
}

/// BUG-66, BUG-67, BUG-70: what a store that says "exists" has, and what it says of it then. Only its own bytes end an export.
#[test]
fn exists_is_believed_of_the_same_bytes_alone() {
    const SAY: Option<Fault> = Some(Fault::SayExists);
    type Planted = fn(&[u8]) -> Vec<u8>;
    let (ours, half): (Planted, Planted) = (<[u8]>::to_vec, |ours| ours[..ours.len() / 2].to_vec());
    let passing = (40, 1);
    let held = (0, 1);
    type Variant = (&'static str, Option<Planted>, &'static [Option<Fault>], (u64, u64));
    let table: [Variant; 9] = [
        ("the same bytes", Some(ours), &[], (40, 0)),
        ("other bytes", Some(|_| b"something else".to_vec()), &[], held),
        ("an empty object", Some(|_| Vec::new()), &[], held),
        ("half of it", Some(half), &[], held),
        ("it, of which half is read", Some(ours), &[None, Some(Fault::HalfRead)], held),
        ("it, unreadable", Some(ours), &[None, Some(Fault::Fail)], passing),
        ("it, not there when it is read", Some(ours), &[None, Some(Fault::SayAbsent)], passing),
        ("nothing, once", None, &[SAY], passing),
        ("nothing, three times", None, &[SAY, None, SAY, None, SAY], (40, 3)),
    ];
    let whole = Arc::new(MemoryStore::new());
    let aged = Aged::new(archive(&whole), "x");
    let copy = crate::support::fixtures::copy_directory(aged.directory.path());
    maintain_to_the_end(&aged.broker, THEN);
    let first = "t/p0/00000000000000000000.json";
    for (name, planted, faults, (expired, pending)) in table {
        let (directory, store) = (crate::support::fixtures::copy_directory(copy.path()), Arc::new(MemoryStore::new()));
        let broker = EmbeddedBroker::open_with(directory.path(), options(&Arc::default(), archive(&store))).unwrap();
        let planted = planted.map(|planted| planted(&whole.objects()[first]));
        planted.iter().for_each(|planted| store.plant(first, planted.clone()));
        store.plan(faults.iter().copied());
        let report = broker.maintain(UnixMillis(THEN)).unwrap();
        assert_eq!((report.expired_records, report.intents_pending), (expired, pending), "{name}: {report:?}");
        assert_eq!((report.unarchived_topics.len() as u64, report.intents_quarantined), (u64::from(expired == 0), u64::from(expired == 0)));
        if let Some(planted) = planted {
            assert_eq!(store.objects()[first], planted, "{name}: never overwritten");
        }
        // Somebody moves away what is not ours; the rest heals by itself.
        if store.objects().get(first).is_some_and(|there| *there != whole.objects()[first]) {
            store.lose(first);
        }
        maintain_to_the_end(&broker, THEN + HOUR);
        assert_archived(&store.objects(), &aged.old, name);
        assert_eq!(store.objects(), whole.objects(), "{name}");
    }
}

/// A store restored from an older backup: what is hot or waits comes there as ever, and what had left both is named as missing.
#[test]
fn a_store_that_was_set_back_gets_all_that_is_still_hot_or_waits() {
    let store = Arc::new(MemoryStore::new());
    let aged = Aged::new(archive(&store), "x");
    maintain_to_the_end(&aged.broker, THEN);
    aged.clock.set(2 * HOUR);
    let later = publish(&aged.broker, "t", "later", 20);
    store.set_down(true);
    aged.broker.maintain(UnixMillis(3 * HOUR + 1)).unwrap();
    let hot = publish(&aged.broker, "t", "hot", 20);
    assert_eq!((aged.outbox().len(), aged.hot()), (20, 20));
    // The backup is of before the last of the old ones.
    store.set_down(false);
    let aged = aged.reopen(archive(&store));
    let (kept, gone) = aged.old.split_at(30);
    gone.iter().for_each(|published| drop(store.lose(&path_of(published))));
    maintain_to_the_end(&aged.broker, 10 * HOUR);
    assert_archived(&store.objects(), kept.iter().chain(&later).chain(&hot), "set back");
    let verification = latent_bridge::cold::verify::Verification {
        store: &*store,
        topic: None,
        partition: None,
        keys: None,
        heads: &[],
        log: Some(&aged.broker),
        dense: true,
        known: latent_bridge::cold::verify::Known::default(),
    };
    let report = verification.run(&mut |_| {}).unwrap();
    let missing =
        |finding: &latent_bridge::cold::verify::Finding| finding.last.zip(finding.first).map_or(0, |(last, first)| last - first + 1);
    assert!(report.findings.kept().iter().all(|finding| finding.kind.word() == "missing"), "{:?}", report.findings);
    assert_eq!(report.findings.kept().iter().map(missing).sum::<u64>(), gone.len() as u64);
}

/// B-070, BUG-62: one owner at a time, and for good.
#[test]
fn an_outbox_has_one_owner() {
    let store = Arc::new(MemoryStore::new());
    let aged = Aged::new(archive(&store), "x");
    let outbox = aged.directory.path().join("cold-outbox");
    let second = latent_bridge::embedded::DirectoryLock::of_directory(&outbox, "second").map(drop);
    assert!(matches!(second, Err(BusError::InUse { .. })), "{second:?}");
    // Another directory that leads to it.
    let linked = Aged::new(archive(&store), "x");
    let (directory, clock) = (linked.directory, linked.clock);
    drop(linked.broker);
    let link = directory.path().join("cold-outbox");
    std::fs::rename(&link, directory.path().join("aside")).unwrap();
    std::os::unix::fs::symlink(&outbox, &link).unwrap();
    let held = EmbeddedBroker::open_with(directory.path(), options(&clock, archive(&store))).map(drop).unwrap_err();
    assert!(matches!(&held, BusError::OutboxInUse { outbox, .. } if outbox == "cold-outbox"), "{held}");
    assert!(held.to_string().contains(&format!("process {}", std::process::id())), "{held}");
    let other = Aged::new(archive(&store), "x");
    let Aged { directory, clock, broker, .. } = other;
    drop(broker);
    std::fs::copy(outbox.join("owner"), directory.path().join("cold-outbox/owner")).unwrap();
    let refused = EmbeddedBroker::open_with(directory.path(), options(&clock, archive(&store))).map(drop).unwrap_err();
    assert!(matches!(&refused, BusError::Config { problem } if problem.contains("belongs to")), "{refused}");
}
