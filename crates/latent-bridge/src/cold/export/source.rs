//! A partition of a log as the archive reads it: everything that is there, in order, damaged records by their offset.

use latent_core::{Offset, Partition};

use super::lookout::LogSpan;
use crate::cold::segment::Item;
use crate::{BusError, EventBus};

/// Records asked for at once.
const PAGE_RECORDS: usize = 256;

/// See the module.
pub trait ItemSource {
    /// First readable offset and the offset after the last one.
    ///
    /// # Errors
    /// [`BusError`].
    fn bounds(&self) -> Result<(Offset, Offset), BusError>;

    /// Items from `from` on, ascending, few enough to hold. None means that there are no more.
    ///
    /// # Errors
    /// [`BusError`].
    fn page(&self, from: Offset) -> Result<Vec<Item>, BusError>;

    /// Where the log begins and ends, of one that removes events whether they are archived or not. None of one that keeps them.
    ///
    /// # Errors
    /// [`BusError`].
    fn span(&self) -> Result<Option<LogSpan>, BusError> {
        Ok(None)
    }
}

/// A partition of a bus.
#[derive(Clone)]
pub struct BusItems<'b> {
    /// The bus.
    pub bus: &'b dyn EventBus,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: Partition,
}

impl ItemSource for BusItems<'_> {
    fn bounds(&self) -> Result<(Offset, Offset), BusError> {
        self.bus.bounds(&self.topic, self.partition)
    }

    fn page(&self, from: Offset) -> Result<Vec<Item>, BusError> {
        match self.bus.submit_fetch(&self.topic, self.partition, from, PAGE_RECORDS).wait() {
            Ok(page) => Ok(page.into_iter().map(Item::from).collect()),
            Err(BusError::Unreadable { offset, .. }) if offset >= from.0 => Ok(vec![Item::Damaged { offset: Offset(offset) }]),
            Err(error) => Err(error),
        }
    }
}
