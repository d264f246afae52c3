//! The body of the fuzz target for sessions: a script of what broker, writer and shell do with many operations at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exchanges::Script;
use crate::limits::CONTROL_FRAMES;
use crate::session::{
    AckSubject, Ceiling, Event, GiveUp, OperationId, PullClose, PullConsumer, PullProfile, PullRequest, Session, SessionBounds,
    SessionSettlement,
};
use crate::testing::{INFO, PASSWORD, STREAM, instance, message, message_with_headers};
use crate::triggers::{InspectError, SettleAnswer};
use crate::{Ended, Exchange as _, Handshake, Link};

const CONSUMERS: u32 = 3;
const PAYLOAD_BYTES_MAX: u32 = 64;
const BOUNDS: SessionBounds = SessionBounds { operations: 8, outgoing_bytes: 4_096, messages: 16, message_bytes: 65_536 };

/// A consumer of the scripts.
pub(super) fn consumer(number: u32) -> Option<Arc<PullConsumer>> {
    let ceiling = Ceiling::Raw { payload_bytes_max: PAYLOAD_BYTES_MAX };
    let profile = PullProfile {
        stream: STREAM.to_owned(),
        consumer: format!("c{number}"),
        filter_subject: format!("orders.p{number}"),
        group: Some("latent".to_owned()),
        ack_wait_nanos: 30_000_000_000,
        max_in_flight: 8,
        max_deliveries: 5,
        ceiling,
        batch_max: 8,
        expires_nanos_max: 5_000_000_000,
        request_bytes_max: 8 * ceiling.message_bytes_max(),
    };
    PullConsumer::new(profile).ok().map(Arc::new)
}

/// What is known of one operation from outside.
struct Known {
    kind: u8,
    /// Where its command begins and ends among all that was queued.
    start: usize,
    end: usize,
    delivered: u32,
    batch: u32,
}

struct Play {
    session: Session,
    known: BTreeMap<OperationId, Known>,
    /// The newest messages.
    messages: Vec<AckSubject>,
    queued: usize,
    written: usize,
    offered: usize,
}

/// Plays a script on an established session, then loses the connection.
pub(super) fn sessions(input: &[u8]) {
    let mut link = Link::for_sessions(&instance(), 3, PAYLOAD_BYTES_MAX);
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    handshake.received(INFO);
    handshake.wrote(handshake.outgoing().iter().map(|part| part.len()).sum());
    handshake.received(b"PONG\r\n");
    if handshake.finish().is_err() {
        return;
    }
    let Ok(session) = Session::begin(link, BOUNDS) else { return };
    let mut play = Play { session, known: BTreeMap::new(), messages: Vec::new(), queued: 0, written: 0, offered: 0 };
    let mut script = Script(input);
    while let Some(choice) = script.byte() {
        let argument = script.byte().unwrap_or(0);
        play.step(choice, argument, &mut script);
        play.check();
    }
    play.session.ended(Ended::PeerClosed);
    play.take_events();
    assert!(play.known.is_empty() && play.session.under_way() == 0, "an operation did not end");
    assert!(play.session.poll_event().is_none() && play.session.closed().is_some(), "a session goes on");
}

impl Play {
    fn step(&mut self, choice: u8, argument: u8, script: &mut Script<'_>) {
        let (number, operation) = (u32::from(argument) % CONSUMERS, u64::from(argument));
        let Some(consumer) = consumer(number) else { return };
        match choice % 20 {
            0 => {
                let begun = self.session.begin_inspect(&consumer).ok();
                self.begun(begun, 0, 0);
            }
            1 => {
                let batch = 1 + u32::from(argument) % 9;
                let pull = PullRequest {
                    batch,
                    expires_nanos: 1_000_000_000,
                    max_bytes: consumer.profile().request_bytes_max,
                    no_wait: false,
                    idle_heartbeat_nanos: None,
                    pin: None,
                };
                let begun = self.session.begin_pull(&consumer, &pull).ok();
                self.begun(begun, 1, batch);
            }
            2 => {
                if let Some(message) = self.messages.get(usize::from(argument) % self.messages.len().max(1)).cloned() {
                    let begun = self.session.begin_settle(&message, SessionSettlement::Acknowledge).ok();
                    self.begun(begun, 2, 0);
                }
            }
            3 => self.write(usize::MAX),
            4 => self.write(usize::from(argument)),
            5 => self.take_events(),
            6 => self.give_up(argument),
            7 => self.session.received(&message(operation, "")),
            8 => self.session.received(&message(operation, r#"{"stream_name":"ORD","name":"c1","config":{}}"#)),
            9 => self.session.received(&message_with_headers(operation, "NATS/1.0 408 Request Timeout\r\n\r\n", "")),
            10 => self.session.received(&message_with_headers(operation, "NATS/1.0 100 Idle Heartbeat\r\n\r\n", "")),
            11 => self.session.received(&message_with_headers(operation, "NATS/1.0 409 Batch Completed\r\n\r\n", "")),
            12 => self.session.received(&message_with_headers(operation, "NATS/1.0 503\r\n\r\n", "")),
            13 => self.session.received(&delivered(number, u64::from(argument) + 1, "payload")),
            14 => self.session.received(&delivered(number, u64::from(argument) + 1, &"p".repeat(usize::from(argument) * 64))),
            15 => self.session.received(&b"PING\r\n".repeat(usize::from(argument) % (CONTROL_FRAMES.max_usize() + 2))),
            16 => {
                let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.c{number}");
                self.session.received(format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n").as_bytes());
            }
            17 if argument > 250 => self.session.ended(Ended::DeadlineExceeded),
            _ => self.session.received(script.bytes(usize::from(argument))),
        }
        // What the session answers by itself is queued as well.
        self.queued = self.queued.max(self.written + self.session.outgoing().len());
    }

    fn begun(&mut self, begun: Option<OperationId>, kind: u8, batch: u32) {
        let end = self.written + self.session.outgoing().len();
        if let Some(operation) = begun {
            let known = Known { kind, start: self.queued, end, delivered: 0, batch };
            assert!(self.known.insert(operation, known).is_none(), "an operation's id is used twice");
        }
        self.queued = self.queued.max(end);
    }

    fn write(&mut self, count: usize) {
        let waiting = self.session.outgoing().len();
        self.session.offering();
        self.session.wrote(count);
        self.offered = self.offered.max(self.written + waiting);
        self.written += count.min(waiting);
    }

    fn give_up(&mut self, argument: u8) {
        let chosen = self.known.keys().nth(usize::from(argument) % self.known.len().max(1)).copied();
        let Some(operation) = chosen else { return };
        let before = self.session.outgoing().len();
        let given_up = self.session.give_up(operation, GiveUp::Cancelled);
        let gone = before - self.session.outgoing().len();
        if gone == 0 {
            return;
        }
        assert!(given_up, "a command is gone whose operation goes on");
        let Some(start) = self.known.get(&operation).map(|known| known.start) else { return };
        // What was taken back is nowhere any more, and what is behind it moves.
        for known in self.known.values_mut().filter(|known| known.start > start) {
            known.start -= gone;
            known.end -= gone;
        }
        if let Some(known) = self.known.get_mut(&operation) {
            known.end = usize::MAX;
        }
        self.queued -= gone;
    }

    fn take_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            self.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        let (operation, kind) = match &event {
            Event::Inspected { operation, .. } => (*operation, 0),
            Event::PullEnded { operation, .. } | Event::Delivered { pull: operation, .. } => (*operation, 1),
            Event::Settled { operation, .. } => (*operation, 2),
            Event::Heartbeat { .. } | Event::Closed(_) => return,
        };
        let known = self.known.get_mut(&operation);
        assert!(known.as_ref().is_some_and(|known| known.kind == kind), "an end of what was not begun, or of something else");
        let Some(known) = known else { return };
        let (was_written, was_offered) = (known.end <= self.written, known.start < self.offered && known.end != usize::MAX);
        let (possible_write, is_answer) = match event {
            Event::Delivered { message, .. } => {
                known.delivered += 1;
                assert!(was_written && known.delivered <= known.batch, "more than was asked for");
                self.messages.truncate(7);
                self.messages.insert(0, message.ack);
                return;
            }
            Event::PullEnded { end, .. } => {
                assert_eq!(end.delivered, known.delivered, "a pull counts otherwise");
                match end.how {
                    PullClose::Failed(error) => (error.possible_write, false),
                    PullClose::Complete => (true, end.delivered == known.batch),
                    PullClose::Status { .. } => (true, true),
                }
            }
            Event::Inspected { result: Err(InspectError::Failed { possible_write, .. }), .. } => (possible_write, false),
            Event::Settled { answer: SettleAnswer::NotSent(cause), .. } => {
                use crate::FailureCause::{NoResponders, PublishRefused};
                (matches!(cause, NoResponders | PublishRefused), false)
            }
            Event::Settled { answer: SettleAnswer::Uncertain(_), .. } => (true, false),
            _ => (true, true),
        };
        assert_eq!(possible_write, was_offered, "the border is somewhere else");
        assert!(!is_answer || was_written, "an answer to what was not written");
        self.known.remove(&operation);
    }

    fn check(&self) {
        let waiting = self.session.outgoing().len();
        assert!(waiting <= BOUNDS.outgoing_bytes + CONTROL_FRAMES.max_usize() * 6, "{waiting} bytes wait");
        assert!(self.known.len() <= BOUNDS.operations, "{} operations", self.known.len());
        assert!(self.session.under_way() <= self.known.len(), "more is under way than was begun");
        let wants = self.session.wants();
        assert_eq!(wants.read, self.session.closed().is_none(), "a session that is over reads");
        assert_eq!(wants.write, waiting > 0, "what is wanted is not what waits");
    }
}

/// A message of a consumer of the scripts.
fn delivered(number: u32, sequence: u64, payload: &str) -> Vec<u8> {
    let ack = format!("$JS.ACK.{STREAM}.c{number}.1.{sequence}.{sequence}.1700000000000000000.0");
    format!("HMSG orders.p{number} 1 {ack} 12 {}\r\nNATS/1.0\r\n\r\n{payload}\r\n", payload.len() + 12).into()
}
