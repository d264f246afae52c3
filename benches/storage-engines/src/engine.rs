//! What is compared: one trait for the operations that are timed, and the names of those who offer them.
//!
//! Whatever an engine calls a commit, here it means: when `commit` returns, everything in it was synced. `trace` checks that.

mod fjall;
mod latent;
mod raw;
mod redb;
mod sqlite;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::event::{Batch, Event};
use crate::failure::Failure;

pub(crate) use fjall::Persist;

/// An open engine. Shared by publishers on several threads.
pub(crate) trait Engine: Send + Sync {
    /// Makes room for `events` more, where that is not part of what is measured.
    fn prepare(&self, events: usize) -> Result<(), Failure> {
        let _ = events;
        Ok(())
    }

    /// Stores events in one commit. Where the job says so, a uid that is stored already is not stored again.
    fn commit(&self, events: &[&Event]) -> Result<(), Failure>;

    /// Stores one event in a commit of its own.
    fn publish(&self, event: &Event) -> Result<(), Failure> {
        self.commit(&[event])
    }

    /// Stores a batch in the engine's best way.
    fn publish_batch(&self, batch: &Batch) -> Result<(), Failure> {
        self.commit(&batch.events.iter().collect::<Vec<_>>())
    }

    /// Reads everything in order, as the bytes that were published.
    fn read(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure>;

    /// Reads everything in order, decoded to JSON values, and says how many there were.
    fn read_decoded(&self) -> Result<u64, Failure> {
        let mut count = 0;
        self.read(&mut |payload| {
            std::hint::black_box(serde_json::from_slice::<serde_json::Value>(payload)?);
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    /// Whether there is an event with this event's uid.
    fn find(&self, event: &Event) -> Result<bool, Failure>;
}

/// What is asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// Append blobs, nothing else.
    Append,
    /// What an event log needs: read by partition and offset, find by uid, no uid twice.
    Log,
}

/// Who stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// 4 KiB written in place and synced: what the disk can do.
    Floor,
    /// One file, zeros written ahead and synced beforehand.
    RawPreallocated,
    /// One file that grows.
    RawGrowing,
    Sqlite(Job),
    Fjall(Job, Persist),
    Redb(Job),
    /// Our own engine.
    Latent,
}

/// Every engine by name. Those that fjall does not sync are for `trace` alone.
const NAMES: &[(&str, Name)] = &[
    ("floor", Name::Floor),
    ("raw-preallocated", Name::RawPreallocated),
    ("raw-growing", Name::RawGrowing),
    ("sqlite-append", Name::Sqlite(Job::Append)),
    ("sqlite-log", Name::Sqlite(Job::Log)),
    ("fjall-append", Name::Fjall(Job::Append, Persist::SyncData)),
    ("fjall-log", Name::Fjall(Job::Log, Persist::SyncData)),
    ("fjall-log-sync-all", Name::Fjall(Job::Log, Persist::SyncAll)),
    ("fjall-log-buffer", Name::Fjall(Job::Log, Persist::Buffer)),
    ("fjall-log-unset", Name::Fjall(Job::Log, Persist::Unset)),
    ("redb-append", Name::Redb(Job::Append)),
    ("redb-log", Name::Redb(Job::Log)),
    ("latent", Name::Latent),
];

impl Name {
    /// Opens the engine in `folder`, creating it where it is not there yet.
    pub(crate) fn open(self, folder: &Path) -> Result<Box<dyn Engine>, Failure> {
        Ok(match self {
            Self::Floor => Box::new(raw::Floor::create(folder)?),
            Self::RawPreallocated => Box::new(raw::RawLog::create(folder, raw::Space::Preallocated)?),
            Self::RawGrowing => Box::new(raw::RawLog::create(folder, raw::Space::Growing)?),
            Self::Sqlite(job) => Box::new(sqlite::Sqlite::open(folder, job)?),
            Self::Fjall(job, persist) => Box::new(fjall::Fjall::open(folder, job, persist)?),
            Self::Redb(job) => Box::new(redb::Redb::open(folder, job)?),
            Self::Latent => Box::new(latent::Latent::open(folder)?),
        })
    }

    /// Whether it is an existing store that does the job our engine does.
    pub(crate) fn is_rival(self) -> bool {
        matches!(self, Self::Sqlite(Job::Log) | Self::Fjall(Job::Log, _) | Self::Redb(Job::Log))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, engine)| engine == self).map_or("unnamed", |(name, _)| name);
        f.pad(name)
    }
}

impl FromStr for Name {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, engine)| *engine).ok_or_else(|| {
            let known = NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            Failure::UnknownEngine { name: name.to_owned(), known }
        })
    }
}

/// Next offsets of the partitions, for the stores that do not number by themselves.
#[derive(Debug, Default, Clone)]
struct NextOffsets([u64; crate::event::PARTITIONS as usize]);

impl NextOffsets {
    /// Takes the next offset of a partition.
    fn take(&mut self, partition: u32) -> u64 {
        let Some(next) = self.0.get_mut(partition as usize) else { return 0 };
        let offset = *next;
        *next += 1;
        offset
    }

    /// Notes an offset that is taken.
    fn note(&mut self, partition: u32, offset: u64) {
        if let Some(next) = self.0.get_mut(partition as usize) {
            *next = (*next).max(offset + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::event::number_in;

    fn numbers(engine: &dyn Engine) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut visit = |payload: &[u8]| number_in(payload).map(|number| numbers.push(number));
        engine.read(&mut visit).unwrap();
        numbers
    }

    fn all_but_the_floor() -> impl Iterator<Item = Name> {
        NAMES.iter().map(|(_, name)| *name).filter(|name| *name != Name::Floor)
    }

    #[test]
    fn every_engine_returns_what_it_was_given() {
        for name in all_but_the_floor() {
            let folder = tempfile::tempdir().unwrap();
            let engine = name.open(folder.path()).unwrap();
            let batch = Batch::numbered_from(1, 40).unwrap();
            engine.prepare(41).unwrap();
            engine.publish(&Event::numbered(0).unwrap()).unwrap();
            engine.publish_batch(&batch).unwrap();
            let found = numbers(&*engine);
            assert_eq!((found.len(), found.into_iter().collect::<BTreeSet<_>>()), (41, (0..41).collect()), "{name}");
            assert_eq!(engine.read_decoded().unwrap(), 41, "{name}");
        }
    }

    #[test]
    fn who_does_the_job_of_a_log_finds_a_uid_and_stores_it_once() {
        for name in all_but_the_floor().filter(|name| name.is_rival() || *name == Name::Latent) {
            let folder = tempfile::tempdir().unwrap();
            let engine = name.open(folder.path()).unwrap();
            let batch = Batch::numbered_from(0, 10).unwrap();
            engine.publish_batch(&batch).unwrap();
            engine.publish_batch(&batch).unwrap();
            engine.publish(&batch.events[3]).unwrap();
            engine.commit(&[&Event::numbered(10).unwrap(), &Event::numbered(10).unwrap()]).unwrap();
            assert_eq!(numbers(&*engine).len(), 11, "{name}");
            assert!(engine.find(&batch.events[9]).unwrap(), "{name}");
            assert!(!engine.find(&Event::numbered(11).unwrap()).unwrap(), "{name}");
        }
    }

    #[test]
    fn what_was_stored_is_there_and_is_continued_after_reopening() {
        for name in all_but_the_floor().filter(|name| !matches!(name, Name::RawPreallocated | Name::RawGrowing)) {
            let folder = tempfile::tempdir().unwrap();
            for first in [0, 20] {
                let engine = name.open(folder.path()).unwrap();
                engine.publish_batch(&Batch::numbered_from(first, 20).unwrap()).unwrap();
            }
            let found: BTreeSet<_> = numbers(&*name.open(folder.path()).unwrap()).into_iter().collect();
            assert_eq!(found, (0..40).collect(), "{name}");
        }
    }

    #[test]
    fn every_name_reads_back_and_others_are_refused() {
        for (text, name) in NAMES {
            assert_eq!((text.parse::<Name>().unwrap(), name.to_string()), (*name, (*text).to_owned()));
        }
        assert!(matches!("rocksdb".parse::<Name>(), Err(Failure::UnknownEngine { .. })));
    }
}
