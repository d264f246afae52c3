//! What a visit says in the log: what somebody may have to look after, at a bounded rate, in words of this side.

use latent_core::{Offset, Partition, UnixMillis};
use latent_node::ActivationEnd;
use latent_node::delivery::{Attempt, Confirmation, TerminationReason, Unsettled, Visit, VisitNext, VisitSettlement};

use super::binding::BindingInput;
use super::fault::StepFault;
use super::limits;
use super::report::{LastStep, StepEnd};
use super::visit::Place;

impl Place<'_> {
    /// Says that the broker gave a message up: somebody has to decide about it.
    pub(super) fn tell_stranded(&self, sequence: u64) {
        let Self { installed, binding, .. } = self;
        let Some(left_out) = installed.voice.may_speak(installed.client.clock.mono(), limits::LOG_LINES_PER_SECOND.default) else { return };
        let (id, stream) = (binding.id(), binding.stream());
        tracing::warn!(binding = %id, %stream, sequence, left_out, "message: the broker delivers it no more, and nobody settled it here");
    }

    /// Says that what was told before is over.
    pub(super) fn tell_over(&self, fault: Option<StepFault>) {
        let Self { installed, binding, .. } = self;
        let Some(fault) = fault else { return };
        if let Some(left_out) = installed.voice.may_speak(installed.client.clock.mono(), limits::LOG_LINES_PER_SECOND.default) {
            tracing::info!(triggers = %installed.logical_id, binding = %binding.id(), was = fault.kind(), left_out, "a trigger goes on");
        }
    }

    /// Says that the broker's user may not settle: whatever runs comes again.
    pub(super) fn tell_settlement_refused(&self) {
        let Self { installed, binding, index, .. } = self;
        let why = "the broker's user may not settle what the consumer delivers; `latent broker permissions` prints what it needs";
        if installed.board.troubled(*index, StepFault::SettlementRefused, why)
            && let Some(left_out) = installed.voice.may_speak(installed.client.clock.mono(), limits::LOG_LINES_PER_SECOND.default)
        {
            let (id, kind) = (binding.id(), StepFault::SettlementRefused.kind());
            tracing::warn!(triggers = %installed.logical_id, binding = %id, kind, why, left_out, "a trigger cannot get on");
        }
    }

    /// Says that a message stays because its dead letter cannot be put anywhere.
    pub(super) fn tell_not_parked(&self, sequence: u64, why: &str) {
        let Self { installed, binding, .. } = self;
        if let Some(left_out) = installed.voice.may_speak(installed.client.clock.mono(), limits::LOG_LINES_PER_SECOND.default) {
            let (id, topic) = (binding.id(), binding.dead_letter().map(tracing::field::display));
            tracing::warn!(binding = %id, topic, sequence, why, left_out, "a message cannot be put into the dead-letter topic; it comes again");
        }
    }

    /// What the function said, and how it ended, like the deliveries of the embedded engine.
    pub(super) fn tell_end(&self, machine: &Visit, end: &ActivationEnd) {
        let Self { installed, binding, .. } = self;
        let clock = &*installed.client.clock;
        let handed = machine.handed();
        let (topic, partition) = match binding.input() {
            BindingInput::Values => (binding.stream().as_str(), Partition(0)),
            BindingInput::Event { topic, partition } => (topic.as_str(), *partition),
        };
        let delay_millis = match machine.next() {
            VisitNext::Settle(VisitSettlement::RetryAfter { millis }) => Some(millis),
            _ => None,
        };
        let attempt = Attempt {
            binding: binding.trigger(),
            topic,
            partition,
            offset: Offset(handed.sequence),
            attempt: u32::try_from(handed.delivery).unwrap_or(u32::MAX),
            attempts_max: binding.policy().deliveries_max,
            next_attempt_at: delay_millis.map(|millis| UnixMillis(clock.unix().0.saturating_add(millis))),
            delay_millis,
        };
        installed.attempts.tell(&attempt, end, clock.mono());
    }

    /// Says what somebody may have to look after.
    pub(super) fn tell_settled(&self, step: LastStep) {
        let Self { installed, binding, .. } = self;
        let handed = step.handed.unwrap_or_default();
        let what = match step.end {
            StepEnd::Settled { confirmation: Confirmation::Confirmed, settlement: VisitSettlement::Acknowledge } => return,
            StepEnd::Settled { confirmation: Confirmation::Confirmed, settlement } => match settlement {
                VisitSettlement::RetryAfter { .. } => "its function failed; it is delivered again after its delay",
                VisitSettlement::Terminate(TerminationReason::Exhausted) => "its last run failed; it is terminated",
                _ => "it can never run, or its function refused it; it is terminated",
            },
            StepEnd::Settled { .. } => "it is not known whether its settlement arrived; it may be delivered again",
            StepEnd::Unsettled(Unsettled::Stopped) => "the node stops; it was not settled, and the broker delivers it again",
            StepEnd::Unsettled(Unsettled::TimeSpent) => "its time was over when its function ended; the broker delivers it again",
            StepEnd::Unsettled(Unsettled::CredentialChanged) => {
                "the credential was changed; it was not settled, and the broker delivers it again"
            }
            StepEnd::Unsettled(Unsettled::NotParked(_)) => {
                "its dead letter is not kept; it was not settled, and the broker delivers it again"
            }
            _ => "its settlement was not sent; the broker delivers it again",
        };
        let Some(left_out) = installed.voice.may_speak(installed.client.clock.mono(), limits::LOG_LINES_PER_SECOND.default) else { return };
        let (id, stream) = (binding.id(), binding.stream());
        tracing::warn!(binding = %id, %stream, sequence = handed.sequence, delivery = handed.delivery, left_out, "message: {what}");
    }
}
