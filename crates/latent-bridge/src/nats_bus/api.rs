//! Requests to the broker's JetStream API and its typed refusals (NATS ADR-2). One request, one reply, one limit of time; only what reads
//! is asked again when the connection was lost meanwhile. Knows subjects and JSON forms, decides nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{Client, Message, Request};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::RwLock;

use super::signals::{Losses, Signals};
use super::words::told;
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
    /// The user may not subscribe to its own inbox, so it never hears an answer.
    #[error(
        "the broker's user may not subscribe to {inbox}, where answers come; give it that permission (`latent broker permissions` prints what it needs)"
    )]
    Deaf { inbox: String },
    /// No answer in time.
    #[error("the broker gave no answer to {subject} in time")]
    NoAnswer { subject: String },
    /// Nothing listens there: JetStream is off, or the stream is not there.
    #[error("nothing answers on {subject}: JetStream is off for this account, or the stream is not there")]
    NoResponders { subject: String },
    /// There is no connection.
    #[error("not connected to the broker")]
    NotConnected,
    /// The connection was lost before an answer came.
    #[error("the connection to the broker was lost before it answered on {subject}")]
    Lost { subject: String },
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
            ApiFault::Lost { subject } => Self::Timeout { operation: format!("asking {subject} while the connection was lost") },
            ApiFault::NotConnected => Self::NotSent { reason: fault.to_string() },
            _ => Self::Backend(fault.to_string()),
        }
    }
}

/// `err_code` of a stream that is not there.
pub(super) const STREAM_NOT_FOUND: u16 = 10_059;
/// Times that one read is asked when the connection is lost each time.
const READS_MAX: u32 = 4;
/// How often somebody who waits for the connection looks by itself.
const CONNECTION_PAUSE: Duration = Duration::from_millis(20);

/// The API as one connection sees it.
#[derive(Debug, Clone)]
pub(super) struct Api {
    link: Arc<Link>,
    pub(super) signals: Signals,
    /// Read by each deletion that nobody waits for, as long as it takes.
    leaving: Arc<RwLock<()>>,
}

/// The client, which is another one after its task has ended.
#[derive(Debug)]
struct Link {
    client: std::sync::RwLock<Client>,
    /// The client's task has ended: it says that it is connected, and is not.
    is_dead: AtomicBool,
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
    /// Of a connection whose events `signals` hears.
    pub(super) fn new(client: Client, signals: Signals) -> Self {
        let link = Link { client: std::sync::RwLock::new(client), is_dead: AtomicBool::new(false) };
        Self { link: Arc::new(link), signals, leaving: Arc::default() }
    }

    /// The client as it is now.
    pub(super) fn client(&self) -> Client {
        self.link.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The client's task has ended; everybody who waits for an answer is told.
    pub(super) fn bury(&self) {
        self.link.is_dead.store(true, Ordering::SeqCst);
        self.signals.lost();
    }

    /// Goes on with another client.
    pub(super) fn replace(&self, client: Client) {
        *self.link.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        self.link.is_dead.store(false, Ordering::SeqCst);
    }

    /// Whether there is a connection now.
    pub(super) fn is_connected(&self) -> bool {
        !self.link.is_dead.load(Ordering::SeqCst) && self.client().connection_state() == async_nats::connection::State::Connected
    }

    /// Waits for a connection, but not for longer than an operation may take.
    pub(super) async fn connected(&self) -> Result<(), ApiFault> {
        let limit = Duration::from_millis(limits::READ_PATIENCE_MILLIS.default);
        let there = async {
            while !self.is_connected() {
                tokio::time::sleep(CONNECTION_PAUSE).await;
            }
        };
        tokio::time::timeout(limit, there).await.map_err(|_| ApiFault::NotConnected)
    }

    /// Tells when the connection is lost from now on.
    pub(super) fn losses(&self) -> Losses {
        self.signals.losses()
    }

    /// A token that no other object on the broker has in its name: that of an inbox, which a client never gives twice.
    pub(super) fn fresh_token(&self) -> String {
        let inbox = self.client().new_inbox();
        inbox.rsplit_once('.').map_or_else(|| inbox.clone(), |(_, token)| token.to_owned())
    }

    /// Asks `$JS.API.<subject>` and reads the reply's JSON form.
    pub(super) async fn ask<T: DeserializeOwned>(&self, subject: &str, request: &Value) -> Result<T, ApiFault> {
        let body = if request.is_null() { Bytes::new() } else { Bytes::from(request.to_string()) };
        let subject = format!("$JS.API.{subject}");
        let message = self.request(&subject, body).await?;
        let unreadable = |error: serde_json::Error| ApiFault::Unreadable { subject: subject.clone(), problem: told(error) };
        let envelope: Envelope = serde_json::from_slice(&message.payload).map_err(unreadable)?;
        if let Some(Refusal { code, err_code, description }) = envelope.error {
            return Err(ApiFault::Refused { code, err_code, description: told(description) });
        }
        serde_json::from_slice(&message.payload).map_err(unreadable)
    }

    /// Deletes a reader's consumer. Where that fails the broker removes it once it is idle.
    pub(super) async fn delete_reader(&self, subject: &str) {
        if let Err(fault) = self.ask::<Value>(subject, &Value::Null).await {
            tracing::debug!(%fault, "a reader's consumer stays until the broker finds it idle");
        }
    }

    /// As [`Api::delete_reader`], for who cannot wait for it: [`Api::readers_deleted`] does. Without a runtime nothing is deleted.
    pub(super) fn delete_reader_beside(&self, subject: String) {
        let (Ok(runtime), Ok(leaving)) = (tokio::runtime::Handle::try_current(), Arc::clone(&self.leaving).try_read_owned()) else {
            return;
        };
        let api = self.clone();
        runtime.spawn(async move {
            api.delete_reader(&subject).await;
            drop(leaving);
        });
    }

    /// Waits for every deletion that was begun. None begins meanwhile.
    pub(super) async fn readers_deleted(&self) {
        drop(self.leaving.write().await);
    }

    /// Why nothing is heard of a subject that was refused, or whose answers are.
    pub(super) fn refused(subject: &str, inbox: Option<&str>) -> ApiFault {
        inbox.map_or_else(|| ApiFault::NotPermitted { subject: subject.to_owned() }, |inbox| ApiFault::Deaf { inbox: told(inbox) })
    }

    /// As [`Api::ask`], for what changes nothing: when the connection is lost it is asked again on the next.
    pub(super) async fn read<T: DeserializeOwned>(&self, subject: &str, request: &Value) -> Result<T, ApiFault> {
        let mut asked = 0;
        loop {
            asked += 1;
            match self.ask(subject, request).await {
                Err(ApiFault::Lost { .. }) if asked < READS_MAX => self.connected().await?,
                answer => return answer,
            }
        }
    }

    /// One request and its reply, whatever it holds.
    async fn request(&self, subject: &str, body: Bytes) -> Result<Message, ApiFault> {
        if !self.is_connected() {
            return Err(ApiFault::NotConnected);
        }
        let limit = Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default);
        let request = Request::new().payload(body).timeout(Some(limit));
        let (mut refusals, mut losses) = (self.signals.refusals(), self.losses());
        let lost = || ApiFault::Lost { subject: subject.to_owned() };
        let client = self.client();
        let answer = tokio::select! {
            biased;
            answer = client.send_request(subject.to_owned(), request) => answer,
            inbox = refusals.of(subject) => return Err(Self::refused(subject, inbox.as_deref())),
            () = losses.next() => return Err(lost()),
        };
        if answer.as_ref().is_err_and(|error| error.kind() == RequestErrorKind::Other) {
            // The client's task has ended, or ends at this moment.
            losses.settled().await;
            return Err(lost());
        }
        answer.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => ApiFault::NoResponders { subject: subject.to_owned() },
            RequestErrorKind::TimedOut => ApiFault::NoAnswer { subject: subject.to_owned() },
            _ => ApiFault::Unreadable { subject: subject.to_owned(), problem: told(error) },
        })
    }
}
