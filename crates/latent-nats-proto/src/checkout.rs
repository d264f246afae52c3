//! Whether a parked connection is still good: what waits on it is dealt with, then a PING is answered.

use crate::broker_error::{self, BrokerError};
use crate::exchange::{Ended, Exchange, Want, unwritten};
use crate::frame::Frame;
use crate::link::{Link, PING, Reader, Seen, receive};
use crate::outcome::{Connection, Evidence};
use crate::triggers::is_status;

/// Why a parked connection cannot be used any more. Nothing was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckoutError {
    /// The link is not one to begin anything on.
    #[error("the connection is not reusable")]
    NotReusable,
    /// The broker does not take the credential any more.
    #[error("the broker refused the credentials")]
    AuthenticationFailed,
    /// Any other error of the broker.
    #[error("the broker reported an error on a parked connection")]
    BrokerError,
    /// The connection had ended.
    #[error("the parked connection had ended")]
    ConnectionLost,
    /// The deadline passed.
    #[error("the deadline passed while a parked connection was checked")]
    DeadlineExceeded,
    /// Cancelled.
    #[error("cancelled while a parked connection was checked")]
    Cancelled,
    /// Bytes that are no protocol, or above a bound.
    #[error("the broker broke the protocol on a parked connection")]
    Malformed,
    /// A frame that nothing was waiting for.
    #[error("the broker sent a frame that nothing was waiting for on a parked connection")]
    UnexpectedFrame,
    /// Too many control frames.
    #[error("more control frames waited on a parked connection than may")]
    ControlFlood,
}

impl CheckoutError {
    /// What it shows about a publication that waited for the connection: always evidence from before the write.
    pub const fn evidence(self) -> Evidence {
        match self {
            Self::AuthenticationFailed => Evidence::AuthenticationFailed,
            Self::BrokerError => Evidence::BrokerError,
            Self::ConnectionLost | Self::NotReusable => Evidence::ConnectionLost { within_reply: false },
            Self::DeadlineExceeded => Evidence::Deadline { within_reply: false },
            Self::Cancelled => Evidence::Cancelled,
            Self::Malformed => Evidence::MalformedFrame,
            Self::UnexpectedFrame => Evidence::UnexpectedFrame,
            Self::ControlFlood => Evidence::ControlFlood,
        }
    }

    /// Whether a fresh connection inside the same deadline may do better (D-15).
    pub const fn allows_redial(self) -> bool {
        !matches!(self, Self::AuthenticationFailed | Self::DeadlineExceeded | Self::Cancelled)
    }

    fn from_evidence(evidence: Evidence) -> Self {
        match evidence {
            Evidence::ConnectionLost { .. } => Self::ConnectionLost,
            Evidence::Deadline { .. } => Self::DeadlineExceeded,
            Evidence::Cancelled => Self::Cancelled,
            Evidence::ControlFlood => Self::ControlFlood,
            _ => Self::Malformed,
        }
    }
}

/// The check of a parked connection.
pub struct Checkout<'l> {
    link: &'l mut Link,
    written: usize,
    outcome: Option<Result<(), CheckoutError>>,
}

impl<'l> Checkout<'l> {
    /// Deals with the frames that are here already, then asks. A frame that is half-read is read to its end meanwhile.
    pub fn begin(link: &'l mut Link) -> Self {
        let is_reusable = link.is_established();
        link.begin_exchange();
        let mut checkout = Self { link, written: 0, outcome: None };
        if is_reusable {
            // No PONG can be owed yet: nothing has been asked.
            while checkout.is_reading() && checkout.read_frame() {}
            let Link { head, tail, .. } = &mut *checkout.link;
            tail.move_to(head);
            head.extend_from_slice(PING);
        } else {
            checkout.outcome = Some(Err(CheckoutError::NotReusable));
        }
        checkout
    }

    fn has_asked(&self) -> bool {
        !self.link.head.is_empty() && self.written >= self.link.head.len()
    }
}

impl Reader for Checkout<'_> {
    fn link(&mut self) -> &mut Link {
        self.link
    }

    fn is_reading(&self) -> bool {
        self.outcome.is_none()
    }

    fn read_frame(&mut self) -> bool {
        let has_asked = self.has_asked();
        let late_status_may_arrive = self.link.late_status_may_arrive;
        let inbox = self.link.inbox.current_copy();
        let outcome = match self.link.read() {
            None => return false,
            Some(Seen::Control) => return true,
            Some(Seen::Fault(evidence)) => Err(CheckoutError::from_evidence(evidence)),
            Some(Seen::Frame(Frame::Pong)) if has_asked => Ok(()),
            Some(Seen::Frame(Frame::Error(text))) => Err(match broker_error::read(text) {
                BrokerError::Authorisation => CheckoutError::AuthenticationFailed,
                _ => CheckoutError::BrokerError,
            }),
            Some(Seen::Frame(Frame::Message(message))) if late_status_may_arrive && is_status(message, inbox.connection()) => {
                self.link.late_status_may_arrive = false;
                return true;
            }
            Some(Seen::Frame(_)) => Err(CheckoutError::UnexpectedFrame),
        };
        self.outcome = Some(outcome);
        true
    }

    fn overflow(&mut self) {
        self.outcome = Some(Err(CheckoutError::UnexpectedFrame));
    }
}

impl Exchange for Checkout<'_> {
    type Outcome = Result<(), CheckoutError>;

    fn want(&self) -> Want {
        match self.outcome {
            Some(Err(_)) => Want::Done,
            _ if self.outgoing().iter().any(|part| !part.is_empty()) => Want::Write,
            Some(Ok(())) => Want::Done,
            None => Want::Read,
        }
    }

    fn outgoing(&self) -> [&[u8]; 3] {
        if matches!(self.outcome, Some(Err(_))) {
            return [&[]; 3];
        }
        unwritten([&self.link.head, &[], self.link.tail.get()], self.written)
    }

    fn offering(&mut self) {}

    fn wrote(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes);
    }

    fn received(&mut self, bytes: &[u8]) {
        receive(self, bytes);
    }

    fn ended(&mut self, how: Ended) {
        if self.want() != Want::Done {
            let evidence = self.link.ended(how);
            self.outcome = Some(Err(CheckoutError::from_evidence(evidence)));
        }
    }

    fn finish(mut self) -> Self::Outcome {
        self.ended(Ended::Cancelled);
        let outcome = self.outcome.unwrap_or(Err(CheckoutError::Cancelled));
        self.link.end_exchange(if outcome.is_ok() { Connection::Keep } else { Connection::Close });
        outcome
    }
}

impl std::fmt::Debug for Checkout<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkout").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
