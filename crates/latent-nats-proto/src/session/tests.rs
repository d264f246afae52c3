//! Tests of the session, and what they share: an established session, a profile, and the broker's frames.

mod answers;
mod bounds;
mod deliveries;
mod every_byte;
mod inspections;
mod interleaved;
mod requests;

use std::sync::Arc;

use super::*;
use crate::testing::{INFO, PASSWORD, instance, take};
use crate::{Exchange as _, Handshake};

pub(super) const GROUP: &str = "latent";
const PIN: &str = "Z15ypMd1vS3EEiffrwsY5K";

pub(super) fn profile() -> PullProfile {
    let ceiling = Ceiling::Raw { payload_bytes_max: 1_024 };
    PullProfile {
        stream: "ORD".to_owned(),
        consumer: "latent_a_p0".to_owned(),
        filter_subject: "orders.p0".to_owned(),
        group: Some(GROUP.to_owned()),
        ack_wait_nanos: 30_000_000_000,
        max_in_flight: 8,
        max_deliveries: 5,
        ceiling,
        batch_max: 8,
        expires_nanos_max: 5_000_000_000,
        request_bytes_max: 8 * ceiling.message_bytes_max(),
    }
}

pub(super) fn consumer() -> Arc<PullConsumer> {
    Arc::new(PullConsumer::new(profile()).unwrap())
}

/// The partition with this number.
fn partition(number: u32) -> Arc<PullConsumer> {
    let (consumer, filter_subject) = (format!("latent_a_p{number}"), format!("orders.p{number}"));
    Arc::new(PullConsumer::new(PullProfile { consumer, filter_subject, ..profile() }).unwrap())
}

pub(super) fn pull_of(batch: u32) -> PullRequest {
    PullRequest {
        batch,
        expires_nanos: 2_000_000_000,
        max_bytes: profile().request_bytes_max,
        no_wait: false,
        idle_heartbeat_nanos: Some(500_000_000),
        pin: None,
    }
}

fn link() -> Link {
    crate::testing::established_for(Link::for_sessions(&instance(), 3, 2_048))
}

pub(super) fn session_with(bounds: SessionBounds) -> Session {
    Session::begin(link(), bounds).unwrap()
}

pub(super) fn session() -> Session {
    session_with(SessionBounds::default())
}

/// Writes everything that waits.
pub(super) fn write(session: &mut Session) -> String {
    let out = session.outgoing().to_vec();
    session.offering();
    session.wrote(out.len());
    assert!(!session.wants().write);
    String::from_utf8(out).unwrap()
}

pub(super) fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

/// The acknowledgement subject of a message of this partition.
pub(super) fn ack(partition: u32, sequence: u64) -> String {
    format!("$JS.ACK.ORD.latent_a_p{partition}.1.{sequence}.{sequence}.1700000000000000000.0")
}

/// A message of a partition, with the broker's pin behind its own fields.
pub(super) fn delivery(partition: u32, sequence: u64, fields: &str, payload: &str) -> Vec<u8> {
    raw_delivery(&format!("orders.p{partition}"), "1", &ack(partition, sequence), &format!("{fields}Nats-Pin-Id: {PIN}\r\n"), payload)
}

fn raw_delivery(subject: &str, subscription: &str, reply: &str, fields: &str, payload: &str) -> Vec<u8> {
    let block = format!("NATS/1.0\r\n{fields}\r\n");
    format!("HMSG {subject} {subscription} {reply} {} {}\r\n{block}{payload}\r\n", block.len(), block.len() + payload.len()).into()
}

fn status(operation: OperationId, line: &str) -> Vec<u8> {
    crate::testing::message_with_headers(operation.0, &format!("NATS/1.0 {line}\r\n\r\n"), "")
}

pub(super) fn confirmation(operation: OperationId) -> Vec<u8> {
    crate::testing::message(operation.0, "")
}

/// A message to settle, of another connection.
pub(super) fn settled_elsewhere(partition: u32, sequence: u64) -> AckSubject {
    let mut session = session();
    session.begin_pull(&self::partition(partition), &pull_of(1)).unwrap();
    write(&mut session);
    session.received(&delivery(partition, sequence, "", "x"));
    match session.poll_event() {
        Some(Event::Delivered { message, .. }) => message.ack,
        other => panic!("{other:?}"),
    }
}
