//! `latent-topic-publish-v1`: a guest's publication becomes one record of a topic of the bridge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_bridge::{BusError, EventBus, PublishResult};
use latent_capabilities::{EventPublication, EventPublisher, PublishFuture, PublishRequest};
use latent_core::{
    Clock, KnownFailure, LogicalTopic, MessageId, NewRecord, PublicationOutcome, Receipt, TenantId, Uid, Uncertain, UncertainCause,
    UnixMillis,
};

/// The profile's name.
pub const PROFILE: &str = "latent-topic-publish-v1";

/// The uid of a guest's publication: `lsf-` and the SHA-256, in hex, of the label `lsf-jetstream-id-v1`, the namespace, the tenant, the
/// topic and the caller's idempotency key, each length-delimited (D-02). On topics the namespace is the manifest's `name`.
///
/// The payload is not part of it, so that no tenant can occupy another's uid and a repeated call finds the first one.
pub fn message_id(namespace: &str, tenant: &TenantId, topic: &LogicalTopic, idempotency_key: &str) -> String {
    MessageId::derive(namespace, tenant, topic, idempotency_key).as_str().to_owned()
}

/// Counts since the provider was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublisherTotals {
    /// Receipts, duplicates included.
    pub receipts: u64,
    /// Receipts for events that the log already had.
    pub duplicates: u64,
    /// Known failures, conflicts included.
    pub failures: u64,
    /// Events whose uid belongs to one with other content.
    pub conflicts: u64,
    /// Uncertain ends, those included that nobody waited for.
    pub uncertain: u64,
}

#[derive(Debug, Default)]
struct Counters {
    receipts: AtomicU64,
    duplicates: AtomicU64,
    failures: AtomicU64,
    conflicts: AtomicU64,
    uncertain: AtomicU64,
}

/// Publishes to topics of a bus. One call is one submission; nothing is ever repeated.
pub struct TopicPublisher {
    bus: Arc<dyn EventBus>,
    namespace: Arc<str>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
}

impl TopicPublisher {
    /// A publisher on `bus`, whose uids are derived below `namespace`, the manifest's name.
    pub fn new(bus: Arc<dyn EventBus>, namespace: &str, clock: Arc<dyn Clock>) -> Self {
        Self { bus, namespace: namespace.into(), clock, counters: Arc::default() }
    }

    /// What has become of its publications so far.
    pub fn totals(&self) -> PublisherTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { receipts, duplicates, failures, conflicts, uncertain } = &*self.counters;
        PublisherTotals {
            receipts: read(receipts),
            duplicates: read(duplicates),
            failures: read(failures),
            conflicts: read(conflicts),
            uncertain: read(uncertain),
        }
    }
}

impl EventPublisher for TopicPublisher {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        let (bus, namespace) = (Arc::clone(&self.bus), Arc::clone(&self.namespace));
        let (clock, counters) = (Arc::clone(&self.clock), Arc::clone(&self.counters));
        Box::pin(async move {
            let mut counted = Counted { counters: &counters, handed_over: false };
            let outcome = publish_once(bus.as_ref(), &namespace, clock.as_ref(), request, &mut counted).await;
            counted.end(&outcome);
            outcome
        })
    }
}

async fn publish_once(
    bus: &dyn EventBus,
    namespace: &str,
    clock: &dyn Clock,
    request: PublishRequest,
    counted: &mut Counted<'_>,
) -> PublicationOutcome {
    // The bus takes or refuses at once, so nothing is waited for between this check and the hand-over.
    let (event, authority) = match request.authorise_now() {
        Ok(authorised) => authorised,
        Err(failure) => return PublicationOutcome::KnownFailure(failure),
    };
    let (uid, record) = match record_of(namespace, authority.tenant(), &event) {
        Ok(record) => record,
        Err(failure) => return PublicationOutcome::KnownFailure(failure),
    };
    authority.publishes_under(&uid);
    counted.handed_over = true;
    let submitted = bus.submit_record(event.topic().as_str(), record);
    let left = authority.deadline().at().since(clock.mono());
    match tokio::time::timeout(left, submitted).await {
        Ok(result) => outcome_of(result, uid, clock.unix(), |topic| bus.stream_of(topic)),
        Err(_) => PublicationOutcome::Uncertain(Uncertain { uid: Some(uid), cause: UncertainCause::Deadline }),
    }
}

fn record_of(namespace: &str, tenant: &TenantId, event: &EventPublication) -> Result<(Uid, NewRecord), KnownFailure> {
    let invalid = |error: latent_core::CoreError| KnownFailure::InvalidEvent { rule: error.to_string() };
    let uid = Uid::parse(&message_id(namespace, tenant, event.topic(), event.idempotency_key())).map_err(invalid)?;
    let (media_type, attributes) = (event.media_type().clone(), event.attributes().clone());
    let record = NewRecord::new(Some(uid.clone()), event.key(), media_type, attributes, event.payload().clone()).map_err(invalid)?;
    Ok((uid, record))
}

/// The one table from a bus's answer to an outcome, whatever the engine. What it does not know is uncertain, never failed. `stream_of` is
/// the engine's: a receipt names the stream behind the topic.
fn outcome_of(result: PublishResult, uid: Uid, accepted_at: UnixMillis, stream_of: impl FnOnce(&str) -> String) -> PublicationOutcome {
    let error = match result {
        Ok(ack) => {
            let receipt = Receipt { stream: stream_of(&ack.topic).into(), sequence: ack.offset, duplicate: ack.duplicate, accepted_at };
            return PublicationOutcome::Receipt(receipt);
        }
        Err(error) => error,
    };
    let unavailable = |error: &BusError| KnownFailure::Unavailable { reason: error.to_string() };
    match &error {
        BusError::Rejected { rule, permanent: true } => PublicationOutcome::KnownFailure(KnownFailure::InvalidEvent { rule: rule.clone() }),
        BusError::Conflict { .. } => PublicationOutcome::KnownFailure(KnownFailure::Conflict),
        BusError::Serde { problem } => PublicationOutcome::KnownFailure(KnownFailure::InvalidEvent { rule: problem.clone() }),
        BusError::UnknownTopic { .. } => PublicationOutcome::KnownFailure(KnownFailure::InvalidTopic),
        BusError::Rejected { permanent: false, .. }
        | BusError::NotSent { .. }
        | BusError::Busy { .. }
        | BusError::Timeout { .. }
        | BusError::Config { .. }
        | BusError::Poisoned { .. }
        | BusError::InUse { .. }
        | BusError::OutOfRange { .. } => PublicationOutcome::KnownFailure(unavailable(&error)),
        BusError::Uncertain { uid, cause } => PublicationOutcome::Uncertain(Uncertain { uid: Some(uid.clone()), cause: *cause }),
        _ => PublicationOutcome::Uncertain(Uncertain { uid: Some(uid), cause: UncertainCause::Storage }),
    }
}

/// Counts one publication once, also when nobody waits for its end.
struct Counted<'a> {
    counters: &'a Counters,
    /// The bus has it, or is being given it.
    handed_over: bool,
}

impl Counted<'_> {
    fn end(mut self, outcome: &PublicationOutcome) {
        self.handed_over = false;
        self.counters.count(outcome);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if self.handed_over {
            self.counters.count_uncertain();
        }
    }
}

impl Counters {
    fn count_uncertain(&self) {
        self.uncertain.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, outcome: &PublicationOutcome) {
        let add = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::Relaxed);
        match outcome {
            PublicationOutcome::Receipt(receipt) => {
                add(&self.receipts);
                if receipt.duplicate {
                    add(&self.duplicates);
                }
            }
            PublicationOutcome::KnownFailure(failure) => {
                add(&self.failures);
                if *failure == KnownFailure::Conflict {
                    add(&self.conflicts);
                }
            }
            PublicationOutcome::Uncertain(_) => self.count_uncertain(),
        }
    }
}

#[cfg(test)]
mod tests;
