//! Publications strictly one behind the other: each says which sequence must be the stream's last one, and on a stream without replicas
//! whose, and the stream refuses it otherwise.
//!
//! What is in flight when a connection is lost, or when its process ends, may come to the stream late. It is taken only in its place, whether
//! the stream remembers its uid or not. A sequence alone cannot tell whose record lies there: on a stream with replicas a record that
//! somebody else publishes in the midst of a call can take the place of one of the call's, and those behind it are stored all the same.

use std::sync::Arc;

use latent_core::NewRecord;

use super::body::Behind;
use super::{NatsBus, operation_limit, reading};
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
        match self.shared.topic(topic) {
            Err(error) => vec![Err(error); records.len()],
            Ok((_, known)) if known.source.replicas <= 1 => self.in_a_chain(topic, fence, &records),
            Ok(_) => self.first_alone(topic, fence, &records),
        }
    }
}

impl NatsBus {
    /// Each names the one before it.
    fn in_a_chain(&self, topic: &str, fence: Fence, records: &[NewRecord]) -> Vec<PublishResult> {
        let before = |number: u64| number.checked_sub(1).and_then(|before| records.get(usize::try_from(before).ok()?)?.uid.clone());
        self.hand_over(topic, records, |number| Behind { sequence: fence.after(number).0, uid: before(number) })
    }

    /// A stream with replicas compares ids only when its members have agreed upon a message. On the server that this was written for, one
    /// that is refused then costs the stream its members for a minute or more. So only the sequence is named, and nothing is handed over
    /// before the first record has taken its place.
    fn first_alone(&self, topic: &str, fence: Fence, records: &[NewRecord]) -> Vec<PublishResult> {
        let (first, rest) = records.split_at(records.len().min(1));
        let mut results = self.hand_over(topic, first, |_| Behind { sequence: fence.0, uid: None });
        if results.iter().all(is_new) {
            results.extend(self.hand_over(topic, rest, |number| Behind { sequence: fence.after(number + 1).0, uid: None }));
        }
        results.resize(records.len(), Err(behind_another()));
        results
    }

    fn hand_over(&self, topic: &str, records: &[NewRecord], behind: impl Fn(u64) -> Behind) -> Vec<PublishResult> {
        let stops = |result: &PublishResult| (!is_new(result)).then(behind_another);
        let submit = |number, record| self.submit_behind(topic, record, Some(behind(number)));
        batch::publish_with(records, stops, submit)
    }
}
