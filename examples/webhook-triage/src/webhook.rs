//! One webhook, read from a line `{"event":…,"n":…,"delivery":…,"payload":{…}}`, and what is said about it.

use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::class::Class;

/// The largest webhook that is looked at.
pub(crate) const WEBHOOK_BYTES_MAX: usize = 65_536;

/// What stands for the repository of a webhook that belongs to none.
const NO_REPOSITORY: &str = "none";

/// One webhook. Members that it does not name are ignored.
#[derive(Debug, Deserialize)]
pub(crate) struct Webhook {
    /// Its kind, as GitHub names it.
    event: String,
    /// Its number, where the sender counts.
    n: Option<u64>,
    /// GitHub's id of the delivery, where the sender kept it.
    delivery: Option<String>,
    /// What GitHub sent.
    payload: Map<String, Value>,
}

/// What is published about one webhook.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Triage<'a> {
    event: &'a str,
    action: Option<&'a str>,
    pub(crate) repository: &'a str,
    sender: Option<&'a str>,
    class: Class,
    n: Option<u64>,
    delivery: Option<&'a str>,
}

/// Why bytes are no webhook. All of them are for good.
#[derive(Debug)]
pub(crate) enum NoWebhook {
    /// More bytes than are looked at.
    TooLarge { bytes: usize },
    /// Neither an object nor the beginning of one.
    NoObject,
    /// No JSON, or not of a webhook's shape.
    Malformed(serde_json::Error),
    /// Its kind is empty.
    NoEvent,
}

impl fmt::Display for NoWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes } => write!(f, "the webhook has {bytes} bytes and at most {WEBHOOK_BYTES_MAX} are looked at"),
            Self::NoObject => f.write_str("this is no webhook: it is no JSON object"),
            Self::Malformed(error) => write!(f, "this is no webhook: {error}"),
            Self::NoEvent => f.write_str("this is no webhook: `event` is empty"),
        }
    }
}

impl Webhook {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NoWebhook> {
        if bytes.len() > WEBHOOK_BYTES_MAX {
            return Err(NoWebhook::TooLarge { bytes: bytes.len() });
        }
        // A struct would be read from an array too, its members by position.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(NoWebhook::NoObject);
        }
        let webhook: Self = serde_json::from_slice(bytes).map_err(NoWebhook::Malformed)?;
        if webhook.event.is_empty() { Err(NoWebhook::NoEvent) } else { Ok(webhook) }
    }

    pub(crate) fn triage(&self) -> Triage<'_> {
        Triage {
            event: &self.event,
            action: self.payload.get("action").and_then(Value::as_str),
            repository: self.text("repository", "full_name").filter(|name| !name.is_empty()).unwrap_or(NO_REPOSITORY),
            sender: self.text("sender", "login"),
            class: Class::of(&self.event),
            n: self.n,
            delivery: self.delivery.as_deref(),
        }
    }

    /// The same for a repeated delivery of the same webhook, whatever its spacing and the order of its members: GitHub's id of the
    /// delivery where there is one, and otherwise everything that was delivered.
    pub(crate) fn idempotency_key(&self) -> String {
        let number = self.n.map(|n| n.to_string()).unwrap_or_default();
        let content = Value::Object(self.payload.clone()).to_string();
        let fields: &[&str] = match &self.delivery {
            Some(delivery) => &["delivery", delivery],
            None => &["content", &self.event, &number, &content],
        };
        let mut hasher = Sha256::new();
        for field in fields {
            // With its length in front, no field can pass for the end of the one before it.
            hasher.update((field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
        hasher.finalize().iter().fold("webhook-".to_owned(), |mut key, byte| {
            // Writing to a string cannot fail.
            let _ = write!(key, "{byte:02x}");
            key
        })
    }

    fn text(&self, object: &str, member: &str) -> Option<&str> {
        self.payload.get(object)?.get(member)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(line: &str) -> Webhook {
        Webhook::parse(line.as_bytes()).unwrap()
    }

    fn said(line: &str) -> String {
        serde_json::to_string(&webhook(line).triage()).unwrap()
    }

    fn key(line: &str) -> String {
        webhook(line).idempotency_key()
    }

    #[test]
    fn a_webhook_becomes_one_compact_object() {
        let line =
            r#"{"event":"issues","n":7,"payload":{"action":"opened","repository":{"full_name":"a/b"},"sender":{"login":"mia"},"x":1}}"#;
        let expected = r#"{"event":"issues","action":"opened","repository":"a/b","sender":"mia","class":"issue","n":7,"delivery":null}"#;
        assert_eq!(said(line), expected);
    }

    #[test]
    fn what_is_missing_is_null_and_a_missing_repository_is_none() {
        let expected =
            r#"{"event":"ping","action":null,"repository":"none","sender":null,"class":"administration","n":null,"delivery":"g-1"}"#;
        let lines = [
            r#"{"event":"ping","delivery":"g-1","payload":{}}"#,
            r#"{"event":"ping","delivery":"g-1","payload":{"action":1,"repository":null,"sender":[]}}"#,
            r#"{"event":"ping","delivery":"g-1","payload":{"repository":{"full_name":""}}}"#,
        ];
        for line in lines {
            assert_eq!(said(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_no_webhook_is_refused() {
        let deep = format!(r#"{{"event":"push","payload":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        let lines = [
            "",
            "not json",
            r#"{"event":"push","payload":{"#,
            r#"{"event":"push","payload":{}} trailing"#,
            r#"["push",{}]"#,
            r#"["push",1,null,{}]"#,
            r#"{"event":"push"}"#,
            r#"{"event":7,"payload":{}}"#,
            r#"{"event":"push","payload":"text"}"#,
            r#"{"event":"push","n":-1,"payload":{}}"#,
            r#"{"event":"","payload":{}}"#,
            &deep,
        ];
        for line in lines {
            assert!(Webhook::parse(line.as_bytes()).is_err(), "{line}");
        }
        assert!(matches!(Webhook::parse(b"{\"event\":\"\xff\"}"), Err(NoWebhook::Malformed(_))));
    }

    #[test]
    fn a_webhook_is_bounded_at_its_edge() {
        let sized = |bytes: usize| {
            let (head, tail) = (r#"{"event":"push","payload":{"pad":""#, r#""}}"#);
            format!("{head}{}{tail}", "x".repeat(bytes - head.len() - tail.len()))
        };
        assert!(Webhook::parse(sized(WEBHOOK_BYTES_MAX - 1).as_bytes()).is_ok());
        assert!(Webhook::parse(sized(WEBHOOK_BYTES_MAX).as_bytes()).is_ok());
        assert!(matches!(Webhook::parse(sized(WEBHOOK_BYTES_MAX + 1).as_bytes()), Err(NoWebhook::TooLarge { bytes: 65_537 })));
    }

    #[test]
    fn a_repeated_delivery_has_the_same_key_and_another_webhook_has_not() {
        let line = r#"{"event":"push","n":1,"payload":{"a":1,"b":2}}"#;
        assert_eq!(key(line), key(r#"{"payload": {"b": 2, "a": 1}, "n": 1, "event": "push"}"#));
        let others = [
            r#"{"event":"fork","n":1,"payload":{"a":1,"b":2}}"#,
            r#"{"event":"push","n":2,"payload":{"a":1,"b":2}}"#,
            r#"{"event":"push","payload":{"a":1,"b":2}}"#,
            r#"{"event":"push","n":1,"payload":{"a":1,"b":3}}"#,
            r#"{"event":"push","n":1,"delivery":"g-1","payload":{"a":1,"b":2}}"#,
        ];
        for other in others {
            assert_ne!(key(line), key(other), "{other}");
        }
    }

    #[test]
    fn the_id_of_a_delivery_alone_decides_where_there_is_one() {
        let first = key(r#"{"event":"push","delivery":"g-1","payload":{"a":1}}"#);
        assert_eq!(first, key(r#"{"event":"push","n":9,"delivery":"g-1","payload":{"a":1}}"#));
        assert_ne!(first, key(r#"{"event":"push","delivery":"g-2","payload":{"a":1}}"#));
        assert!(first.len() <= 256 && first.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
    }
}
