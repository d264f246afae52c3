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
use crate::connection::Parked;
use crate::counters::CountedAttempt;
use crate::deadline::{Timer, sleep};
use crate::mapping::Mapping;
use crate::outcome::{failure_of, outcome_of};
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
    let clock = &*provider.clock;
    let deadline = request.deadline().narrowed(clock.mono(), provider.config.operation_timeout_millis);
    let (place, mapping, id) = prepare(provider, &request)?;
    let sleep = pin!(sleep(deadline, clock));
    let mut timer = Timer::new(sleep, deadline);
    let call = provider.registration.call(place, request.staged_bytes())?;
    let mut lease = timer.race(call).await.ok_or(KnownFailure::DeadlineExceeded)??;
    // After the queue and before a socket: what was revoked meanwhile opens no connection (P-007).
    request.authorise_preparation()?;
    connect(provider, place, &mut lease, &mut timer).await?;
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

/// Makes the lease hold a connection that is authenticated with what is current now. At most one dial, also after a parked connection
/// turned out to be gone (D-15).
async fn connect(provider: &Provider, place: usize, lease: &mut Lease<Connection>, timer: &mut Timer<'_>) -> Result<(), KnownFailure> {
    let clock = &*provider.clock;
    let credential = provider.credentials.get(place).ok_or(KnownFailure::PermissionDenied)?;
    if let Some(parked) = lease.connection() {
        let look = parked.look(clock.mono());
        // What was authenticated with material that is not current any more carries nothing again (X-013).
        let is_current = credential.secret().check(parked.stamp(), clock.unix()).is_ok();
        match look {
            // Nothing is waited for from here on, so this was the last look at the credential too.
            Parked::Good if is_current => return Ok(()),
            Parked::Doubtful if is_current => match parked.probe(timer).await {
                Ok(()) => return current(provider, place, lease),
                Err(error) if !error.allows_redial() => {
                    lease.discard();
                    provider.counters.parked_lost.add_one();
                    return Err(failure_before_write(error.evidence()));
                }
                Err(_) => provider.counters.parked_lost.add_one(),
            },
            Parked::Good | Parked::Doubtful => {}
        }
        lease.discard();
    }
    // Its level below the instance's inbox: two connections never share one, whoever dials at the same time (P-009).
    let number = provider.connections.take().ok_or_else(lost)?;
    let begun = clock.mono();
    match provider.dialler.dial(credential, number, clock, timer).await {
        Ok(connection) => {
            provider.counters.connected.add_one();
            lease.fill(connection);
            read_on(provider, lease, timer).await?;
            current(provider, place, lease)
        }
        Err(error) => {
            provider.counters.connects_failed.add_one();
            if error.counts(clock.mono().since(begun)) {
                lease.dial_failed(jitter());
            }
            Err(error.failure())
        }
    }
}

/// A broker says more of itself right after the handshake, and the beginning of that may be here already.
async fn read_on(provider: &Provider, lease: &mut Lease<Connection>, timer: &mut Timer<'_>) -> Result<(), KnownFailure> {
    let Some(connection) = lease.connection() else { return Err(lost()) };
    if !connection.is_half_read() {
        return Ok(());
    }
    let probed = connection.probe(timer).await;
    probed.map_err(|error| {
        lease.discard();
        provider.counters.parked_lost.add_one();
        failure_before_write(error.evidence())
    })
}

/// The last look at the credential, with nothing more to wait for (X-012).
fn current(provider: &Provider, place: usize, lease: &mut Lease<Connection>) -> Result<(), KnownFailure> {
    let credential = provider.credentials.get(place).ok_or(KnownFailure::PermissionDenied)?;
    let Some(connection) = lease.connection() else { return Err(lost()) };
    if let Err(not_current) = credential.secret().check(connection.stamp(), provider.clock.unix()) {
        lease.discard();
        return Err(KnownFailure::Unavailable { reason: format!("the credential is not current: {not_current}") });
    }
    Ok(())
}

/// Parks a connection that is in step.
fn end(mut lease: Lease<Connection>, provider: &Provider) {
    match lease.connection() {
        Some(connection) if connection.is_in_step() => {
            connection.set_used(provider.clock.mono());
            lease.park();
        }
        _ => drop(lease),
    }
}

fn failure_before_write(evidence: latent_nats_proto::Evidence) -> KnownFailure {
    use latent_nats_proto::{Answer, FailureCause, FailureKind, Stage, decide};
    match decide(Stage::BeforeWrite, evidence) {
        Answer::KnownFailure { kind, cause } => failure_of(kind, cause),
        Answer::Receipt { .. } | Answer::Uncertain(_) => failure_of(FailureKind::Unavailable, FailureCause::Protocol),
    }
}

fn lost() -> KnownFailure {
    KnownFailure::Unavailable { reason: "the connection was lost before the publication began".to_owned() }
}

/// Spreads the backoff of clients that lost the same broker. Without random bytes they wait the longest.
fn jitter() -> u16 {
    getrandom::u32().map_or(u16::MAX, |random| (random & 0xffff) as u16)
}
