//! SQLite: write-ahead log, `synchronous=FULL`, one connection behind a lock. With one connection for each publisher SQLite polls for
//! its file lock, which is slower; the lock is the better of the two.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};

use super::{Engine, Job, NextOffsets};
use crate::event::{Event, payload_of};
use crate::failure::Failure;

const TABLE_OF_BLOBS: &str = "CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY, body BLOB NOT NULL)";
const TABLE_OF_A_LOG: &str = "CREATE TABLE IF NOT EXISTS events (partition INTEGER NOT NULL, offset INTEGER NOT NULL, \
     uid TEXT NOT NULL UNIQUE, body BLOB NOT NULL, PRIMARY KEY (partition, offset)) WITHOUT ROWID";
const INSERT_BLOB: &str = "INSERT INTO events (body) VALUES (?1)";
const INSERT_EVENT: &str = "INSERT INTO events (partition, offset, uid, body) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (uid) DO NOTHING";
const READ_BLOBS: &str = "SELECT body FROM events ORDER BY number";
const READ_EVENTS: &str = "SELECT body FROM events ORDER BY partition, offset";
const FIND: &str = "SELECT partition, offset FROM events WHERE uid = ?1";
const NEXT: &str = "SELECT partition, max(offset) FROM events GROUP BY partition";
/// Memory for pages, in KiB as SQLite wants it: negative.
const CACHE_KIBIBYTES: i64 = -262_144;

/// See the module.
pub(crate) struct Sqlite {
    job: Job,
    state: Mutex<State>,
}

struct State {
    connection: Connection,
    next: NextOffsets,
}

impl Sqlite {
    pub(crate) fn open(folder: &Path, job: Job) -> Result<Self, Failure> {
        let connection = Connection::open(folder.join("events.sqlite"))?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", CACHE_KIBIBYTES)?;
        connection.execute_batch(if job == Job::Log { TABLE_OF_A_LOG } else { TABLE_OF_BLOBS })?;
        let next = if job == Job::Log { next_offsets(&connection)? } else { NextOffsets::default() };
        Ok(Self { job, state: Mutex::new(State { connection, next }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn next_offsets(connection: &Connection) -> Result<NextOffsets, Failure> {
    let mut next = NextOffsets::default();
    let mut statement = connection.prepare(NEXT)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        next.note(row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs());
    }
    Ok(next)
}

impl Engine for Sqlite {
    fn commit(&self, events: &[&Event]) -> Result<(), Failure> {
        let State { connection, next } = &mut *self.state();
        let transaction = connection.transaction()?;
        // Offsets count only when the commit did.
        let mut taken = next.clone();
        for event in events {
            if self.job == Job::Append {
                transaction.prepare_cached(INSERT_BLOB)?.execute(params![event.body])?;
                continue;
            }
            let offset = i64::try_from(taken.clone().take(event.partition)).unwrap_or(i64::MAX);
            let inserted = transaction.prepare_cached(INSERT_EVENT)?.execute(params![event.partition, offset, event.uid, event.body])?;
            if inserted == 1 {
                taken.take(event.partition);
            }
        }
        transaction.commit()?;
        *next = taken;
        Ok(())
    }

    fn read(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let state = self.state();
        let mut statement = state.connection.prepare_cached(if self.job == Job::Log { READ_EVENTS } else { READ_BLOBS })?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let body = row.get_ref(0)?.as_blob().map_err(|_| Failure::ForeignRecord { problem: "its body is no blob" })?;
            visit(payload_of(body)?)?;
        }
        Ok(())
    }

    fn find(&self, event: &Event) -> Result<bool, Failure> {
        let state = self.state();
        let mut statement = state.connection.prepare_cached(FIND)?;
        Ok(statement.exists(params![event.uid])?)
    }
}
