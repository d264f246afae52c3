//! Publications strictly one behind the other: each says which sequence must be the stream's last one, and whose, and the stream refuses it
//! otherwise.
//!
//! What is in flight when a connection is lost, or when its process ends, may come to the stream late. It is taken only in its place: behind
//! the one it follows, with nothing between them. A sequence alone would not do: another record may have come to lie there. Whether the
//! stream remembers its uid does not matter for that.

use std::sync::Arc;

use latent_core::NewRecord;

use super::body::Behind;
use super::shared::refused;
use super::{NatsBus, operation_limit, publishing, reading};
use crate::bus::batch;
use crate::bus::in_order::{Fence, InOrder, behind_another, is_new};
use crate::{BusError, PublishResult};

impl InOrder for NatsBus {
    /// The last sequence of the topic's stream.
    fn fence(&self, topic: &str) -> Result<Fence, BusError> {
        let (number, _) = self.shared.topic(topic)?;
        let shared = Arc::clone(&self.shared);
        self.wait("reading where a stream ends", operation_limit(), async move {
            let Some(topic) = shared.topics.get(number) else { return Ok(Fence(0)) };
            Ok(Fence(reading::look(&shared, topic).await?.state.last_seq))
        })
    }

    fn publish_behind(&self, topic: &str, fence: Fence, records: &[NewRecord]) -> Vec<PublishResult> {
        let mut records = records.to_vec();
        for record in records.iter_mut().filter(|record| record.uid.is_none()) {
            match crate::uid::mint(self.shared.clock.unix()) {
                Ok(uid) => record.uid = Some(uid),
                Err(error) => return vec![Err(error); records.len()],
            }
        }
        let stops = |result: &PublishResult| (!is_new(result)).then(behind_another);
        let submit = |number: u64, record| {
            let before = number.checked_sub(1).and_then(|before| usize::try_from(before).ok());
            let uid = before.and_then(|before| records.get(before)).and_then(|before: &NewRecord| before.uid.clone());
            let behind = Behind { sequence: fence.after(number).0, uid };
            publishing::submit(&self.shared, topic, record, Some(behind)).unwrap_or_else(refused)
        };
        batch::publish_with(&records, stops, submit)
    }
}
