//! Events that were read together with the one that was wanted, until each of them begins: one read of the log serves many. Only a
//! shortcut: what is not here is read, and whatever is here was read from the log a moment ago.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_core::{Offset, StoredRecord};

use crate::limits;

/// What all sources of a node may hold together, in bytes of payload.
#[derive(Debug)]
pub(crate) struct Room(AtomicU64);

impl Default for Room {
    fn default() -> Self {
        Self(AtomicU64::new(limits::READ_AHEAD_BYTES.default))
    }
}

impl Room {
    fn take(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| free.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }
}

/// See the module. Of one partition, in the order of offsets.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    records: VecDeque<StoredRecord>,
    /// Payload of the last record that was looked at: the next ones are likely to be alike.
    payload_bytes: u64,
    room: Arc<Room>,
}

impl ReadAhead {
    pub(crate) const fn new(room: Arc<Room>) -> Self {
        Self { records: VecDeque::new(), payload_bytes: limits::READ_AHEAD_PARTITION_BYTES.default, room }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The event at `offset`, if it is here. Those before it have begun or never will, and are let go of.
    pub(crate) fn take(&mut self, offset: Offset) -> Option<StoredRecord> {
        if self.records.front().is_none_or(|first| offset < first.offset) {
            return None;
        }
        while let Some(first) = self.records.pop_front() {
            self.room.give_back(bytes_of(&first));
            if first.offset == offset {
                return Some(first);
            }
            if self.records.front().is_none_or(|next| offset < next.offset) {
                break;
            }
        }
        None
    }

    /// How many events to read for the one at `offset`, which is not here. One below those that are here is an exception, such as a
    /// further attempt, and read alone.
    pub(crate) fn count_for(&self, offset: Offset) -> usize {
        if self.records.front().is_some_and(|first| offset < first.offset) {
            return 1;
        }
        let fitting = limits::READ_AHEAD_PARTITION_BYTES.default / self.payload_bytes.max(1);
        usize::try_from(fitting.clamp(1, limits::READ_AHEAD_EVENTS.default)).unwrap_or(1)
    }

    /// The next events have payloads of about this size.
    pub(crate) fn expect(&mut self, payload_bytes: u64) {
        self.payload_bytes = payload_bytes;
    }

    /// Keeps what was read after the event that was wanted, as much as there is room for.
    pub(crate) fn keep(&mut self, records: impl IntoIterator<Item = StoredRecord>) {
        self.clear();
        let mut held = 0_u64;
        for record in records {
            let bytes = bytes_of(&record);
            self.payload_bytes = bytes;
            held = held.saturating_add(bytes);
            if held > limits::READ_AHEAD_PARTITION_BYTES.default || !self.room.take(bytes) {
                break;
            }
            self.records.push_back(record);
        }
    }

    fn clear(&mut self) {
        let bytes = self.records.drain(..).map(|record| bytes_of(&record)).sum();
        self.room.give_back(bytes);
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bytes_of(record: &StoredRecord) -> u64 {
    record.record.payload.len() as u64
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use latent_core::{Attributes, MediaType, Partition, Record, Uid, UnixMillis};

    use super::*;

    fn record(offset: u64, payload_bytes: u64) -> StoredRecord {
        let payload = Bytes::from(vec![b'x'; usize::try_from(payload_bytes).unwrap()]);
        let (uid, stored_at) = (Uid::parse("u").unwrap(), UnixMillis(1));
        let record =
            Record { uid, key: "k".to_owned(), media_type: MediaType::json(), attributes: Attributes::default(), payload, stored_at };
        StoredRecord { partition: Partition(0), offset: Offset(offset), record }
    }

    fn ahead_with(room_bytes: u64, records: impl IntoIterator<Item = (u64, u64)>) -> (Arc<Room>, ReadAhead) {
        let room = Arc::new(Room(AtomicU64::new(room_bytes)));
        let mut ahead = ReadAhead::new(Arc::clone(&room));
        ahead.keep(records.into_iter().map(|(offset, bytes)| record(offset, bytes)));
        (room, ahead)
    }

    fn offset_of(taken: Option<StoredRecord>) -> Option<u64> {
        taken.map(|record| record.offset.0)
    }

    #[test]
    fn an_event_is_taken_once_and_those_before_it_are_let_go_of() {
        let (room, mut ahead) = ahead_with(100, [(4, 10), (5, 10), (7, 10), (8, 10)]);
        assert_eq!(offset_of(ahead.take(Offset(3))), None, "not read");
        assert_eq!(offset_of(ahead.take(Offset(5))), Some(5));
        assert_eq!(offset_of(ahead.take(Offset(5))), None, "taken");
        assert_eq!(offset_of(ahead.take(Offset(6))), None, "there is none");
        assert_eq!((offset_of(ahead.take(Offset(8))), ahead.is_empty()), (Some(8), true));
        assert!(room.take(100) && !room.take(1), "all room was given back, and no more");
    }

    #[test]
    fn an_event_below_those_that_are_held_is_read_alone_and_costs_them_nothing() {
        let (_room, mut ahead) = ahead_with(100, [(4, 10), (5, 10)]);
        assert_eq!(ahead.count_for(Offset(3)), 1);
        assert!(ahead.count_for(Offset(6)) > 1);
        assert_eq!((offset_of(ahead.take(Offset(3))), offset_of(ahead.take(Offset(4)))), (None, Some(4)));
    }

    #[test]
    fn a_partition_holds_payloads_up_to_its_bound() {
        let most = limits::READ_AHEAD_PARTITION_BYTES.default;
        for (last, held) in [(most - 2, true), (most - 1, true), (most, false)] {
            let (_room, mut ahead) = ahead_with(u64::MAX, [(0, 1), (1, last)]);
            assert!(ahead.take(Offset(0)).is_some());
            assert_eq!(ahead.take(Offset(1)).is_some(), held, "{last}");
        }
    }

    #[test]
    fn what_the_node_has_no_room_for_is_not_held_and_what_is_let_go_of_is_room_again() {
        for (room_bytes, held) in [(19, 1), (20, 2), (21, 2)] {
            let (room, ahead) = ahead_with(room_bytes, [(0, 10), (1, 10)]);
            assert_eq!(ahead.records.len(), held, "{room_bytes}");
            drop(ahead);
            assert!(room.take(room_bytes) && !room.take(1), "{room_bytes}");
        }
    }

    #[test]
    fn so_many_are_read_as_are_likely_to_fit() {
        let (_room, mut ahead) = ahead_with(0, []);
        let (most, events) = (limits::READ_AHEAD_PARTITION_BYTES.default, limits::READ_AHEAD_EVENTS.default);
        assert_eq!(ahead.count_for(Offset(0)), 1, "nothing is known of their size");
        for (payload_bytes, count) in [(0, events), (most / events, events), (most / events + 1, events - 1), (most, 1), (most + 1, 1)] {
            ahead.expect(payload_bytes);
            assert_eq!(ahead.count_for(Offset(0)) as u64, count, "{payload_bytes}");
        }
    }
}
