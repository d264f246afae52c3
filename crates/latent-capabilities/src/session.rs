//! A session is what one activation may do: its plan, its budget of requests, its deadline. It ends with the activation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Context;

use latent_core::{ActivationId, Clock, Deadline, KnownFailure, LogicalTopic, PublicationId, PublicationOutcome, TenantId, Uid};

use crate::audit::{Attempt, AuditEntry, Operation, StartGate};
use crate::publications::PublicationEntry;
use crate::{
    ActivationCapabilityRuntime, CompletionOwner, DeriveError, EventCompletion, EventDraft, EventPublication, EventPublisher, Origin,
    ProviderRef, Publication, Publications, limits,
};

/// What a session is made of.
#[derive(Clone)]
pub struct SessionSpec {
    /// The activation it belongs to.
    pub activation: ActivationId,
    /// The tenant it runs for.
    pub tenant: TenantId,
    /// The catalog publication that runs.
    pub publication: PublicationId,
    /// The event it answers to, if any.
    pub origin: Option<Origin>,
    /// Publications it may attempt.
    pub outbound_requests: u64,
    /// The activation's deadline; no call of the session outlives it.
    pub deadline: Deadline,
    /// What it may do, and through what.
    pub capabilities: Arc<ActivationCapabilityRuntime>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// One activation's way to its capabilities. Cheap to clone; clones share the budget.
#[derive(Clone)]
pub struct Session(Arc<Shared>);

struct Shared {
    spec: SessionSpec,
    requests_left: AtomicU64,
    derivations: AtomicU64,
    publications: Mutex<Publications>,
}

/// What the provider of one attempt and whoever waits for it both know.
#[derive(Debug, Default)]
pub(crate) struct AttemptState {
    pub(crate) gate: StartGate,
    /// The uid it is published under, once the provider has said it.
    pub(crate) uid: OnceLock<Uid>,
}

impl Session {
    /// Opens a session.
    pub fn open(spec: SessionSpec) -> Self {
        let requests_left = AtomicU64::new(spec.outbound_requests);
        Self(Arc::new(Shared { spec, requests_left, derivations: AtomicU64::new(0), publications: Mutex::default() }))
    }

    /// What it was opened with.
    pub fn spec(&self) -> &SessionSpec {
        &self.0.spec
    }

    /// Publications that may still be attempted.
    pub fn requests_left(&self) -> u64 {
        self.0.requests_left.load(Ordering::Relaxed)
    }

    /// What became of the attempts to publish that have ended since it was last asked. After the guest's end, however that came, these
    /// are all of them: a publication whose future is gone has ended.
    pub fn take_publications(&self) -> Publications {
        std::mem::take(&mut self.0.publications.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn note(&self, publication: Publication) {
        self.0.publications.lock().unwrap_or_else(PoisonError::into_inner).note(publication);
    }

    /// The next derived key.
    ///
    /// # Errors
    /// [`DeriveError::NoOrigin`].
    pub fn derive(&self) -> Result<String, DeriveError> {
        let origin = self.0.spec.origin.as_ref().ok_or(DeriveError::NoOrigin)?;
        Ok(origin.derive(self.0.derivations.fetch_add(1, Ordering::Relaxed)))
    }

    /// The derived key of a label.
    ///
    /// # Errors
    /// [`DeriveError`].
    pub fn derive_label(&self, label: &str) -> Result<String, DeriveError> {
        self.0.spec.origin.as_ref().ok_or(DeriveError::NoOrigin)?.derive_label(label)
    }

    /// One publication: checked, authorised, charged, handed to its provider, audited. At most one attempt is made.
    ///
    /// A publication that is refused before its provider is called charges nothing. One that was admitted keeps its request charged,
    /// however it ends, and its completion memory as long as the [`CompletionOwner`] of the result exists.
    pub async fn publish(&self, draft: EventDraft) -> EventCompletion {
        let Admitted { request, provider, owner, mut entry, publication } = match self.admit(draft) {
            Ok(admitted) => admitted,
            Err(failure) => return EventCompletion::refused(PublicationOutcome::KnownFailure(failure)),
        };
        // The provider's future is made last: it is gone before the owner and the entries are, also when this future is dropped.
        let outcome = {
            let mut publishing = provider.publish(request);
            let publishing = |context: &mut Context<'_>| {
                let polled = publishing.as_mut().poll(context);
                if polled.is_pending() {
                    // While the log works: hashing a large event takes as long as some of its answers.
                    entry.identify();
                }
                polled
            };
            std::future::poll_fn(publishing).await
        };
        let completion = EventCompletion::ended(outcome, owner, entry);
        publication.end(completion.outcome());
        completion
    }

    /// The one admission. Whatever can refuse without a charge comes first; then each charge is taken whole or returned by its drop.
    fn admit(&self, draft: EventDraft) -> Result<Admitted, KnownFailure> {
        let spec = &self.0.spec;
        let capabilities = &*spec.capabilities;
        let plan = capabilities.plans().current();
        // A granted topic's name is there already, checked.
        let event = match plan.topic_named(spec.publication, &spec.tenant, &draft.topic) {
            Some(topic) => EventPublication::check_for(topic.clone(), draft)?,
            None => EventPublication::check(draft)?,
        };
        let reference = plan.authorise_publish(spec.publication, &spec.tenant, event.topic())?.clone();
        if spec.deadline.has_passed(spec.clock.mono()) {
            return Err(KnownFailure::DeadlineExceeded);
        }
        let provider = capabilities.providers().resolve(&reference).ok_or_else(replaced)?;
        let owner = self.charge()?;
        let (attempt_state, event) = (Arc::new(AttemptState::default()), Arc::new(event));
        let attempt = Attempt {
            activation: spec.activation,
            tenant: spec.tenant.clone(),
            provider: reference.clone(),
            operation: Operation::Publish,
            event: Arc::clone(&event),
        };
        let entry = AuditEntry::open(capabilities.audit(), &attempt_state, &spec.clock, attempt);
        let publication = PublicationEntry::open(self.clone(), Arc::clone(&attempt_state), event.topic().clone());
        let authority = Authority { session: self.clone(), reference, attempt: attempt_state };
        Ok(Admitted { request: PublishRequest { event, authority }, provider, owner, entry, publication })
    }

    /// Takes the memory for the answer and one request, or nothing at all (X-030, P-033).
    fn charge(&self) -> Result<CompletionOwner, KnownFailure> {
        // A session that has nothing left does not touch the account that all share.
        if self.requests_left() == 0 {
            return Err(KnownFailure::BudgetExhausted);
        }
        let owner = self.0.spec.capabilities.completions().reserve().ok_or_else(completions_full)?;
        let take = |left: u64| left.checked_sub(1);
        let taken = self.0.requests_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(|_| owner).map_err(|_| KnownFailure::BudgetExhausted)
    }
}

/// A publication with everything it needs until its end. What is dropped returns what it holds.
struct Admitted {
    request: PublishRequest,
    provider: Arc<dyn EventPublisher>,
    owner: CompletionOwner,
    entry: AuditEntry,
    publication: PublicationEntry,
}

fn replaced() -> KnownFailure {
    KnownFailure::Unavailable { reason: "the provider was replaced".to_owned() }
}

fn completions_full() -> KnownFailure {
    KnownFailure::Unavailable { reason: format!("the node's {} are in use", limits::COMPLETION_BYTES.name) }
}

/// A publication on its way to a provider. The event is locked in until [`PublishRequest::authorise_now`].
pub struct PublishRequest {
    event: Arc<EventPublication>,
    authority: Authority,
}

/// The right to publish one event, as of the moment it was confirmed.
pub struct Authority {
    session: Session,
    reference: ProviderRef,
    attempt: Arc<AttemptState>,
}

impl PublishRequest {
    /// When the publication must have ended.
    pub fn deadline(&self) -> Deadline {
        self.authority.session.spec().deadline
    }

    /// Bytes the event holds by capacity, for the provider's own accounts.
    pub fn staged_bytes(&self) -> u64 {
        self.event.staged_bytes()
    }

    /// The tenant that publishes, and the topic as the function named it: what a provider finds its client by.
    pub fn destination(&self) -> (&TenantId, &LogicalTopic) {
        (&self.authority.session.spec().tenant, self.event.topic())
    }

    /// Asks the plan in force, as [`Self::authorise_now`] does, and lets the provider look at the event. To be called after the
    /// provider's queue and before it connects; it does not replace the question asked at the end.
    ///
    /// # Errors
    /// As [`Self::authorise_now`].
    pub fn authorise_preparation(&self) -> Result<&EventPublication, KnownFailure> {
        self.check_authority()?;
        Ok(&self.event)
    }

    /// Asks the plan in force now, and gives out the event. To be called when nothing more will be waited for: from here on the
    /// publication counts as possibly written.
    ///
    /// # Errors
    /// [`KnownFailure::PermissionDenied`] when the grant was revoked or now leads to another provider,
    /// [`KnownFailure::Unavailable`] when the provider was replaced,
    /// [`KnownFailure::DeadlineExceeded`] when the time is over,
    /// [`KnownFailure::Cancelled`] when nobody waits for the answer any more.
    pub fn authorise_now(self) -> Result<(Arc<EventPublication>, Authority), KnownFailure> {
        self.check_authority()?;
        if !self.authority.attempt.gate.start() {
            return Err(KnownFailure::Cancelled);
        }
        Ok((self.event, self.authority))
    }

    fn check_authority(&self) -> Result<(), KnownFailure> {
        let spec = self.authority.session.spec();
        let plan = spec.capabilities.plans().current();
        let granted = plan.authorise_publish(spec.publication, &spec.tenant, self.event.topic())?;
        if *granted != self.authority.reference {
            return Err(KnownFailure::PermissionDenied);
        }
        spec.capabilities.providers().resolve(granted).ok_or_else(replaced)?;
        if spec.deadline.has_passed(spec.clock.mono()) {
            return Err(KnownFailure::DeadlineExceeded);
        }
        Ok(())
    }
}

impl Authority {
    /// The tenant that publishes.
    pub fn tenant(&self) -> &TenantId {
        &self.session.spec().tenant
    }

    /// When the publication must have ended.
    pub fn deadline(&self) -> Deadline {
        self.session.spec().deadline
    }

    /// Says the uid under which the event is published, for the journal. To be called before the event is handed on, so that it is
    /// known also of a conflict and of an end that nobody saw. Only the first one counts.
    pub fn publishes_under(&self, uid: &Uid) {
        // The cell is set already when a provider says it twice.
        let _ = self.attempt.uid.set(uid.clone());
    }
}

#[cfg(test)]
mod tests;
