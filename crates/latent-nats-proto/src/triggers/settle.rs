//! A delivered message is acknowledged, asked for again, or terminated. The broker's empty reply proves that the command arrived, and no
//! more: it is the same for a message that was settled already (T-049).

use super::request::{Question, Request, RequestRefused, operation};
use crate::decoder::decimal;
use crate::frame::Message;
use crate::link::{DeliveryStore, Link};
use crate::outcome::{Answer, Connection, Evidence, FailureCause, UncertainCause, decide};

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// Handled.
    Acknowledge,
    /// Again after this time.
    RetryAfter {
        /// Nanoseconds.
        nanos: u64,
    },
    /// Never again.
    Terminate,
}

/// What a settlement came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a settlement that is not confirmed may have happened"]
pub enum SettleAnswer {
    /// The broker has the command.
    Confirmed,
    /// The command was certainly not sent, or the broker certainly did not take it.
    NotSent(FailureCause),
    /// The command may have arrived.
    Uncertain(UncertainCause),
}

/// How a settlement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettleEnd {
    /// What it came to.
    pub answer: SettleAnswer,
    /// What may become of the connection.
    pub connection: Connection,
}

struct Command;

impl Question for Command {
    type Answer = ();

    fn message(&self, message: Message<'_>, is_own: bool, _: &mut DeliveryStore) -> Result<(), Evidence> {
        match (is_own, message.headers, message.payload.is_empty()) {
            (false, ..) => Err(Evidence::ForeignReply),
            (true, None, true) => Ok(()),
            (true, Some(_), _) => Err(Evidence::UnexpectedStatus),
            (true, None, false) => Err(Evidence::MalformedReceipt),
        }
    }

    fn keeps_connection((): &()) -> bool {
        true
    }
}

/// The settlement of the link's delivered message.
#[derive(Debug)]
pub struct Settle<'l>(Request<'l, Command>);

impl<'l> Settle<'l> {
    /// Begins for the message that the last pull of this link delivered; it can be settled once.
    ///
    /// # Errors
    /// [`RequestRefused`]; without a delivered message too.
    pub fn begin(link: &'l mut Link, settlement: Settlement) -> Result<Self, RequestRefused> {
        let mut body = [0; 64];
        let mut bytes = 0;
        let mut push = |part: &[u8]| {
            if let Some(room) = body.get_mut(bytes..bytes + part.len()) {
                room.copy_from_slice(part);
                bytes += part.len();
            }
        };
        match settlement {
            Settlement::Acknowledge => push(b"+ACK"),
            Settlement::Terminate => push(b"+TERM"),
            Settlement::RetryAfter { nanos } => {
                let (digits, start) = decimal(nanos);
                push(b"-NAK {\"delay\":");
                push(digits.get(start..).unwrap_or_default());
                push(b"}");
            }
        }
        let mut subject = [0; crate::link::ACK_SUBJECT_BYTES];
        let taken = link.delivery.take_ack_subject(&mut subject).ok_or(RequestRefused::Text)?;
        Request::begin(link, Command, &[subject.get(..taken).unwrap_or_default()], body.get(..bytes).unwrap_or_default()).map(Self)
    }
}

operation!(Settle, SettleEnd, |request: Request<'_, Command>| {
    let (end, connection) = request.into_end();
    let answer = match end {
        Ok(()) => SettleAnswer::Confirmed,
        Err((stage, evidence)) => match decide(stage, evidence) {
            Answer::Uncertain(cause) => SettleAnswer::Uncertain(cause),
            Answer::KnownFailure { cause, .. } if !stage.possible_write() => SettleAnswer::NotSent(cause),
            Answer::KnownFailure { .. } | Answer::Receipt { .. } => SettleAnswer::Uncertain(UncertainCause::BrokerError),
        },
    };
    SettleEnd { answer, connection }
});
