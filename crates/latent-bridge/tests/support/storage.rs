//! A storage that counts, fails and waits on demand, over the real file system.
//!
//! Two threads use it, so that "the n-th call" is not the same one every time; "the n-th write to a segment" is, or nearly.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use latent_bridge::embedded::{OpenAs, OsStorage, PathKind, Storage, StorageFile};

/// Which calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failing {
    /// None.
    Never,
    /// The call with this number, counted from 0.
    Only(u64),
    /// That one and all after it.
    From(u64),
}

impl Failing {
    fn hits(self, call: u64) -> bool {
        match self {
            Self::Never => false,
            Self::Only(number) => call == number,
            Self::From(number) => call >= number,
        }
    }
}

/// Kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Open,
    Create,
    Read,
    Write,
    Resize,
    Sync,
    Rename,
    Remove,
    SyncDirectory,
}

/// Calls of one kind that fail, on files whose name ends so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) op: Op,
    pub(crate) ending: &'static str,
    pub(crate) which: Failing,
    pub(crate) kind: io::ErrorKind,
    /// Bytes of a failing write that are written all the same.
    pub(crate) written: usize,
}

impl Fault {
    /// The `number`-th call of this kind, counted from 0, after which nothing is wrong any more.
    pub(crate) fn once(op: Op, ending: &'static str, number: u64) -> Self {
        Self { op, ending, which: Failing::Only(number), kind: io::ErrorKind::Other, written: 0 }
    }

    /// From that call on, for want of space.
    pub(crate) fn full_from(op: Op, ending: &'static str, number: u64) -> Self {
        Self { op, ending, which: Failing::From(number), kind: io::ErrorKind::StorageFull, written: 7 }
    }
}

#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    waiting: Mutex<u64>,
    arrived: Condvar,
}

struct Inner {
    failing: Mutex<Failing>,
    faults: Mutex<Vec<(Fault, u64)>>,
    calls: AtomicU64,
    failed: AtomicU64,
    syncs: AtomicU64,
    skip_syncs: AtomicBool,
    gate: Gate,
}

/// See the module. Calls that change something count and can fail; a failing write leaves half of its bytes.
pub(crate) struct TestStorage {
    inner: Arc<Inner>,
}

impl TestStorage {
    pub(crate) fn new() -> Arc<Self> {
        let inner = Inner {
            failing: Mutex::new(Failing::Never),
            faults: Mutex::default(),
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            skip_syncs: AtomicBool::new(false),
            gate: Gate::default(),
        };
        Arc::new(Self { inner: Arc::new(inner) })
    }

    /// One whose syncs do nothing.
    pub(crate) fn without_syncs() -> Arc<Self> {
        let storage = Self::new();
        storage.inner.skip_syncs.store(true, Ordering::SeqCst);
        storage
    }

    /// From now on, counted from 0 again, these calls fail.
    pub(crate) fn fail(&self, failing: Failing) {
        *self.inner.failing.lock().unwrap() = failing;
        self.inner.calls.store(0, Ordering::SeqCst);
        self.inner.failed.store(0, Ordering::SeqCst);
    }

    /// From now on these calls fail, and no others.
    pub(crate) fn inject(&self, faults: &[Fault]) {
        self.fail(Failing::Never);
        *self.inner.faults.lock().unwrap() = faults.iter().map(|fault| (*fault, 0)).collect();
    }

    /// Calls that failed since [`TestStorage::fail`] or [`TestStorage::inject`].
    pub(crate) fn failed(&self) -> u64 {
        self.inner.failed.load(Ordering::SeqCst)
    }

    /// Calls of `sync` on files.
    pub(crate) fn syncs(&self) -> u64 {
        self.inner.syncs.load(Ordering::SeqCst)
    }

    /// Makes syncs wait until [`TestStorage::open_gate`].
    pub(crate) fn close_gate(&self) {
        *self.inner.gate.closed.lock().unwrap() = true;
    }

    /// Lets syncs pass.
    pub(crate) fn open_gate(&self) {
        *self.inner.gate.closed.lock().unwrap() = false;
        self.inner.gate.opened.notify_all();
    }

    /// Waits until a sync waits at the closed gate.
    pub(crate) fn wait_for_a_waiting_sync(&self) {
        let waiting = self.inner.gate.waiting.lock().unwrap();
        let guard = std::time::Duration::from_secs(60);
        let (waiting, _) = self.inner.gate.arrived.wait_timeout_while(waiting, guard, |waiting| *waiting == 0).unwrap();
        assert!(*waiting > 0, "nothing was synced");
    }
}

impl Inner {
    /// The fault that hits this call of a file of this name.
    fn fault(&self, op: Op, name: &Path) -> Result<(), Fault> {
        let name = name.to_string_lossy();
        let mut hit = Ok(());
        for (fault, calls) in self.faults.lock().unwrap().iter_mut() {
            if fault.op == op && name.ends_with(fault.ending) {
                if fault.which.hits(*calls) {
                    hit = Err(*fault);
                }
                *calls += 1;
            }
        }
        if hit.is_err() {
            self.failed.fetch_add(1, Ordering::SeqCst);
        }
        hit
    }

    fn check(&self, op: Op, name: &Path) -> io::Result<()> {
        self.fault(op, name).map_err(|fault| io::Error::new(fault.kind, "injected"))
    }

    fn call(&self) -> io::Result<()> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        if self.failing.lock().unwrap().hits(number) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::other("injected"));
        }
        Ok(())
    }

    fn pass_gate(&self) {
        let mut closed = self.gate.closed.lock().unwrap();
        while *closed {
            *self.gate.waiting.lock().unwrap() += 1;
            self.gate.arrived.notify_all();
            closed = self.gate.opened.wait(closed).unwrap();
            *self.gate.waiting.lock().unwrap() -= 1;
        }
    }
}

impl Storage for TestStorage {
    fn open(&self, path: &Path, how: OpenAs) -> io::Result<Arc<dyn StorageFile>> {
        if how == OpenAs::Existing {
            self.inner.check(Op::Open, path)?;
        } else {
            self.inner.call()?;
            self.inner.check(Op::Create, path)?;
        }
        Ok(Arc::new(TestFile { file: OsStorage.open(path, how)?, path: path.to_owned(), inner: Arc::clone(&self.inner) }))
    }

    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        OsStorage.kind(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        OsStorage.list(directory)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.call()?;
        OsStorage.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.call()?;
        self.inner.check(Op::Rename, to)?;
        OsStorage.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.call()?;
        OsStorage.hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.call()?;
        self.inner.check(Op::Remove, path)?;
        OsStorage.remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.call()?;
        self.inner.check(Op::SyncDirectory, path)?;
        if self.inner.skip_syncs.load(Ordering::SeqCst) { Ok(()) } else { OsStorage.sync_directory(path) }
    }
}

struct TestFile {
    file: Arc<dyn StorageFile>,
    /// As it was opened.
    path: PathBuf,
    inner: Arc<Inner>,
}

impl StorageFile for TestFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.inner.check(Op::Read, &self.path)?;
        self.file.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if let Err(error) = self.inner.call() {
            self.file.write_at(&bytes[..bytes.len() / 2], at)?;
            return Err(error);
        }
        if let Err(fault) = self.inner.fault(Op::Write, &self.path) {
            self.file.write_at(&bytes[..bytes.len().min(fault.written)], at)?;
            return Err(io::Error::new(fault.kind, "injected"));
        }
        self.file.write_at(bytes, at)
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.inner.call()?;
        self.inner.check(Op::Resize, &self.path)?;
        self.file.resize(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.pass_gate();
        self.inner.call()?;
        self.inner.check(Op::Sync, &self.path)?;
        self.inner.syncs.fetch_add(1, Ordering::SeqCst);
        if self.inner.skip_syncs.load(Ordering::SeqCst) { Ok(()) } else { self.file.sync() }
    }
}
