//! A consumer as the second profile needs it (T-101): what is configured, checked once, and what follows from it.

use latent_core::LimitError;
use latent_core::limits::EVENT_BYTES;

use crate::limits::{DELIVERED_HEADER_BYTES, PULL_BATCH, PULL_EXPIRES_MILLIS, STREAM_BYTES, SUBJECT_BYTES};
use crate::link::{ACK_SUBJECT_BYTES, PIN_LINE_BYTES};
use crate::triggers::is_name;

/// What an event takes on the wire beside itself in base64 (T-108).
const EVENT_OVERHEAD_BYTES: u64 = 16_384;
/// What a raw message takes beside its payload (D-10).
const RAW_OVERHEAD_BYTES: u64 = 9_216;
/// Most bytes of a group's name, as the broker has it.
const GROUP_BYTES: usize = 16;
/// What the broker may deliver beyond the runs of a binding, at least (T-101).
const DELIVERIES_SPARE: u64 = 8;

/// How large the messages of a consumer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ceiling {
    /// Messages of a topic: the event they carry, which may stand in base64 in the body.
    Event {
        /// Its payload.
        payload_bytes_max: u32,
    },
    /// Messages of a raw stream: the payload itself.
    Raw {
        /// The payload.
        payload_bytes_max: u32,
    },
}

impl Ceiling {
    const fn payload_bytes_max(self) -> u64 {
        match self {
            Self::Event { payload_bytes_max } | Self::Raw { payload_bytes_max } => payload_bytes_max as u64,
        }
    }

    /// Most bytes that a body may have to be handed out.
    pub const fn body_bytes_max(self) -> u64 {
        match self {
            Self::Event { .. } => self.message_bytes_max(),
            Self::Raw { payload_bytes_max } => payload_bytes_max as u64,
        }
    }

    /// What one message takes of a pull's bytes, headers and subjects included.
    pub const fn message_bytes_max(self) -> u64 {
        match self {
            Self::Event { payload_bytes_max } => (payload_bytes_max as u64 * 4).div_ceil(3) + EVENT_OVERHEAD_BYTES,
            Self::Raw { payload_bytes_max } => payload_bytes_max as u64 + RAW_OVERHEAD_BYTES,
        }
    }
}

/// A consumer and what its binding asks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullProfile {
    /// Its stream.
    pub stream: String,
    /// Its durable name.
    pub consumer: String,
    /// Its only filter, a literal subject.
    pub filter_subject: String,
    /// Its priority group. Topic partitions have one; without it the consumer must have none.
    pub group: Option<String>,
    /// How long the broker waits for an acknowledgement.
    pub ack_wait_nanos: u64,
    /// Messages that may be in flight: what the consumer's `max_ack_pending` must be.
    pub max_in_flight: u32,
    /// Runs of one message. The consumer's `max_deliver` must be at least eight more.
    pub max_deliveries: u32,
    /// How large its messages may be.
    pub ceiling: Ceiling,
    /// Most messages of one pull.
    pub batch_max: u32,
    /// Longest wait of one pull.
    pub expires_nanos_max: u64,
    /// Most bytes of one pull; at least one message of [`Ceiling::message_bytes_max`].
    pub request_bytes_max: u64,
}

/// A profile that no consumer could satisfy, or whose texts may not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PullProfileError {
    /// The stream's name.
    #[error("the stream's name is not one token of at most {} bytes", STREAM_BYTES.max)]
    Stream,
    /// The consumer's name.
    #[error("the consumer's name is not one token of at most {} bytes", STREAM_BYTES.max)]
    Consumer,
    /// The filter.
    #[error("the filter is not a literal subject of at most {} bytes", SUBJECT_BYTES.max)]
    FilterSubject,
    /// The group.
    #[error("the priority group's name is not 1 to {GROUP_BYTES} letters, digits, `-`, `_`, `/` or `=`")]
    Group,
    /// A number outside of its limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The batch is larger than what may be in flight.
    #[error("a pull asks for {batch_max} messages and {max_in_flight} may be in flight")]
    Batch {
        /// Messages of one pull.
        batch_max: u32,
        /// Messages in flight.
        max_in_flight: u32,
    },
    /// A pull has no room for one message.
    #[error("a pull asks for {request_bytes_max} bytes and one message may have {message_bytes_max}")]
    RequestBytes {
        /// Bytes of one pull.
        request_bytes_max: u64,
        /// Bytes of one message.
        message_bytes_max: u64,
    },
}

/// A checked [`PullProfile`].
#[derive(Debug, PartialEq, Eq)]
pub struct PullConsumer(PullProfile);

impl PullConsumer {
    /// Checks a profile.
    ///
    /// # Errors
    /// [`PullProfileError`] naming what is wrong.
    pub fn new(profile: PullProfile) -> Result<Self, PullProfileError> {
        let PullProfile { stream, consumer, filter_subject, group, ceiling, .. } = &profile;
        let checks = [
            (is_name(stream), PullProfileError::Stream),
            (is_name(consumer), PullProfileError::Consumer),
            (is_literal(filter_subject), PullProfileError::FilterSubject),
            (group.as_deref().is_none_or(is_group), PullProfileError::Group),
        ];
        if let Some((_, error)) = checks.into_iter().find(|(is_right, _)| !is_right) {
            return Err(error);
        }
        EVENT_BYTES.check(ceiling.payload_bytes_max())?;
        PULL_BATCH.check(u64::from(profile.batch_max))?;
        // A part of a millisecond counts as a whole one.
        PULL_EXPIRES_MILLIS.check(profile.expires_nanos_max.div_ceil(1_000_000))?;
        if profile.batch_max > profile.max_in_flight {
            return Err(PullProfileError::Batch { batch_max: profile.batch_max, max_in_flight: profile.max_in_flight });
        }
        let (request_bytes_max, message_bytes_max) = (profile.request_bytes_max, ceiling.message_bytes_max());
        if request_bytes_max < message_bytes_max {
            return Err(PullProfileError::RequestBytes { request_bytes_max, message_bytes_max });
        }
        Ok(Self(profile))
    }

    /// What was checked.
    pub fn profile(&self) -> &PullProfile {
        &self.0
    }

    /// What the consumer's `max_deliver` must be at least.
    pub fn max_deliver_min(&self) -> u64 {
        u64::from(self.0.max_deliveries) + DELIVERIES_SPARE
    }

    /// What a pull of so many messages and bytes may take of a session's memory: the broker leaves the line of the pin out of its count.
    pub(super) fn reserved_bytes(&self, batch: u32, bytes: u64) -> u64 {
        bytes.saturating_add(u64::from(batch) * PIN_LINE_BYTES as u64)
    }

    /// Whether a message of this size is handed out whole.
    pub(super) fn takes(&self, header_bytes: usize, payload_bytes: usize) -> bool {
        header_bytes <= DELIVERED_HEADER_BYTES.max_usize() + PIN_LINE_BYTES && payload_bytes as u64 <= self.0.ceiling.body_bytes_max()
    }

    /// Most bytes of a message that is handed out whole.
    pub(super) fn whole_bytes_max(&self) -> u64 {
        self.0.ceiling.body_bytes_max() + DELIVERED_HEADER_BYTES.max + PIN_LINE_BYTES as u64
    }

    /// Whether a message came from this consumer.
    pub(super) fn is_of(&self, stream: &str, consumer: &str) -> bool {
        self.0.stream == stream && self.0.consumer == consumer
    }
}

/// Longest acknowledgement subject that is kept.
pub(super) const ACK_BYTES_MAX: usize = ACK_SUBJECT_BYTES;

fn is_literal(subject: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'>');
    subject.len() <= SUBJECT_BYTES.max_usize() && subject.split('.').all(|token| !token.is_empty() && token.bytes().all(is_plain))
}

fn is_group(group: &str) -> bool {
    (1..=GROUP_BYTES).contains(&group.len()) && group.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_/=".contains(&byte))
}
