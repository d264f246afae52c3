//! What goes into a command, and why a command is refused before anything of it is written.

use std::fmt::Write as _;

use super::{PinId, PullConsumer};
use crate::limits::TERM_REASON_BYTES;

/// One pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Messages, from 1 to the profile's largest batch.
    pub batch: u32,
    /// How long it waits at the broker, from 1 to the profile's longest. A pull without an expiry may never be answered.
    pub expires_nanos: u64,
    /// Bytes, from one message to the profile's most.
    pub max_bytes: u64,
    /// Whether it ends as soon as nothing is there.
    pub no_wait: bool,
    /// After how long without a message the broker says that the pull still stands; at most half of the expiry.
    pub idle_heartbeat_nanos: Option<u64>,
    /// The pin that the consumer's messages came with.
    pub pin: Option<PinId>,
}

impl PullRequest {
    /// A pull that keeps the pin it shows and can bring nothing, because no message has room in one byte. It is answered at once.
    pub fn keeping(pin: PinId) -> Self {
        Self { batch: 1, expires_nanos: 0, max_bytes: NOTHING_BYTES, no_wait: true, idle_heartbeat_nanos: None, pin: Some(pin) }
    }

    fn brings_nothing(&self) -> bool {
        self.max_bytes == NOTHING_BYTES && self.no_wait && self.pin.is_some() && (self.batch, self.expires_nanos) == (1, 0)
    }
}

/// What a pull asks for that is to bring nothing.
const NOTHING_BYTES: u64 = 1;

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionSettlement<'a> {
    /// Handled.
    Acknowledge,
    /// Again after this time, at most that of a signed 64-bit number.
    RetryAfter {
        /// Nanoseconds.
        nanos: u64,
    },
    /// Never again.
    Terminate {
        /// Why, for whoever watches the broker: printable ASCII, at most [`TERM_REASON_BYTES`].
        reason: Option<&'a str>,
    },
    /// Still worked on: the broker begins to wait for the acknowledgement anew.
    InProgress,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// Its batch.
    #[error("a pull's batch lies outside of its profile")]
    Batch,
    /// Its expiry.
    #[error("a pull's expiry is missing or lies outside of its profile")]
    Expires,
    /// Its bytes.
    #[error("a pull's bytes lie outside of its profile, or do not hold one message")]
    MaxBytes,
    /// Its heartbeat.
    #[error("a pull's heartbeat is more than half of its expiry, or nothing")]
    Heartbeat,
    /// Its pin.
    #[error("a pull has a pin and its consumer has no group")]
    Pin,
    /// The reason of a termination.
    #[error("the reason of a termination is not printable ASCII of at most {} bytes", TERM_REASON_BYTES.max)]
    Reason,
    /// The delay of a retry.
    #[error("the delay of a retry is more than the broker can count")]
    Delay,
}

/// An operation that was not begun. No byte of it was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefused {
    /// The session is over.
    #[error("the connection's session is over")]
    Closed,
    /// The request is not one that may be sent.
    #[error(transparent)]
    Request(#[from] BadRequest),
    /// As many operations are under way as may.
    #[error("{operations_max} operations of the connection are under way or not taken yet; take their events first")]
    Operations {
        /// The bound.
        operations_max: usize,
    },
    /// The commands that wait fill their room.
    #[error("commands of {bytes} bytes have no room among the {bytes_max} that may wait to be written")]
    Outgoing {
        /// Bytes of the command.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// A pull of this consumer is open.
    #[error("a pull of the consumer is open")]
    PullOpen,
    /// The pull could bring more messages than there is room for.
    #[error("a pull asks for {asked} messages and there is room for {free}")]
    Messages {
        /// Messages asked for.
        asked: usize,
        /// Messages that there is room for.
        free: usize,
    },
    /// The pull could bring more bytes than there is room for.
    #[error("a pull may bring {asked} bytes and there is room for {free}")]
    MessageBytes {
        /// Bytes that it may bring.
        asked: u64,
        /// Bytes that there is room for.
        free: u64,
    },
    /// The connection's memory was made for smaller messages.
    #[error("messages of the consumer may have {bytes} bytes and the connection was made for {bytes_max}")]
    Ceiling {
        /// Bytes of one message.
        bytes: u64,
        /// Bytes that the connection takes.
        bytes_max: u64,
    },
    /// The server takes no command of this size.
    #[error("the command is larger than the broker's max_payload")]
    ServerMaximum,
    /// The connection has used every inbox.
    #[error("the connection has used every reply inbox")]
    InboxExhausted,
}

/// The body of a pull, checked against its consumer.
pub(super) fn pull_body(consumer: &PullConsumer, pull: &PullRequest) -> Result<Vec<u8>, BadRequest> {
    let profile = consumer.profile();
    if let (Some(group), Some(pin), true) = (&profile.group, &pull.pin, pull.brings_nothing()) {
        let pin = pin.text();
        return Ok(format!(r#"{{"batch":1,"max_bytes":{NOTHING_BYTES},"no_wait":true,"group":"{group}","id":"{pin}"}}"#).into_bytes());
    }
    if !(1..=profile.batch_max).contains(&pull.batch) {
        return Err(BadRequest::Batch);
    }
    if !(1..=profile.expires_nanos_max).contains(&pull.expires_nanos) {
        return Err(BadRequest::Expires);
    }
    if !(profile.ceiling.message_bytes_max()..=profile.request_bytes_max).contains(&pull.max_bytes) {
        return Err(BadRequest::MaxBytes);
    }
    if pull.idle_heartbeat_nanos.is_some_and(|nanos| nanos == 0 || nanos > pull.expires_nanos / 2) {
        return Err(BadRequest::Heartbeat);
    }
    let mut body = format!(r#"{{"batch":{},"expires":{},"max_bytes":{}"#, pull.batch, pull.expires_nanos, pull.max_bytes);
    if pull.no_wait {
        body.push_str(r#","no_wait":true"#);
    }
    // Writing to a String does not fail.
    if let Some(nanos) = pull.idle_heartbeat_nanos {
        let _ = write!(body, r#","idle_heartbeat":{nanos}"#);
    }
    match (&profile.group, &pull.pin) {
        (None, Some(_)) => return Err(BadRequest::Pin),
        (None, None) => (),
        (Some(group), pin) => {
            let _ = write!(body, r#","group":"{group}""#);
            if let Some(pin) = pin {
                let _ = write!(body, r#","id":"{}""#, pin.text());
            }
        }
    }
    body.push('}');
    Ok(body.into_bytes())
}

pub(super) fn settle_body(settlement: SessionSettlement<'_>) -> Result<Vec<u8>, BadRequest> {
    match settlement {
        SessionSettlement::Acknowledge => Ok(b"+ACK".to_vec()),
        SessionSettlement::InProgress => Ok(b"+WPI".to_vec()),
        SessionSettlement::RetryAfter { nanos } if i64::try_from(nanos).is_err() => Err(BadRequest::Delay),
        SessionSettlement::RetryAfter { nanos } => Ok(format!(r#"-NAK {{"delay":{nanos}}}"#).into_bytes()),
        SessionSettlement::Terminate { reason: None | Some("") } => Ok(b"+TERM".to_vec()),
        SessionSettlement::Terminate { reason: Some(reason) } => {
            let is_plain = reason.len() <= TERM_REASON_BYTES.max_usize() && reason.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if is_plain { Ok(format!("+TERM {reason}").into_bytes()) } else { Err(BadRequest::Reason) }
        }
    }
}
