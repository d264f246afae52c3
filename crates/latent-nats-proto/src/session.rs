//! One connection on which many operations are under way at once: what `nats-jetstream-pull-v2` does with a broker (T-105, T-108).
//!
//! ```text
//!            begin_inspect / begin_pull / begin_settle ──▶ operations ◀── received: frames
//!                                  │                          │
//!                    outgoing ◀── commands                  events ──▶ poll_event
//! ```
//!
//! A [`Session`] takes the [`Link`] of a connection whose handshake is done. Every operation is one command with an inbox of its own, whose
//! number is the operation's id; commands leave in the order in which they were begun, and answers come in any order. What always holds:
//!
//! - each operation that was begun ends with exactly one event, also when the connection is lost;
//! - a command is written once. It is *not sent* while none of its bytes was offered to the writer ([`Session::offering`]), *uncertain* from
//!   then on until its own answer is here, and never written again;
//! - an answer counts only on the operation's own inbox and after all of its command was written. A message counts only for the consumer
//!   that its acknowledgement subject names, on the subject that the consumer filters, while a pull of that consumer is open, and within
//!   what the pull asked for. A refused permission counts only for the oldest written operation with that very subject;
//! - anything else ends the session: [`Event::Closed`] says what was seen, behind the ends of all operations. What is wrong with one message
//!   or one consumer alone does not: a message above its ceiling comes without its body, an unreadable consumer info ends its inspection;
//! - everything that is kept is bounded by [`SessionBounds`], and reserved before it is asked for: a pull that could bring more than there is
//!   room for is refused. So the shell may read whenever it likes.
//!
//! A pull that is written ends with its batch, with a status of the broker and the messages that it says were given to the pull, or with the
//! session; it is not given up, because its messages could still come. A shell whose pull is overdue, which an expiry and missing heartbeats tell, ends the session.

mod consumer;
mod delivered;
mod event;
mod info;
mod operations;
mod outgoing;
mod reading;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use latent_core::LimitError;

use crate::decoder::Decoder;
use crate::exchange::Ended;
use crate::inbox::Inbox;
use crate::info::ServerFacts;
use crate::limits::{LINK_BYTES, SESSION_MESSAGE_BYTES, SESSION_MESSAGES, SESSION_OPERATIONS, SESSION_OUTGOING_BYTES};
use crate::link::Link;
use crate::outcome::Evidence;

use consumer::ACK_BYTES_MAX;
pub use consumer::{Ceiling, PullConsumer, PullProfile, PullProfileError};
pub use delivered::{AckSubject, Content, Delivered, HeaderFields, TooLarge};
pub use event::{Event, OperationId, Pending, PullClose, PullEnd};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use info::read as read_info;
pub use info::{ConsumerInfo, PinId};
use operations::{Kind, Operations};
use outgoing::Outgoing;
pub use request::{BadRequest, PullRequest, SessionRefused, SessionSettlement};

/// What a session keeps at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionBounds {
    /// Operations under way, or ended and not taken yet: [`SESSION_OPERATIONS`].
    pub operations: usize,
    /// Bytes of commands that are not written: [`SESSION_OUTGOING_BYTES`].
    pub outgoing_bytes: usize,
    /// Messages asked for, or here and not taken yet: [`SESSION_MESSAGES`].
    pub messages: usize,
    /// Bytes of them: [`SESSION_MESSAGE_BYTES`].
    pub message_bytes: usize,
}

impl Default for SessionBounds {
    fn default() -> Self {
        Self {
            operations: SESSION_OPERATIONS.default_usize(),
            outgoing_bytes: SESSION_OUTGOING_BYTES.default_usize(),
            messages: SESSION_MESSAGES.default_usize(),
            message_bytes: SESSION_MESSAGE_BYTES.default_usize(),
        }
    }
}

impl SessionBounds {
    /// Memory of one connection's protocol on a link of [`Link::for_sessions`] with this body, allocated with it. Messages come on top: at most
    /// [`SessionBounds::message_bytes`] until they are taken.
    pub fn connection_bytes(&self, body_bytes_max: u32) -> usize {
        LINK_BYTES.max_usize() + Link::session_buffer_bytes(body_bytes_max) + Outgoing::buffer_bytes(self.outgoing_bytes)
    }

    fn check(&self) -> Result<(), LimitError> {
        SESSION_OPERATIONS.check(self.operations as u64)?;
        SESSION_OUTGOING_BYTES.check(self.outgoing_bytes as u64)?;
        SESSION_MESSAGES.check(self.messages as u64)?;
        SESSION_MESSAGE_BYTES.check(self.message_bytes as u64).map(|_| ())
    }
}

/// Why no session begins on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The link is not one of [`Link::for_sessions`], or its handshake is not done.
    #[error("the connection is not one to begin a session on")]
    Link,
    /// A bound lies outside of its limit.
    #[error(transparent)]
    Bound(#[from] LimitError),
}

/// What a session wants of its shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// The bytes of [`Session::outgoing`] are to be written.
    pub write: bool,
    /// Bytes of the peer are to be read. False when the session is over, and only then.
    pub read: bool,
}

/// Many operations on one connection.
pub struct Session {
    decoder: Decoder,
    inbox: Inbox,
    server: Option<ServerFacts>,
    operations: Operations,
    /// Control frames of the bytes that are being read.
    controls: usize,
    closed: Option<Evidence>,
}

impl Session {
    /// Begins on a connection whose handshake is done. The link must be one of [`Link::for_sessions`].
    ///
    /// # Errors
    /// [`SessionError`]; the connection is to be closed.
    pub fn begin(link: Link, bounds: SessionBounds) -> Result<Self, SessionError> {
        bounds.check()?;
        if !link.is_established() || !link.decoder.is_skipping() {
            return Err(SessionError::Link);
        }
        let Link { decoder, inbox, server, .. } = link;
        let operations = Operations::new(bounds);
        let mut session = Self { decoder, inbox, server, operations, controls: 0, closed: None };
        // What came behind the handshake.
        session.received(b"");
        Ok(session)
    }

    /// What the server said of itself last.
    pub fn server(&self) -> Option<ServerFacts> {
        self.server
    }

    /// What ended the session, if it is over.
    pub fn closed(&self) -> Option<Evidence> {
        self.closed
    }

    /// Operations that are under way. Those that ended and whose event was not taken yet are not.
    pub fn under_way(&self) -> usize {
        self.operations.under_way()
    }

    /// What it waits for.
    pub fn wants(&self) -> Wants {
        let is_open = self.closed.is_none();
        Wants { write: is_open && !self.operations.outgoing.waiting().is_empty(), read: is_open }
    }

    /// The bytes that are not written yet, in order.
    pub fn outgoing(&self) -> &[u8] {
        if self.closed.is_none() { self.operations.outgoing.waiting() } else { &[] }
    }

    /// Called immediately before every attempt to hand outgoing bytes to the writer: from here on all commands in them may have been written
    /// (D-06), whatever becomes of the attempt.
    pub fn offering(&mut self) {
        if self.closed.is_none() {
            self.operations.outgoing.offering();
        }
    }

    /// How many of the outgoing bytes the writer took.
    pub fn wrote(&mut self, bytes: usize) {
        if self.closed.is_none() {
            self.operations.outgoing.wrote(bytes);
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.operations.poll_event()
    }

    /// Looks at a consumer.
    ///
    /// # Errors
    /// [`SessionRefused`]; nothing will be written.
    pub fn begin_inspect(&mut self, consumer: &Arc<PullConsumer>) -> Result<OperationId, SessionRefused> {
        self.check_open()?;
        self.operations.begin(&mut self.inbox, self.server, Kind::Inspect(Arc::clone(consumer)), &[])
    }

    /// Asks for messages of a consumer. One pull may be open for each.
    ///
    /// # Errors
    /// [`SessionRefused`]; nothing will be written.
    pub fn begin_pull(&mut self, consumer: &Arc<PullConsumer>, pull: &PullRequest) -> Result<OperationId, SessionRefused> {
        self.check_open()?;
        let bytes_max = self.decoder.body_bytes_max() as u64;
        if consumer.whole_bytes_max() > bytes_max {
            return Err(SessionRefused::Ceiling { bytes: consumer.whole_bytes_max(), bytes_max });
        }
        let body = request::pull_body(consumer, pull)?;
        let kind = self.operations.open_pull(consumer, pull)?;
        self.operations.begin(&mut self.inbox, self.server, kind, &body)
    }

    /// Settles a message, or says that it is worked on. The message may have come on another connection.
    ///
    /// # Errors
    /// [`SessionRefused`]; nothing will be written.
    pub fn begin_settle(&mut self, message: &AckSubject, settlement: SessionSettlement<'_>) -> Result<OperationId, SessionRefused> {
        self.check_open()?;
        let body = request::settle_body(settlement)?;
        self.operations.begin(&mut self.inbox, self.server, Kind::Settle(message.clone()), &body)
    }

    /// Waits no longer for an operation: it ends with what is known of it. False, and nothing changes, for a pull of which a byte was offered,
    /// and for what is not under way.
    ///
    /// A command of which nothing was offered is taken back. The answer to another may still come and is let go by.
    pub fn give_up(&mut self, operation: OperationId, how: GiveUp) -> bool {
        self.closed.is_none() && self.operations.give_up(operation, how.evidence())
    }

    /// Bytes of the peer, split in any way.
    pub fn received(&mut self, bytes: &[u8]) {
        self.controls = 0;
        let mut rest = bytes;
        while self.closed.is_none() {
            let taken = self.decoder.fill(rest);
            rest = rest.get(taken..).unwrap_or_default();
            while self.closed.is_none() && self.read_frame() {}
            if rest.is_empty() {
                return;
            }
            if taken == 0 {
                return self.close(Evidence::MalformedFrame);
            }
        }
    }

    /// The connection ended, or the shell ends it. What is under way ends with what is known of it.
    pub fn ended(&mut self, how: Ended) {
        let within_reply = self.decoder.is_within_frame();
        self.close(match how {
            Ended::PeerClosed | Ended::TransportFailed => Evidence::ConnectionLost { within_reply },
            Ended::DeadlineExceeded => Evidence::Deadline { within_reply },
            Ended::Cancelled => Evidence::Cancelled,
        });
    }

    fn close(&mut self, evidence: Evidence) {
        if self.closed.is_none() {
            self.closed = Some(evidence);
            self.operations.close(evidence);
        }
    }

    fn check_open(&self) -> Result<(), SessionRefused> {
        if self.closed.is_none() { Ok(()) } else { Err(SessionRefused::Closed) }
    }
}

/// Why an operation is waited for no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// Its deadline passed.
    DeadlineExceeded,
    /// The caller does not want it any more.
    Cancelled,
}

impl GiveUp {
    const fn evidence(self) -> Evidence {
        match self {
            Self::DeadlineExceeded => Evidence::Deadline { within_reply: false },
            Self::Cancelled => Evidence::Cancelled,
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("under_way", &self.under_way()).field("closed", &self.closed).finish_non_exhaustive()
    }
}
