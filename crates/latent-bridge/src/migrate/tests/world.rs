//! Two logs in memory. The destination keeps the promise of [`crate::InOrder`] as an engine does: what is in flight may be lost, stored
//! without an answer, or come later, and it remembers the last uids only.

use std::collections::VecDeque;

use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, Record, StoredRecord, Uid, UncertainCause, UnixMillis};

use super::super::*;
use crate::{BusError, Fence, PublishAck, PublishResult};

/// A record of the source, or a place that cannot be read.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Readable(StoredRecord),
    Unreadable(Offset),
}

impl Place {
    pub(super) fn offset(&self) -> Offset {
        match self {
            Self::Readable(stored) => stored.offset,
            Self::Unreadable(offset) => *offset,
        }
    }
}

pub(super) fn stored(offset: u64, uid: &str, payload: &str) -> StoredRecord {
    let record = Record {
        uid: Uid::parse(uid).unwrap(),
        key: "k".to_owned(),
        media_type: MediaType::json(),
        attributes: Attributes::default(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        stored_at: UnixMillis(offset),
    };
    StoredRecord { partition: Partition(0), offset: Offset(offset), record }
}

/// Records `u0`, `u1`, … at these offsets.
pub(super) fn source(offsets: &[u64]) -> Vec<Place> {
    offsets.iter().enumerate().map(|(n, offset)| Place::Readable(stored(*offset, &format!("u{n}"), &n.to_string()))).collect()
}

/// One page of places from an offset on.
pub(super) fn page(places: &[Place], from: Offset, max: usize) -> Page {
    let mut records = Vec::new();
    for place in places.iter().filter(|place| place.offset() >= from).take(max) {
        match place {
            Place::Readable(stored) => records.push(stored.clone()),
            Place::Unreadable(offset) if records.is_empty() => return Page::Unreadable(*offset),
            Place::Unreadable(_) => break,
        }
    }
    if records.is_empty() { Page::End } else { Page::Records(records) }
}

/// The end of a log: the offset after its last place.
pub(super) fn end(places: &[Place]) -> Offset {
    Offset(places.last().map_or(0, |place| place.offset().0 + 1))
}

pub(super) struct Destination {
    pub(super) places: Vec<Place>,
    /// What the topic has taken, of other partitions as well.
    pub(super) sequence: u64,
    /// Uids that it remembers.
    pub(super) window: usize,
    /// Whether it looks at fences.
    pub(super) is_fenced: bool,
    /// Whose record is the last.
    pub(super) last: Option<Uid>,
    /// Publications that are under way.
    pub(super) late: VecDeque<(Behind, NewRecord)>,
}

/// Where alone a publication may be taken: behind so many records, and behind the one of this uid.
#[derive(Debug, Clone)]
pub(super) struct Behind {
    fence: Fence,
    uid: Option<Uid>,
}

impl Destination {
    pub(super) fn new(window: usize) -> Self {
        Self { places: Vec::new(), sequence: 0, window, is_fenced: true, last: None, late: VecDeque::new() }
    }

    /// One that has these records at offsets from 1 on.
    pub(super) fn with(records: impl IntoIterator<Item = StoredRecord>) -> Self {
        let mut new = Self::new(0);
        for stored in records {
            new.push(stored.record);
        }
        new
    }

    fn push(&mut self, record: Record) -> Offset {
        self.sequence += 1;
        self.last = Some(record.uid.clone());
        let offset = Offset(self.sequence);
        self.places.push(Place::Readable(StoredRecord { partition: Partition(0), offset, record }));
        offset
    }

    /// Somebody publishes to another partition of the topic.
    pub(super) fn take_elsewhere(&mut self) {
        self.sequence += 1;
        self.last = Some(Uid::parse("elsewhere").unwrap());
    }

    fn is_there(&self, Behind { fence, uid }: &Behind) -> bool {
        *fence == Fence(self.sequence) && (uid.is_none() || *uid == self.last)
    }

    /// Takes one publication, as an engine would.
    pub(super) fn take(&mut self, behind: &Behind, record: NewRecord) -> PublishResult {
        let uid = record.uid.clone().unwrap();
        let known = self.places.iter().rev().take(self.window).find_map(|place| match place {
            Place::Readable(stored) if stored.record.uid == uid => Some(stored.clone()),
            _ => None,
        });
        let ack = |offset: Offset, duplicate| {
            Ok(PublishAck { topic: "t".to_owned(), partition: 0, offset: offset.0, uid: uid.to_string(), duplicate })
        };
        match known {
            Some(stored) if stored.record.same_content(&record) => ack(stored.offset, true),
            Some(_) => Err(BusError::Conflict { topic: "t".to_owned(), uid }),
            None if self.is_fenced && !self.is_there(behind) => Err(crate::bus::in_order::passed("t")),
            None => {
                let offset = self.push(record.into_record(uid.clone(), UnixMillis(0)));
                ack(offset, false)
            }
        }
    }

    /// Takes a batch on a connection that is lost after `stored` of them; the answers of those behind `answered` are lost as well. Of the
    /// others, those that `is_late` says come later.
    pub(super) fn take_some(
        &mut self,
        (fence, records): (Fence, Vec<NewRecord>),
        (answered, stored): (usize, usize),
        mut is_late: impl FnMut() -> bool,
    ) -> Vec<PublishResult> {
        let numbered = records.into_iter().enumerate();
        let mut before = None;
        let one = |(number, record): (usize, NewRecord)| {
            let uid = record.uid.clone().unwrap();
            let behind = Behind { fence: fence.after(number as u64), uid: before.replace(uid.clone()) };
            let uncertain = Err(BusError::Uncertain { uid, cause: UncertainCause::Closed });
            if number < stored {
                let result = self.take(&behind, record);
                return if number < answered { result } else { uncertain };
            }
            if is_late() {
                self.late.push_back((behind, record));
            }
            uncertain
        };
        numbered.map(one).collect()
    }

    /// Lets the first of those come that are under way.
    pub(super) fn arrive(&mut self) {
        if let Some((behind, record)) = self.late.pop_front() {
            // Nobody hears the answer.
            let _ = self.take(&behind, record);
        }
    }

    pub(super) fn uids(&self) -> Vec<String> {
        uids(&self.places)
    }
}

pub(super) fn uids(places: &[Place]) -> Vec<String> {
    let readable = places.iter().filter_map(|place| if let Place::Readable(stored) = place { Some(stored) } else { None });
    readable.map(|stored| stored.record.uid.to_string()).collect()
}

/// Copies without failures until the end.
pub(super) fn copy(copying: &mut Copying, source: &[Place], destination: &mut Destination) {
    loop {
        match copying.step() {
            Step::Fence => copying.fenced(Fence(destination.sequence)),
            Step::ReadSource(from) => copying.read(Side::Source, page(source, from, 3)),
            Step::ReadDestination(from) => copying.read(Side::Destination, page(&destination.places, from, 3)),
            Step::Publish { fence, records } => {
                let count = records.len();
                copying.published(destination.take_some((fence, records), (count, count), || false));
            }
            Step::Pause { .. } => {}
            Step::Done => return,
        }
    }
}

/// Compares until the end.
pub(super) fn compare(mut comparing: Comparing, source: &[Place], destination: &[Place]) -> Compared {
    loop {
        match comparing.step() {
            Step::ReadSource(from) => comparing.read(Side::Source, page(source, from, 3)),
            Step::ReadDestination(from) => comparing.read(Side::Destination, page(destination, from, 3)),
            Step::Done => return comparing.compared(),
            step => panic!("{step:?} is nothing that a comparison asks for"),
        }
    }
}
