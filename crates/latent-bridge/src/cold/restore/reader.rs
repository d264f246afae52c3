//! The items of one partition of an archive, ascending: those of its segments, and single events between them. One object is in memory at
//! a time, and the names of one page.

use std::collections::VecDeque;

use latent_core::{Offset, Partition};

use super::RestoreError;
use crate::cold::export::{ArchivedName, partition_prefix};
use crate::cold::object;
use crate::cold::segment::{Attest, Attestation, Item, Segment};
use crate::cold::store::ColdStore;
use crate::limits;

pub(super) struct PartitionReader<'r> {
    store: &'r dyn ColdStore,
    keys: Option<&'r dyn Attest>,
    prefix: String,
    after: String,
    names: VecDeque<String>,
    has_more: bool,
    /// Of the segment being read, from the front.
    items: VecDeque<Item>,
    last: Option<Offset>,
    /// Single events are in segments as well, or are nobody's: they are passed over.
    is_proven: bool,
}

impl<'r> PartitionReader<'r> {
    /// `is_proven`: what is not in a segment is not read, since nothing proves it.
    pub(super) fn open(
        store: &'r dyn ColdStore,
        keys: Option<&'r dyn Attest>,
        (topic, partition): (&str, Partition),
        is_proven: bool,
    ) -> Self {
        let (prefix, names, items) = (partition_prefix(topic, partition), VecDeque::new(), VecDeque::new());
        Self { store, keys, prefix, after: String::new(), names, has_more: true, items, last: None, is_proven }
    }

    /// The next item; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Item>, RestoreError> {
        loop {
            // A single event inside of a segment is named behind the segment, and in front of the next one.
            let single = self.peek()?.and_then(|name| match ArchivedName::parse(name) {
                Some(ArchivedName::Object { offset, .. }) => Some(offset),
                _ => None,
            });
            let item = match (self.items.front().map(Item::offset), single) {
                (Some(next), Some(single)) if single <= next => self.take_single()?,
                (None, Some(_)) => self.take_single()?,
                (Some(_), _) => self.items.pop_front(),
                (None, None) => match self.names.pop_front() {
                    None => return Ok(None),
                    Some(name) => {
                        self.open_segment(&name)?;
                        continue;
                    }
                },
            };
            let Some(item) = item else { continue };
            // An event that is there twice is one event.
            if self.last.is_none_or(|last| last < item.offset()) {
                self.last = Some(item.offset());
                return Ok(Some(item));
            }
        }
    }

    fn peek(&mut self) -> Result<Option<&str>, RestoreError> {
        if self.names.is_empty() && self.has_more {
            let page = self.store.list_after(&self.prefix, &self.after, limits::ARCHIVE_LIST_PAGE.default_usize())?;
            self.has_more = page.len() == limits::ARCHIVE_LIST_PAGE.default_usize();
            if let Some((stray, what)) = page.iter().find_map(|listed| Some((listed, listed.stray?))) {
                return Err(RestoreError::Changed { object: stray.path.clone(), problem: what.to_owned() });
            }
            if let Some(last) = page.last() {
                self.after.clone_from(&last.path);
            }
            self.names = page.into_iter().map(|listed| listed.path).collect();
        }
        Ok(self.names.front().map(String::as_str))
    }

    fn take_single(&mut self) -> Result<Option<Item>, RestoreError> {
        let Some(name) = self.names.pop_front().filter(|_| !self.is_proven) else { return Ok(None) };
        let changed = |problem: String| RestoreError::Changed { object: name.clone(), problem };
        let bytes = self.store.get(&name, limits::COLD_OBJECT_BYTES.max)?.ok_or_else(|| changed("it is not there".to_owned()))?;
        object::decode(&bytes).map(|stored| Some(Item::from(stored))).map_err(changed)
    }

    fn open_segment(&mut self, name: &str) -> Result<(), RestoreError> {
        let changed = |problem: &str| RestoreError::Changed { object: name.to_owned(), problem: problem.to_owned() };
        let bytes = self.store.get(name, limits::ARCHIVE_SEGMENT_OBJECT_BYTES.default)?.ok_or_else(|| changed("it is not there"))?;
        let segment = Segment::open(bytes).map_err(|error| RestoreError::changed(name, &error))?;
        if self.keys.is_some_and(|keys| segment.attested(keys) != Attestation::Proven) {
            return Err(changed("its proof does not hold"));
        }
        let items: Result<VecDeque<_>, _> = segment.items().collect();
        self.items = items.map_err(|error| RestoreError::changed(name, &error))?;
        Ok(())
    }
}
