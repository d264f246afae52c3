//! One publication, from the queue to its outcome. Every stage before the write can refuse; after it there is one answer or none.
//!
//! ```text
//! mapped, within bounds ─▶ queue ─▶ authorised ─▶ connection: parked and checked, or dialled ─▶ credential current
//!                                                           ─▶ authorised now ─▶ written ─▶ answered
//! ```
//! The deadline is one for all of it. Dropping the future anywhere closes the socket it holds before the pools get their charge back.

use std::pin::pin;

use latent_capabilities::{EventPublication, Lease, PublishRequest};
use latent_core::{KnownFailure, MessageId, PublicationOutcome, Uid};
use latent_nats_proto::{Connection as Standing, Exchange as _, Publication, Publish, message_id};

use crate::Connection;
use crate::client::ConnectFault;
use crate::counters::CountedAttempt;
use crate::deadline::{Timer, sleep};
use crate::mapping::Mapping;
use crate::outcome::outcome_of;
use crate::publisher::Provider;
use crate::voice;

/// Publishes once.
pub(crate) async fn once(provider: &Provider, request: PublishRequest, attempt: &mut CountedAttempt<'_>) -> PublicationOutcome {
    let (tenant, topic) = request.destination();
    let (tenant, topic) = (tenant.clone(), topic.clone());
    let outcome = run(provider, request, attempt).await.unwrap_or_else(PublicationOutcome::KnownFailure);
    voice::tell(provider, &tenant, &topic, &outcome);
    outcome
}

async fn run(provider: &Provider, request: PublishRequest, attempt: &mut CountedAttempt<'_>) -> Result<PublicationOutcome, KnownFailure> {
    let clock = &*provider.client.clock;
    let deadline = request.deadline().narrowed(clock.mono(), provider.config.operation_timeout_millis);
    let (place, mapping, id) = prepare(provider, &request)?;
    let sleep = pin!(sleep(deadline, clock));
    let mut timer = Timer::new(sleep, deadline);
    let call = provider.registration.call(place, request.staged_bytes())?;
    let mut lease = timer.race(call).await.ok_or(KnownFailure::DeadlineExceeded)??;
    // After the queue and before a socket: what was revoked meanwhile opens no connection (P-007).
    request.authorise_preparation()?;
    provider.client.connect(place, &mut lease, &mut timer).await.map_err(|fault| fault.failure())?;
    let uid = Uid::parse(id.as_str()).map_err(|error| KnownFailure::InvalidEvent { rule: error.to_string() })?;
    let Some(connection) = lease.connection() else { return Err(lost()) };
    if timer.deadline().has_passed(clock.mono()) {
        lease.park();
        return Err(KnownFailure::DeadlineExceeded);
    }
    let (event, authority) = match request.authorise_now() {
        Ok(authorised) => authorised,
        Err(failure) => {
            lease.park();
            return Err(failure);
        }
    };
    authority.publishes_under(&uid);
    let publication = publication_of(&event, mapping, &id);
    let (link, mut wire) = connection.parts();
    let mut publish = match Publish::begin(link, &publication) {
        Ok(publish) => publish,
        Err(refused) => {
            end(lease, provider);
            return Ok(outcome_of(refused.answer(), &uid, &mapping.stream, clock.unix()));
        }
    };
    attempt.may_be_written();
    wire.drive(&mut publish, &mut timer).await;
    let answered = publish.finish();
    let outcome = outcome_of(answered.outcome, &uid, &mapping.stream, clock.unix());
    match answered.connection {
        Standing::Keep => end(lease, provider),
        Standing::Close => drop(lease),
    }
    Ok(outcome)
}

/// Everything that can be refused without a broker (P-004, P-018, P-023, P-047).
fn prepare<'p>(provider: &'p Provider, request: &PublishRequest) -> Result<(usize, &'p Mapping, MessageId), KnownFailure> {
    let (tenant, topic) = request.destination();
    let (place, mapping) = provider.config.mappings.find(tenant, topic).ok_or(KnownFailure::InvalidTopic)?;
    let event = request.authorise_preparation()?;
    let (bytes, ceiling) = (event.payload().len() as u64, provider.config.payload_ceiling_bytes);
    if bytes > ceiling {
        let rule = format!("the payload has {bytes} bytes and the provider's payloadCeilingBytes is {ceiling}");
        return Err(KnownFailure::InvalidEvent { rule });
    }
    let id = message_id(provider.config.namespace.as_str(), tenant, topic, event.idempotency_key());
    let check = publication_of(event, mapping, &id).check();
    check.map_err(|refused| KnownFailure::InvalidEvent { rule: refused.to_string() })?;
    Ok((place, mapping, id))
}

fn publication_of<'e>(event: &'e EventPublication, mapping: &'e Mapping, id: &'e MessageId) -> Publication<'e> {
    Publication {
        subject: mapping.subject.as_str(),
        expected_stream: mapping.stream.as_str(),
        message_id: id.as_str(),
        content_type: Some(event.media_type().as_str()),
        key: Some(event.key()).filter(|key| !key.is_empty()),
        attributes: event.attributes(),
        payload: event.payload(),
    }
}

/// Parks a connection that is in step.
fn end(mut lease: Lease<Connection>, provider: &Provider) {
    match lease.connection() {
        Some(connection) if connection.is_in_step() => {
            connection.set_used(provider.client.clock.mono());
            lease.park();
        }
        _ => drop(lease),
    }
}

fn lost() -> KnownFailure {
    ConnectFault::Lost.failure()
}
