//! What a handler says at its end.

use std::fmt;

use crate::PublishError;

/// What a handler returns: `Ok(())` acknowledges the event.
pub type Handled = Result<(), Failure>;

/// Why an event was not handled, and with it what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Never again: the event is terminated. Made by [`Reject::because`].
    Reject {
        /// Why, for the operator. What is beyond 1 KiB is cut.
        reason: String,
    },
    /// Again, until the binding's attempts are used up. Made by the functions of [`Retry`].
    Retry {
        /// Why, for the operator. What is beyond 1 KiB is cut.
        reason: String,
        /// The delay wished for; the binding's policy clamps it, and decides when there is none.
        delay_millis: Option<u64>,
    },
}

/// Refuses an event for good: it can never be handled, however often it is tried.
#[derive(Debug, Clone, Copy)]
pub enum Reject {}

impl Reject {
    /// The refusal, with its reason.
    pub fn because(reason: impl Into<String>) -> Failure {
        Failure::Reject { reason: reason.into() }
    }
}

/// Asks to see an event again: it could not be handled now.
#[derive(Debug, Clone, Copy)]
pub enum Retry {}

impl Retry {
    /// After the delay that the binding's policy chooses.
    pub fn because(reason: impl Into<String>) -> Failure {
        Failure::Retry { reason: reason.into(), delay_millis: None }
    }

    /// After `delay_millis`, which the binding's policy clamps.
    pub fn after_millis(delay_millis: u64, reason: impl Into<String>) -> Failure {
        Failure::Retry { reason: reason.into(), delay_millis: Some(delay_millis) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reject { reason } => write!(f, "rejected: {reason}"),
            Self::Retry { reason, delay_millis: None } => write!(f, "to be tried again: {reason}"),
            Self::Retry { reason, delay_millis: Some(delay) } => write!(f, "to be tried again after {delay} ms: {reason}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<PublishError> for Failure {
    /// A publication that can never succeed rejects the event; every other asks for another attempt, which is safe because an
    /// idempotency key stores once. A missing grant is the operator's to mend, so it costs no event before its attempts are used up.
    fn from(error: PublishError) -> Self {
        if error.is_permanent() { Reject::because(error.to_string()) } else { Retry::because(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_publication_that_can_never_succeed_rejects_the_event() {
        let rejected = [PublishError::InvalidTopic, PublishError::InvalidEvent, PublishError::NoKey];
        let again = [
            PublishError::PermissionDenied { topic: "greetings".to_owned() },
            PublishError::BudgetExhausted,
            PublishError::DeadlineExceeded,
            PublishError::Cancelled,
            PublishError::Unavailable,
            PublishError::Uncertain,
        ];
        assert!(rejected.into_iter().all(|error| matches!(Failure::from(error), Failure::Reject { .. })));
        assert!(again.into_iter().all(|error| matches!(Failure::from(error), Failure::Retry { delay_millis: None, .. })));
    }

    #[test]
    fn a_missing_grant_names_the_topic_and_what_to_add() {
        let denied = PublishError::PermissionDenied { topic: "greetings".to_owned() };
        let Failure::Retry { reason, .. } = Failure::from(denied) else { panic!("it is the operator's to mend") };
        assert_eq!(
            reason,
            "topic \"greetings\" is not granted to this service; add to its [[service]]: \
             grants = [{ capability = \"latent:events/publisher@0.2.0\", topics = [\"greetings\"] }]. Where it is granted, its broker \
             does not permit it, and the node's log says so"
        );
    }
}
