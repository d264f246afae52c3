//! Requests to the broker's JetStream API and its typed refusals (NATS ADR-2, ADR-31 for direct get). One request, one reply, one limit
//! of time; nothing is repeated here. Knows subjects and JSON forms, decides nothing.

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{Client, Event, HeaderMap, Message, Request, ServerError};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::broadcast;

use crate::{BusError, limits};

/// Why a request had no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApiFault {
    /// The broker refused it.
    #[error("the broker says: {description} (code {code}, err_code {err_code})")]
    Refused { code: u16, err_code: u16, description: String },
    /// The user may not ask this.
    #[error("the broker's user may not publish to {subject}; give it that permission (`latent broker permissions` prints what it needs)")]
    NotPermitted { subject: String },
    /// No answer in time.
    #[error("the broker gave no answer to {subject} in time")]
    NoAnswer { subject: String },
    /// Nothing listens there: JetStream is off, or the stream is not there.
    #[error("nothing answers on {subject}: JetStream is off for this account, or the stream is not there")]
    NoResponders { subject: String },
    /// There is no connection.
    #[error("not connected to the broker")]
    NotConnected,
    /// The answer is none that can be read.
    #[error("the broker's answer on {subject} cannot be read: {problem}")]
    Unreadable { subject: String, problem: String },
}

impl ApiFault {
    /// True when the broker says so with this `err_code`.
    pub(super) const fn is(&self, wanted: u16) -> bool {
        matches!(self, Self::Refused { err_code, .. } if *err_code == wanted)
    }
}

impl From<ApiFault> for BusError {
    /// Of reads, and of what changes nothing.
    fn from(fault: ApiFault) -> Self {
        match fault {
            ApiFault::NoAnswer { .. } => Self::Timeout { operation: fault.to_string() },
            ApiFault::NotConnected => Self::NotSent { reason: fault.to_string() },
            _ => Self::Backend(fault.to_string()),
        }
    }
}

/// Refusals that who waits may be behind with.
const REFUSALS_KEPT: usize = 256;
/// `err_code` of a stream that is not there.
pub(super) const STREAM_NOT_FOUND: u16 = 10_059;

/// The API as one connection sees it.
#[derive(Debug, Clone)]
pub(super) struct Api {
    pub(super) client: Client,
    refusals: Refusals,
}

/// Subjects that the broker has refused, for who waits for an answer there: it tells so by an error of the connection and sends no answer.
#[derive(Debug, Clone)]
pub(super) struct Refusals(broadcast::Sender<Arc<str>>);

impl Default for Refusals {
    fn default() -> Self {
        Self(broadcast::channel(REFUSALS_KEPT).0)
    }
}

impl Refusals {
    /// Takes an event of the connection; the subject, if it is a refusal to publish there.
    pub(super) fn hear<'e>(&self, event: &'e Event) -> Option<&'e str> {
        let Event::ServerError(ServerError::Other(words)) = event else { return None };
        let subject = refused_subject(words)?;
        // Nobody may be waiting.
        let _ = self.0.send(subject.into());
        Some(subject)
    }
}

/// The subject of `Permissions Violation for Publish to "subject"`.
fn refused_subject(words: &str) -> Option<&str> {
    const REFUSAL: &str = "permissions violation for publish to \"";
    let at = words.to_ascii_lowercase().find(REFUSAL)?;
    let subject = words.get(at + REFUSAL.len()..)?;
    subject.split_once('"').map(|(subject, _)| subject)
}

/// Comes back when `subject` is refused. Who was not told of all of them waits for its own time.
async fn refused(mut refusals: broadcast::Receiver<Arc<str>>, subject: &str) {
    loop {
        match refusals.recv().await {
            Ok(refused) if &*refused == subject => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u16,
    #[serde(default)]
    description: String,
}

impl Api {
    /// Of a connection whose events `refusals` hears.
    pub(super) const fn new(client: Client, refusals: Refusals) -> Self {
        Self { client, refusals }
    }

    /// A token that no other object on the broker has in its name: that of an inbox, which a client never gives twice.
    pub(super) fn fresh_token(&self) -> String {
        let inbox = self.client.new_inbox();
        inbox.rsplit_once('.').map_or_else(|| inbox.clone(), |(_, token)| token.to_owned())
    }

    /// Asks `$JS.API.<subject>` and reads the reply's JSON form.
    pub(super) async fn ask<T: DeserializeOwned>(&self, subject: &str, request: &Value) -> Result<T, ApiFault> {
        let body = if request.is_null() { Bytes::new() } else { Bytes::from(request.to_string()) };
        let subject = format!("$JS.API.{subject}");
        let message = self.request(&subject, body).await?;
        let unreadable = |error: serde_json::Error| ApiFault::Unreadable { subject: subject.clone(), problem: error.to_string() };
        let envelope: Envelope = serde_json::from_slice(&message.payload).map_err(unreadable)?;
        if let Some(Refusal { code, err_code, description }) = envelope.error {
            return Err(ApiFault::Refused { code, err_code, description: description.chars().take(300).collect() });
        }
        serde_json::from_slice(&message.payload).map_err(unreadable)
    }

    /// One request and its reply, whatever it holds.
    pub(super) async fn request(&self, subject: &str, body: Bytes) -> Result<Message, ApiFault> {
        self.request_with(subject, None, body).await
    }

    /// As [`Api::request`], with headers.
    pub(super) async fn request_with(&self, subject: &str, headers: Option<HeaderMap>, body: Bytes) -> Result<Message, ApiFault> {
        if self.client.connection_state() != async_nats::connection::State::Connected {
            return Err(ApiFault::NotConnected);
        }
        let limit = Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default);
        let mut request = Request::new().payload(body).timeout(Some(limit));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let refusals = self.refusals.0.subscribe();
        let answer = tokio::select! {
            answer = self.client.send_request(subject.to_owned(), request) => answer,
            () = refused(refusals, subject) => return Err(ApiFault::NotPermitted { subject: subject.to_owned() }),
        };
        answer.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => ApiFault::NoResponders { subject: subject.to_owned() },
            RequestErrorKind::TimedOut => ApiFault::NoAnswer { subject: subject.to_owned() },
            _ => ApiFault::Unreadable { subject: subject.to_owned(), problem: error.to_string() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::refused_subject;

    #[test]
    fn the_subject_of_a_refused_permission_is_read_from_its_words() {
        assert_eq!(refused_subject("Permissions Violation for Publish to \"t.p0\""), Some("t.p0"));
        assert_eq!(refused_subject("'permissions violation for publish to \"t.p0\"'"), Some("t.p0"));
        for other in ["Permissions Violation for Subscription to \"t.p0\"", "Permissions Violation for Publish to \"t.p0", "x", ""] {
            assert_eq!(refused_subject(other), None, "{other}");
        }
    }
}
