//! What a frame means for the operations that are under way.

use super::delivered::Arrived;
use super::event::{Pending, PullClose};
use super::info;
use super::operations::{Kind, Late, Operations, Slot};
use super::{ACK_BYTES_MAX, Session};
use crate::broker_error::{self, BrokerError};
use crate::frame::{Frame, Message, Skipped};
use crate::headers;
use crate::inbox::Inbox;
use crate::limits::CONTROL_FRAMES;
use crate::link::{PIN_LINE_BYTES, SUBSCRIPTION, frame_fault, info_fault};
use crate::outcome::{Evidence, FailureCause};
use crate::triggers::{InspectError, PullStatus, SettleAnswer, parse_ack_subject, read_status};

/// The status with which a broker says that a pull still stands.
const HEARTBEAT: u16 = 100;
const NO_RESPONDERS: u16 = 503;

impl Session {
    /// Reads one frame. False when none is complete.
    pub(super) fn read_frame(&mut self) -> bool {
        let Self { decoder, inbox, server, operations, controls, .. } = self;
        let seen = match decoder.next() {
            Ok(None) => return false,
            Err(error) => Err(frame_fault(error)),
            Ok(Some(frame)) => {
                if matches!(frame, Frame::Ping | Frame::Info(_) | Frame::Ok) {
                    *controls += 1;
                }
                match frame {
                    _ if *controls > CONTROL_FRAMES.max_usize() => Err(Evidence::ControlFlood),
                    Frame::Ping if !operations.outgoing.push_pong() => Err(Evidence::ControlFlood),
                    Frame::Ping | Frame::Ok => Ok(()),
                    Frame::Info(text) => crate::info::read(text).map(|facts| *server = Some(facts)).map_err(info_fault),
                    Frame::Pong => Err(Evidence::UnexpectedFrame),
                    Frame::Error(text) => error(operations, text),
                    Frame::Message(message) => self::message(operations, inbox, message),
                    Frame::Skipped(message) => skipped(operations, inbox, message),
                }
            }
        };
        if let Err(evidence) = seen {
            self.close(evidence);
        }
        true
    }
}

/// A refusal to publish ends what it names. Any other error is about the connection.
fn error(operations: &mut Operations, text: &[u8]) -> Result<(), Evidence> {
    if broker_error::refused_subject(text).is_some_and(|subject| operations.refuse(subject)) {
        return Ok(());
    }
    Err(match broker_error::read(text) {
        BrokerError::Permission | BrokerError::Subscription => Evidence::PermissionOfAnother,
        BrokerError::Authorisation => Evidence::AuthenticationFailed,
        _ => Evidence::BrokerError,
    })
}

fn message(operations: &mut Operations, inbox: &Inbox, message: Message<'_>) -> Result<(), Evidence> {
    if message.subscription != SUBSCRIPTION {
        return Err(Evidence::ForeignReply);
    }
    let status = match message.headers.map(headers::status) {
        None => None,
        Some(Ok(status)) => status,
        Some(Err(_)) => return Err(Evidence::MalformedFrame),
    };
    if message.subject.starts_with(inbox.connection()) {
        let id = inbox.operation_of(message.subject).ok_or(Evidence::ForeignReply)?;
        return answer(operations, id, status, message);
    }
    if status.is_some() {
        return Err(Evidence::ForeignReply);
    }
    let block = message.headers.unwrap_or_default();
    let arrived = Arrived {
        subject: message.subject,
        ack: message.reply.unwrap_or_default(),
        header_bytes: block.len(),
        payload_bytes: message.payload.len(),
        headers: block,
        payload: Some(message.payload),
    };
    delivery(operations, arrived)
}

fn skipped(operations: &mut Operations, inbox: &Inbox, message: Skipped<'_>) -> Result<(), Evidence> {
    if message.subscription != SUBSCRIPTION {
        return Err(Evidence::ForeignReply);
    }
    // An answer is never so large.
    if message.subject.starts_with(inbox.connection()) {
        return Err(Evidence::OversizedReply);
    }
    let Skipped { subject, reply, headers, header_bytes, payload_bytes, .. } = message;
    let ack = reply.unwrap_or_default();
    delivery(operations, Arrived { subject, ack, header_bytes, payload_bytes, headers, payload: None })
}

/// A message on the inbox of an operation.
fn answer(operations: &mut Operations, id: u64, status: Option<u16>, message: Message<'_>) -> Result<(), Evidence> {
    let is_bare = message.payload.is_empty();
    match operations.slot(id).ok_or(Evidence::ForeignReply)? {
        Slot::Open(Kind::Inspect(consumer)) => {
            let result = match status {
                None => info::read(message.payload, consumer),
                Some(NO_RESPONDERS) if is_bare => Err(InspectError::Failed { evidence: Evidence::NoResponders, possible_write: true }),
                Some(_) => return Err(Evidence::UnexpectedStatus),
            };
            operations.inspected(id, result);
        }
        Slot::Open(Kind::Settle(_)) => {
            let answer = match (status, message.headers) {
                (None, None) if is_bare => SettleAnswer::Confirmed,
                (None, None) => return Err(Evidence::MalformedReceipt),
                // Nobody listens for this consumer's settlements: nobody has it.
                (Some(NO_RESPONDERS), _) if is_bare => SettleAnswer::NotSent(FailureCause::NoResponders),
                _ => return Err(Evidence::UnexpectedStatus),
            };
            operations.settled(id, answer);
        }
        Slot::Open(Kind::Pull(_)) => {
            let code = status.filter(|_| is_bare).ok_or(Evidence::UnexpectedFrame)?;
            if code == HEARTBEAT {
                operations.heartbeat(id);
                return Ok(());
            }
            let block = message.headers.unwrap_or_default();
            let status = read_status(code, block);
            if !operations.pull_closed(id, PullClose::Status { status, pending: pending(block) }) {
                return Err(Evidence::ForeignReply);
            }
            if matches!(status, PullStatus::Unknown(_)) {
                return Err(Evidence::UnexpectedStatus);
            }
        }
        Slot::Late(Late::Status) => match status.filter(|_| is_bare) {
            None => return Err(Evidence::ForeignReply),
            Some(HEARTBEAT) => (),
            Some(_) => operations.came_late(id),
        },
        Slot::Late(Late::Answer) => operations.came_late(id),
    }
    Ok(())
}

/// A message of a consumer. Everything must say whose it is.
fn delivery(operations: &mut Operations, arrived: Arrived<'_>) -> Result<(), Evidence> {
    if arrived.ack.len() > ACK_BYTES_MAX {
        return Err(Evidence::ForeignReply);
    }
    let parsed = parse_ack_subject(arrived.ack).map_err(|_| Evidence::ForeignReply)?;
    let (id, consumer) = operations.pull_of(parsed.stream, parsed.consumer).ok_or(Evidence::ForeignReply)?;
    if arrived.subject != consumer.profile().filter_subject.as_bytes() {
        return Err(Evidence::ForeignReply);
    }
    // The broker counts subjects as well and leaves the pin's line out, so it counted at least this.
    let counted = (arrived.header_bytes + arrived.payload_bytes).saturating_sub(PIN_LINE_BYTES) as u64;
    let message = arrived.keep(parsed.numbers, &consumer);
    if operations.deliver(id, counted, message) { Ok(()) } else { Err(Evidence::OversizedReply) }
}

/// What a status says of the request, if it does.
fn pending(block: &[u8]) -> Option<Pending> {
    let number = |name: &[u8]| {
        let rest = super::delivered::fields(block).find(|(field, _)| *field == name).map(|(_, value)| value)?;
        let is_plain = !rest.is_empty() && rest.iter().all(u8::is_ascii_digit);
        is_plain.then(|| std::str::from_utf8(rest).ok()?.parse().ok())?
    };
    Some(Pending { messages: number(b"Nats-Pending-Messages")?, bytes: number(b"Nats-Pending-Bytes")? })
}
