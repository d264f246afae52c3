//! A consumer is looked at before anything is pulled from it (T-037 to T-039). A field that is absent has its default, which for most of
//! them is not what is required.

use super::request::{Question, Request, RequestRefused, is_name, operation};
use crate::frame::Message;
use crate::json::{JsonError, Rules, Value, object};
use crate::limits::RECEIPT_DEPTH;
use crate::link::{DeliveryStore, Link};
use crate::outcome::{Connection, Evidence};

const EXPIRES_NANOS: u64 = 100_000_000;
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
    /// Sequence in the stream up to which everything is settled.
    pub ack_floor_stream_sequence: u64,
}

/// A setting that is not as the profile needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// Why a consumer is not pulled from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InspectError {
    /// It is not as the profile needs it.
    Profile(ProfileField),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// What a consumer's info must say, one by one, and whether it was said.
#[derive(Default)]
struct Seen {
    refused: Option<(Option<u64>, Option<u64>)>,
    stream: bool,
    name: bool,
    durable: bool,
    filter: bool,
    ack_policy: bool,
    replay_policy: bool,
    deliver_policy: bool,
    max_waiting: bool,
    max_ack_pending: bool,
    max_batch: bool,
    max_expires: bool,
    max_bytes: bool,
    ack_wait: bool,
    max_deliver: bool,
    forbidden: Option<ProfileField>,
    state: ConsumerState,
}

/// Reads the body of a consumer's info.
pub(crate) fn read(body: &[u8], profile: &ConsumerProfile<'_>) -> Result<ConsumerState, InspectError> {
    let seen = std::str::from_utf8(body).map_err(|_| JsonError::Syntax).and_then(|text| info(text, profile));
    let seen = seen.map_err(|_| InspectError::Malformed)?;
    if let Some((code, err_code)) = seen.refused {
        return Err(InspectError::Refused { code, err_code });
    }
    let required = [
        (seen.stream, ProfileField::Stream),
        (seen.name && seen.durable, ProfileField::Consumer),
        (seen.filter, ProfileField::FilterSubject),
        (seen.ack_policy, ProfileField::AckPolicy),
        (seen.replay_policy, ProfileField::ReplayPolicy),
        (seen.deliver_policy, ProfileField::DeliverPolicy),
        (seen.max_waiting, ProfileField::MaxWaiting),
        (seen.max_ack_pending, ProfileField::MaxAckPending),
        (seen.max_batch, ProfileField::MaxBatch),
        (seen.max_expires, ProfileField::MaxExpires),
        (seen.max_bytes, ProfileField::MaxBytes),
        (seen.ack_wait, ProfileField::AckWait),
        (seen.max_deliver, ProfileField::MaxDeliver),
    ];
    let missing = required.into_iter().find(|(is_there, _)| !is_there).map(|(_, field)| field);
    match seen.forbidden.or(missing) {
        Some(field) => Err(InspectError::Profile(field)),
        None => Ok(seen.state),
    }
}

const RULES: Rules = Rules::Strict { levels: RECEIPT_DEPTH.max_usize() };

fn info(text: &str, profile: &ConsumerProfile<'_>) -> Result<Seen, JsonError> {
    let mut seen = Seen::default();
    object(text, RULES, |name, value| {
        if name.is("stream_name") {
            seen.stream = value.text()?.is(profile.stream);
        } else if name.is("name") {
            seen.name = value.text()?.is(profile.consumer);
        } else if name.is("config") {
            config(nested(&value)?, profile, &mut seen)?;
        } else if name.is("num_pending") {
            seen.state.pending = value.integer()?;
        } else if name.is("num_ack_pending") {
            seen.state.ack_pending = value.integer()?;
        } else if name.is("num_redelivered") {
            seen.state.redelivered = value.integer()?;
        } else if name.is("num_waiting") {
            seen.state.waiting = value.integer()?;
        } else if name.is("delivered") {
            seen.state.delivered_stream_sequence = stream_sequence(nested(&value)?)?;
        } else if name.is("ack_floor") {
            seen.state.ack_floor_stream_sequence = stream_sequence(nested(&value)?)?;
        } else if name.is("error") {
            seen.refused = Some(refusal(nested(&value)?)?);
        }
        Ok(())
    })?;
    Ok(seen)
}

fn config(text: &str, profile: &ConsumerProfile<'_>, seen: &mut Seen) -> Result<(), JsonError> {
    object(text, RULES, |name, value| {
        if name.is("durable_name") {
            seen.durable = value.text()?.is(profile.consumer);
        } else if name.is("filter_subject") {
            seen.filter = value.text()?.is(profile.filter_subject);
        } else if name.is("ack_policy") {
            seen.ack_policy = value.text()?.is("explicit");
        } else if name.is("replay_policy") {
            seen.replay_policy = value.text()?.is("instant");
        } else if name.is("deliver_policy") {
            seen.deliver_policy = value.text()?.is("all");
        } else if let Some((field, expected)) = number_of(seen, profile, |known| name.is(known)) {
            // A number that is none of ours, -1 for no limit among them, is another setting and no malformed reply.
            let Value::Number(_) = value else { return Err(JsonError::Member) };
            *field = value.integer() == Ok(expected);
        } else if let Some(field) = forbidden(&value, |known| name.is(known)) {
            seen.forbidden = seen.forbidden.or(Some(field));
        }
        Ok(())
    })
}

/// The flag and the required number of a numeric setting.
fn number_of<'s>(seen: &'s mut Seen, profile: &ConsumerProfile<'_>, is: impl Fn(&str) -> bool) -> Option<(&'s mut bool, u64)> {
    if is("max_waiting") {
        Some((&mut seen.max_waiting, 1))
    } else if is("max_ack_pending") {
        Some((&mut seen.max_ack_pending, 1))
    } else if is("max_batch") {
        Some((&mut seen.max_batch, 1))
    } else if is("max_expires") {
        Some((&mut seen.max_expires, EXPIRES_NANOS))
    } else if is("max_bytes") {
        Some((&mut seen.max_bytes, profile.request_bytes_max()))
    } else if is("ack_wait") {
        Some((&mut seen.ack_wait, profile.ack_wait_nanos))
    } else if is("max_deliver") {
        Some((&mut seen.max_deliver, profile.max_deliver))
    } else {
        None
    }
}

/// The setting that must be absent, or as good as absent.
fn forbidden(value: &Value<'_>, is: impl Fn(&str) -> bool) -> Option<ProfileField> {
    let is_set = match value {
        Value::Null | Value::Bool(false) => false,
        Value::Text(text) => !text.is(""),
        _ => true,
    };
    let fields = [
        ("deliver_subject", ProfileField::DeliverSubject),
        ("deliver_group", ProfileField::DeliverSubject),
        ("headers_only", ProfileField::HeadersOnly),
        ("flow_control", ProfileField::FlowControl),
        ("filter_subjects", ProfileField::FilterSubjects),
        ("backoff", ProfileField::Backoff),
    ];
    fields.into_iter().find(|(name, _)| is_set && is(name)).map(|(_, field)| field)
}

fn nested<'a>(value: &Value<'a>) -> Result<&'a str, JsonError> {
    if let Value::Object(text) = value { Ok(text) } else { Err(JsonError::Member) }
}

fn stream_sequence(text: &str) -> Result<u64, JsonError> {
    let mut sequence = 0;
    object(text, RULES, |name, value| {
        if name.is("stream_seq") {
            sequence = value.integer()?;
        }
        Ok(())
    })?;
    Ok(sequence)
}

fn refusal(text: &str) -> Result<(Option<u64>, Option<u64>), JsonError> {
    let (mut code, mut err_code) = (None, None);
    object(text, RULES, |name, value| {
        if name.is("code") {
            code = Some(value.integer()?);
        } else if name.is("err_code") {
            err_code = Some(value.integer()?);
        }
        Ok(())
    })?;
    Ok((code, err_code))
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
