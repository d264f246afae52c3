//! Does what a machine asks for: a thin shell, step by step.

use std::time::Duration;

use latent_bridge::migrate::{Comparing, Copying, Page, Side, Step};
use latent_bridge::{BusError, InOrder};
use latent_core::{Offset, Partition};

use super::source::Source;

/// One partition between two logs.
pub(super) struct Way<'w> {
    pub(super) topic: &'w str,
    pub(super) partition: Partition,
    pub(super) source: &'w mut dyn Source,
    pub(super) destination: &'w dyn InOrder,
}

impl Way<'_> {
    /// One step of a copy. False after the last one.
    pub(super) fn copy_on(&mut self, copying: &mut Copying) -> bool {
        match copying.step() {
            Step::Fence => match self.destination.fence(self.topic) {
                Ok(fence) => copying.fenced(fence),
                Err(error) => copying.failed(Side::Destination, error),
            },
            Step::ReadSource(from) => match self.read(Side::Source, from) {
                Ok(page) => copying.read(Side::Source, page),
                Err(error) => copying.failed(Side::Source, error),
            },
            Step::ReadDestination(from) => match self.read(Side::Destination, from) {
                Ok(page) => copying.read(Side::Destination, page),
                Err(error) => copying.failed(Side::Destination, error),
            },
            Step::Publish { fence, records } => copying.published(self.destination.publish_behind(self.topic, fence, &records)),
            Step::Pause { millis } => std::thread::sleep(Duration::from_millis(millis)),
            Step::Done => return false,
        }
        true
    }

    /// One step of a comparison. False after the last one.
    pub(super) fn compare_on(&mut self, comparing: &mut Comparing) -> bool {
        let (side, from) = match comparing.step() {
            Step::ReadSource(from) => (Side::Source, from),
            Step::ReadDestination(from) => (Side::Destination, from),
            Step::Pause { millis } => {
                std::thread::sleep(Duration::from_millis(millis));
                return true;
            }
            // A comparison publishes nothing.
            Step::Fence | Step::Publish { .. } | Step::Done => return false,
        };
        match self.read(side, from) {
            Ok(page) => comparing.read(side, page),
            Err(error) => comparing.failed(side, error),
        }
        true
    }

    fn read(&mut self, side: Side, from: Offset) -> Result<Page, BusError> {
        match side {
            Side::Source => self.source.page(self.topic, self.partition, from),
            Side::Destination => Page::of(self.destination.submit_fetch(self.topic, self.partition, from, usize::MAX).wait()),
        }
    }
}
