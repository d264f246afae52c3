//! What the three operations have in common: one `PUB` with a reply inbox, one answer, and at most one late status in between.

use std::fmt;

use crate::broker_error::{self, BrokerError};
use crate::decoder::decimal;
use crate::exchange::{Ended, Want, unwritten};
use crate::frame::{Frame, Message};
use crate::headers;
use crate::link::{Link, Reader, SUBSCRIPTION, Seen, receive};
use crate::outcome::{Connection, Evidence, Stage};

/// An operation that was not begun. No byte of it was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefused {
    /// A stream, a consumer or an acknowledgement is not a name that may be sent.
    #[error("a name of the request may not be sent")]
    Text,
    /// The connection has used every inbox.
    #[error("the connection has used every reply inbox")]
    InboxExhausted,
    /// The link is not one to begin anything on.
    #[error("the connection is not reusable")]
    LinkNotReusable,
}

/// What one operation asks and how it understands the answer.
pub(crate) trait Question {
    type Answer;

    /// What a message shows, `is_own` when it is on the operation's inbox. `store` takes a delivered message.
    fn message(&self, message: Message<'_>, is_own: bool, store: &mut crate::link::DeliveryStore) -> Result<Self::Answer, Evidence>;

    /// Whether the connection is in step after this answer.
    fn keeps_connection(answer: &Self::Answer) -> bool;

    /// Whether one status more may arrive behind this answer.
    fn leaves_status(_: &Self::Answer) -> bool {
        false
    }

    /// Whether a message on the operation's inbox is that status, ahead of the answer.
    fn is_early_status(_: Message<'_>) -> bool {
        false
    }
}

/// An operation under way.
pub(crate) struct Request<'l, Q: Question> {
    pub(crate) link: &'l mut Link,
    question: Q,
    is_offered: bool,
    written: usize,
    /// The status behind the answer came before it.
    early_status: bool,
    end: Option<Result<Q::Answer, (Stage, Evidence)>>,
    connection: Connection,
}

/// One token of a subject.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'.' | b'*' | b'>');
    !name.is_empty() && name.len() <= crate::limits::STREAM_BYTES.max_usize() && name.bytes().all(is_plain)
}

impl<'l, Q: Question> Request<'l, Q> {
    /// `subject` is given in parts.
    ///
    /// A frame may be half-read: the status behind a message comes in whatever pieces the network makes, and the message in hand must be
    /// settled all the same. It cannot be this request's answer, whose inbox nobody knows yet.
    pub(crate) fn begin(link: &'l mut Link, question: Q, subject: &[&[u8]], body: &[u8]) -> Result<Self, RequestRefused> {
        if !link.is_established() {
            return Err(RequestRefused::LinkNotReusable);
        }
        link.begin_exchange();
        let mut request =
            Self { link, question, is_offered: false, written: 0, early_status: false, end: None, connection: Connection::Close };
        while request.is_reading() && request.read_frame() {}
        if request.end.is_some() {
            request.link.end_exchange(Connection::Close);
            return Err(RequestRefused::LinkNotReusable);
        }
        if !request.link.inbox.advance() {
            request.link.end_exchange(Connection::Close);
            return Err(RequestRefused::InboxExhausted);
        }
        let Link { head, tail, inbox, .. } = &mut *request.link;
        tail.move_to(head);
        head.extend_from_slice(b"PUB ");
        subject.iter().for_each(|part| head.extend_from_slice(part));
        let (digits, start) = decimal(body.len() as u64);
        for part in [b" ", inbox.current(), b" ", digits.get(start..).unwrap_or_default(), b"\r\n", body, b"\r\n"] {
            head.extend_from_slice(part);
        }
        Ok(request)
    }

    fn stage(&self) -> Stage {
        match (self.is_offered, self.written >= self.link.head.len()) {
            (false, _) => Stage::BeforeWrite,
            (true, false) => Stage::PartlyWritten,
            (true, true) => Stage::Written,
        }
    }

    fn fail(&mut self, evidence: Evidence) {
        self.end = Some(Err((self.stage(), evidence)));
        self.connection = Connection::Close;
    }

    /// The answer or the evidence that there is none, whether it may have been written, and the connection.
    pub(crate) fn into_end(mut self) -> (Result<Q::Answer, (Stage, Evidence)>, Connection) {
        self.ended(Ended::Cancelled);
        let (stage, connection) = (self.stage(), self.connection);
        self.link.end_exchange(connection);
        (self.end.unwrap_or(Err((stage, Evidence::Cancelled))), connection)
    }

    pub(crate) fn want(&self) -> Want {
        if self.end.is_some() && self.connection == Connection::Close {
            return Want::Done;
        }
        match (self.outgoing().iter().any(|part| !part.is_empty()), &self.end) {
            (true, _) => Want::Write,
            (false, Some(_)) => Want::Done,
            (false, None) => Want::Read,
        }
    }

    pub(crate) fn outgoing(&self) -> [&[u8]; 3] {
        if self.end.is_some() && self.connection == Connection::Close {
            return [&[]; 3];
        }
        unwritten([&self.link.head, &[], self.link.tail.get()], self.written)
    }

    pub(crate) fn offering(&mut self) {
        self.is_offered |= self.end.is_none();
    }

    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.offering();
        self.written = self.written.saturating_add(bytes);
    }

    pub(crate) fn received(&mut self, bytes: &[u8]) {
        receive(self, bytes);
    }

    pub(crate) fn ended(&mut self, how: Ended) {
        if self.want() == Want::Done {
            return;
        }
        if self.end.is_some() {
            self.connection = Connection::Close;
        } else {
            let evidence = self.link.ended(how);
            self.fail(evidence);
        }
    }
}

impl<Q: Question> Reader for Request<'_, Q> {
    fn link(&mut self) -> &mut Link {
        self.link
    }

    fn is_reading(&self) -> bool {
        self.end.is_none()
    }

    fn read_frame(&mut self) -> bool {
        let stage = self.stage();
        let inbox = self.link.inbox.current_copy();
        let (seen, store, late_status_may_arrive) = self.link.read_with_store();
        let evidence = match seen {
            None => return false,
            Some(Seen::Control) => return true,
            Some(Seen::Fault(evidence)) => evidence,
            Some(Seen::Frame(Frame::Error(text))) => broker_error(text),
            Some(Seen::Frame(Frame::Message(message))) => {
                let is_own = stage == Stage::Written && message.subject == inbox.get();
                if *late_status_may_arrive && !is_own && is_status(message, inbox.connection()) {
                    *late_status_may_arrive = false;
                    return true;
                }
                if message.subscription != SUBSCRIPTION || stage != Stage::Written {
                    Evidence::ForeignReply
                } else if is_own && !self.early_status && Q::is_early_status(message) {
                    self.early_status = true;
                    return true;
                } else {
                    match self.question.message(message, is_own, store) {
                        Ok(answer) => {
                            *late_status_may_arrive |= Q::leaves_status(&answer) && !self.early_status;
                            let keeps = Q::keeps_connection(&answer);
                            self.connection = if keeps { Connection::Keep } else { Connection::Close };
                            self.end = Some(Ok(answer));
                            return true;
                        }
                        Err(evidence) => evidence,
                    }
                }
            }
            Some(Seen::Frame(_)) => Evidence::UnexpectedFrame,
        };
        self.fail(evidence);
        true
    }

    fn overflow(&mut self) {
        if self.end.is_some() {
            self.connection = Connection::Close;
        } else {
            self.fail(Evidence::MalformedFrame);
        }
    }
}

/// Whether a message is the status of an earlier pull of this connection.
pub(crate) fn is_status(message: Message<'_>, connection: &[u8]) -> bool {
    let has_status = message.headers.is_some_and(|block| matches!(headers::status(block), Ok(Some(_))));
    has_status && message.payload.is_empty() && message.subscription == SUBSCRIPTION && message.subject.starts_with(connection)
}

fn broker_error(text: &[u8]) -> Evidence {
    match broker_error::read(text) {
        BrokerError::Permission | BrokerError::Subscription => Evidence::PermissionOfAnother,
        BrokerError::Authorisation => Evidence::AuthenticationFailed,
        _ => Evidence::BrokerError,
    }
}

impl<Q: Question> fmt::Debug for Request<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("stage", &self.stage()).field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// Makes a public operation of a request: everything but its outcome is the request's.
macro_rules! operation {
    ($operation:ident, $outcome:ty, $finish:expr) => {
        impl $crate::Exchange for $operation<'_> {
            type Outcome = $outcome;

            fn want(&self) -> $crate::Want {
                self.0.want()
            }

            fn outgoing(&self) -> [&[u8]; 3] {
                self.0.outgoing()
            }

            fn offering(&mut self) {
                self.0.offering();
            }

            fn wrote(&mut self, bytes: usize) {
                self.0.wrote(bytes);
            }

            fn received(&mut self, bytes: &[u8]) {
                self.0.received(bytes);
            }

            fn ended(&mut self, how: $crate::Ended) {
                self.0.ended(how);
            }

            fn finish(self) -> $outcome {
                $finish(self.0)
            }
        }
    };
}
pub(crate) use operation;
