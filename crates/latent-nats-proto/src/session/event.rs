//! What a session tells its shell.

use super::{ConsumerInfo, Delivered};
use crate::outcome::Evidence;
use crate::triggers::{InspectError, PullError, PullStatus, SettleAnswer};

/// One operation of one session, never used twice in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub(super) u64);

/// Something that happened. Each operation ends with exactly one of [`Event::Inspected`], [`Event::PullEnded`] and [`Event::Settled`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An inspection ended.
    Inspected {
        /// Which.
        operation: OperationId,
        /// What it found.
        result: Result<ConsumerInfo, InspectError>,
    },
    /// A pull brought a message.
    Delivered {
        /// Which.
        pull: OperationId,
        /// The message.
        message: Delivered,
    },
    /// The broker says that a pull still stands. Told once until it is taken.
    Heartbeat {
        /// Which.
        pull: OperationId,
    },
    /// A pull ended: no message of it comes any more.
    PullEnded {
        /// Which.
        operation: OperationId,
        /// How.
        end: PullEnd,
    },
    /// A settlement ended.
    Settled {
        /// Which.
        operation: OperationId,
        /// What it came to. Of an [in-progress](super::SessionSettlement::InProgress) too.
        answer: SettleAnswer,
    },
    /// The session is over, for what was seen. The last event.
    Closed(Evidence),
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullEnd {
    /// Messages that it brought.
    pub delivered: u32,
    /// What ended it.
    pub how: PullClose,
}

/// What ended a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullClose {
    /// Everything that it asked for came.
    Complete,
    /// A status of the broker (D-11).
    Status {
        /// Which.
        status: PullStatus,
        /// What of the request was not used, where the broker says so.
        pending: Option<Pending>,
    },
    /// It has no end of its own: the connection is over, or its permission was refused.
    Failed(PullError),
}

/// What of a pull's request was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Messages.
    pub messages: u64,
    /// Bytes; 0 as well when the request named none.
    pub bytes: u64,
}
