//! What an operator reads in the log of publications that did not succeed: which provider, tenant, topic, subject and stream, and why.
//! Never content, keys, credentials or text of the broker.
//!
//! The same of bindings of triggers that cannot get on.
//!
//! A function can fail as often as its budget allows, so lines are bounded: [`limits::LOG_LINES_PER_SECOND`] for each provider. What was
//! left out is counted, and told with the next line.

use std::sync::{Mutex, PoisonError};

use latent_core::{KnownFailure, LogicalTopic, MonoTime, PublicationOutcome, TenantId};

use crate::limits;
use crate::publisher::Provider;

/// How many lines were written in the current second, and how many were not.
#[derive(Debug, Default)]
pub(crate) struct Voice(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    second: u64,
    lines: u64,
    left_out: u64,
}

impl Voice {
    /// Whether one more line may be written at `now`; if so, how many were left out before it.
    pub(crate) fn may_speak(&self, now: MonoTime, lines_max: u64) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now.as_micros() / 1_000_000;
        if said.second != second {
            (said.second, said.lines) = (second, 0);
        }
        if said.lines >= lines_max {
            said.left_out = said.left_out.saturating_add(1);
            return None;
        }
        said.lines += 1;
        Some(std::mem::take(&mut said.left_out))
    }
}

/// Writes a line for what did not succeed and is somebody's to mend.
pub(crate) fn tell(provider: &Provider, tenant: &TenantId, topic: &LogicalTopic, outcome: &PublicationOutcome) {
    let why = match outcome {
        PublicationOutcome::Receipt(_) | PublicationOutcome::KnownFailure(KnownFailure::Cancelled | KnownFailure::BudgetExhausted) => {
            return;
        }
        PublicationOutcome::KnownFailure(KnownFailure::InvalidTopic) => "the provider maps no such topic of the tenant".to_owned(),
        PublicationOutcome::KnownFailure(KnownFailure::PermissionDenied) => {
            "not permitted: the service has lost its grant, or the broker does not let its user publish on the subject".to_owned()
        }
        PublicationOutcome::KnownFailure(failure) => failure.to_string(),
        PublicationOutcome::Uncertain(uncertain) => {
            format!("it may be stored ({}); the same idempotency key finds or stores it", uncertain.cause.kind())
        }
    };
    let Some(left_out) = provider.voice.may_speak(provider.client.clock.mono(), limits::LOG_LINES_PER_SECOND.default) else { return };
    let mapping = provider.config.mappings.find(tenant, topic).map(|(_, mapping)| mapping);
    let (subject, stream) = mapping.map_or(("", ""), |mapping| (mapping.subject.as_str(), mapping.stream.as_str()));
    let (id, address) = (&provider.reference().logical_id, provider.config.address());
    tracing::warn!(provider = %id, %address, %tenant, %topic, subject, stream, why, left_out, "publication to the broker did not succeed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_in_each_second_and_the_rest_is_counted() {
        let voice = Voice::default();
        let lines = limits::LOG_LINES_PER_SECOND.default;
        let spoken = (0..lines + 5).filter(|_| voice.may_speak(MonoTime::from_millis(1_000), lines).is_some()).count();
        assert_eq!(spoken as u64, lines);
        assert_eq!(voice.may_speak(MonoTime::from_millis(1_999), lines), None);
        assert_eq!([2_000, 2_001].map(|at| voice.may_speak(MonoTime::from_millis(at), lines)), [Some(6), Some(0)]);
    }
}
