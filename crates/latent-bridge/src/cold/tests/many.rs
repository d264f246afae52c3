//! BUG-73: an outbox in which very much waits at the start. What it costs is counted, not timed.

use std::io;
use std::path::PathBuf;

use super::*;
use crate::embedded::{OpenAs, PathKind, StorageFile};

const INTENTS: u64 = 10_000;

/// Counts what is read and changed. Names are not synced.
#[derive(Default)]
struct Counting {
    lists: AtomicU64,
    reads: AtomicU64,
    changes: AtomicU64,
    /// Intents that were read and are not removed yet, now and at most.
    held: AtomicU64,
    held_max: AtomicU64,
}

fn is_intent(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json")
}

impl Storage for Counting {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        if how == OpenAs::Existing && is_intent(path) {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let held = self.held.fetch_add(1, Ordering::SeqCst) + 1;
            self.held_max.fetch_max(held, Ordering::SeqCst);
        }
        OsStorage.open(path, how)
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        OsStorage.kind(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        OsStorage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        OsStorage.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        OsStorage.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsStorage.hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if is_intent(path) {
            self.changes.fetch_add(1, Ordering::SeqCst);
            self.held.fetch_sub(1, Ordering::SeqCst);
        }
        OsStorage.remove_file(path)
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// A store during each hundredth put of which somebody publishes, which is an intent staged and committed.
struct Beside {
    store: MemoryStore,
    archive: OnceLock<Weak<Archive>>,
    puts: AtomicU64,
    published: AtomicU64,
}

impl ColdStore for Beside {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let puts = self.puts.fetch_add(1, Ordering::SeqCst);
        if let Some(archive) = self.archive.get().and_then(Weak::upgrade).filter(|_| puts <= INTENTS && puts.is_multiple_of(100)) {
            let new = intent(&format!("new-{puts}"), u64::MAX, None);
            assert!(!stage(&archive, new.clone()).existed);
            let stored = Intent { offset: Some(Offset(INTENTS + puts)), ..new };
            assert_eq!(archive.outbox.commit(&[stored]).pop(), Some(Ok(Committed::Offset)));
            self.published.fetch_add(1, Ordering::SeqCst);
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

fn filled() -> (tempfile::TempDir, PathBuf) {
    let directory = scratch();
    let outbox = directory.path().join("outbox");
    let unsynced: Arc<dyn Storage> = Arc::new(Counting::default());
    let archive = Archive::open(&unsynced, &manifest(), &options(Arc::new(MemoryStore::new())), &outbox, "tests").unwrap().unwrap();
    let intents: Vec<_> = (0..INTENTS).map(|n| intent(&format!("u{n}"), 0, Some(n))).collect();
    assert!(archive.outbox.stage(&intents).iter().all(Result::is_ok));
    drop(archive);
    (directory, outbox)
}

/// Order does not matter, memory is bounded, one bad entry hides no other, and publications go on.
#[test]
fn bug_73_ten_thousand_intents_are_finished_in_batches_and_publications_wait_for_none_of_them() {
    let (_directory, outbox) = filled();
    std::fs::create_dir(outbox.join("a.json")).unwrap();
    std::os::unix::fs::symlink("nowhere", outbox.join("b.json")).unwrap();
    std::fs::write(outbox.join("c.json"), vec![b'x'; 2 << 20]).unwrap();
    let counting = Arc::new(Counting::default());
    let store =
        Arc::new(Beside { store: MemoryStore::new(), archive: OnceLock::new(), puts: AtomicU64::new(0), published: AtomicU64::new(0) });
    let storage: Arc<dyn Storage> = Arc::clone(&counting) as _;
    let archive = Archive::open(&storage, &manifest(), &options(Arc::clone(&store) as _), &outbox, "tests").unwrap().unwrap();
    let archive = Arc::new(archive);
    let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    assert_eq!((count(&counting.reads), count(&counting.lists)), (0, 1), "opening reads no intent");
    assert_eq!(archive.outbox.counts(), (INTENTS + 3, 0));
    store.archive.set(Arc::downgrade(&archive)).unwrap();
    let pass = drain(&archive, 0, &answers(at(0)));
    let published = count(&store.published);
    assert_eq!((pass.completed(), pass.failed(), published), (INTENTS, 3, INTENTS / 100));
    assert_eq!(count(&counting.lists), 2, "what came meanwhile is for the next pass");
    // Each intent is read once and removed once; one that came meanwhile is read for its commit, and written twice.
    assert!(count(&counting.reads) <= INTENTS + 3 + published, "{}", count(&counting.reads));
    assert_eq!(count(&counting.changes), INTENTS + 2 * published);
    let (batch, beside) = (limits::COLD_BATCH_RECORDS.default, published + 3);
    assert!(count(&counting.held_max) <= batch + beside, "{}", count(&counting.held_max));
    assert_eq!(drain(&archive, 0, &answers(at(0))).completed(), published);
    assert_eq!(objects(&store.store).len() as u64, INTENTS + published);
    assert_eq!(archive.outbox.names().unwrap().len(), 3);
}
