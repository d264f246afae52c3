//! Opening a session: INFO is waited for, CONNECT, the subscription and a PING go out, and the PONG proves all of it (P-009).

use zeroize::Zeroizing;

use crate::broker_error::{self, BrokerError};
use crate::connect::{Credential, CredentialError, opening};
use crate::exchange::{Ended, Exchange, Want, unwritten};
use crate::frame::Frame;
use crate::info::{self, InfoError};
use crate::link::{Link, Reader, Seen, Standing, frame_fault, receive};
use crate::outcome::{Connection, Evidence};

/// Why no session came to be. Nothing was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The credential cannot be sent.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The broker cannot be worked with.
    #[error(transparent)]
    Info(#[from] InfoError),
    /// The link had a handshake already.
    #[error("the link had a handshake already")]
    NotFresh,
    /// The broker refused the credential.
    #[error("the broker refused the credentials")]
    AuthenticationFailed,
    /// The broker's own time for the handshake was over; no fault of the credential.
    #[error("the broker gave up waiting for the handshake")]
    AuthenticationTimedOut,
    /// The broker has as many connections as it takes.
    #[error("the broker takes no more connections")]
    ConnectionLimit,
    /// The user may not subscribe to its reply inboxes.
    #[error("the broker refused the reply inbox; the user must be allowed to subscribe to `_INBOX.LSF.>`")]
    SubscriptionRefused,
    /// Any other error of the broker.
    #[error("the broker reported an error during the handshake")]
    BrokerError,
    /// The connection ended.
    #[error("the connection ended during the handshake")]
    ConnectionLost,
    /// The deadline passed.
    #[error("the deadline passed during the handshake")]
    DeadlineExceeded,
    /// Cancelled.
    #[error("cancelled during the handshake")]
    Cancelled,
    /// A line above its bound.
    #[error("a line of the broker is longer than 8 KiB (an INFO of a very large cluster is)")]
    LineTooLong,
    /// Bytes that are no protocol.
    #[error("the broker sent a malformed frame during the handshake")]
    Malformed,
    /// A frame that nothing was waiting for.
    #[error("the broker sent a frame that the handshake does not wait for")]
    UnexpectedFrame,
    /// Too many control frames.
    #[error("the broker sent more control frames than one stage may have")]
    ControlFlood,
}

impl HandshakeError {
    /// What it shows about a publication that waited for the session: always evidence from before the write.
    pub const fn evidence(self) -> Evidence {
        match self {
            Self::AuthenticationFailed => Evidence::AuthenticationFailed,
            Self::DeadlineExceeded => Evidence::Deadline { within_reply: false },
            Self::Cancelled => Evidence::Cancelled,
            Self::ConnectionLost => Evidence::ConnectionLost { within_reply: false },
            Self::LineTooLong => Evidence::LineTooLong,
            Self::ControlFlood => Evidence::ControlFlood,
            Self::Malformed | Self::NotFresh => Evidence::MalformedFrame,
            Self::UnexpectedFrame => Evidence::UnexpectedFrame,
            Self::Info(_) => Evidence::UnusableServer,
            Self::Credential(_) | Self::AuthenticationTimedOut | Self::ConnectionLimit | Self::SubscriptionRefused | Self::BrokerError => {
                Evidence::BrokerError
            }
        }
    }

    fn from_evidence(evidence: Evidence) -> Self {
        match evidence {
            Evidence::ConnectionLost { .. } => Self::ConnectionLost,
            Evidence::Deadline { .. } => Self::DeadlineExceeded,
            Evidence::Cancelled => Self::Cancelled,
            Evidence::LineTooLong => Self::LineTooLong,
            Evidence::ControlFlood => Self::ControlFlood,
            Evidence::UnexpectedFrame | Evidence::OversizedReply => Self::UnexpectedFrame,
            _ => Self::Malformed,
        }
    }

    fn from_broker(error: BrokerError) -> Self {
        match error {
            BrokerError::Authorisation => Self::AuthenticationFailed,
            BrokerError::AuthenticationTimeout => Self::AuthenticationTimedOut,
            BrokerError::ConnectionLimit => Self::ConnectionLimit,
            BrokerError::Subscription => Self::SubscriptionRefused,
            BrokerError::MaximumPayload | BrokerError::Permission | BrokerError::Other => Self::BrokerError,
        }
    }
}

/// The handshake of a new connection. Its outcome says whether the link may be used.
pub struct Handshake<'l> {
    link: &'l mut Link,
    opening: Zeroizing<Vec<u8>>,
    opening_bytes: usize,
    has_info: bool,
    written: usize,
    outcome: Option<Result<(), HandshakeError>>,
}

impl<'l> Handshake<'l> {
    /// Begins on a fresh link. A credential that cannot be sent fails at once, with nothing to write.
    pub fn begin(link: &'l mut Link, credential: Credential<'_>) -> Self {
        let is_fresh = link.standing == Standing::Fresh;
        link.begin_exchange();
        let (opening, outcome) = match opening(credential, link.inbox.connection()) {
            Ok(opening) if is_fresh => (opening, None),
            Ok(_) => (Zeroizing::default(), Some(Err(HandshakeError::NotFresh))),
            Err(error) => (Zeroizing::default(), Some(Err(error.into()))),
        };
        let opening_bytes = opening.len();
        Self { link, opening, opening_bytes, has_info: false, written: 0, outcome }
    }

    fn is_opened(&self) -> bool {
        self.has_info && self.written >= self.opening_bytes
    }

    fn fail(&mut self, error: HandshakeError) {
        self.outcome = Some(Err(error));
        self.opening = Zeroizing::default();
    }

    /// The first frame must be INFO.
    fn read_info(&mut self) -> bool {
        let outcome = match self.link.decoder.next() {
            Ok(None) => return false,
            Ok(Some(Frame::Info(text))) => info::read(text).map_err(HandshakeError::Info),
            Ok(Some(Frame::Error(text))) => Err(HandshakeError::from_broker(broker_error::read(text))),
            Ok(Some(_)) => Err(HandshakeError::UnexpectedFrame),
            Err(error) => Err(HandshakeError::from_evidence(frame_fault(error))),
        };
        match outcome {
            Ok(facts) => {
                self.link.server = Some(facts);
                self.has_info = true;
            }
            Err(error) => self.fail(error),
        }
        true
    }

    fn read_pong(&mut self) -> bool {
        let is_opened = self.is_opened();
        let error = match self.link.read() {
            None => return false,
            Some(Seen::Control) => return true,
            Some(Seen::Fault(Evidence::UnusableServer)) => HandshakeError::Info(InfoError::NoMaxPayload),
            Some(Seen::Fault(evidence)) => HandshakeError::from_evidence(evidence),
            // A PONG before the whole PING is out answers something else.
            Some(Seen::Frame(Frame::Pong)) if is_opened => {
                self.outcome = Some(Ok(()));
                return true;
            }
            Some(Seen::Frame(Frame::Error(text))) => HandshakeError::from_broker(broker_error::read(text)),
            Some(Seen::Frame(_)) => HandshakeError::UnexpectedFrame,
        };
        self.fail(error);
        true
    }
}

impl Reader for Handshake<'_> {
    fn link(&mut self) -> &mut Link {
        self.link
    }

    fn is_reading(&self) -> bool {
        self.outcome.is_none()
    }

    fn read_frame(&mut self) -> bool {
        if self.has_info { self.read_pong() } else { self.read_info() }
    }

    fn overflow(&mut self) {
        self.fail(HandshakeError::UnexpectedFrame);
    }
}

impl Exchange for Handshake<'_> {
    type Outcome = Result<(), HandshakeError>;

    fn want(&self) -> Want {
        match self.outcome {
            Some(Err(_)) => Want::Done,
            _ if self.outgoing().iter().any(|part| !part.is_empty()) => Want::Write,
            Some(Ok(())) => Want::Done,
            None => Want::Read,
        }
    }

    fn outgoing(&self) -> [&[u8]; 3] {
        if !self.has_info || matches!(self.outcome, Some(Err(_))) {
            return [&[]; 3];
        }
        // Once written, the opening is wiped and only answers to PINGs are left.
        let behind = self.written.saturating_sub(self.opening_bytes);
        let [tail, ..] = unwritten([self.link.tail.get(), &[], &[]], behind);
        [self.opening.get(self.written..).unwrap_or_default(), &[], tail]
    }

    fn offering(&mut self) {}

    fn wrote(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes);
        if self.written >= self.opening_bytes && !self.opening.is_empty() {
            self.opening = Zeroizing::default();
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        receive(self, bytes);
    }

    fn ended(&mut self, how: Ended) {
        if self.want() != Want::Done {
            let evidence = self.link.ended(how);
            self.fail(HandshakeError::from_evidence(evidence));
        }
    }

    fn finish(mut self) -> Self::Outcome {
        self.ended(Ended::Cancelled);
        let outcome = self.outcome.unwrap_or(Err(HandshakeError::Cancelled));
        self.link.end_exchange(if outcome.is_ok() { Connection::Keep } else { Connection::Close });
        outcome
    }
}

impl std::fmt::Debug for Handshake<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").field("has_info", &self.has_info).field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
