//! One publication on an established connection: out in one write, answered by one reply on an inbox that only it ever had.

use std::fmt;

use crate::broker_error::{self, BrokerError};
use crate::exchange::{Ended, Exchange, Want, unwritten};
use crate::frame::{Frame, Message};
use crate::headers;
use crate::link::{Link, Reader, SUBSCRIPTION, Seen, receive};
use crate::outcome::{Answer, Connection, Evidence, FailureCause, FailureKind, Stage, connection_after, decide};
use crate::publication::{Publication, header_block_bytes};
use crate::receipt;

/// A publication that was not begun. No byte of it was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefused {
    /// A text breaks its rule, or its bound.
    #[error("the {field} is not a text that may be sent")]
    Text {
        /// Which.
        field: &'static str,
    },
    /// The header block is above its bound (P-023).
    #[error("the headers have {bytes} bytes; at most {bytes_max} are allowed")]
    HeaderBlock {
        /// Bytes seen.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
    /// The payload is above its bound (P-018).
    #[error("the payload has {bytes} bytes; at most {bytes_max} are allowed")]
    Payload {
        /// Bytes seen.
        bytes: usize,
        /// Bytes allowed.
        bytes_max: usize,
    },
    /// Headers and payload are above what the broker takes (P-062).
    #[error("headers and payload have {bytes} bytes; the broker takes {bytes_max}")]
    ServerMaximum {
        /// Bytes seen.
        bytes: usize,
        /// Bytes that the broker's last INFO allows.
        bytes_max: u64,
    },
    /// The connection has used every inbox (P-009).
    #[error("the connection has used every reply inbox")]
    InboxExhausted,
    /// The link is not one to begin anything on.
    #[error("the connection is not reusable")]
    LinkNotReusable,
}

impl PublishRefused {
    /// The answer of a publication that was refused.
    pub const fn answer(self) -> Answer {
        let (kind, cause) = match self {
            Self::ServerMaximum { .. } => (FailureKind::InvalidEvent, FailureCause::ServerMaximum),
            Self::Text { .. } | Self::HeaderBlock { .. } | Self::Payload { .. } => (FailureKind::InvalidEvent, FailureCause::Local),
            Self::InboxExhausted | Self::LinkNotReusable => (FailureKind::Unavailable, FailureCause::Local),
        };
        Answer::KnownFailure { kind, cause }
    }
}

/// How one publication ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishEnd {
    /// What it came to.
    pub outcome: Answer,
    /// Whether a byte of it may have left.
    pub possible_write: bool,
    /// What may become of the connection.
    pub connection: Connection,
}

/// A publication under way.
pub struct Publish<'l> {
    link: &'l mut Link,
    publication: Publication<'l>,
    /// Bytes of the publication, and what went out before it in the same write.
    publication_bytes: usize,
    is_offered: bool,
    written: usize,
    end: Option<PublishEnd>,
}

impl<'l> Publish<'l> {
    /// Begins on a reusable link. Frames that wait there are dealt with first: an INFO may allow less than the last one did.
    ///
    /// # Errors
    /// [`PublishRefused`]; the link is as usable as it was, unless what waited there broke it.
    pub fn begin(link: &'l mut Link, publication: &Publication<'l>) -> Result<Self, PublishRefused> {
        if !link.is_reusable() {
            return Err(PublishRefused::LinkNotReusable);
        }
        publication.check()?;
        link.begin_exchange();
        let refused = read_waiting(link).err().or_else(|| server_maximum(link, publication).err());
        let refused = refused.or_else(|| (!link.inbox.advance()).then_some(PublishRefused::InboxExhausted));
        if let Some(refused) = refused {
            // Answers to PINGs that are not out yet are lost with the refusal, so such a connection is not kept.
            let is_kept = refused != PublishRefused::LinkNotReusable && link.tail.get().is_empty();
            link.end_exchange(if is_kept { Connection::Keep } else { Connection::Close });
            return Err(refused);
        }
        let Link { head, tail, inbox, .. } = &mut *link;
        tail.move_to(head);
        publication.encode_head(inbox.current(), head);
        tail.push(b"\r\n");
        let publication_bytes = head.len() + publication.payload.len() + tail.get().len();
        Ok(Self { link, publication: *publication, publication_bytes, is_offered: false, written: 0, end: None })
    }

    fn stage(&self) -> Stage {
        match (self.is_offered, self.written >= self.publication_bytes) {
            (false, _) => Stage::BeforeWrite,
            (true, false) => Stage::PartlyWritten,
            (true, true) => Stage::Written,
        }
    }

    fn decide(&mut self, evidence: Evidence) {
        let stage = self.stage();
        let (outcome, connection) = (decide(stage, evidence), connection_after(stage, evidence));
        self.end = Some(PublishEnd { outcome, possible_write: stage.possible_write(), connection });
    }

    fn is_to_close(&self) -> bool {
        self.end.is_some_and(|end| end.connection == Connection::Close)
    }
}

/// Deals with the frames that are here before anything is written.
fn read_waiting(link: &mut Link) -> Result<(), PublishRefused> {
    while let Some(seen) = link.read() {
        if !matches!(seen, Seen::Control) {
            return Err(PublishRefused::LinkNotReusable);
        }
    }
    // Half a frame is of no exchange that ended well.
    if link.decoder.is_within_frame() { Err(PublishRefused::LinkNotReusable) } else { Ok(()) }
}

fn server_maximum(link: &Link, publication: &Publication<'_>) -> Result<(), PublishRefused> {
    let bytes = header_block_bytes(publication).saturating_add(publication.payload.len());
    let bytes_max = link.server.map_or(0, |server| server.max_payload_bytes);
    if bytes as u64 > bytes_max { Err(PublishRefused::ServerMaximum { bytes, bytes_max }) } else { Ok(()) }
}

/// What a message shows: it counts for exactly this inbox and subscription only (P-010).
fn reply(message: Message<'_>, inbox: &[u8], expected_stream: &str) -> Evidence {
    if message.subject != inbox || message.subscription != SUBSCRIPTION {
        return Evidence::ForeignReply;
    }
    match message.headers.map(headers::status) {
        None | Some(Ok(None)) => receipt::read(message.payload, expected_stream),
        Some(Ok(Some(503))) if message.payload.is_empty() => Evidence::NoResponders,
        Some(Ok(Some(_))) => Evidence::UnexpectedStatus,
        Some(Err(_)) => Evidence::MalformedFrame,
    }
}

fn broker_error(text: &[u8], subject: &str) -> Evidence {
    if broker_error::refuses_publication_to(text, subject) {
        return Evidence::PublishRefused;
    }
    match broker_error::read(text) {
        BrokerError::Permission | BrokerError::Subscription => Evidence::PermissionOfAnother,
        BrokerError::MaximumPayload => Evidence::MaximumPayload,
        BrokerError::Authorisation => Evidence::AuthenticationFailed,
        BrokerError::AuthenticationTimeout | BrokerError::ConnectionLimit | BrokerError::Other => Evidence::BrokerError,
    }
}

impl Reader for Publish<'_> {
    fn link(&mut self) -> &mut Link {
        self.link
    }

    fn is_reading(&self) -> bool {
        self.end.is_none()
    }

    fn read_frame(&mut self) -> bool {
        let Publication { subject, expected_stream, .. } = self.publication;
        // A copy, so that the frame can be compared while the link is borrowed for it.
        let inbox = self.link.inbox.current_copy();
        let evidence = match self.link.read() {
            None => return false,
            Some(Seen::Control) => {
                if !self.is_offered && server_maximum(self.link, &self.publication).is_err() {
                    self.decide(Evidence::AboveServerMaximum);
                }
                return true;
            }
            Some(Seen::Fault(evidence)) => evidence,
            Some(Seen::Frame(Frame::Message(message))) => reply(message, inbox.get(), expected_stream),
            Some(Seen::Frame(Frame::Error(text))) => broker_error(text, subject),
            Some(Seen::Frame(_)) => Evidence::UnexpectedFrame,
        };
        self.decide(evidence);
        true
    }

    fn overflow(&mut self) {
        match &mut self.end {
            Some(end) => end.connection = Connection::Close,
            None => self.decide(Evidence::MalformedFrame),
        }
    }
}

impl Exchange for Publish<'_> {
    type Outcome = PublishEnd;

    fn want(&self) -> Want {
        if self.is_to_close() {
            return Want::Done;
        }
        match (self.outgoing().iter().any(|part| !part.is_empty()), self.end) {
            (true, _) => Want::Write,
            (false, Some(_)) => Want::Done,
            (false, None) => Want::Read,
        }
    }

    fn outgoing(&self) -> [&[u8]; 3] {
        // What was decided before the first byte is not written any more; behind the publication only answers to PINGs are left.
        if self.is_to_close() || self.end.is_some() && !self.is_offered {
            return [&[]; 3];
        }
        unwritten([&self.link.head, self.publication.payload, self.link.tail.get()], self.written)
    }

    fn offering(&mut self) {
        self.is_offered |= self.end.is_none();
    }

    fn wrote(&mut self, bytes: usize) {
        // Bytes cannot have left without having been offered.
        self.offering();
        self.written = self.written.saturating_add(bytes);
    }

    fn received(&mut self, bytes: &[u8]) {
        receive(self, bytes);
    }

    fn ended(&mut self, how: Ended) {
        if self.want() == Want::Done {
            return;
        }
        match &mut self.end {
            // Answered already; only the answer to a PING did not get out.
            Some(end) => end.connection = Connection::Close,
            None => {
                let evidence = self.link.ended(how);
                self.decide(evidence);
            }
        }
    }

    fn finish(mut self) -> PublishEnd {
        self.ended(Ended::Cancelled);
        let cancelled = PublishEnd {
            outcome: decide(self.stage(), Evidence::Cancelled),
            possible_write: self.stage().possible_write(),
            connection: Connection::Close,
        };
        let end = self.end.unwrap_or(cancelled);
        self.link.end_exchange(end.connection);
        end
    }
}

impl fmt::Debug for Publish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish").field("stage", &self.stage()).field("end", &self.end).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
