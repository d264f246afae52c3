//! Whole answers from pages: what the façade promises beyond one page of [`EventBus::submit_fetch`], for any engine. Knows no engine.
//!
//! Invariant: each page is asked for at a higher offset than the one before and below the end that the partition had at the call. So a
//! walk ends, whatever is appended meanwhile and whatever an engine answers.

use latent_core::{Offset, Partition, Record, StoredRecord, Uid, partition_for};

use super::{EventBus, PublishAck};
use crate::{BusError, StoredEvent, limits};

/// Counted for each event besides its bytes: the structure and its allocations.
const EVENT_OVERHEAD_BYTES: u64 = 256;

/// What a fetch asks for, with its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'t> {
    pub(super) topic: &'t str,
    pub(super) partition: Partition,
    pub(super) offset: Offset,
    pub(super) count_max: usize,
    pub(super) bytes_max: u64,
}

/// The first `count_max` of the records that are there at the call, or an error; never fewer.
pub(super) fn fetch<B: EventBus + ?Sized>(bus: &B, wanted: Wanted<'_>) -> Result<Vec<StoredEvent>, BusError> {
    check_partition(bus, wanted.topic, wanted.partition)?;
    let mut events = Vec::new();
    if wanted.count_max == 0 {
        return Ok(events);
    }
    let mut cursor = Cursor::open(bus, wanted.topic, wanted.partition, wanted.offset)?;
    let mut bytes = 0_u64;
    loop {
        let missing = wanted.count_max - events.len();
        let page = cursor.page(missing)?;
        let known = events.len();
        events.reserve(page.len().min(missing));
        for stored in page.into_iter().take(missing).take_while(|stored| stored.offset < cursor.end) {
            bytes = bytes.saturating_add(held_bytes(&stored.record));
            if bytes > wanted.bytes_max {
                return Err(too_much(wanted, events.len()));
            }
            events.push(StoredEvent::from(stored));
        }
        if events.len() == known || events.len() == wanted.count_max {
            return Ok(events);
        }
    }
}

/// Where `uid` lies in the partition of `key`. `None` only when every record there was read.
pub(super) fn find<B: EventBus + ?Sized>(bus: &B, topic: &str, key: &str, uid: &Uid) -> Result<Option<PublishAck>, BusError> {
    let partition = partition_for(key, bus.partitions(topic)?);
    let mut cursor = Cursor::open(bus, topic, partition, Offset(0))?;
    let mut passed_over = None;
    loop {
        match cursor.page(limits::FIND_PAGE_RECORDS.default_usize()) {
            // A damaged record may have been the one, so having met one leaves the answer open.
            Ok(page) if page.is_empty() => return passed_over.map_or(Ok(None), Err),
            Ok(page) => {
                if let Some(stored) = page.iter().find(|stored| stored.record.uid == *uid) {
                    return Ok(Some(ack(topic, stored)));
                }
            }
            Err(BusError::Unreadable { topic, partition, offset }) => {
                cursor.advance(Offset(offset))?;
                passed_over.get_or_insert(BusError::Unreadable { topic, partition, offset });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Walks one partition up to the end it had when the walk began.
struct Cursor<'b, B: ?Sized> {
    bus: &'b B,
    topic: &'b str,
    partition: Partition,
    next: Offset,
    end: Offset,
}

impl<'b, B: EventBus + ?Sized> Cursor<'b, B> {
    fn open(bus: &'b B, topic: &'b str, partition: Partition, from: Offset) -> Result<Self, BusError> {
        let (first, end) = bus.bounds(topic, partition)?;
        Ok(Self { bus, topic, partition, next: from.max(first), end })
    }

    /// The next records, at most `max`; none at the end. After [`BusError::Unreadable`] the walk stands before the damaged record.
    fn page(&mut self, max: usize) -> Result<Vec<StoredRecord>, BusError> {
        if self.next >= self.end {
            return Ok(Vec::new());
        }
        let page = match self.bus.submit_fetch(self.topic, self.partition, self.next, max).wait() {
            Err(BusError::Unreadable { offset, .. }) if Offset(offset) >= self.end => Vec::new(),
            answer => answer?,
        };
        page.iter().try_for_each(|stored| self.advance(stored.offset))?;
        Ok(page)
    }

    /// Steps over a record that the engine answered with.
    fn advance(&mut self, answered: Offset) -> Result<(), BusError> {
        if answered < self.next {
            let topic = self.topic.to_owned();
            return Err(BusError::Disordered { topic, partition: self.partition.0, asked: self.next.0, answered: answered.0 });
        }
        self.next = answered.next().ok_or_else(|| BusError::OutOfRange {
            what: format!("the offset after {answered} in {}/p{}", self.topic, self.partition),
            problem: "offsets end there, so reading cannot go on".to_owned(),
        })?;
        Ok(())
    }
}

fn check_partition<B: EventBus + ?Sized>(bus: &B, topic: &str, partition: Partition) -> Result<(), BusError> {
    let partitions = bus.partitions(topic)?;
    if partition.0 < partitions {
        return Ok(());
    }
    let problem = format!("topic {topic:?} has {partitions} partitions, counted from 0");
    Err(BusError::OutOfRange { what: format!("partition {partition}"), problem })
}

fn too_much(wanted: Wanted<'_>, fitting: usize) -> BusError {
    let Wanted { topic, partition, offset, count_max, bytes_max } = wanted;
    let limit = limits::FETCH_TOTAL_BYTES.name;
    let problem =
        format!("{limit} is {bytes_max}, which the first {fitting} of them reach; ask for {fitting} at most and go on from there");
    BusError::OutOfRange { what: format!("fetch of {count_max} records from {topic}/p{partition}/{offset} on"), problem }
}

fn held_bytes(record: &Record) -> u64 {
    let attributes: usize = record.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    let texts = record.uid.as_str().len() + record.key.len() + record.media_type.as_str().len();
    (record.payload.len() + attributes + texts) as u64 + EVENT_OVERHEAD_BYTES
}

fn ack(topic: &str, stored: &StoredRecord) -> PublishAck {
    let uid = stored.record.uid.as_str().to_owned();
    PublishAck { topic: topic.to_owned(), partition: stored.partition.0, offset: stored.offset.0, uid, duplicate: false }
}
