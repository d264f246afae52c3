//! From what other parts say to why a visit failed: a member of a closed set, and a sentence of this side for the log and the status.

use latent_capabilities::PoolRefusal;
use latent_core::{ConsumerName, StreamName};
use latent_nats_proto::triggers::{InspectError, PullError, PullStatus, RequestRefused};
use latent_nats_proto::{CheckoutError, Evidence, HandshakeError};
use latent_node::ReserveRefusal;

use super::fault::StepFault;
use crate::client::ConnectFault;
use crate::dial::DialError;

/// The broker's own numbers for what is missing.
const CONSUMER_NOT_FOUND: u64 = 10_014;
const STREAM_NOT_FOUND: u64 = 10_059;

/// Why a visit failed.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) fault: StepFault,
    pub(crate) why: String,
    /// The pools give nothing any more.
    pub(crate) is_retired: bool,
}

impl Trouble {
    pub(crate) const fn new(fault: StepFault, why: String) -> Self {
        Self { fault, why, is_retired: false }
    }

    pub(crate) fn lost() -> Self {
        Self::new(StepFault::Protocol(Evidence::ConnectionLost { within_reply: false }), "the connection was lost".to_owned())
    }
}

pub(super) fn of_reservation(refusal: &ReserveRefusal) -> Trouble {
    let fault = match refusal {
        ReserveRefusal::Admission(_) => StepFault::Overloaded,
        ReserveRefusal::Stopping => StepFault::NodeStopping,
        _ => StepFault::Ineligible,
    };
    Trouble::new(fault, refusal.to_string())
}

pub(crate) fn of_pool(refusal: PoolRefusal) -> Trouble {
    let fault = match refusal {
        PoolRefusal::Backoff { .. } => StepFault::Backoff,
        PoolRefusal::Limit { .. } | PoolRefusal::Retired => StepFault::PoolFull,
    };
    // How long the backoff is changes with every visit; that it is there is the news.
    let why = match refusal {
        PoolRefusal::Backoff { .. } => "the last attempts to connect failed; the next one waits".to_owned(),
        other => other.to_string(),
    };
    Trouble { is_retired: refusal == PoolRefusal::Retired, ..Trouble::new(fault, why) }
}

pub(crate) fn of_connect(fault: &ConnectFault) -> Trouble {
    let (kind, why) = match fault {
        ConnectFault::NoCredential => (StepFault::Credential, "the tenant has no credential".to_owned()),
        ConnectFault::Dial(error @ DialError::Secret(_)) => (StepFault::Credential, error.to_string()),
        ConnectFault::Dial(error @ DialError::Handshake(HandshakeError::AuthenticationFailed)) => {
            (StepFault::AuthenticationRefused, error.to_string())
        }
        ConnectFault::Dial(error) => (StepFault::Unreachable, error.to_string()),
        ConnectFault::Parked(error @ CheckoutError::AuthenticationFailed) => (StepFault::AuthenticationRefused, error.to_string()),
        ConnectFault::Parked(error) => (StepFault::Protocol(error.evidence()), error.to_string()),
        ConnectFault::NotCurrent(error) => (StepFault::Credential, format!("the credential is not current: {error}")),
        ConnectFault::Lost => return Trouble::lost(),
    };
    Trouble::new(kind, why)
}

pub(super) fn of_refused(refused: RequestRefused) -> Trouble {
    Trouble::new(StepFault::Protocol(Evidence::ConnectionLost { within_reply: false }), refused.to_string())
}

pub(crate) fn of_inspection(error: &InspectError, stream: &StreamName, consumer: &ConsumerName) -> Trouble {
    match error {
        InspectError::Profile(mismatch) => {
            let why = format!(
                "consumer {consumer} of stream {stream}: {mismatch}; `latent broker provision` shows what it should be, or correct the trigger"
            );
            Trouble::new(StepFault::Mismatch(mismatch.field), why)
        }
        InspectError::Refused { err_code: Some(CONSUMER_NOT_FOUND), .. } => {
            let why = format!("stream {stream} has no consumer {consumer}; make it with `latent broker provision`");
            Trouble::new(StepFault::ConsumerMissing, why)
        }
        InspectError::Refused { err_code: Some(STREAM_NOT_FOUND), .. } => {
            Trouble::new(StepFault::StreamMissing, format!("there is no stream {stream}; make it with its consumer {consumer}"))
        }
        InspectError::Refused { code, err_code } => {
            let number = err_code.or(*code).unwrap_or_default();
            Trouble::new(StepFault::Refused(number), format!("the broker refuses to show consumer {consumer}: error {number}"))
        }
        InspectError::Malformed => {
            let why = format!("what the broker says of consumer {consumer} cannot be read");
            Trouble::new(StepFault::Protocol(Evidence::MalformedReceipt), why)
        }
        InspectError::Failed { evidence, .. } => of_evidence(*evidence),
    }
}

pub(crate) fn of_pull(error: PullError) -> Trouble {
    of_evidence(error.evidence)
}

const NOBODY: &str = "nobody answers for the stream; is JetStream there, and has it a leader?";

pub(crate) fn of_status(status: PullStatus) -> Trouble {
    let why = match status {
        PullStatus::MessageTooLarge => {
            "the next message is larger than the payload ceiling and 9,216 bytes; remove it from the stream, or raise the ceiling"
        }
        PullStatus::ConsumerDeleted => "the consumer was deleted",
        PullStatus::NoResponders => NOBODY,
        PullStatus::PushBased => "the consumer pushes; a trigger needs one that is pulled from",
        PullStatus::LeadershipChange => "the consumer has another leader",
        PullStatus::ServerShutdown => "the server stops",
        PullStatus::RequestTooLarge => "the consumer gives less than a pull asks for",
        PullStatus::PinLost => "the consumer is pinned to somebody else",
        PullStatus::TooManyRequests => "the broker has too many requests",
        _ => "the pull ended with a status that is not known",
    };
    Trouble::new(StepFault::Status(status), why.to_owned())
}

pub(crate) fn of_evidence(evidence: Evidence) -> Trouble {
    let (fault, why) = match evidence {
        Evidence::PermissionOfAnother | Evidence::PublishRefused => {
            let why = "the broker's user may not inspect or pull from the consumer; `latent broker permissions` prints what it needs";
            (StepFault::PermissionRefused, why)
        }
        Evidence::AuthenticationFailed => (StepFault::AuthenticationRefused, "the broker does not take the credential any more"),
        Evidence::Deadline { .. } => (StepFault::DeadlineExceeded, "the broker did not answer before the deadline"),
        Evidence::NoResponders => (StepFault::Protocol(evidence), NOBODY),
        Evidence::ConnectionLost { .. } => (StepFault::Protocol(evidence), "the connection was lost"),
        Evidence::OversizedReply => {
            (StepFault::Protocol(evidence), "a message is above its ceiling; remove it from the stream, or raise the ceiling")
        }
        Evidence::MalformedFrame | Evidence::LineTooLong | Evidence::MalformedReceipt => {
            let why = "what the broker sent cannot be read; a message whose headers are none is that, and comes again until the broker gives it up";
            (StepFault::Protocol(evidence), why)
        }
        _ => (StepFault::Protocol(evidence), "the broker said something that does not belong there"),
    };
    Trouble::new(fault, why.to_owned())
}
