//! A consumer is looked at before anything is pulled from it (T-037 to T-039). A field that is absent has its default, which for most of
//! them is not what is required.

use super::request::{Question, Request, RequestRefused, is_name, operation};
use crate::frame::Message;
use crate::link::{DeliveryStore, Link};
use crate::outcome::{Connection, Evidence};

mod read;

pub(crate) use read::{Demands, FORBIDDEN, NO_GROUPS, Wanted, read, read_facts};

/// What a request takes beyond the payload ceiling (D-10).
const REQUEST_OVERHEAD_BYTES: u64 = 9_216;

/// The consumer that an operator configured.
#[derive(Debug, Clone, Copy)]
pub struct ConsumerProfile<'a> {
    /// Its stream.
    pub stream: &'a str,
    /// Its durable name.
    pub consumer: &'a str,
    /// Its only filter, a literal subject.
    pub filter_subject: &'a str,
    /// How long the broker waits for an acknowledgement.
    pub ack_wait_nanos: u64,
    /// How often a message is delivered at most.
    pub max_deliver: u64,
    /// The payload ceiling of its binding.
    pub payload_bytes_max: u32,
}

impl ConsumerProfile<'_> {
    /// What one pull takes at most, headers and subjects included (D-10).
    pub const fn request_bytes_max(&self) -> u64 {
        self.payload_bytes_max as u64 + REQUEST_OVERHEAD_BYTES
    }
}

/// What a consumer has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumerState {
    /// Messages that were never delivered.
    pub pending: u64,
    /// Messages that were delivered and not settled.
    pub ack_pending: u64,
    /// Messages delivered more than once and not settled.
    pub redelivered: u64,
    /// Pulls that wait.
    pub waiting: u64,
    /// Sequence in the stream of the last message that was delivered.
    pub delivered_stream_sequence: u64,
    /// How many deliveries there were, which the broker numbers without gaps.
    pub delivered_consumer_sequence: u64,
    /// Sequence in the stream up to which everything is settled.
    pub ack_floor_stream_sequence: u64,
}

/// A setting that is not as the profile needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProfileField {
    /// Its stream has another name.
    Stream,
    /// It has another name, or is not durable.
    Consumer,
    /// It filters something else.
    FilterSubject,
    /// It filters several subjects.
    FilterSubjects,
    /// It does not want each message acknowledged.
    AckPolicy,
    /// It replays at another pace.
    ReplayPolicy,
    /// It does not begin with the first message.
    DeliverPolicy,
    /// Another number of pulls may wait.
    MaxWaiting,
    /// Another number of messages may be unacknowledged.
    MaxAckPending,
    /// A request may ask for another number of messages.
    MaxBatch,
    /// A request may wait for another time.
    MaxExpires,
    /// A request may ask for another number of bytes.
    MaxBytes,
    /// It waits for acknowledgements for another time.
    AckWait,
    /// It delivers another number of times.
    MaxDeliver,
    /// It pushes.
    DeliverSubject,
    /// It delivers headers alone.
    HeadersOnly,
    /// It has flow control.
    FlowControl,
    /// It has delays of its own.
    Backoff,
    /// It is removed when nobody pulls for a while, and its position with it.
    InactiveThreshold,
    /// It serves one of several pullers, named by groups, and must not, or by other groups than it must.
    PriorityGroups,
    /// It chooses among the pullers of a group in another way.
    PriorityPolicy,
}

impl ProfileField {
    /// The name of the setting in the broker's own form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream_name",
            Self::Consumer => "durable_name",
            Self::FilterSubject => "filter_subject",
            Self::FilterSubjects => "filter_subjects",
            Self::AckPolicy => "ack_policy",
            Self::ReplayPolicy => "replay_policy",
            Self::DeliverPolicy => "deliver_policy",
            Self::MaxWaiting => "max_waiting",
            Self::MaxAckPending => "max_ack_pending",
            Self::MaxBatch => "max_batch",
            Self::MaxExpires => "max_expires",
            Self::MaxBytes => "max_bytes",
            Self::AckWait => "ack_wait",
            Self::MaxDeliver => "max_deliver",
            Self::DeliverSubject => "deliver_subject",
            Self::HeadersOnly => "headers_only",
            Self::FlowControl => "flow_control",
            Self::Backoff => "backoff",
            Self::InactiveThreshold => "inactive_threshold",
            Self::PriorityGroups => "priority_groups",
            Self::PriorityPolicy => "priority_policy",
        }
    }
}

/// A setting of a consumer that is not as the profile needs it, with both values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the consumer's {} is {found} and must be {required}", .field.name())]
pub struct ProfileMismatch {
    /// Which.
    pub field: ProfileField,
    /// What it must be.
    pub required: Box<str>,
    /// What it is: at most 128 characters of printable ASCII, others replaced by `?`.
    pub found: Box<str>,
}

/// Why a consumer is not pulled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectError {
    /// It is not as the profile needs it.
    Profile(Box<ProfileMismatch>),
    /// The broker refuses, with its two codes: a consumer or a stream that is missing among them.
    Refused {
        /// The class of the error.
        code: Option<u64>,
        /// The error itself.
        err_code: Option<u64>,
    },
    /// The reply is not what such a reply is.
    Malformed,
    /// No reply.
    Failed {
        /// What was seen.
        evidence: Evidence,
        /// Whether the request may have been written.
        possible_write: bool,
    },
}

/// How an inspection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectEnd {
    /// What the consumer has to do.
    pub result: Result<ConsumerState, InspectError>,
    /// What may become of the connection.
    pub connection: Connection,
}

struct Asked<'l>(ConsumerProfile<'l>);

impl Question for Asked<'_> {
    type Answer = Result<ConsumerState, InspectError>;

    fn message(&self, message: Message<'_>, is_own: bool, _: &mut DeliveryStore) -> Result<Self::Answer, Evidence> {
        match (is_own, message.headers.map(crate::headers::status)) {
            (false, _) => Err(Evidence::ForeignReply),
            (true, None | Some(Ok(None))) => Ok(read(message.payload, &self.0)),
            (true, Some(Ok(Some(503)))) if message.payload.is_empty() => Err(Evidence::NoResponders),
            (true, Some(Ok(Some(_)))) => Err(Evidence::UnexpectedStatus),
            (true, Some(Err(_))) => Err(Evidence::MalformedFrame),
        }
    }

    fn keeps_connection(answer: &Self::Answer) -> bool {
        !matches!(answer, Err(InspectError::Malformed))
    }
}

/// An inspection under way.
pub struct Inspect<'l>(Request<'l, Asked<'l>>);

impl std::fmt::Debug for Inspect<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<'l> Inspect<'l> {
    /// Begins.
    ///
    /// # Errors
    /// [`RequestRefused`].
    pub fn begin(link: &'l mut Link, profile: &ConsumerProfile<'l>) -> Result<Self, RequestRefused> {
        if !is_name(profile.stream) || !is_name(profile.consumer) {
            return Err(RequestRefused::Text);
        }
        let subject: [&[u8]; 4] = [b"$JS.API.CONSUMER.INFO.", profile.stream.as_bytes(), b".", profile.consumer.as_bytes()];
        Request::begin(link, Asked(*profile), &subject, b"").map(Self)
    }
}

operation!(Inspect, InspectEnd, |request: Request<'_, Asked<'_>>| {
    let (end, connection) = request.into_end();
    let failed = |(stage, evidence): (crate::Stage, Evidence)| InspectError::Failed { evidence, possible_write: stage.possible_write() };
    InspectEnd { result: end.map_err(failed).and_then(|result| result), connection }
});
