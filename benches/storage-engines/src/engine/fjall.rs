//! fjall: one batch for each commit, with the durability that is asked for. Its own default, [`Persist::Unset`], hands the bytes to
//! the operating system and syncs nothing.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Engine, Job, NextOffsets};
use crate::event::{Event, payload_of};
use crate::failure::Failure;

/// What a batch is told about durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persist {
    /// Nothing.
    Unset,
    /// To hand its bytes to the operating system.
    Buffer,
    /// To sync data.
    SyncData,
    /// To sync data and metadata.
    SyncAll,
}

impl Persist {
    fn mode(self) -> Option<PersistMode> {
        match self {
            Self::Unset => None,
            Self::Buffer => Some(PersistMode::Buffer),
            Self::SyncData => Some(PersistMode::SyncData),
            Self::SyncAll => Some(PersistMode::SyncAll),
        }
    }
}

/// See the module.
pub(crate) struct Fjall {
    database: Database,
    events: Keyspace,
    uids: Keyspace,
    job: Job,
    persist: Persist,
    next: Mutex<Next>,
}

#[derive(Default, Clone)]
struct Next {
    blob: u64,
    offsets: NextOffsets,
}

impl Fjall {
    pub(crate) fn open(folder: &Path, job: Job, persist: Persist) -> Result<Self, Failure> {
        let database = Database::builder(folder).open()?;
        let events = database.keyspace("events", KeyspaceCreateOptions::default)?;
        let uids = database.keyspace("uids", KeyspaceCreateOptions::default)?;
        let mut next = Next::default();
        for entry in events.iter() {
            match place_of(&entry.key()?) {
                Some((partition, offset)) if job == Job::Log => next.offsets.note(partition, offset),
                Some((_, number)) => next.blob = number + 1,
                None => return Err(Failure::ForeignRecord { problem: "its key is no place" }),
            }
        }
        Ok(Self { database, events, uids, job, persist, next: Mutex::new(next) })
    }

    /// The lock is held until the commit, since a uid must not come between the look-up and the insert.
    fn commit_to_log(&self, events: &[&Event]) -> Result<(), Failure> {
        let mut batch = self.database.batch().durability(self.persist.mode());
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = next.clone();
        let mut new: HashSet<&str> = HashSet::with_capacity(events.len());
        for event in events {
            if !new.insert(&event.uid) || self.uids.contains_key(&event.uid)? {
                continue;
            }
            let place = place(event.partition, taken.offsets.take(event.partition));
            batch.insert(&self.events, place, event.body.as_slice());
            batch.insert(&self.uids, event.uid.as_str(), place);
        }
        batch.commit()?;
        *next = taken;
        Ok(())
    }

    fn commit_blobs(&self, events: &[&Event]) -> Result<(), Failure> {
        let mut batch = self.database.batch().durability(self.persist.mode());
        let first = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let first = next.blob;
            next.blob += events.len() as u64;
            first
        };
        for (number, event) in (first..).zip(events) {
            batch.insert(&self.events, place(0, number), event.body.as_slice());
        }
        Ok(batch.commit()?)
    }
}

/// Partition and offset as a key that sorts like them.
fn place(partition: u32, offset: u64) -> [u8; 12] {
    let (first, last) = (partition.to_be_bytes(), offset.to_be_bytes());
    std::array::from_fn(|at| first.get(at).or_else(|| last.get(at.wrapping_sub(first.len()))).copied().unwrap_or_default())
}

fn place_of(key: &[u8]) -> Option<(u32, u64)> {
    let (partition, offset) = (key.get(..4)?.try_into().ok()?, key.get(4..)?.try_into().ok()?);
    Some((u32::from_be_bytes(partition), u64::from_be_bytes(offset)))
}

impl Engine for Fjall {
    fn commit(&self, events: &[&Event]) -> Result<(), Failure> {
        if self.job == Job::Log { self.commit_to_log(events) } else { self.commit_blobs(events) }
    }

    fn read(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        for entry in self.events.iter() {
            visit(payload_of(&entry.value()?)?)?;
        }
        Ok(())
    }

    fn find(&self, event: &Event) -> Result<bool, Failure> {
        Ok(self.uids.contains_key(&event.uid)?)
    }
}
