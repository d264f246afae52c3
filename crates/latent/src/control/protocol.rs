//! The words of the control protocol. Unknown fields are refused on both sides; another version is told apart before anything else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use latent_bridge::cold::ArchiveStatistics;
use latent_bridge::{BusError, PublishAck};
use latent_core::{Attributes, MediaType, NewRecord, StoredRecord, Uid};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::administration::{ClockInfo, RevokeOrder, Revoked, RouteOrder, Routed, ServiceInfo, ServicePlace};
use super::forgetting::{Forgotten, RemovedTrigger};
use super::history::EventHistory;
use super::invocation::{Invocation, Invoked};
use super::reloading::{ReloadOrder, Reloaded};
use super::replaying::{ReplayOrder, Replayed};
use super::statistics::{Maintained, PartitionInfo, PartitionPlace};
use super::target::{NodeSummary, TriggerStatus};
use crate::administration::AdminError;
use crate::limits;
use crate::maintenance::MaintainError;

/// The one version spoken.
pub(super) const VERSION: u32 = 1;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Who is there?
    Ping,
    /// Every topic of the log, with what it holds.
    Topics,
    /// How many partitions a topic has. Costs nothing, whatever the topic holds and wherever it is.
    Partitions {
        /// Topic.
        topic: String,
    },
    /// Where a partition begins and ends.
    Bounds {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
    },
    /// Publish in order; one result for each. At most `publish_batch_records`.
    Publish {
        /// Topic.
        topic: String,
        /// The events.
        events: Vec<NewEvent>,
    },
    /// Events from an offset on. Fewer than `max` may come although more are there.
    Fetch {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// First offset wanted.
        offset: u64,
        /// At most so many; cut to `fetch_page_records`.
        max: u64,
    },
    /// Where the event with this uid lies.
    Find {
        /// Topic.
        topic: String,
        /// Its key. Without one the whole topic is looked through, which takes an engine longer that knows uids by partition.
        #[serde(default)]
        key: Option<String>,
        /// The uid.
        uid: String,
    },
    /// Bindings by id, a page at a time.
    TriggerStatus {
        /// Only those after this id.
        after: Option<String>,
    },
    /// The node's counters.
    Summary,
    /// Sizes of partitions by topic and number, a page at a time.
    Statistics {
        /// Only of this topic.
        topic: Option<String>,
        /// Only those after this one.
        after: Option<PartitionPlace>,
    },
    /// Do now what the node does by itself from time to time.
    Maintain,
    /// Take the configuration in again.
    Reload(ReloadOrder),
    /// Run one activation.
    Invoke(Box<Invocation>),
    /// Publications and revoked components, a page at a time.
    Services {
        /// Only those after this one.
        after: Option<ServicePlace>,
    },
    /// Point a route at a publication.
    RouteService(RouteOrder),
    /// Revoke components of a service for good.
    RevokeService(RevokeOrder),
    /// Is the wall clock believed?
    Clock,
    /// The wall clock is right now.
    ConfirmClock,
    /// Publish a dead letter's event again, once.
    Replay(ReplayOrder),
    /// What became of the event at this place. It need not be there any more.
    EventHistory {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
        /// Offset in it.
        offset: u64,
    },
    /// Triggers by id that are remembered and not configured, a page at a time.
    RemovedTriggers {
        /// Only those after this id.
        after: Option<String>,
    },
    /// Forget a trigger that is not configured.
    ForgetTrigger {
        /// Its id.
        id: String,
    },
    /// Up to where a partition is in its archive.
    ArchiveHead {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
    },
    /// What waits on its way into the archive.
    ArchiveIntents,
    /// From which offset on a partition is archived.
    ArchivedSince {
        /// Topic.
        topic: String,
        /// Partition.
        partition: u32,
    },
}

impl Request {
    /// True for what people do again and again, follow or wait for: it must not take the connections by which a node is administered.
    pub(super) const fn may_take_long(&self) -> bool {
        match self {
            Self::Publish { .. }
            | Self::Fetch { .. }
            | Self::Find { .. }
            | Self::Bounds { .. }
            | Self::Invoke(_)
            | Self::Replay(_)
            | Self::EventHistory { .. } => true,
            Self::Ping
            | Self::Topics
            | Self::Partitions { .. }
            | Self::TriggerStatus { .. }
            | Self::Summary
            | Self::Statistics { .. }
            | Self::Maintain
            | Self::Reload(_)
            | Self::Services { .. }
            | Self::RouteService(_)
            | Self::RevokeService(_)
            | Self::Clock
            | Self::ConfirmClock
            | Self::RemovedTriggers { .. }
            | Self::ForgetTrigger { .. }
            | Self::ArchiveHead { .. }
            | Self::ArchiveIntents
            | Self::ArchivedSince { .. } => false,
        }
    }
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Answer {
    /// To [`Request::Ping`].
    Node(NodeInfo),
    /// To [`Request::Topics`].
    Topics(Vec<TopicInfo>),
    /// To [`Request::Partitions`].
    Partitions(u32),
    /// To [`Request::Bounds`].
    Bounds(Bounds),
    /// To [`Request::Publish`], in its order.
    Published(Vec<Published>),
    /// To [`Request::Fetch`]; empty past the end.
    Events(Vec<Event>),
    /// To [`Request::Find`]; `None` is certain.
    Found(Option<Placed>),
    /// To [`Request::TriggerStatus`].
    Statuses {
        /// The page.
        statuses: Vec<TriggerStatus>,
        /// True when there are more after the last one.
        more: bool,
    },
    /// To [`Request::Summary`].
    Summary(NodeSummary),
    /// To [`Request::Statistics`].
    Statistics {
        /// The page.
        partitions: Vec<PartitionInfo>,
        /// True when there are more after the last one.
        more: bool,
    },
    /// To [`Request::Maintain`].
    Maintained(Maintained),
    /// To [`Request::Reload`].
    Reloaded(Reloaded),
    /// To [`Request::Invoke`], however the activation ended.
    Invoked(Box<Invoked>),
    /// To [`Request::Services`].
    Services {
        /// The page.
        services: Vec<ServiceInfo>,
        /// True when there are more after the last one.
        more: bool,
    },
    /// To [`Request::RouteService`].
    Routed(Routed),
    /// To [`Request::RevokeService`]: durable, all of them.
    Revoked(Vec<Revoked>),
    /// To [`Request::Clock`] and [`Request::ConfirmClock`].
    Clock(ClockInfo),
    /// To [`Request::Replay`].
    Replayed(Replayed),
    /// To [`Request::EventHistory`].
    EventHistory(Box<EventHistory>),
    /// To [`Request::RemovedTriggers`].
    RemovedTriggers {
        /// The page.
        triggers: Vec<RemovedTrigger>,
        /// True when there are more after the last one.
        more: bool,
    },
    /// To [`Request::ForgetTrigger`]: durable.
    Forgotten(Forgotten),
    /// To [`Request::ArchiveHead`]; `None` where nothing is in it yet.
    ArchiveHead(Option<HeadInfo>),
    /// To [`Request::ArchiveIntents`]; `None` without an archive.
    ArchiveIntents(Option<ArchiveStatistics>),
    /// To [`Request::ArchivedSince`]; `None` where that is not known.
    ArchivedSince(Option<u64>),
    /// The request could not be fulfilled.
    Fault(Fault),
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeInfo {
    /// Its configured name.
    pub(crate) name: String,
    /// Version of the program.
    pub(crate) version: String,
    /// Its process.
    pub(crate) pid: u32,
    /// `embedded`.
    pub(crate) engine: String,
}

/// Up to where a partition is in its archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeadInfo {
    /// The head with its proof.
    pub(crate) document: String,
}

/// A topic of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicInfo {
    /// Name.
    pub(crate) topic: String,
    /// Partitions.
    pub(crate) partitions: u32,
    /// Offsets between beginning and end, over all partitions.
    pub(crate) events: u64,
}

/// Beginning and end of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    /// First readable offset.
    pub(crate) first: u64,
    /// The offset the next event will get.
    pub(crate) next: u64,
}

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvent {
    /// Stable identity; none: the log mints one.
    pub(crate) uid: Option<String>,
    /// Key, empty for none.
    pub(crate) key: String,
    /// Media type.
    pub(crate) media_type: String,
    /// Attributes in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) attributes: Vec<(String, String)>,
    /// The payload.
    pub(crate) payload: Payload,
}

impl NewEvent {
    /// The record it stands for.
    ///
    /// # Errors
    /// [`BusError::Rejected`] naming the rule it breaks.
    pub(super) fn into_record(self) -> Result<NewRecord, BusError> {
        let uid = self.uid.as_deref().map(Uid::parse).transpose()?;
        let attributes = Attributes::parse(self.attributes)?;
        Ok(NewRecord::new(uid, &self.key, MediaType::parse(&self.media_type)?, attributes, self.payload.0)?)
    }
}

/// A stored event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    /// Partition.
    pub(crate) partition: u32,
    /// Offset in it.
    pub(crate) offset: u64,
    /// Uid.
    pub(crate) uid: String,
    /// Key, empty for none.
    pub(crate) key: String,
    /// Media type.
    pub(crate) media_type: String,
    /// Attributes in order.
    pub(crate) attributes: Vec<(String, String)>,
    /// The payload.
    pub(crate) payload: Payload,
    /// When the log took it, in milliseconds since 1970.
    pub(crate) stored_at: u64,
}

impl From<StoredRecord> for Event {
    fn from(stored: StoredRecord) -> Self {
        let record = stored.record;
        Self {
            partition: stored.partition.0,
            offset: stored.offset.0,
            uid: record.uid.as_str().to_owned(),
            key: record.key,
            media_type: record.media_type.as_str().to_owned(),
            attributes: record.attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            payload: Payload(record.payload),
            stored_at: record.stored_at.0,
        }
    }
}

/// Payload bytes; base64 on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payload(pub(crate) Bytes);

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(|bytes| Self(bytes.into())).map_err(serde::de::Error::custom)
    }
}

/// Where an event lies: also the document that `publish --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Placed {
    /// Topic.
    pub(crate) topic: String,
    /// Partition.
    pub(crate) partition: u32,
    /// Offset in it.
    pub(crate) offset: u64,
    /// Uid.
    pub(crate) uid: String,
    /// True when the log already had it.
    pub(crate) duplicate: bool,
}

impl From<PublishAck> for Placed {
    fn from(ack: PublishAck) -> Self {
        Self { topic: ack.topic, partition: ack.partition, offset: ack.offset, uid: ack.uid, duplicate: ack.duplicate }
    }
}

/// What became of one event of [`Request::Publish`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Published {
    /// It is durable.
    Stored(Placed),
    /// It is not, or may not be.
    Fault(Fault),
}

/// Why not: the error form of every machine-readable document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// A name of `docs/errors.md`.
    pub(crate) kind: String,
    /// The same call can never succeed.
    pub(crate) permanent: bool,
    /// It may have happened.
    pub(crate) uncertain: bool,
    /// In words.
    pub(crate) message: String,
    /// Where reading can go on after a damaged record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) continue_at: Option<u64>,
}

/// Kind of a log that is full for the moment.
const BUSY: &str = "busy";
/// Kind of a uid that belongs to another event.
const CONFLICT: &str = "conflict";
/// Kind of an event that breaks a rule.
const REJECTED: &str = "rejected";
/// Kind of a topic that the log does not have.
const UNKNOWN_TOPIC: &str = "unknown-topic";

impl Fault {
    /// What can never succeed and was refused before the log saw it: a request, a line.
    pub(crate) fn refused(kind: &str, message: String) -> Self {
        Self { kind: kind.to_owned(), permanent: true, uncertain: false, message, continue_at: None }
    }

    /// What may succeed another time.
    pub(crate) fn passing(kind: &str, message: String) -> Self {
        Self { permanent: false, ..Self::refused(kind, message) }
    }

    /// Handed over, and the answer never came.
    pub(crate) fn unanswered(reason: &str) -> Self {
        let message = format!("uncertain: the event may be stored ({reason}); publish it again with the same uid to learn");
        Self { kind: "uncertain".to_owned(), permanent: false, uncertain: true, message, continue_at: None }
    }

    /// This fault with its text within bounds: one of many in an answer that has to fit a line.
    pub(super) fn bounded(mut self) -> Self {
        self.message = cut(self.message, limits::FAULT_TEXT_CHARS.max_usize());
        self
    }

    /// True when a rule refuses the event whatever is tried.
    pub(crate) fn is_rejected(&self) -> bool {
        self.kind == REJECTED && self.permanent
    }

    /// True when the log was full and took nothing.
    pub(crate) fn is_busy(&self) -> bool {
        self.kind == BUSY
    }

    /// True when the uid belongs to an event with another key or other content.
    pub(crate) fn is_conflict(&self) -> bool {
        self.kind == CONFLICT
    }

    /// True when the log has no such topic.
    pub(crate) fn is_unknown_topic(&self) -> bool {
        self.kind == UNKNOWN_TOPIC
    }

    /// In words for whoever has read the kind already.
    pub(crate) fn message_after_kind(&self) -> &str {
        self.message.strip_prefix(&*self.kind).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&self.message)
    }
}

impl From<&BusError> for Fault {
    fn from(error: &BusError) -> Self {
        let continue_at = if let BusError::Unreadable { offset, .. } = error { offset.checked_add(1) } else { None };
        let (permanent, uncertain) = (error.is_permanent(), error.is_uncertain());
        Self { kind: error.kind().to_owned(), permanent, uncertain, message: error.to_string(), continue_at }
    }
}

impl From<BusError> for Fault {
    fn from(error: BusError) -> Self {
        Self::from(&error)
    }
}

impl From<MaintainError> for Fault {
    fn from(error: MaintainError) -> Self {
        match error {
            MaintainError::Bus(error) => Self::from(&error),
            MaintainError::Held(_) | MaintainError::Host(_) => Self::passing(error.kind(), error.to_string()),
        }
    }
}

impl From<AdminError> for Fault {
    fn from(error: AdminError) -> Self {
        let (uncertain, passing) = (error.is_uncertain(), matches!(error, AdminError::Host(_)));
        let permanent = !uncertain && !passing;
        Self { kind: error.kind().to_owned(), permanent, uncertain, message: error.to_string(), continue_at: None }.bounded()
    }
}

/// A text of at most `chars_max` characters, the last one `…` where something is left out.
pub(super) fn cut(mut text: String, chars_max: usize) -> String {
    if text.char_indices().nth(chars_max).is_some() {
        let end = text.char_indices().nth(chars_max.saturating_sub(1)).map_or(0, |(end, _)| end);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A request or an answer on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
    version: u32,
    request: Request,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerLine {
    version: u32,
    answer: Answer,
}

#[derive(Deserialize)]
struct VersionAlone {
    version: Option<u32>,
}

/// Why a line is not of this protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    /// Not the JSON of a line.
    #[error("the line is not understood: {0}")]
    Malformed(String),
    /// Another version.
    #[error("the line has version {0}, and this program speaks version {VERSION}")]
    Version(u32),
}

impl ProtocolError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "control-malformed",
            Self::Version(_) => "control-version",
        }
    }
}

/// Characters of what is said of a line that is not understood.
const MALFORMED_CHARS: usize = 300;

fn decode<T: for<'de> Deserialize<'de>>(line: &[u8]) -> Result<T, ProtocolError> {
    // The parser repeats what it does not understand; an answer must not grow with the question.
    let malformed = |error: serde_json::Error| ProtocolError::Malformed(cut(error.to_string(), MALFORMED_CHARS));
    let version = serde_json::from_slice::<VersionAlone>(line).map_err(malformed)?.version;
    match version {
        Some(VERSION) => serde_json::from_slice(line).map_err(malformed),
        Some(other) => Err(ProtocolError::Version(other)),
        None => Err(ProtocolError::Malformed("the field `version` is missing".to_owned())),
    }
}

pub(super) fn decode_request(line: &[u8]) -> Result<Request, ProtocolError> {
    decode::<RequestLine>(line).map(|line| line.request)
}

pub(super) fn decode_answer(line: &[u8]) -> Result<Answer, ProtocolError> {
    decode::<AnswerLine>(line).map(|line| line.answer)
}

pub(super) fn encode_request(request: Request) -> Vec<u8> {
    encode(&RequestLine { version: VERSION, request })
}

pub(super) fn encode_answer(answer: Answer) -> Vec<u8> {
    encode(&AnswerLine { version: VERSION, answer })
}

/// None of these types can fail to encode: no map with other keys than text, no number JSON lacks (a NaN becomes null).
fn encode(line: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(line).unwrap_or_default()
}
