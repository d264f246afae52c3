//! Stores for tests: in memory, with planned faults. Also compiled into the crate's integration tests, so it names nothing but the seam.

#![allow(dead_code, unreachable_pub, reason = "compiled into several test programs, of which none uses all of it")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::store::{ColdError, ColdStore, Listed, PutEnd};

/// What a store does to one call instead of answering it truly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An error; nothing was done.
    Fail,
    /// A put is done and the answer lost.
    DoneThenTimeout,
    /// A put is answered with "exists"; nothing was done.
    SayExists,
    /// A put is answered with "not implemented"; nothing was done.
    SayUnconditional,
    /// A read is answered with half of the object.
    HalfRead,
    /// A read or a listing is answered as if nothing was there.
    SayAbsent,
}

/// One call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// See [`ColdStore::put_new`].
    Put(String),
    /// See [`ColdStore::get`].
    Get(String),
    /// See [`ColdStore::list_after`].
    List(String),
}

/// A store in memory.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    calls: Vec<Call>,
    /// For the next calls, one each.
    plan: VecDeque<Option<Fault>>,
    /// For every put after them.
    puts: Option<Fault>,
    /// Every call fails, as when the network is gone.
    is_down: bool,
    /// Puts replace what is there and say "created".
    overwrites: bool,
    lists: bool,
}

impl MemoryStore {
    /// An empty store that does what it says.
    pub fn new() -> Self {
        let store = Self::default();
        store.lock().lists = true;
        store
    }

    /// What the next calls meet, in order; those after them are answered truly.
    pub fn plan(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.lock().plan.extend(faults);
    }

    /// What every put meets from now on.
    pub fn every_put(&self, fault: Option<Fault>) {
        self.lock().puts = fault;
    }

    /// Whether it can be reached.
    pub fn set_down(&self, is_down: bool) {
        self.lock().is_down = is_down;
    }

    /// Whether puts replace what is there in silence.
    pub fn set_overwrites(&self, overwrites: bool) {
        self.lock().overwrites = overwrites;
    }

    /// Whether listing is allowed.
    pub fn set_lists(&self, lists: bool) {
        self.lock().lists = lists;
    }

    /// Puts an object there whatever was there before, as somebody else would.
    pub fn plant(&self, path: &str, bytes: impl Into<Bytes>) {
        self.lock().objects.insert(path.to_owned(), bytes.into());
    }

    /// Takes an object away, as somebody else would.
    pub fn lose(&self, path: &str) -> Option<Bytes> {
        self.lock().objects.remove(path)
    }

    /// Everything that lies there.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        self.lock().objects.clone()
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, call: Call, operation: &'static str, object: &str) -> Result<Option<Fault>, ColdError> {
        let is_put = matches!(call, Call::Put(_));
        self.calls.push(call);
        let planned = self.plan.pop_front().unwrap_or_else(|| self.puts.filter(|_| is_put));
        if self.is_down || planned == Some(Fault::Fail) {
            return Err(ColdError::Failed { operation, object: object.to_owned(), reason: "planned".to_owned() });
        }
        Ok(planned)
    }
}

impl ColdStore for MemoryStore {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let mut state = self.lock();
        let fault = state.begin(Call::Put(path.to_owned()), "put", path)?;
        match fault {
            Some(Fault::SayExists) => return Ok(PutEnd::Exists),
            Some(Fault::SayUnconditional) => {
                return Err(ColdError::Unconditional { object: path.to_owned(), reason: "not implemented".to_owned() });
            }
            _ => {}
        }
        let is_there = state.objects.contains_key(path);
        if !is_there || state.overwrites {
            state.objects.insert(path.to_owned(), bytes);
        }
        match fault {
            Some(Fault::DoneThenTimeout) => Err(ColdError::Timeout { operation: "put", object: path.to_owned() }),
            _ if is_there && !state.overwrites => Ok(PutEnd::Exists),
            _ => Ok(PutEnd::Created),
        }
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        let mut state = self.lock();
        let fault = state.begin(Call::Get(path.to_owned()), "get", path)?;
        let Some(object) = state.objects.get(path).filter(|_| fault != Some(Fault::SayAbsent)) else { return Ok(None) };
        let bytes = object.len() as u64;
        match fault {
            Some(Fault::DoneThenTimeout) => Err(ColdError::Timeout { operation: "get", object: path.to_owned() }),
            _ if bytes > bytes_max => Err(ColdError::TooLarge { object: path.to_owned(), bytes, bytes_max }),
            Some(Fault::HalfRead) => Ok(Some(object.slice(..object.len() / 2))),
            _ => Ok(Some(object.clone())),
        }
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        let mut state = self.lock();
        let fault = state.begin(Call::List(prefix.to_owned()), "list", prefix)?;
        if !state.lists {
            return Err(ColdError::Failed { operation: "list", object: prefix.to_owned(), reason: "denied".to_owned() });
        }
        if fault == Some(Fault::SayAbsent) {
            return Ok(Vec::new());
        }
        let fits = |path: &str| path.starts_with(prefix) && path > after;
        let listed = state.objects.iter().filter(|(path, _)| fits(path)).take(count_max);
        Ok(listed.map(|(path, object)| Listed::object(path.clone(), object.len() as u64)).collect())
    }
}

/// A store of which every put hangs while that is wanted, and is done when it does not hang any more.
#[derive(Default)]
pub struct HangingStore {
    /// What puts come to.
    pub store: MemoryStore,
    hangs: Mutex<bool>,
    changed: Condvar,
}

impl HangingStore {
    /// Whether puts hang.
    pub fn hang(&self, hangs: bool) {
        *self.hangs.lock().unwrap_or_else(PoisonError::into_inner) = hangs;
        self.changed.notify_all();
    }
}

impl ColdStore for HangingStore {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let hangs = self.hangs.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(hangs, |hangs| *hangs).unwrap_or_else(PoisonError::into_inner));
        self.store.put_new(path, bytes)
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        self.store.get(path, bytes_max)
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        self.store.list_after(prefix, after, count_max)
    }
}
