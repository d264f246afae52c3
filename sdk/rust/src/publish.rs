//! Publishing events.

use std::fmt;

use crate::bindings::latent::events::publisher as host;
use crate::context;

/// Begins an event for `topic`, which must be granted to the function's service.
pub fn publish(topic: impl Into<String>) -> Publish {
    Publish {
        topic: topic.into(),
        key: None,
        payload: Ok(Vec::new()),
        media_type: "application/octet-stream".to_owned(),
        attributes: Vec::new(),
        idempotency_key: None,
    }
}

/// An event on its way; [`Publish::send`] publishes it.
#[derive(Debug, Clone)]
#[must_use = "nothing is published before `send`"]
pub struct Publish {
    topic: String,
    key: Option<String>,
    payload: Result<Vec<u8>, NotSerializable>,
    media_type: String,
    attributes: Vec<(String, String)>,
    idempotency_key: Option<String>,
}

/// The value given to `json` has no JSON form.
#[derive(Debug, Clone, Copy)]
struct NotSerializable;

/// The log has the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// `stream:sequence`.
    pub event_id: String,
    /// The stream; on the embedded engine the topic.
    pub stream: String,
    /// Its place in the stream; on the embedded engine the offset in the partition.
    pub sequence: u64,
    /// When the host saw the acknowledgement, in milliseconds since 1970.
    pub accepted_at_unix_millis: u64,
    /// The log already had an event with this idempotency key; nothing was stored a second time.
    pub duplicate: bool,
}

/// Why there is no receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic's name is not one that a function may use.
    InvalidTopic,
    /// The event breaks a rule of the interface or of the topic, or its value has no JSON form.
    InvalidEvent,
    /// The topic is not granted to this service. Its operator can mend that: the grant goes into the configuration of the node.
    PermissionDenied {
        /// The topic, as the function named it.
        topic: String,
    },
    /// The outbound requests of the budget are spent.
    BudgetExhausted,
    /// The deadline passed before the publication began.
    DeadlineExceeded,
    /// The activation was cancelled before the publication began.
    Cancelled,
    /// The log cannot take it now; it was not stored.
    Unavailable,
    /// It may be stored, and nobody can say so. Publishing it again with the same idempotency key is safe.
    Uncertain,
    /// No idempotency key was given, and there is no delivered event to derive one from.
    NoKey,
}

impl PublishError {
    /// True when this function's same publication would fail again, however often it is tried and whatever its operator does.
    pub const fn is_permanent(&self) -> bool {
        match self {
            Self::InvalidTopic | Self::InvalidEvent | Self::NoKey => true,
            Self::PermissionDenied { .. }
            | Self::BudgetExhausted
            | Self::DeadlineExceeded
            | Self::Cancelled
            | Self::Unavailable
            | Self::Uncertain => false,
        }
    }

    fn of(error: host::EventError, topic: String) -> Self {
        match error {
            host::EventError::InvalidTopic => Self::InvalidTopic,
            host::EventError::InvalidEvent => Self::InvalidEvent,
            host::EventError::PermissionDenied => Self::PermissionDenied { topic },
            host::EventError::BudgetExhausted => Self::BudgetExhausted,
            host::EventError::DeadlineExceeded => Self::DeadlineExceeded,
            host::EventError::Cancelled => Self::Cancelled,
            host::EventError::Unavailable => Self::Unavailable,
            host::EventError::Uncertain => Self::Uncertain,
        }
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidTopic => "the topic's name is not one that a function may use",
            Self::InvalidEvent => "the event breaks a rule of the interface, of the topic or of its stream; the node's log says which",
            Self::PermissionDenied { topic } => {
                return write!(
                    f,
                    "topic {topic:?} is not granted to this service; add to its [[service]]: \
                     grants = [{{ capability = \"latent:events/publisher@0.2.0\", topics = [{topic:?}] }}]. Where it is granted, its broker \
                     does not permit it, and the node's log says so"
                );
            }
            Self::BudgetExhausted => "the outbound requests of the budget are spent",
            Self::DeadlineExceeded => "the deadline passed before the publication began",
            Self::Cancelled => "the activation was cancelled before the publication began",
            Self::Unavailable => "the log or the broker cannot take the event now; the node's log says why",
            Self::Uncertain => "the event may be stored, and nobody can say so",
            Self::NoKey => "no idempotency key was given and none can be derived",
        })
    }
}

impl std::error::Error for PublishError {}

impl Publish {
    /// Events of one key are stored and handled in order. Printable ASCII, at most 256 bytes.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The payload: `value` as JSON. The media type becomes `application/json`.
    #[cfg(feature = "json")]
    pub fn json(mut self, value: &(impl serde::Serialize + ?Sized)) -> Self {
        self.payload = serde_json::to_vec(value).map_err(|_| NotSerializable);
        self.media_type("application/json")
    }

    /// The payload: text. The media type becomes `text/plain;charset=utf-8`.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.payload = Ok(text.into().into_bytes());
        self.media_type("text/plain;charset=utf-8")
    }

    /// The payload: bytes, at most 256 KiB. The media type stays, `application/octet-stream` unless said.
    pub fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.payload = Ok(bytes.into());
        self
    }

    /// Media type of the payload, printable ASCII without spaces. Call it after [`Publish::json`] or [`Publish::text`] to override theirs.
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = media_type.into();
        self
    }

    /// Adds an attribute. At most 16; names are letters, digits and `-`.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.push((name.into(), value.into()));
        self
    }

    /// Publishing twice under one key stores once. Without one, [`context::derive`] gives the key: then one event, handled again,
    /// stores its results once. Printable ASCII, at most 256 bytes.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Publishes and waits for the answer. One call is at most one publication; nothing is repeated behind your back.
    ///
    /// # Errors
    /// [`PublishError`]. In a handler, `?` turns it into a rejection or another attempt, as fits: what this function can never publish
    /// rejects the event; everything else, a missing grant too, asks to see it again.
    pub fn send(self) -> Result<Receipt, PublishError> {
        let payload = self.payload.map_err(|NotSerializable| PublishError::InvalidEvent)?;
        let idempotency_key = match self.idempotency_key {
            Some(key) => key,
            None => context::derive().map_err(|_| PublishError::NoKey)?,
        };
        let attributes = self.attributes.into_iter().map(|(name, value)| host::Attribute { name, value }).collect();
        let event = host::Event { topic: self.topic, key: self.key, payload, media_type: self.media_type, attributes, idempotency_key };
        host::publish(&event).map(Receipt::from).map_err(|error| PublishError::of(error, event.topic))
    }
}

impl From<host::PublishReceipt> for Receipt {
    fn from(receipt: host::PublishReceipt) -> Self {
        Self {
            event_id: receipt.event_id,
            stream: receipt.stream_name,
            sequence: receipt.sequence,
            accepted_at_unix_millis: receipt.accepted_at_unix_millis,
            duplicate: receipt.duplicate,
        }
    }
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_json_form_is_an_invalid_event() {
        let unrepresentable = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(publish("t").json(&unrepresentable).send(), Err(PublishError::InvalidEvent));
    }

    #[test]
    fn json_and_text_set_the_media_type_and_a_later_one_wins() {
        assert_eq!(publish("t").json("x").media_type, "application/json");
        assert_eq!(publish("t").text("x").media_type, "text/plain;charset=utf-8");
        assert_eq!(publish("t").json("x").media_type("a/b").media_type, "a/b");
    }
}
