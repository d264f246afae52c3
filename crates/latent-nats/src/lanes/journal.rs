//! What is told of lanes: the trouble of each in the log when it is news, and the last failures of all of them in a ring (T-110).

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use latent_core::{BindingId, MonoTime, UnixMillis};

use super::limits;
use super::office::{LaneCell, Of, Trouble};
use crate::triggers::StepFault;
use crate::voice::Voice;

/// A failure of a lane, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFailure {
    /// The lane.
    pub lane: BindingId,
    /// When it was first seen.
    pub at: UnixMillis,
    /// What it is.
    pub fault: StepFault,
    /// The same in words, without text of the broker.
    pub why: String,
}

/// See the module.
#[derive(Default)]
pub(super) struct Journal {
    voice: Voice,
    ring: Mutex<VecDeque<LaneFailure>>,
}

impl Journal {
    /// Something stands in the lane's way. Told once, until it is over or something else does.
    pub(super) fn trouble(&self, cell: &LaneCell, (now, since): (MonoTime, UnixMillis), of: Of, fault: StepFault, why: &str) {
        {
            let mut office = cell.office();
            office.desk.set_obstacle(Some(why.to_owned()));
            if office.health.trouble.as_ref().is_some_and(|known| known.fault == fault && known.why == why) {
                return;
            }
            office.health.trouble = Some(Trouble { of, fault, why: why.to_owned(), since });
        }
        let draft = cell.binding.draft();
        {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            if ring.len() >= limits::FAILURES.default_usize() {
                ring.pop_front();
            }
            ring.push_back(LaneFailure { lane: draft.id.clone(), at: since, fault, why: why.to_owned() });
        }
        if let Some(left_out) = self.speaks(now) {
            let (kind, trigger, lane) = (fault.kind(), &draft.trigger, &draft.id);
            tracing::warn!(%trigger, %lane, kind, why, left_out, "a trigger cannot get on");
        }
    }

    /// What ended a pull. Where nothing is left to be pulled there is no other pull to show that it is over.
    pub(super) fn pull_trouble(&self, cell: &LaneCell, at: (MonoTime, UnixMillis), fault: StepFault, why: &str) {
        let of = if fault.is_over_with_an_inspection() { Of::Inspection } else { Of::Pull };
        self.trouble(cell, at, of, fault, why);
    }

    /// This was done well, so what stood in its way does not any more.
    pub(super) fn over(&self, cell: &LaneCell, now: MonoTime, of: Of) {
        let over = {
            let mut office = cell.office();
            let over = office.health.trouble.take_if(|trouble| trouble.of == of);
            if over.is_some() {
                office.desk.set_obstacle(None);
            }
            over
        };
        if let Some(Trouble { fault, .. }) = over
            && let Some(left_out) = self.speaks(now)
        {
            let (kind, draft) = (fault.kind(), cell.binding.draft());
            tracing::info!(trigger = %draft.trigger, lane = %draft.id, kind, left_out, "a trigger gets on again");
        }
    }

    /// The broker has given up on messages.
    pub(super) fn stranded(&self, cell: &LaneCell, now: MonoTime) {
        let Some(stranded) = cell.office().health.stranded else { return };
        if let Some(left_out) = self.speaks(now) {
            let (draft, settled, delivered) = (cell.binding.draft(), stranded.settled_up_to, stranded.delivered_up_to);
            tracing::warn!(
                trigger = %draft.trigger, lane = %draft.id, stream = %draft.stream, settled, delivered, left_out,
                "the broker has given up on messages between these sequences; they are in the stream and are not delivered any more"
            );
        }
    }

    /// The last failures, oldest first.
    pub(super) fn failures(&self) -> Vec<LaneFailure> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn speaks(&self, now: MonoTime) -> Option<u64> {
        self.voice.may_speak(now, crate::triggers::limits::LOG_LINES_PER_SECOND.default)
    }
}

#[cfg(test)]
mod tests {
    use latent_core::{ConsumerName, StreamName, Subject, TenantId};

    use super::super::config::{LaneDraft, LaneInput, LanesDraft};
    use super::*;
    use crate::{EndpointDraft, RootsDraft};

    fn cell() -> LaneCell {
        let lane = LaneDraft {
            id: BindingId::parse("one").unwrap(),
            trigger: BindingId::parse("one").unwrap(),
            tenant: TenantId::parse("shop").unwrap(),
            input: LaneInput::Raw,
            stream: StreamName::parse("IN").unwrap(),
            consumer: ConsumerName::parse("one").unwrap(),
            filter: Subject::parse("in.one").unwrap(),
            group: None,
            max_in_flight: 8,
            max_deliveries: 5,
            payload_ceiling_bytes: 1_024,
            ack_wait_millis: 30_000,
            operation_timeout_millis: 10_000,
            dead_letter: None,
        };
        let endpoint = EndpointDraft {
            address: Some("127.0.0.1:4222".to_owned()),
            allow_non_public_peer: Some("127.0.0.1:4222".to_owned()),
            server_name: Some("broker.test".to_owned()),
        };
        let draft = LanesDraft { endpoint, roots: RootsDraft { public: true, ..RootsDraft::default() }, lanes: vec![lane], hot_max: 1 };
        LaneCell::new(draft.check().unwrap().lanes()[0].clone())
    }

    /// T-110.
    #[test]
    fn the_last_256_failures_are_kept_and_one_that_lasts_is_kept_once() {
        let (journal, cell) = (Journal::default(), cell());
        let fail = |number: u64| {
            let at = (MonoTime::from_millis(number), UnixMillis(number));
            journal.trouble(&cell, at, Of::Inspection, StepFault::Refused(number), "it is refused");
        };
        (0..300).flat_map(|number| [number, number]).for_each(fail);
        let kept: Vec<u64> = journal.failures().iter().map(|failure| failure.at.0).collect();
        assert_eq!(kept, (44..300).collect::<Vec<_>>());
    }

    /// A node that has nothing left to pull, since others did it, would say for ever that it cannot get on.
    #[test]
    fn what_ended_a_pull_is_over_with_an_inspection_unless_it_is_of_pulling_or_of_a_message() {
        use latent_nats_proto::Evidence;
        use latent_nats_proto::triggers::PullStatus;
        let (journal, cell) = (Journal::default(), cell());
        let lost = StepFault::Protocol(Evidence::ConnectionLost { within_reply: false });
        let large = StepFault::Status(PullStatus::MessageTooLarge);
        for (fault, is_over) in [
            (StepFault::DeadlineExceeded, true),
            (StepFault::Status(PullStatus::LeadershipChange), true),
            (lost, true),
            (StepFault::PermissionRefused, false),
            (large, false),
            (StepFault::Protocol(Evidence::OversizedReply), false),
        ] {
            journal.pull_trouble(&cell, (MonoTime::ZERO, UnixMillis(1)), fault, "it is so");
            journal.over(&cell, MonoTime::ZERO, Of::Inspection);
            assert_eq!(cell.office().health.trouble.is_none(), is_over, "{fault:?}");
            journal.over(&cell, MonoTime::ZERO, Of::Pull);
            assert!(cell.office().health.trouble.is_none());
        }
    }

    #[test]
    fn a_trouble_is_over_when_the_same_is_done_well() {
        let (journal, cell) = (Journal::default(), cell());
        let at = (MonoTime::ZERO, UnixMillis(1));
        journal.trouble(&cell, at, Of::Settlement, StepFault::SettlementRefused, "not permitted");
        journal.over(&cell, MonoTime::ZERO, Of::Inspection);
        assert!(cell.office().health.trouble.is_some(), "an inspection says nothing about settling");
        journal.over(&cell, MonoTime::ZERO, Of::Settlement);
        assert!(cell.office().health.trouble.is_none());
    }
}
