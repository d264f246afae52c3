//! Everything that was restored, read back from the log. A partition is walked once beside the archive; what is not found ahead is looked up
//! by its uid, because it was in the topic before and lies further ahead or in another partition.

use std::collections::{BTreeMap, VecDeque};

use latent_core::{Offset, Partition, Record, StoredRecord, partition_for};

use super::reader::PartitionReader;
use super::{Restoration, RestoreError, RestoredPartition, Step};
use crate::{BusError, EventBus};

/// Records read at once.
const PAGE_RECORDS: usize = 512;
/// How far a walk goes ahead for one record before it is looked up instead.
const AHEAD_RECORDS: usize = 4_096;

/// One partition of the log, from its start.
struct Walk {
    next: Offset,
    ahead: VecDeque<StoredRecord>,
    has_ended: bool,
}

pub(super) fn run(
    restoration: &Restoration<'_>,
    (target, is_proven): (&str, bool),
    restored: &mut RestoredPartition,
    tell: &mut dyn FnMut(Step<'_>),
) -> Result<(), RestoreError> {
    let (bus, archive) = (restoration.bus, &restoration.archive);
    let partitions = bus.partitions(target)?;
    let mut walks: BTreeMap<u32, Walk> = BTreeMap::new();
    let mut reader = PartitionReader::open(archive.store, archive.keys, (&restored.topic, Partition(restored.partition)), is_proven);
    while let Some(item) = reader.next()? {
        let Some(record) = item.record() else { continue };
        let partition = partition_for(&record.key, partitions);
        let walk = walks.entry(partition.0).or_insert_with(|| Walk { next: Offset(0), ahead: VecDeque::new(), has_ended: false });
        let not_there = |problem: String| RestoreError::NotThere {
            topic: restored.topic.clone(),
            partition: restored.partition,
            offset: item.offset().0,
            uid: record.uid.as_str().to_owned(),
            problem,
        };
        let (offset, is_ahead) = match walk.find(bus, target, partition, record)? {
            Some(found) => (check(&found, record).map_err(not_there)?, true),
            None => (look_up(bus, target, record)?.map_err(not_there)?, false),
        };
        restored.compared += 1;
        restored.out_of_order += u64::from(!is_ahead);
        let (first, last) = restored.offsets.entry(partition.0).or_insert((offset.0, offset.0));
        (*first, *last) = ((*first).min(offset.0), (*last).max(offset.0));
        if restored.compared.is_multiple_of(PAGE_RECORDS as u64) {
            tell(Step::Comparing(restored));
        }
    }
    tell(Step::Comparing(restored));
    Ok(())
}

impl Walk {
    /// The record of this uid, if it lies not too far ahead. What lies before it is passed.
    fn find(&mut self, bus: &dyn EventBus, topic: &str, partition: Partition, wanted: &Record) -> Result<Option<StoredRecord>, BusError> {
        let mut at = 0;
        loop {
            if let Some(found) = self.ahead.get(at) {
                if found.record.uid == wanted.uid {
                    self.ahead.drain(..at);
                    return Ok(self.ahead.pop_front());
                }
                at += 1;
                if at >= AHEAD_RECORDS {
                    return Ok(None);
                }
                continue;
            }
            if self.has_ended || !self.read(bus, topic, partition)? {
                return Ok(None);
            }
        }
    }

    /// Reads one page more. False at the end.
    fn read(&mut self, bus: &dyn EventBus, topic: &str, partition: Partition) -> Result<bool, BusError> {
        let page = match bus.submit_fetch(topic, partition, self.next, PAGE_RECORDS).wait() {
            // Not one of ours, which were just published.
            Err(BusError::Unreadable { offset, .. }) if offset >= self.next.0 => {
                self.next = Offset(offset.saturating_add(1));
                return Ok(true);
            }
            page => page?,
        };
        let last = page.last().map(|last| last.offset);
        self.has_ended = last.and_then(Offset::next).is_none_or(|next| next <= self.next);
        if let Some(next) = last.and_then(Offset::next) {
            self.next = next;
        }
        self.ahead.extend(page);
        Ok(!self.has_ended)
    }
}

/// Where a record lies, by its uid.
fn look_up(bus: &dyn EventBus, topic: &str, wanted: &Record) -> Result<Result<Offset, String>, BusError> {
    let Some(ack) = bus.submit_find(topic, &wanted.key, &wanted.uid).wait()? else {
        return Ok(Err("no event has this uid".to_owned()));
    };
    let found = bus.submit_fetch(topic, Partition(ack.partition), Offset(ack.offset), 1).wait()?;
    let found = found.into_iter().next().filter(|found| found.offset.0 == ack.offset);
    Ok(found.map_or_else(|| Err("it has expired again".to_owned()), |found| check(&found, wanted)))
}

fn check(found: &StoredRecord, wanted: &Record) -> Result<Offset, String> {
    let same = found.record.same_event(wanted) && found.record.attributes == wanted.attributes;
    if same { Ok(found.offset) } else { Err("it has another content".to_owned()) }
}
