//! From a record to an acknowledgement of the stream (B-054 to B-056). A thin shell: `body` makes the message, `flights` keeps what is in
//! flight, `answer` says what an answer means.
//!
//! ```text
//! check, encode ── refused: nothing was handed over
//!       │
//! hand to the client ── not connected, full: nothing was handed over
//!       │  from here on everything that is no answer is uncertain
//! answer ─┬─ stored ── told to the watcher ── acknowledged
//!         ├─ in process ── another one with its uid is being stored ── sent again
//!         ├─ duplicate ── the stored record is read and compared ── acknowledged, or a conflict
//!         └─ refused, or uncertain
//! ```

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_nats::client::PublishErrorKind;
use async_nats::{Message, Subscriber};
use futures_util::StreamExt as _;
use latent_core::{NewRecord, Offset, Partition, Ticket, Uid, UncertainCause, UnixMillis, partition_for};

use super::answer::{self, Answer};
use super::api::Api;
use super::body::{self, Behind};
use super::flights::{FlightNumber, Full, Refused, SubjectNumber};
use super::record::Which;
use super::revive::revive;
use super::shared::{Air, Cargo, Shared, Topic};
use super::streams;
use crate::{BusError, PublishAck, PublishResult, limits};

/// Before a publication is sent again whose uid the broker is busy with. How often is bounded by its deadline.
const IN_PROCESS_PAUSE: Duration = Duration::from_millis(20);

/// Refusals that were told are heard beside answers, a moment later; so are acknowledgements that are on their way.
const SETTLE_PAUSE: Duration = Duration::from_millis(250);

/// While something is in flight its deadline is looked at as often.
const DEADLINE_LOOK: Duration = Duration::from_millis(100);

/// Checks a record and hands it to the client, or says why not. With `behind` the stream takes it there only.
pub(super) fn submit(shared: &Shared, topic: &str, record: NewRecord, behind: Option<Behind>) -> Result<Ticket<PublishResult>, BusError> {
    hand_over(shared, check(shared, topic, record)?.behind(behind))
}

/// A record that may be handed over: checked, with its uid and its time, encoded.
pub(super) struct Checked {
    pub(super) topic: usize,
    pub(super) partition: Partition,
    pub(super) uid: Uid,
    pub(super) record: NewRecord,
    pub(super) stored_at: UnixMillis,
    behind: Option<Behind>,
    encoded: body::Encoded,
}

impl Checked {
    /// To be taken by the stream there only.
    #[must_use]
    pub(super) fn behind(mut self, behind: Option<Behind>) -> Self {
        self.encoded.expect(behind.as_ref());
        self.behind = behind;
        self
    }
}

/// Checks a record, which gets the present time and, without one, a uid.
pub(super) fn check(shared: &Shared, topic: &str, record: NewRecord) -> Result<Checked, BusError> {
    let now = shared.clock.unix();
    let uid = record.uid.clone().map_or_else(|| crate::uid::mint(now), Ok)?;
    check_as(shared, topic, record, uid, now)
}

/// Checks a record that has its uid and its time already. Nothing is handed over and nothing else happens.
pub(super) fn check_as(shared: &Shared, topic: &str, record: NewRecord, uid: Uid, stored_at: UnixMillis) -> Result<Checked, BusError> {
    let (number, topic) = shared.topic(topic)?;
    if let Some(schema) = &topic.schema {
        schema.check(record.media_type(), record.payload())?;
    }
    let partition = partition_for(record.key(), topic.partitions);
    let encoded = body::encode(&record, &uid, partition, stored_at, &topic.source.stream);
    let encoded = encoded.map_err(|rule| BusError::Rejected { rule, permanent: true })?;
    let (bytes, bytes_max) = (encoded.counted_bytes(), shared.api.client().max_payload());
    if bytes > bytes_max {
        let rule =
            format!("the event takes {bytes} bytes on the broker, whose max_payload is {bytes_max}; publish less, or raise it there");
        return Err(BusError::Rejected { rule, permanent: true });
    }
    topic.subject(partition)?;
    ready(shared, SubjectNumber { topic: number, partition: partition.0 })?;
    Ok(Checked { topic: number, partition, uid, record, stored_at, behind: None, encoded })
}

/// Whether anything can be handed over at all.
fn ready(shared: &Shared, to: SubjectNumber) -> Result<(), BusError> {
    if !shared.api.is_connected() {
        return Err(not_connected());
    }
    if let Some(inbox) = shared.api.signals.refused_inbox() {
        return Err(BusError::NotSent { reason: Api::refused("", Some(&inbox)).to_string() });
    }
    if shared.air.flights().is_refused(to) {
        return Err(not_permitted(Partition(to.partition)));
    }
    Ok(())
}

/// Hands a checked record to the client.
pub(super) fn hand_over(shared: &Shared, checked: Checked) -> Result<Ticket<PublishResult>, BusError> {
    let Checked { topic: number, partition, uid, record, stored_at, behind, encoded } = checked;
    ready(shared, SubjectNumber { topic: number, partition: partition.0 })?;
    let bytes = encoded.counted_bytes();
    let Some(topic) = shared.topics.get(number) else { return Err(not_connected()) };
    let subject = topic.subject(partition)?.clone();
    let abandoned = BusError::Uncertain { uid: uid.clone(), cause: UncertainCause::Closed };
    let (ticket, completer) = Ticket::pair(Err(abandoned));
    let cargo = Cargo { topic: number, partition, uid, record, stored_at, behind, completer };
    let deadline = shared.clock.mono().plus_millis(limits::CONNECTOR_OPERATION_MILLIS.default);
    let flight = {
        let to = SubjectNumber { topic: number, partition: partition.0 };
        let mut flights = shared.air.flights();
        if flights.is_refused(to) {
            return Err(not_permitted(partition));
        }
        let is_first = flights.next_deadline().is_none();
        let boarded = flights.board(to, bytes, deadline, cargo);
        drop(flights);
        if is_first {
            shared.air.boarded.notify_one();
        }
        boarded.map_err(|Full| BusError::Busy { limit: limits::FLIGHTS.name })?
    };
    let reply = format!("{}.{}", shared.ack_inbox, flight.0);
    let client = shared.api.client();
    let handed_over = pin!(client.publish_with_reply_and_headers(subject, reply, encoded.headers, encoded.body));
    // The client takes it at once or has no room; what it did not take was never sent.
    let refused = match handed_over.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => return Ok(ticket),
        Poll::Ready(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
            BusError::Rejected { rule: format!("the event is larger than the broker's max_payload: {error}"), permanent: true }
        }
        Poll::Ready(Err(error)) => BusError::NotSent { reason: error.to_string() },
        Poll::Pending => BusError::Busy { limit: limits::FLIGHTS.name },
    };
    land(shared, flight, |_| Err(refused));
    Ok(ticket)
}

fn not_connected() -> BusError {
    BusError::NotSent { reason: "not connected to the broker; the connection is made again by itself".to_owned() }
}

/// Takes acknowledgements for as long as the bus lives.
pub(super) async fn take_answers(shared: Arc<Shared>, mut answers: Subscriber) {
    loop {
        while let Some(message) = answers.next().await {
            let number = message.subject.rsplit_once('.').and_then(|(_, number)| number.parse().ok());
            let Some(number) = number.map(FlightNumber) else { continue };
            take_answer(&shared, number, &message);
        }
        answers = revive(&shared).await;
    }
}

fn take_answer(shared: &Arc<Shared>, number: FlightNumber, message: &Message) {
    let Some(topic) = shared.air.flights().get(number).map(|cargo| cargo.topic) else { return };
    let Some(topic) = shared.topics.get(topic) else { return };
    let status = message.status.map(|status| status.as_u16());
    match answer::read(status, &message.payload, &topic.source.stream) {
        Answer::Stored { sequence, duplicate: true } => {
            // It stays in flight while the record is read, so that as many reads as flights are allowed run at most.
            let shared = Arc::clone(shared);
            tokio::spawn(async move { verify_duplicate(&shared, number, sequence).await });
        }
        Answer::Stored { sequence, duplicate: false } => {
            topic.history().note(sequence);
            land(shared, number, |cargo| {
                if let (Some(watcher), Some(next)) = (shared.watcher(), Offset(sequence).next()) {
                    watcher.appended(&topic.name, cargo.partition, next);
                }
                Ok(ack(topic, cargo.partition, sequence, &cargo.uid, false))
            });
        }
        Answer::InProcess => {
            shared.air.flights().note_in_process(number);
            let shared = Arc::clone(shared);
            tokio::spawn(async move { send_again(&shared, number).await });
        }
        // What became of the other one with its uid is not known.
        Answer::Refused { .. } if shared.air.flights().was_in_process(number) => {
            land(shared, number, |cargo| Err(BusError::Uncertain { uid: cargo.uid.clone(), cause: UncertainCause::Unusable }));
        }
        Answer::Refused { rule, permanent } => land(shared, number, |_| Err(BusError::Rejected { rule, permanent })),
        Answer::Uncertain { cause, words } => land(shared, number, |cargo| {
            tracing::warn!(topic = topic.name, uid = cargo.uid.as_str(), words, "what became of an event is uncertain");
            Err(BusError::Uncertain { uid: cargo.uid.clone(), cause })
        }),
    }
}

/// Sends what is in flight once more: the broker was busy with another publication of its uid. By the uid nothing is stored twice; the flight
/// keeps its deadline.
async fn send_again(shared: &Arc<Shared>, number: FlightNumber) {
    tokio::time::sleep(IN_PROCESS_PAUSE).await;
    let Some((topic, partition, uid, record, stored_at, behind)) = shared
        .air
        .flights()
        .get(number)
        .map(|cargo| (cargo.topic, cargo.partition, cargo.uid.clone(), cargo.record.clone(), cargo.stored_at, cargo.behind.clone()))
    else {
        return;
    };
    let Some(topic) = shared.topics.get(topic) else { return };
    let hidden = |cause| land(shared, number, |cargo| Err(BusError::Uncertain { uid: cargo.uid.clone(), cause }));
    let (Ok(mut encoded), Ok(subject)) =
        (body::encode(&record, &uid, partition, stored_at, &topic.source.stream), topic.subject(partition))
    else {
        return hidden(UncertainCause::Unusable);
    };
    encoded.expect(behind.as_ref());
    let reply = format!("{}.{}", shared.ack_inbox, number.0);
    let sent = shared.api.client().publish_with_reply_and_headers(subject.clone(), reply, encoded.headers, encoded.body).await;
    if sent.is_err() {
        hidden(UncertainCause::Closed);
    }
}

/// A duplicate is believed when the record that the broker means is this event (B-056).
async fn verify_duplicate(shared: &Arc<Shared>, number: FlightNumber, sequence: u64) {
    let Some((topic, partition, uid, record)) =
        shared.air.flights().get(number).map(|cargo| (cargo.topic, cargo.partition, cargo.uid.clone(), cargo.record.clone()))
    else {
        return;
    };
    let Some(topic) = shared.topics.get(topic) else { return };
    let result = match topic.source.get(&shared.api, Which::At(sequence)).await {
        Ok(Some(found)) => match found.record() {
            Ok(stored) if stored.uid == uid && body::is_same_event(&stored, &record) => {
                topic.history().note(sequence);
                Ok(ack(topic, partition, sequence, &uid, true))
            }
            _ => Err(BusError::Conflict { topic: topic.name.clone(), uid }),
        },
        Ok(None) => {
            let rule = format!(
                "id still held by the broker: uid {uid} was used by an event that is gone; it comes free when the duplicate window of {} has passed",
                topic.source.stream
            );
            Err(BusError::Rejected { rule, permanent: false })
        }
        Err(fault) => {
            tracing::warn!(topic = topic.name, uid = uid.as_str(), %fault, "a duplicate could not be compared with the stored event");
            Err(BusError::Uncertain { uid, cause: UncertainCause::Unusable })
        }
    };
    land(shared, number, |_| result);
}

fn land(shared: &Shared, number: FlightNumber, result: impl FnOnce(&Cargo) -> PublishResult) {
    let (landed, refused) = {
        let mut flights = shared.air.flights();
        (flights.land(number), flights.refused())
    };
    if let Some(cargo) = landed {
        let result = result(&cargo);
        cargo.completer.complete(result);
    }
    end_refused(refused);
}

fn ack(topic: &Topic, partition: Partition, sequence: u64, uid: &Uid, duplicate: bool) -> PublishAck {
    PublishAck { topic: topic.name.clone(), partition: partition.0, offset: sequence, uid: uid.as_str().to_owned(), duplicate }
}

/// Ends publications whose time is up. Waits without a timer while nothing is in flight.
pub(super) async fn end_overdue(shared: Arc<Shared>) {
    loop {
        let next = shared.air.flights().next_deadline();
        let Some(next) = next else {
            shared.air.boarded.notified().await;
            continue;
        };
        // The bus's clock need not go as the runtime's does.
        tokio::time::sleep(next.since(shared.clock.mono()).min(DEADLINE_LOOK)).await;
        let (overdue, refused) = {
            let mut flights = shared.air.flights();
            (flights.overdue(shared.clock.mono()), flights.refused())
        };
        end_refused(refused);
        overdue.into_iter().for_each(|cargo| uncertain(cargo, UncertainCause::Deadline));
    }
}

/// Ends everything that is in flight: nobody will hear an answer any more.
pub(super) fn end_all(air: &Air) {
    let ended = air.flights().end_all();
    ended.into_iter().for_each(|cargo| uncertain(cargo, UncertainCause::Closed));
}

fn uncertain(cargo: Cargo, cause: UncertainCause) {
    cargo.completer.complete(Err(BusError::Uncertain { uid: cargo.uid, cause }));
}

fn not_permitted(partition: Partition) -> BusError {
    let rule = format!("the broker's user may not publish to partition {partition} of the topic; give it that permission");
    BusError::Rejected { rule, permanent: false }
}

fn end_refused(refused: Vec<Refused<Cargo>>) {
    for Refused { cargo, is_certain } in refused {
        if is_certain {
            let error = not_permitted(cargo.partition);
            cargo.completer.complete(Err(error));
        } else {
            uncertain(cargo, UncertainCause::Unusable);
        }
    }
}

/// The broker refused a publication to this subject.
pub(super) fn refuse(air: &Air, subject: &str) {
    let Some(number) = air.number(subject) else { return };
    let (refused, is_left) = {
        let mut flights = air.flights();
        flights.refuse(number);
        (flights.refused(), flights.is_refused(number))
    };
    end_refused(refused);
    if is_left {
        air.refused.notify_one();
    }
}

/// Ends what is left in flight to a subject that is refused, once all its refusals must have come: the client drops those that come faster
/// than they are heard, and nobody is told of them.
pub(super) async fn settle_refused(shared: Arc<Shared>) {
    loop {
        shared.air.refused.notified().await;
        let (subjects, before) = shared.air.flights().refusals();
        let Some(topic) = subjects.first().and_then(|subject| shared.topics.get(subject.topic)) else { continue };
        // The broker takes what comes from one connection in its order: whatever it says to this, it said its refusals before.
        let asked = streams::info(&shared.api, &topic.source.stream).await;
        if let Err(fault) = asked {
            tracing::debug!(%fault, "the broker refuses publications, and gave no answer to what was asked behind them");
        }
        tokio::time::sleep(SETTLE_PAUSE).await;
        let (left, is_more): (Vec<_>, _) = {
            let mut flights = shared.air.flights();
            let left = subjects.iter().flat_map(|subject| flights.settle(*subject, before)).collect();
            (left, subjects.iter().any(|subject| flights.is_refused(*subject)))
        };
        if is_more {
            shared.air.refused.notify_one();
        }
        if !left.is_empty() {
            tracing::warn!(count = left.len(), "publications to a subject that is refused are uncertain: not every refusal was heard");
        }
        left.into_iter().for_each(|cargo| uncertain(cargo, UncertainCause::Unusable));
    }
}
