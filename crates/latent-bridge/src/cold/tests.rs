//! The archive without an engine: what maintenance does with what lies in an outbox (B-043, B-074 to B-079).

mod clocks;
#[cfg(feature = "cold-store")]
mod hanging;
mod many;
mod problems;
mod unwritten;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, Record, Uid, UnixMillis};

use super::archive::{Archive, Pass, Resolver};
use super::doubles::MemoryStore;
use super::intent::Intent;
use super::keys::KeyRing;
use super::outbox::{Committed, Outbox, Staged};
use super::{ArchiveOptions, ColdError, ColdStore, ColdStores, Listed, PutEnd};
use crate::embedded::{EngineOptions, OsStorage, Storage};
use crate::{BridgeManifest, BusError, EmbeddedBroker, EventBus, RetentionSpec, TopicSpec, limits};

const KEY: [u8; 32] = [7; 32];
const GRACE: u64 = limits::COLD_GRACE_MILLIS.default;

struct One(Arc<dyn ColdStore>);

impl ColdStores for One {
    fn open(&self, _uri: &str) -> Result<Arc<dyn ColdStore>, BusError> {
        Ok(Arc::clone(&self.0))
    }

    fn check(&self, _uri: &str) -> Result<(), BusError> {
        Ok(())
    }
}

fn manifest() -> BridgeManifest {
    let retention = RetentionSpec { cold_uri: Some("x".to_owned()), ..RetentionSpec::default() };
    let topic = TopicSpec { name: "t".to_owned(), partitions: 4, retention, schema_ref: None };
    BridgeManifest { manifest_version: 1, name: "n".to_owned(), replication_factor: 1, topics: vec![topic] }
}

fn options(store: Arc<dyn ColdStore>) -> ArchiveOptions {
    ArchiveOptions { control_keys: vec![KEY], stores: Some(Arc::new(One(store))), ..ArchiveOptions::default() }
}

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn open(directory: &Path, store: Arc<dyn ColdStore>) -> Archive {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    Archive::open(&storage, &manifest(), &options(store), directory, "tests").unwrap().unwrap()
}

fn intent(uid: &str, stored_at: u64, offset: Option<u64>) -> Intent {
    let record = Record {
        uid: Uid::parse(uid).unwrap(),
        key: "k".to_owned(),
        media_type: MediaType::json(),
        attributes: Attributes::default(),
        payload: Bytes::from_static(b"{\"a\":1}"),
        stored_at: UnixMillis(stored_at),
    };
    Intent { topic: "t".to_owned(), partition: Partition(1), record, offset: offset.map(Offset) }
}

/// Stages one and fails unless that succeeded.
fn stage(archive: &Archive, intent: Intent) -> Staged {
    archive.outbox.stage(&[intent]).pop().unwrap().unwrap()
}

/// Answers what it is told to, and counts.
struct Answers<F>(F, AtomicU64);

impl<F: Fn(&Intent) -> Result<Intent, BusError>> Resolver for Answers<F> {
    fn resolve(&self, intent: &Intent) -> Result<Intent, BusError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        (self.0)(intent)
    }
}

fn answers<F: Fn(&Intent) -> Result<Intent, BusError>>(answer: F) -> Answers<F> {
    Answers(answer, AtomicU64::new(0))
}

fn at(offset: u64) -> impl Fn(&Intent) -> Result<Intent, BusError> {
    move |intent| Ok(Intent { offset: Some(Offset(offset)), ..intent.clone() })
}

fn drain(archive: &Archive, now: u64, resolver: &dyn Resolver) -> Pass {
    let pass = Pass::default();
    archive.drain(&pass, UnixMillis(now), resolver).unwrap();
    pass
}

fn objects(store: &MemoryStore) -> Vec<String> {
    store.objects().into_keys().filter(|path| path.starts_with("t/")).collect()
}

/// B-078.
#[test]
fn an_intent_without_offset_is_left_to_its_publisher_for_the_grace_and_then_resolved() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), Arc::clone(&store) as _);
    stage(&archive, intent("u", 1_000, None));
    let resolver = answers(at(5));
    for now in [0, 1_000, 1_000 + GRACE - 1] {
        assert_eq!(drain(&archive, now, &resolver).completed(), 0);
    }
    assert_eq!((resolver.1.load(Ordering::SeqCst), archive.outbox.counts()), (0, (1, 0)));
    assert_eq!(drain(&archive, 1_000 + GRACE, &resolver).completed(), 1);
    assert_eq!((objects(&store), archive.outbox.counts()), (vec!["t/p1/00000000000000000005.json".to_owned()], (0, 0)));
    // One that is in flight here is left alone for as long as it is.
    stage(&archive, intent("v", 1_000, None));
    #[cfg(feature = "nats")]
    {
        let name = intent("v", 1_000, None).name();
        archive.outbox.begin_flight(&name);
        assert_eq!(drain(&archive, 10 * GRACE, &resolver).completed(), 0);
        archive.outbox.end_flight(&name);
    }
    assert_eq!(drain(&archive, 10 * GRACE, &answers(at(6))).completed(), 1);
}

/// B-078: what the log says must be about this event.
#[test]
fn an_answer_about_another_topic_partition_or_uid_is_an_error_and_the_intent_is_kept() {
    let changes: [fn(&mut Intent); 3] = [
        |intent| intent.topic = "other".to_owned(),
        |intent| intent.partition = Partition(2),
        |intent| intent.record.uid = Uid::parse("v").unwrap(),
    ];
    for change in changes {
        let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
        let archive = open(directory.path(), Arc::clone(&store) as _);
        stage(&archive, intent("u", 0, None));
        let resolver = answers(|intent| {
            let mut stored = at(5)(intent)?;
            change(&mut stored);
            Ok(stored)
        });
        let pass = drain(&archive, GRACE, &resolver);
        assert_eq!((pass.completed(), pass.failed(), archive.outbox.counts()), (0, 1, (1, 1)));
        assert!(objects(&store).is_empty());
    }
}

/// B-078: a racing commit's offset wins; what vanishes meanwhile is ignored.
#[test]
fn a_commit_that_comes_while_the_log_is_asked_has_the_last_word() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), Arc::clone(&store) as _);
    stage(&archive, intent("u", 0, None));
    let resolver = answers(|intent| {
        assert_eq!(archive.outbox.commit(&[at(7)(intent)?]).pop(), Some(Ok(Committed::Offset)));
        at(9)(intent)
    });
    assert_eq!(drain(&archive, GRACE, &resolver).completed(), 1);
    assert_eq!(objects(&store), ["t/p1/00000000000000000007.json"]);
    stage(&archive, intent("v", 0, None));
    let resolver = answers(|intent| {
        archive.outbox.remove(&intent.name())?;
        at(9)(intent)
    });
    let pass = drain(&archive, GRACE, &resolver);
    assert_eq!((pass.completed(), pass.failed(), archive.outbox.counts()), (0, 0, (0, 0)));
}

/// A broker that is away is asked a few times and then left alone until the next pass; nothing of that is anybody's fault.
#[test]
fn a_log_that_cannot_be_asked_is_left_alone_for_the_pass() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), store);
    (0..20).for_each(|n| drop(stage(&archive, intent(&format!("u{n}"), 0, None))));
    let resolver = answers(|_| Err(BusError::NotSent { reason: "away".to_owned() }));
    let pass = drain(&archive, GRACE, &resolver);
    let asked = limits::COLD_STORE_FAILURES.default;
    assert_eq!((resolver.1.load(Ordering::SeqCst), pass.failed(), archive.outbox.counts()), (asked, asked, (20, 0)));
    let count = AtomicU64::new(0);
    let resolver = answers(|intent| at(count.fetch_add(1, Ordering::SeqCst))(intent));
    assert_eq!(drain(&archive, 2 * GRACE, &resolver).completed(), 20);
}

/// B-074.
#[test]
fn the_same_event_is_staged_once_and_as_it_was_first_and_another_one_is_refused() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), store);
    assert!(!stage(&archive, intent("u", 1_000, None)).existed);
    let again = stage(&archive, intent("u", 2_000, None));
    assert!(again.existed && again.intent.record.stored_at == UnixMillis(1_000), "{again:?}");
    let changes: [fn(&mut Intent); 3] = [
        |intent| intent.partition = Partition(2),
        |intent| intent.record.key = "other".to_owned(),
        |intent| intent.record.payload = Bytes::from_static(b"{\"a\":2}"),
    ];
    for change in changes {
        let mut other = intent("u", 1_000, None);
        change(&mut other);
        let refused = archive.outbox.stage(&[other]).pop().unwrap().unwrap_err();
        assert!(matches!(&refused, BusError::Backend(text) if text.contains("uid is bound to a different event")), "{refused}");
    }
    assert_eq!(archive.outbox.counts().0, 1);
}

/// B-075.
#[test]
fn an_offset_is_written_once_and_a_commit_without_intent_is_fine() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), store);
    let commit = |stored: Intent| archive.outbox.commit(&[stored]).pop().unwrap();
    assert_eq!(commit(intent("u", 0, Some(5))), Ok(Committed::Gone));
    stage(&archive, intent("u", 0, None));
    assert_eq!(commit(intent("u", 0, Some(5))), Ok(Committed::Offset));
    assert_eq!(commit(intent("u", 0, Some(5))), Ok(Committed::Offset));
    assert!(matches!(commit(intent("u", 0, Some(6))), Err(BusError::Backend(_))));
    let mut other = intent("u", 0, Some(5));
    other.record.payload = Bytes::from_static(b"{}");
    assert!(matches!(commit(other), Err(BusError::Backend(_))));
    assert_eq!(archive.outbox.read(&intent("u", 0, None).name()).unwrap().unwrap().offset, Some(Offset(5)));
}

/// BUG-15, D-18: what lies in the log has the last word on when it was stored, so the object is the same however it came about.
#[test]
fn a_commit_takes_over_the_record_as_it_is_stored() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), Arc::clone(&store) as _);
    stage(&archive, intent("u", 2_000, None));
    let stored = Intent { offset: Some(Offset(5)), ..intent("u", 1_000, None) };
    assert_eq!(archive.outbox.commit(&[stored]).pop().unwrap(), Ok(Committed::Offset));
    drain(&archive, 0, &answers(at(0)));
    let object = store.objects()["t/p1/00000000000000000005.json"].clone();
    assert_eq!(super::object::decode(&object).unwrap().record.stored_at, UnixMillis(1_000));
}

/// A store that uses the outbox while it is called, as it could not if the lock of the intents were held.
struct Curious {
    store: MemoryStore,
    archive: OnceLock<Weak<Archive>>,
    met: Mutex<Vec<u64>>,
}

impl ColdStore for Curious {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        if let Some(archive) = self.archive.get().and_then(Weak::upgrade) {
            stage(&archive, intent(&format!("of-{}", path.len() + path.bytes().map(usize::from).sum::<usize>()), u64::MAX, None));
            self.met.lock().unwrap().push(archive.statistics().intents);
        }
        self.store.put_new(path, bytes)
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        self.store.get(path, bytes_max)
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        self.store.list_after(prefix, after, count_max)
    }
}

/// B-079.
#[test]
fn neither_a_store_nor_the_log_is_asked_while_the_intents_are_locked() {
    let directory = scratch();
    let store = Arc::new(Curious { store: MemoryStore::new(), archive: OnceLock::new(), met: Mutex::default() });
    let archive = Arc::new(open(directory.path(), Arc::clone(&store) as _));
    store.archive.set(Arc::downgrade(&archive)).unwrap();
    (0..4).for_each(|n| drop(stage(&archive, intent(&format!("u{n}"), 0, None))));
    let offsets = AtomicU64::new(0);
    let resolver = answers(|intent| {
        stage(
            &archive,
            Intent {
                record: Record { uid: Uid::parse(&format!("asked-{}", intent.record.uid)).unwrap(), ..intent.record.clone() },
                ..intent.clone()
            },
        );
        at(offsets.fetch_add(1, Ordering::SeqCst))(intent)
    });
    let pass = drain(&archive, GRACE, &resolver);
    assert_eq!((pass.completed(), store.met.lock().unwrap().len()), (4, 4));
    assert_eq!(archive.outbox.names().unwrap().len(), 8);
}

/// B-069: a store that cannot be asked at the start is asked again, and used only then.
#[test]
fn a_store_is_proved_before_the_first_object_is_written_to_it() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    store.set_down(true);
    let archive = open(directory.path(), Arc::clone(&store) as _);
    stage(&archive, intent("u", 0, Some(1)));
    let pass = drain(&archive, 0, &answers(at(0)));
    assert_eq!((pass.completed(), pass.unreachable()), (0, vec!["t".to_owned()]));
    store.set_down(false);
    store.set_overwrites(true);
    let pass = drain(&archive, GRACE, &answers(at(0)));
    assert_eq!((pass.completed(), archive.outbox.counts(), objects(&store).len()), (0, (1, 1), 0), "it must not be used");
}

/// The bound of the outbox at its edge.
#[test]
fn an_outbox_takes_so_many_intents_and_one_that_is_there_is_no_further_one() {
    let directory = scratch();
    let keys = KeyRing::new(&[KEY]).unwrap();
    let outbox = Outbox::open(Arc::new(OsStorage), directory.path(), "tests", keys, 3).unwrap();
    let results = outbox.stage(&(0..4).map(|n| intent(&format!("u{n}"), 0, None)).collect::<Vec<_>>());
    assert!(results[..3].iter().all(Result::is_ok));
    assert_eq!(results[3], Err(BusError::Busy { limit: limits::COLD_INTENTS.name }));
    assert!(outbox.stage(&[intent("u0", 0, None)]).pop().unwrap().unwrap().existed);
    outbox.remove(&intent("u0", 0, None).name()).unwrap();
    assert!(outbox.stage(&[intent("u3", 0, None)]).pop().unwrap().is_ok());
}

/// Two publications of one event at once: the one that certainly failed does not take the other's intent away.
#[cfg(feature = "nats")]
#[test]
fn an_intent_is_withdrawn_only_when_nobody_else_publishes_its_event() {
    use super::outbox::Op;
    let directory = scratch();
    let outbox = Outbox::open(Arc::new(OsStorage), directory.path(), "tests", KeyRing::new(&[KEY]).unwrap(), 3).unwrap();
    let event = || intent("u", 0, None);
    outbox.begin_flight(&event().name());
    outbox.begin_flight(&event().name());
    assert!(outbox.stage(&[event()]).pop().unwrap().is_ok());
    let withdraw = || assert!(outbox.apply(&[Op::Withdraw(event())]).pop().unwrap().is_ok());
    withdraw();
    assert_eq!(outbox.names().unwrap().len(), 1, "the other one counts on it");
    outbox.end_flight(&event().name());
    withdraw();
    assert_eq!(outbox.names().unwrap().len(), 0);
}

/// B-043: on the embedded engine an intent without offset is answered from the uid index, and nothing is ever published again.
#[test]
fn the_embedded_engine_resolves_from_its_index_and_keeps_what_it_does_not_know() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let engine = || EngineOptions { archive: options(Arc::clone(&store) as _), ..EngineOptions::default() };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(), engine()).unwrap();
    let published = |uid: &str| {
        let record = intent(uid, 0, None).record;
        let uid = Some(record.uid);
        NewRecord::new(uid, &record.key, record.media_type, record.attributes, record.payload).unwrap()
    };
    let ack = broker.publish_record("t", &published("known")).unwrap();
    drop(broker);
    let outbox = directory.path().join("cold-outbox");
    let owner = std::fs::read_to_string(outbox.join("owner")).unwrap();
    let owner = owner.lines().find_map(|line| line.strip_prefix("owner ")).unwrap().to_owned();
    let planted = Outbox::open(Arc::new(OsStorage), &outbox, &owner, KeyRing::new(&[KEY]).unwrap(), 9).unwrap();
    let of = |uid: &str| Intent { partition: Partition(ack.partition), ..intent(uid, 0, None) };
    assert!(planted.stage(&[of("known"), of("unknown")]).iter().all(Result::is_ok));
    drop(planted);
    let broker = EmbeddedBroker::open_with(directory.path(), engine()).unwrap();
    let report = broker.maintain(UnixMillis(GRACE)).unwrap();
    assert_eq!((report.intents_completed, report.intents_pending, report.intents_quarantined), (1, 1, 1));
    assert_eq!(objects(&store), [format!("t/p{}/{:020}.json", ack.partition, ack.offset)]);
    let object = store.objects()[&objects(&store)[0]].clone();
    let stored_at = super::object::decode(&object).unwrap().record.stored_at;
    assert!(stored_at.0 > 0, "as the log has it, not as the intent said");
    assert_eq!(broker.find_event_by_uid("t", "k", "unknown"), Ok(None), "never published");
}
