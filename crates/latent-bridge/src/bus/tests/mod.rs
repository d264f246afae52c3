//! What the contract promises by itself, on buses that answer as a test says.

mod batch;
mod defaults;
mod fetch;
mod find;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, Record, StoredRecord, Ticket, Uid, UnixMillis};

use super::{AppendWatcher, EventBus, PublishResult, RecordHead};
use crate::{BusError, MaintenanceReport};

type Answer<I, O> = Box<dyn Fn(I) -> O + Send + Sync>;

/// A bus with one topic, `t`, of one partition. It implements what an engine must and nothing else.
struct Scripted {
    bounds: (u64, u64),
    /// Offsets of the page for an offset and a count. Every record there has the uid `u` followed by its offset.
    page: Answer<(u64, usize), Result<Vec<u64>, BusError>>,
    publish: Answer<NewRecord, Ticket<PublishResult>>,
    maintained: Answer<UnixMillis, MaintenanceReport>,
    /// The pages that were asked for.
    asked: Mutex<Vec<(u64, usize)>>,
}

impl Scripted {
    fn paged(bounds: (u64, u64), page: impl Fn(u64, usize) -> Result<Vec<u64>, BusError> + Send + Sync + 'static) -> Self {
        Self {
            bounds,
            page: Box::new(move |(offset, max)| page(offset, max)),
            publish: Box::new(|_| Ticket::ready(Err(BusError::NotSent { reason: "nothing is published here".to_owned() }))),
            maintained: Box::new(|_| MaintenanceReport::default()),
            asked: Mutex::default(),
        }
    }

    /// A sound engine that holds records at `offsets`, of which those in `damaged` cannot be read, and answers at most `page_max`.
    fn holding(offsets: impl IntoIterator<Item = u64>, damaged: &[u64], page_max: usize) -> Self {
        let (offsets, damaged): (Vec<_>, _) = (offsets.into_iter().collect(), damaged.to_vec());
        let bounds = (offsets.first().copied().unwrap_or(0), offsets.last().map_or(0, |last| last + 1));
        Self::paged(bounds, move |from, max| {
            let readable = |offset: &u64| !damaged.contains(offset);
            let from: Vec<_> = offsets.iter().copied().filter(|offset| *offset >= from).collect();
            match from.first() {
                Some(first) if !readable(first) => Err(unreadable(*first)),
                _ => Ok(from.into_iter().take_while(readable).take(max.min(page_max)).collect()),
            }
        })
    }

    fn asked(&self) -> Vec<(u64, usize)> {
        self.asked.lock().unwrap().clone()
    }
}

impl EventBus for Scripted {
    fn submit_record(&self, _: &str, record: NewRecord) -> Ticket<PublishResult> {
        (self.publish)(record)
    }

    fn submit_fetch(&self, _: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
        let mut asked = self.asked.lock().unwrap();
        asked.push((offset.0, max));
        assert!(asked.len() < 100, "a walk that does not end");
        Ticket::ready((self.page)((offset.0, max)).map(|page| page.into_iter().map(|offset| stored(partition, offset)).collect()))
    }

    fn submit_heads(&self, _: &str, _: Partition, _: Offset, _: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
        Ticket::ready(Ok(Vec::new()))
    }

    fn partitions(&self, topic: &str) -> Result<u32, BusError> {
        if topic == "t" { Ok(1) } else { Err(BusError::UnknownTopic { topic: topic.to_owned() }) }
    }

    fn topics(&self) -> Vec<String> {
        vec!["t".to_owned()]
    }

    fn bounds(&self, _: &str, _: Partition) -> Result<(Offset, Offset), BusError> {
        Ok((Offset(self.bounds.0), Offset(self.bounds.1)))
    }

    fn watch_appends(&self, _: Arc<dyn AppendWatcher>) {}

    fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, BusError> {
        Ok((self.maintained)(now))
    }
}

fn stored(partition: Partition, offset: u64) -> StoredRecord {
    let record = Record {
        uid: Uid::parse(&format!("u{offset}")).unwrap(),
        key: "k".to_owned(),
        media_type: MediaType::json(),
        attributes: Attributes::default(),
        payload: Bytes::from(offset.to_string()),
        stored_at: UnixMillis(1),
    };
    StoredRecord { partition, offset: Offset(offset), record }
}

fn unreadable(offset: u64) -> BusError {
    BusError::Unreadable { topic: "t".to_owned(), partition: 0, offset }
}

fn disordered(asked: u64, answered: u64) -> BusError {
    BusError::Disordered { topic: "t".to_owned(), partition: 0, asked, answered }
}
