//! What must be in an archive and is not, and what is in it and nothing vouches for.

use super::*;
use crate::cold::export::{Holes, segment_path};
use crate::cold::segment::{FinishedSegment, PreviousSegment};
use crate::manifest::ColdFormat;

const MANIFEST: &str = "{manifest_version: 1, name: x, topics: [{name: orders.placed, partitions: 4}]}";

fn expectation(since: u64, until: u64) -> [Expectation; 1] {
    let (since, until) = (Offset(since), Offset(until));
    [Expectation { topic: "orders.placed".to_owned(), partition: Partition(3), since, until }]
}

/// What is missing, and how many events wait.
fn missing(store: &MemoryStore, expected: &[Expectation], waiting: u64) -> (Vec<(u64, u64)>, u64) {
    let known = Known { expected, waiting, ..Known::default() };
    let report = Verification { known, ..verification(store) }.run(&mut |_| {}).unwrap();
    let one = |finding: &Finding| {
        assert_eq!((finding.kind, finding.partition), (FindingKind::Missing, Some(3)), "{finding}");
        (finding.first.unwrap(), finding.last.unwrap())
    };
    (report.findings.kept().iter().map(one).collect(), report.waiting)
}

#[test]
fn what_has_left_the_log_is_missed_at_either_end_and_altogether() {
    assert_eq!(missing(&archive(5..15), &expectation(0, 20), 0), (vec![(0, 4), (15, 19)], 0));
    assert_eq!(missing(&archive(5..20), &expectation(5, 20), 0), (vec![], 0), "what is older was promised by nobody");
    assert_eq!(missing(&archive([]), &expectation(3, 20), 0), (vec![(3, 19)], 0), "not even the folder is there");
    assert_eq!(missing(&archive([]), &expectation(7, 7), 0), (vec![], 0), "nothing has left the log yet");
    assert_eq!(missing(&archive(0..30), &expectation(0, 20), 0), (vec![], 0));
}

#[test]
fn what_is_on_its_way_is_not_missed_as_long_as_intents_wait_for_all_of_it() {
    assert_eq!(missing(&archive(0..15), &expectation(0, 20), 5), (vec![], 5));
    assert_eq!(missing(&archive(0..15), &expectation(0, 20), 4), (vec![(15, 19)], 0));
    let with_gap = archive((0..15).filter(|offset| *offset != 7));
    assert_eq!(missing(&with_gap, &expectation(0, 20), 1), (vec![(15, 19)], 1));
}

fn items(offsets: impl IntoIterator<Item = u64>) -> Vec<Item> {
    offsets.into_iter().map(|offset| Item::from(stored(offset))).collect()
}

fn plant(store: &MemoryStore, finished: &FinishedSegment) {
    store.plant(&segment_path("orders.placed", Partition(3), finished.header.first), finished.bytes.clone());
}

fn head_of(finished: &FinishedSegment) -> ArchiveHead {
    let place = finished.header.place.clone();
    let segments = finished.header.number + 1;
    ArchiveHead {
        place,
        segments,
        last: finished.header.last,
        last_uid: None,
        digest: finished.digest,
        lookout: None,
        holes: Holes::default(),
    }
}

#[test]
fn a_chain_that_ends_too_early_is_missed_with_a_head_and_without_one_and_once() {
    let store = MemoryStore::new();
    let first = segment_of(&items(2..10), 0, None);
    let second = segment_of(&items(10..20), 1, Some(PreviousSegment { digest: first.digest, last: first.header.last }));
    plant(&store, &first);
    assert_eq!(missing(&store, &expectation(2, 25), 0), (vec![(10, 24)], 0));
    assert_eq!(missing(&store, &expectation(0, 10), 0), (vec![(0, 1)], 0));
    let heads = [head_of(&second)];
    let expected = expectation(2, 25);
    let known = Known { expected: &expected, ..Known::default() };
    let report = Verification { heads: &heads, known, ..verification(&store) }.run(&mut |_| {}).unwrap();
    let found: Vec<_> = report.findings.kept().iter().map(|finding| (finding.first, finding.last)).collect();
    assert_eq!(found, [(Some(10), Some(19)), (Some(20), Some(24))], "what the head says, and what is behind it");
    let report = Verification { heads: &heads, known, ..verification(&MemoryStore::new()) }.run(&mut |_| {}).unwrap();
    assert_eq!(report.findings.total(), 2, "{:?}", report.findings);
}

/// A log whose partition 3 has events from 0 on, as many as that.
fn log(count: usize) -> (tempfile::TempDir, EmbeddedBroker) {
    let directory = tempfile::tempdir().unwrap();
    let broker = EmbeddedBroker::provision(directory.path(), &BridgeManifest::from_yaml(MANIFEST).unwrap()).unwrap();
    let key = (0..).map(|n| format!("key-{n}")).find(|key| latent_core::partition_for(key, 4) == Partition(3)).unwrap();
    for n in 0..count {
        let uid = Some(latent_core::Uid::parse(&format!("uid-{n}")).unwrap());
        let (attributes, media_type) = (latent_core::Attributes::default(), latent_core::MediaType::json());
        let record = latent_core::NewRecord::new(uid, &key, media_type, attributes, Bytes::from_static(b"1")).unwrap();
        crate::EventBus::publish_record(&broker, "orders.placed", &record).unwrap();
    }
    (directory, broker)
}

#[test]
fn of_a_broker_all_that_is_acknowledged_is_missed_also_where_the_archive_has_nothing() {
    let (_directory, broker) = log(10);
    let expected = expectation(3, 10);
    let run = |waiting| {
        let known = Known { expected: &expected, waiting, ..Known::default() };
        let store = MemoryStore::new();
        let report = Verification { known, dense: false, log: Some(&broker), ..verification(&store) }.run(&mut |_| {}).unwrap();
        let found = report.findings.kept().iter().map(|finding| (finding.kind, finding.first, finding.last)).collect::<Vec<_>>();
        (found, report.waiting)
    };
    assert_eq!(run(0), (vec![(FindingKind::Missing, Some(3), Some(9))], 0));
    assert_eq!(run(7), (vec![], 7));
}

#[test]
fn an_archive_beside_an_empty_log_is_compared_with_it() {
    let (_directory, broker) = log(0);
    let store = archive(0..3);
    let report = Verification { log: Some(&broker), ..verification(&store) }.run(&mut |_| {}).unwrap();
    assert_eq!(report.findings.counts().get(&FindingKind::Extra), Some(&3), "{:?}", report.findings);
}

#[test]
fn a_single_event_that_nothing_vouches_for_is_extra_beside_a_proven_chain_and_is_not_restored() {
    let finished = segment_of(&items((4..10).filter(|offset| *offset != 6)), 0, None);
    let (heads, keys) = ([head_of(&finished)], Keys::one());
    let (_directory, broker) = log(0);
    for (offset, is_vouched) in [(0, false), (4, true), (6, false), (8, true), (20, false)] {
        let store = MemoryStore::new();
        plant(&store, &finished);
        store.plant(&path(offset), object::encode(&stored(offset)));
        let proven = Verification { keys: Some(&keys), ..verification(&store) };
        let found = |verification: Verification<'_>| {
            let report = verification.run(&mut |_| {}).unwrap();
            report.findings.kept().iter().map(|finding| (finding.kind, finding.first.unwrap())).collect::<Vec<_>>()
        };
        let expected = if is_vouched { vec![] } else { vec![(FindingKind::Extra, offset)] };
        assert_eq!(found(proven), expected, "offset {offset}");
        let with_head = Verification { heads: &heads, ..proven };
        assert_eq!(found(with_head), expected, "offset {offset} with a head");
        assert_eq!(found(verification(&store)), [], "without a key nothing is proven, which is said");
        let accepted = Verification { known: Known { accepts_unproven: true, ..Known::default() }, ..with_head };
        assert_eq!(found(accepted), []);
        let restoration = Restoration { archive: with_head, bus: &broker, key_by_key: false, into: None };
        let restored = restoration.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {});
        assert_eq!(matches!(restored, Err(RestoreError::Unsound { .. })), !is_vouched, "offset {offset}");
    }
}

#[test]
fn a_partition_of_single_events_is_extra_where_heads_or_the_manifest_say_segments() {
    let other = segment_of(&items(0..4), 0, None);
    let mut head = head_of(&other);
    head.place.topic = "another".to_owned();
    let (heads, keys, store) = ([head], Keys::one(), archive(7..9));
    let kinds = |heads: &[ArchiveHead], format: Option<ColdFormat>| {
        let formats: Vec<_> = format.into_iter().map(|format| ("orders.placed".to_owned(), format)).collect();
        let known = Known { formats: &formats, ..Known::default() };
        let one = Verification { keys: Some(&keys), heads, known, topic: Some("orders.placed"), ..verification(&store) };
        let report = one.run(&mut |_| {}).unwrap();
        report.findings.kept().iter().map(|finding| (finding.kind, finding.first, finding.last)).collect::<Vec<_>>()
    };
    let extra = [(FindingKind::Extra, Some(7), Some(8))];
    assert_eq!(kinds(&heads, None), extra);
    assert_eq!(kinds(&[], Some(ColdFormat::Segments)), extra);
    assert_eq!(kinds(&heads, Some(ColdFormat::Objects)), []);
    assert_eq!(kinds(&[], None), [], "an archive of single events, which carry no proof");
}

#[test]
fn what_the_log_still_has_vouches_for_a_single_event() {
    let (_directory, broker) = log(3);
    let of_log = crate::EventBus::submit_fetch(&broker, "orders.placed", Partition(3), Offset(0), 9).wait().unwrap();
    let store = MemoryStore::new();
    of_log.iter().for_each(|stored| store.plant(&path(stored.offset.0), object::encode(stored)));
    let formats = [("orders.placed".to_owned(), ColdFormat::Segments)];
    let known = Known { formats: &formats, ..Known::default() };
    let keys = Keys::one();
    let report = Verification { keys: Some(&keys), known, log: Some(&broker), ..verification(&store) }.run(&mut |_| {}).unwrap();
    assert_eq!((report.findings.total(), report.compared), (0, 3), "{:?}", report.findings);
}

#[test]
fn what_is_no_object_in_a_folder_is_a_finding_and_nothing_of_it_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("orders.placed/p3");
    std::fs::create_dir_all(&below).unwrap();
    for offset in 0..3 {
        std::fs::write(folder.path().join(path(offset)), object::encode(&stored(offset))).unwrap();
    }
    let store = crate::cold::open_archive(folder.path().to_str().unwrap()).unwrap();
    let (_directory, broker) = log(0);
    let empty = MemoryStore::new();
    let found = || {
        let all = Verification { store: &*store, ..verification(&empty) };
        let report = all.run(&mut |_| {}).unwrap();
        let restoration = Restoration { archive: all, bus: &broker, key_by_key: false, into: None };
        let restored = restoration.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {});
        assert_eq!(restored.is_err(), report.findings.total() > 0, "{:?}", report.findings);
        report.findings.kept().iter().map(|finding| (finding.kind, finding.object.clone().unwrap_or_default())).collect::<Vec<_>>()
    };
    let object = |offset| below.join(format!("{offset:020}.json"));
    std::os::unix::fs::symlink(object(0), object(3)).unwrap();
    assert_eq!(found(), [(FindingKind::Extra, path(3))]);
    std::fs::remove_file(object(3)).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(object(4)).status().unwrap().success());
    assert_eq!(found(), [(FindingKind::Extra, path(4))]);
    std::fs::remove_file(object(4)).unwrap();
    std::fs::create_dir(object(5)).unwrap();
    assert_eq!(found(), [(FindingKind::Extra, path(5))]);
    std::fs::remove_dir(object(5)).unwrap();
    std::fs::write(below.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff.json")), "x").unwrap();
    assert_eq!(found(), [(FindingKind::Extra, "orders.placed/p3/\\xff.json".to_owned())]);
    std::fs::remove_file(below.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff.json"))).unwrap();
    assert_eq!(found(), []);
}

/// A partition whose own segments are all gone is no archive of single events, whatever a line that nobody signed says of the topic.
#[test]
fn a_single_event_needs_a_proof_where_another_partition_of_its_topic_has_segments() {
    let finished = segment_of(&items(4..10), 0, None);
    let keys = Keys::one();
    let store = MemoryStore::new();
    plant(&store, &finished);
    let forged = StoredRecord { partition: Partition(1), ..stored(0) };
    store.plant(&object::object_path("orders.placed", Partition(1), Offset(0)), object::encode(&forged));
    let formats = [("orders.placed".to_owned(), ColdFormat::Objects)];
    let (_directory, broker) = log(0);
    for known in [Known::default(), Known { formats: &formats, ..Known::default() }] {
        let archive = Verification { keys: Some(&keys), known, ..verification(&store) };
        let report = archive.run(&mut |_| {}).unwrap();
        let [finding] = report.findings.kept() else { panic!("{:?}", report.findings) };
        assert_eq!((finding.kind, finding.partition, finding.first), (FindingKind::Extra, Some(1), Some(0)));
        let restoration = Restoration { archive, bus: &broker, key_by_key: false, into: None };
        assert!(matches!(restoration.run(Progress::of(""), &mut |_| Ok(()), &mut |_| {}), Err(RestoreError::Unsound { .. })));
    }
}

/// A log lets go of events while its archive is read, and they are in the archive all the same.
#[test]
fn what_leaves_the_log_meanwhile_is_not_extra() {
    let (_directory, broker) = log(10);
    let store = MemoryStore::new();
    plant(&store, &segment_of(&items((4..10).filter(|offset| *offset != 6)), 0, None));
    store.plant(&path(6), object::encode(&stored(6)));
    for leaves in [false, true] {
        let mut leave = |_: &VerifyReport| {
            if leaves {
                crate::EventBus::maintain(&broker, UnixMillis(u64::MAX / 2)).unwrap();
            }
        };
        let report = Verification { log: Some(&broker), ..verification(&store) }.run(&mut leave).unwrap();
        let of_six = report.findings.kept().iter().filter(|finding| finding.first == Some(6)).map(|finding| finding.kind);
        assert_eq!(of_six.collect::<Vec<_>>(), if leaves { vec![] } else { vec![FindingKind::Different] });
    }
}

#[test]
fn a_proof_is_asked_for_where_keys_and_segments_are() {
    let (store, keys, heads) = (MemoryStore::new(), Keys::one(), [head_of(&segment_of(&items(0..3), 0, None))]);
    let segmented = |has: bool| has.then(|| "orders.placed".to_owned()).into_iter().collect::<BTreeSet<_>>();
    let said = [None, Some(ColdFormat::Objects), Some(ColdFormat::Segments)];
    let asked = |has_keys: bool, format: Option<ColdFormat>, has_heads: bool, has_segments: bool| {
        let formats: Vec<_> = format.map(|format| ("orders.placed".to_owned(), format)).into_iter().collect();
        let archive = Verification {
            keys: has_keys.then_some(&keys as &dyn Attest),
            heads: if has_heads { &heads } else { &[] },
            known: Known { formats: &formats, ..Known::default() },
            ..verification(&store)
        };
        archive.asks_proof_of("orders.placed", &segmented(has_segments))
    };
    for has_heads in [false, true] {
        for format in said {
            assert_eq!([false, true].map(|has_segments| asked(false, format, has_heads, has_segments)), [false; 2]);
            assert!(asked(true, format, has_heads, true), "whatever a line says of its format");
        }
        assert_eq!(said.map(|format| asked(true, format, has_heads, false)), [has_heads, false, true]);
    }
}
