//! redb: `Durability::Immediate` for every commit. It admits one writing transaction at a time and does not group them.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Engine, Job, NextOffsets};
use crate::event::{Event, payload_of};
use crate::failure::Failure;

const BLOBS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("blobs");
const EVENTS: TableDefinition<'_, (u32, u64), &[u8]> = TableDefinition::new("events");
const UIDS: TableDefinition<'_, &str, (u32, u64)> = TableDefinition::new("uids");

/// See the module.
pub(crate) struct Redb {
    database: Database,
    job: Job,
    next: Mutex<Next>,
}

#[derive(Default, Clone)]
struct Next {
    blob: u64,
    offsets: NextOffsets,
}

impl Redb {
    pub(crate) fn open(folder: &Path, job: Job) -> Result<Self, Failure> {
        let database = Database::create(folder.join("events.redb")).map_err(Failure::redb)?;
        let mut transaction = database.begin_write().map_err(Failure::redb)?;
        transaction.set_durability(Durability::Immediate).map_err(Failure::redb)?;
        let mut next = Next::default();
        {
            let blobs = transaction.open_table(BLOBS).map_err(Failure::redb)?;
            next.blob = blobs.last().map_err(Failure::redb)?.map_or(0, |(number, _)| number.value() + 1);
            let events = transaction.open_table(EVENTS).map_err(Failure::redb)?;
            for entry in events.iter().map_err(Failure::redb)? {
                let (partition, offset) = entry.map_err(Failure::redb)?.0.value();
                next.offsets.note(partition, offset);
            }
            transaction.open_table(UIDS).map_err(Failure::redb)?;
        }
        transaction.commit().map_err(Failure::redb)?;
        Ok(Self { database, job, next: Mutex::new(next) })
    }

    fn insert(&self, transaction: &redb::WriteTransaction, events: &[&Event], next: &mut Next) -> Result<(), Failure> {
        if self.job == Job::Append {
            let mut blobs = transaction.open_table(BLOBS).map_err(Failure::redb)?;
            for event in events {
                blobs.insert(next.blob, &*event.body).map_err(Failure::redb)?;
                next.blob += 1;
            }
            return Ok(());
        }
        let mut stored = transaction.open_table(EVENTS).map_err(Failure::redb)?;
        let mut uids = transaction.open_table(UIDS).map_err(Failure::redb)?;
        for event in events {
            if uids.get(&*event.uid).map_err(Failure::redb)?.is_some() {
                continue;
            }
            let place = (event.partition, next.offsets.take(event.partition));
            stored.insert(place, &*event.body).map_err(Failure::redb)?;
            uids.insert(&*event.uid, place).map_err(Failure::redb)?;
        }
        Ok(())
    }
}

impl Engine for Redb {
    fn commit(&self, events: &[&Event]) -> Result<(), Failure> {
        // The transaction is exclusive, so this lock inside it is never waited for.
        let mut transaction = self.database.begin_write().map_err(Failure::redb)?;
        transaction.set_durability(Durability::Immediate).map_err(Failure::redb)?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = next.clone();
        self.insert(&transaction, events, &mut taken)?;
        transaction.commit().map_err(Failure::redb)?;
        *next = taken;
        Ok(())
    }

    fn read(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let transaction = self.database.begin_read().map_err(Failure::redb)?;
        if self.job == Job::Append {
            let blobs = transaction.open_table(BLOBS).map_err(Failure::redb)?;
            for entry in blobs.iter().map_err(Failure::redb)? {
                visit(payload_of(entry.map_err(Failure::redb)?.1.value())?)?;
            }
            return Ok(());
        }
        let events = transaction.open_table(EVENTS).map_err(Failure::redb)?;
        for entry in events.iter().map_err(Failure::redb)? {
            visit(payload_of(entry.map_err(Failure::redb)?.1.value())?)?;
        }
        Ok(())
    }

    fn find(&self, event: &Event) -> Result<bool, Failure> {
        let transaction = self.database.begin_read().map_err(Failure::redb)?;
        let uids = transaction.open_table(UIDS).map_err(Failure::redb)?;
        Ok(uids.get(&*event.uid).map_err(Failure::redb)?.is_some())
    }
}
