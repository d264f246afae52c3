//! The outbox: one file for each intent, in a directory of its own that one process holds (B-070, B-072, B-074, B-075).
//!
//! Promises: what [`Outbox::stage`] returned is durable. An intent is a whole file or none. Nothing here waits for a store or a broker: the
//! lock of the intents is held for file operations only (B-079). A failed sync of the directory ends all writing until it is opened again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use latent_core::{UncertainCause, UnixMillis};

use super::intent::{ENDING, Intent};
use super::keys::KeyRing;
use super::owner;
use super::trouble::Trouble;
use crate::embedded::{DirectoryLock, PathKind, Storage};
use crate::engine::embedded::directory::{create_directories, discard, read_control, write_temporary};
use crate::{BusError, limits};

/// Ends the name of a file that is being written.
const TEMPORARY: &str = ".tmp";

/// See the module.
pub(crate) struct Outbox {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    id: String,
    keys: RwLock<Arc<KeyRing>>,
    intents_max: u64,
    state: Mutex<State>,
    /// Last, so that it is released when nothing is written any more.
    _lock: DirectoryLock,
}

#[derive(Default)]
struct State {
    count: u64,
    is_poisoned: bool,
    troubles: BTreeMap<String, Trouble>,
    /// Of the first that are in quarantine, in words.
    problems: BTreeMap<String, String>,
    /// Intents whose publication is in flight, and how many of them.
    in_flight: HashMap<String, u32>,
}

/// What staging found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staged {
    /// The intent as it lies there: that of the first attempt, if this is another one (D-18).
    pub(crate) intent: Intent,
    /// There was one already.
    pub(crate) existed: bool,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Committed {
    /// The intent has its offset, durably.
    Offset,
    /// There is no intent any more: somebody else finished it.
    Gone,
}

type Step<T> = Result<T, BusError>;

/// One thing to do in an outbox.
#[cfg(feature = "nats")]
#[derive(Debug)]
pub(crate) enum Op {
    /// See [`Outbox::stage`].
    Stage(Intent),
    /// See [`Outbox::commit`].
    Commit(Intent),
    /// Takes an intent back whose event was certainly not published.
    Withdraw(Intent),
}

#[cfg(feature = "nats")]
impl Op {
    const fn intent(&self) -> &Intent {
        match self {
            Self::Stage(intent) | Self::Commit(intent) | Self::Withdraw(intent) => intent,
        }
    }
}

/// What became of an [`Op`].
#[cfg(feature = "nats")]
#[derive(Debug)]
pub(crate) enum Done {
    /// It was staged.
    Staged(Staged),
    /// Its offset was written down, or there was nothing left to do.
    Committed,
    /// It is gone, durably.
    Withdrawn,
}

impl Outbox {
    /// Takes the directory for `owner`, which is what all its intents belong to.
    ///
    /// # Errors
    /// [`BusError::OutboxInUse`] naming who has it; [`BusError::Config`] when it belongs to somebody else; [`BusError::Io`].
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        directory: &Path,
        owner: &str,
        keys: KeyRing,
        intents_max: u64,
    ) -> Result<Self, BusError> {
        create_directories(&*storage, directory)?;
        let lock = DirectoryLock::take(&directory.join("lock"), owner).map_err(held)?;
        let id = owner::take(&*storage, directory, owner)?;
        let mut state = State::default();
        for name in list(&*storage, directory)? {
            if name.ends_with(TEMPORARY) {
                discard(&*storage, &directory.join(&name));
            } else if name.ends_with(ENDING) {
                state.count += 1;
            }
        }
        // An earlier process may have been killed before the names were durable.
        storage.sync_directory(directory).map_err(|error| BusError::io("sync", directory, &error))?;
        let (keys, state) = (RwLock::new(Arc::new(keys)), Mutex::new(state));
        Ok(Self { storage, directory: directory.to_owned(), id, keys, intents_max, state, _lock: lock })
    }

    /// Tells this outbox from every other one.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The keys in force.
    pub(crate) fn keys(&self) -> Arc<KeyRing> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other keys in force.
    pub(crate) fn set_keys(&self, keys: KeyRing) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        // What failed under the old keys may be right under these.
        let mut state = self.lock();
        state.troubles.retain(|_, trouble| !trouble.is_quarantined);
        state.problems.clear();
    }

    /// Stages intents, which share one sync of the directory. Of each: what lies there now, durably.
    ///
    /// # Errors
    /// Of each: [`BusError::Config`] without a key, with nothing written; [`BusError::Busy`] when the outbox is full; [`BusError::Io`] when
    /// it could not be written, with nothing left; [`BusError::Uncertain`] when it may be there and may not be durable;
    /// [`BusError::Backend`] when the uid is bound to a different event or what lies there cannot be believed.
    pub(crate) fn stage(&self, intents: &[Intent]) -> Vec<Result<Staged, BusError>> {
        let keys = self.keys();
        let mut state = self.lock();
        let staged: Vec<_> = intents.iter().map(|intent| self.stage_one(&mut state, &keys, intent)).collect();
        self.sync(&mut state, intents.iter(), staged)
    }

    fn stage_one(&self, state: &mut State, keys: &KeyRing, intent: &Intent) -> Step<Staged> {
        self.writable(state)?;
        let content = intent.encode(keys)?;
        let name = intent.name();
        let Some(mut there) = self.read_with(keys, &name)? else {
            if state.count >= self.intents_max {
                return Err(BusError::Busy { limit: limits::COLD_INTENTS.name });
            }
            self.write(state, &name, &content)?;
            state.count += 1;
            return Ok(Staged { intent: intent.clone(), existed: false });
        };
        if !there.is_same_event(intent) {
            let uid = intent.record.uid.as_str();
            return Err(BusError::Backend(format!("the archive's uid is bound to a different event: {uid} of topic {:?}", intent.topic)));
        }
        if let Some(offset) = intent.offset {
            check_offset(&there, intent)?;
            if there.offset.is_none() {
                self.write(state, &name, &content)?;
                there = intent.clone();
            }
            there.offset = Some(offset);
        }
        Ok(Staged { intent: there, existed: true })
    }

    /// Writes down where events are stored, and as what: `stored` have their offset. They share one sync.
    ///
    /// # Errors
    /// Of each: [`BusError::Backend`] for another offset or another event than the intent's, which is kept; [`BusError::Io`].
    pub(crate) fn commit(&self, stored: &[Intent]) -> Vec<Result<Committed, BusError>> {
        let keys = self.keys();
        let mut state = self.lock();
        let committed: Vec<_> = stored.iter().map(|intent| self.commit_one(&mut state, &keys, intent)).collect();
        self.sync(&mut state, stored.iter(), committed)
    }

    fn commit_one(&self, state: &mut State, keys: &KeyRing, stored: &Intent) -> Step<Committed> {
        self.writable(state)?;
        let name = stored.name();
        let Some(there) = self.read_with(keys, &name)? else { return Ok(Committed::Gone) };
        if !there.is_same_event(stored) {
            return Err(BusError::Backend(format!(
                "the event that the log has under uid {} of topic {:?} differs from the archive's intent, which is kept",
                stored.record.uid.as_str(),
                stored.topic
            )));
        }
        check_offset(&there, stored)?;
        if there != *stored {
            self.write(state, &name, &stored.encode(keys)?)?;
        }
        Ok(Committed::Offset)
    }

    /// Does several things in their order, which share one sync of the directory.
    ///
    /// # Errors
    /// Of each, as [`Outbox::stage`] and [`Outbox::commit`]; of what was taken back [`BusError::Io`] or [`BusError::Uncertain`] when it may
    /// still be there.
    #[cfg(feature = "nats")]
    pub(crate) fn apply(&self, ops: &[Op]) -> Vec<Result<Done, BusError>> {
        let keys = self.keys();
        let mut state = self.lock();
        let apply = |op: &Op| match op {
            Op::Stage(intent) => self.stage_one(&mut state, &keys, intent).map(Done::Staged),
            Op::Commit(intent) => self.commit_one(&mut state, &keys, intent).map(|_| Done::Committed),
            Op::Withdraw(intent) => {
                self.writable(&state)?;
                // Another publication of the same event counts on it: that one's end decides.
                if state.in_flight.get(&intent.name()).is_some_and(|flights| *flights > 1) {
                    return Ok(Done::Withdrawn);
                }
                self.remove_file(&mut state, &intent.name()).map(|()| Done::Withdrawn)
            }
        };
        let done: Vec<_> = ops.iter().map(apply).collect();
        self.sync(&mut state, ops.iter().map(Op::intent), done)
    }

    /// Removes a finished intent. Should the power be cut before that is durable it is finished once more, which changes nothing.
    pub(crate) fn remove(&self, name: &str) -> Result<(), BusError> {
        let mut state = self.lock();
        self.writable(&state)?;
        self.remove_file(&mut state, name)
    }

    fn remove_file(&self, state: &mut State, name: &str) -> Result<(), BusError> {
        let path = self.directory.join(name);
        match self.storage.remove_file(&path) {
            Ok(()) => state.count = state.count.saturating_sub(1),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(BusError::io("remove", &path, &error)),
        }
        state.troubles.remove(name);
        state.problems.remove(name);
        Ok(())
    }

    /// Reads an intent; none when there is none any more.
    ///
    /// # Errors
    /// [`BusError::Backend`] when it cannot be believed, [`BusError::Serde`], [`BusError::Config`] when it is no intent, [`BusError::Io`].
    pub(crate) fn read(&self, name: &str) -> Result<Option<Intent>, BusError> {
        self.read_with(&self.keys(), name)
    }

    fn read_with(&self, keys: &KeyRing, name: &str) -> Result<Option<Intent>, BusError> {
        match read_control(&*self.storage, &self.directory.join(name)) {
            Err(BusError::Io { kind: std::io::ErrorKind::NotFound, .. }) | Ok(None) => Ok(None),
            Ok(Some(content)) => Intent::decode(name, &content, keys).map(Some),
            Err(error) => Err(error),
        }
    }

    /// Names of intents, in no order, and of what else ends as one does.
    pub(crate) fn names(&self) -> Result<Vec<String>, BusError> {
        let mut names = list(&*self.storage, &self.directory)?;
        names.retain(|name| name.ends_with(ENDING));
        let mut state = self.lock();
        state.count = names.len() as u64;
        if !state.troubles.is_empty() {
            let there: HashSet<_> = names.iter().collect();
            state.troubles.retain(|name, _| there.contains(name));
            state.problems.retain(|name, _| there.contains(name));
        }
        Ok(names)
    }

    /// Whether an intent is left alone at `now`: its publication is in flight, or it failed a moment ago.
    pub(crate) fn is_resting(&self, name: &str, now: UnixMillis) -> bool {
        let state = self.lock();
        state.in_flight.contains_key(name) || state.troubles.get(name).is_some_and(|trouble| !trouble.is_due(now))
    }

    /// Remembers that an intent could not be finished. `quarantined` says why somebody has to look.
    pub(crate) fn note_trouble(&self, name: &str, now: UnixMillis, quarantined: Option<&str>) {
        let mut state = self.lock();
        let trouble = Trouble::after(state.troubles.get(name), now, quarantined.is_some());
        state.troubles.insert(name.to_owned(), trouble);
        state.problems.remove(name);
        if let Some(problem) = quarantined.filter(|_| state.problems.len() < limits::ARCHIVE_PROBLEMS.default_usize()) {
            state.problems.insert(name.to_owned(), problem.to_owned());
        }
    }

    /// Why the first of those in quarantine are there.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.lock().problems.values().cloned().collect()
    }

    /// Leaves an intent to its publication.
    #[cfg(feature = "nats")]
    pub(crate) fn begin_flight(&self, name: &str) {
        *self.lock().in_flight.entry(name.to_owned()).or_default() += 1;
    }

    /// The publication has ended.
    #[cfg(feature = "nats")]
    pub(crate) fn end_flight(&self, name: &str) {
        let mut state = self.lock();
        if let Some(flights) = state.in_flight.get_mut(name) {
            *flights -= 1;
            if *flights == 0 {
                state.in_flight.remove(name);
            }
        }
    }

    /// How many intents wait, and how many of them are in quarantine.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        let quarantined = state.troubles.values().filter(|trouble| trouble.is_quarantined).count();
        (state.count, quarantined as u64)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writable(&self, state: &State) -> Result<(), BusError> {
        if state.is_poisoned {
            return Err(BusError::Poisoned { log: "the archive's outbox".to_owned() });
        }
        Ok(())
    }

    /// Writes a whole file. After an error nothing is left but what was there before, unless giving it its name failed half-way.
    fn write(&self, state: &mut State, name: &str, content: &[u8]) -> Result<(), BusError> {
        let path = self.directory.join(name);
        let prepared = write_temporary(&*self.storage, &path, content)?;
        if let Err(error) = self.storage.rename(&prepared, &path) {
            discard(&*self.storage, &prepared);
            // Whether a rename that failed happened is not known.
            state.is_poisoned |= !matches!(self.storage.kind(&path), Ok(PathKind::Missing | PathKind::File));
            return Err(BusError::io("rename", &path, &error));
        }
        Ok(())
    }

    /// Makes the names of what was done durable, or says of each that it is not known to be.
    fn sync<'i, T>(
        &self,
        state: &mut State,
        intents: impl Iterator<Item = &'i Intent>,
        done: Vec<Result<T, BusError>>,
    ) -> Vec<Result<T, BusError>> {
        if !done.iter().any(Result::is_ok) {
            return done;
        }
        let Err(error) = self.sync_directory(state) else { return done };
        tracing::error!(%error, "the archive's outbox takes nothing more until it is opened again");
        let uncertain = |intent: &Intent| BusError::Uncertain { uid: intent.record.uid.clone(), cause: UncertainCause::Storage };
        done.into_iter().zip(intents).map(|(done, intent)| done.and_then(|_| Err(uncertain(intent)))).collect()
    }

    fn sync_directory(&self, state: &mut State) -> Result<(), BusError> {
        self.storage.sync_directory(&self.directory).map_err(|error| {
            state.is_poisoned = true;
            BusError::io("sync", &self.directory, &error)
        })
    }
}

/// Of a directory that is held it matters that it is an outbox: what to do is another thing than with a log.
fn held(error: BusError) -> BusError {
    match error {
        BusError::InUse { directory: outbox, holder } => BusError::OutboxInUse { outbox, holder },
        error => error,
    }
}

/// The offset that an intent has is never changed (B-075).
fn check_offset(there: &Intent, wanted: &Intent) -> Result<(), BusError> {
    match (there.offset, wanted.offset) {
        (Some(there), Some(wanted)) if there != wanted => Err(BusError::Backend(format!(
            "the archive's intent says offset {there} and the log says {wanted}; the intent is kept, look for an event that was published twice"
        ))),
        _ => Ok(()),
    }
}

fn list(storage: &dyn Storage, directory: &Path) -> Result<Vec<String>, BusError> {
    storage.list(directory).map_err(|error| BusError::io("list", directory, &error))
}
