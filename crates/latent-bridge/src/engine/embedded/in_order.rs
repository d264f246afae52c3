//! Publications strictly one behind the other: the writer's machine keeps the order (`commit`), this hands over what one group may hold.

use latent_core::{NewRecord, Ticket, UncertainCause};

use super::commit::Submission;
use super::events::Events;
use super::writer::Asker;
use super::{EmbeddedBroker, Shared, Waking, refused, together};
use crate::bus::in_order::{Fence, InOrder, behind_another, is_new};
use crate::{BusError, PublishResult};

impl InOrder for EmbeddedBroker {
    fn fence(&self, topic: &str) -> Result<Fence, BusError> {
        let (_, topic) = self.shared.topic(topic)?;
        let next = topic.read().next.sequence;
        Ok(Fence(next))
    }

    fn publish_behind(&self, topic: &str, fence: Fence, records: &[NewRecord]) -> Vec<PublishResult> {
        let (mut results, mut rest) = (Vec::with_capacity(records.len()), records);
        while !rest.is_empty() && results.iter().all(is_new) {
            let (group, later) = rest.split_at(together(rest, &self.shared.limits));
            results.extend(self.shared.publish_group_behind(topic, fence.after(results.len() as u64), group));
            rest = later;
        }
        results.resize(records.len(), Err(behind_another()));
        results
    }
}

impl Shared {
    /// What one group may hold. The first that cannot be made ready ends it.
    fn publish_group_behind(&self, name: &str, fence: Fence, records: &[NewRecord]) -> Vec<PublishResult> {
        let (number, topic) = match self.topic(name) {
            Ok((_, topic)) if topic.is_poisoned() => return refused(records.len(), &topic.poisoned_error()),
            Ok(known) => known,
            Err(error) => return refused(records.len(), &error),
        };
        let mut events = Events::for_records(records);
        let unfit = records.iter().find_map(|record| self.prepare(topic, record, &mut events).err());
        let mut results = self.commit_behind(number, fence, events);
        results.extend(unfit.map(Err));
        results.resize(records.len(), Err(behind_another()));
        results
    }

    fn commit_behind(&self, topic: usize, fence: Fence, events: Events) -> Vec<PublishResult> {
        if events.events.is_empty() {
            return Vec::new();
        }
        let uids: Vec<_> = events.events.iter().map(|event| event.uid.clone()).collect();
        let (ticket, completer) = Ticket::pair(Vec::new());
        let submission = Submission { topic, events, behind: Some(fence.0), ticket: Asker::Many(completer) };
        if let Err(error) = self.hand_over(submission, Waking::Nobody) {
            return refused(uids.len(), &error);
        }
        self.write_if_idle();
        let results = ticket.wait();
        // No answers at all: the writer ended before it had any.
        let closed = |uid| Err(BusError::Uncertain { uid, cause: UncertainCause::Closed });
        if results.is_empty() { uids.into_iter().map(closed).collect() } else { results }
    }
}
