//! The event a function is woken by.

use crate::bindings::exports::latent::events::handler::DeliveredEvent;
use crate::{Failure, Reject};

/// One event, as it was delivered. Its default is empty, for tests that care for some of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The topic it was taken from.
    pub topic: String,
    /// Its partition of the topic.
    pub partition: u32,
    /// Its position in the partition.
    pub offset: u64,
    /// Its stable identity.
    pub uid: Option<String>,
    /// Its key; events of one key are handled in order.
    pub key: Option<String>,
    /// Media type of the payload.
    pub media_type: String,
    /// Names and values that were published with it.
    pub attributes: Vec<(String, String)>,
    /// Exactly the bytes that were published.
    pub payload: Vec<u8>,
    /// Which run on this event this is, counted from 1.
    pub delivery_count: u32,
    /// When the log took it, in milliseconds since 1970.
    pub stored_at_unix_millis: u64,
}

impl Event {
    /// The payload as text.
    ///
    /// # Errors
    /// A rejection when it is not UTF-8: another attempt would not change that.
    pub fn text(&self) -> Result<&str, Failure> {
        std::str::from_utf8(&self.payload).map_err(|error| Reject::because(format!("the payload is not UTF-8: {error}")))
    }

    /// The payload, read as JSON. The media type is not consulted.
    ///
    /// # Errors
    /// A rejection when it is not JSON of that shape: another attempt would not change that.
    #[cfg(feature = "json")]
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Failure> {
        serde_json::from_slice(&self.payload).map_err(|error| Reject::because(format!("the payload is not the JSON expected: {error}")))
    }

    /// The value of an attribute; names are compared without case.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl From<DeliveredEvent> for Event {
    fn from(event: DeliveredEvent) -> Self {
        Self {
            topic: event.topic,
            partition: event.partition,
            offset: event.offset,
            uid: event.uid,
            key: event.key,
            media_type: event.media_type,
            attributes: event.attributes.into_iter().map(|attribute| (attribute.name, attribute.value)).collect(),
            payload: event.payload,
            delivery_count: event.delivery_count,
            stored_at_unix_millis: event.stored_at_unix_millis,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(payload: &[u8]) -> Event {
        Event { attributes: vec![("Trace-Id".to_owned(), "7".to_owned())], payload: payload.to_vec(), ..Event::default() }
    }

    #[test]
    fn attributes_are_found_without_case() {
        assert_eq!(event(b"").attribute("trace-id"), Some("7"));
        assert_eq!(event(b"").attribute("trace"), None);
    }

    #[test]
    fn a_payload_that_cannot_be_read_is_a_rejection() {
        assert!(matches!(event(b"\xff").text(), Err(Failure::Reject { .. })));
        assert_eq!(event("é".as_bytes()).text(), Ok("é"));
    }

    #[cfg(feature = "json")]
    #[test]
    fn json_is_read_and_anything_else_rejected() {
        assert_eq!(event(b"[1,2]").json::<Vec<u8>>(), Ok(vec![1, 2]));
        assert!(matches!(event(b"[1,2").json::<Vec<u8>>(), Err(Failure::Reject { .. })));
    }
}
