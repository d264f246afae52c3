//! A session is what one activation may do: its plan, its budget of requests, its deadline. It ends with the activation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use latent_core::{ActivationId, Clock, Deadline, KnownFailure, PublicationId, PublicationOutcome, TenantId, UncertainCause};

use crate::audit::{observed, told};
use crate::{AuditRecord, AuditSink, DeriveError, EventDraft, EventPublication, Origin, PlanBook, ProviderOutcome, ProviderRef, Providers};

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
    /// The plans in force.
    pub plans: Arc<PlanBook>,
    /// The installed providers.
    pub providers: Arc<Providers>,
    /// Where attempts are recorded.
    pub audit: Arc<dyn AuditSink>,
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
}

impl Session {
    /// Opens a session.
    pub fn open(spec: SessionSpec) -> Self {
        let requests_left = AtomicU64::new(spec.outbound_requests);
        Self(Arc::new(Shared { spec, requests_left, derivations: AtomicU64::new(0) }))
    }

    /// What it was opened with.
    pub fn spec(&self) -> &SessionSpec {
        &self.0.spec
    }

    /// Publications that may still be attempted.
    pub fn requests_left(&self) -> u64 {
        self.0.requests_left.load(Ordering::Relaxed)
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
    pub async fn publish(&self, draft: EventDraft) -> PublicationOutcome {
        let (request, provider, mut entry) = match self.admit(draft) {
            Ok(admitted) => admitted,
            Err(failure) => return PublicationOutcome::KnownFailure(failure),
        };
        let outcome = provider.publish(request).await;
        entry.finish(&outcome);
        outcome
    }

    fn admit(&self, draft: EventDraft) -> Result<(PublishRequest, Arc<dyn crate::EventPublisher>, AuditEntry), KnownFailure> {
        let spec = &self.0.spec;
        let event = EventPublication::check(draft)?;
        let reference = spec.plans.current().authorise_publish(spec.publication, &spec.tenant, event.topic())?.clone();
        if spec.deadline.has_passed(spec.clock.mono()) {
            return Err(KnownFailure::DeadlineExceeded);
        }
        let provider =
            spec.providers.resolve(&reference).ok_or_else(|| KnownFailure::Unavailable { reason: "the provider was replaced".into() })?;
        self.charge_request()?;
        let started = Arc::new(AtomicBool::new(false));
        let entry = AuditEntry {
            audit: Arc::clone(&spec.audit),
            started: Arc::clone(&started),
            record: Some(AuditRecord {
                activation: spec.activation,
                tenant: spec.tenant.clone(),
                provider: reference.clone(),
                request_digest: event.digest(),
                observed: ProviderOutcome::NotStarted { reason: "cancelled" },
                told: None,
            }),
        };
        let authority = Authority { session: self.clone(), reference, started };
        Ok((PublishRequest { event, authority }, provider, entry))
    }

    /// Takes one request from the budget, or nothing at all.
    fn charge_request(&self) -> Result<(), KnownFailure> {
        let take = |left: u64| left.checked_sub(1);
        self.0.requests_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map(drop).map_err(|_| KnownFailure::BudgetExhausted)
    }
}

/// A publication on its way to a provider. The event is locked in until [`PublishRequest::authorise_now`].
pub struct PublishRequest {
    event: EventPublication,
    authority: Authority,
}

/// The right to publish one event, as of the moment it was confirmed.
pub struct Authority {
    session: Session,
    reference: ProviderRef,
    started: Arc<AtomicBool>,
}

impl PublishRequest {
    /// When the publication must have ended.
    pub fn deadline(&self) -> Deadline {
        self.authority.session.spec().deadline
    }

    /// Bytes the event holds, for the provider's own accounts.
    pub fn payload_bytes(&self) -> usize {
        self.event.payload().len()
    }

    /// Asks the plan in force now, and gives out the event. To be called when nothing more will be waited for: from here on the
    /// publication counts as possibly written.
    ///
    /// # Errors
    /// [`KnownFailure::PermissionDenied`] when the grant was revoked or now leads to another provider,
    /// [`KnownFailure::DeadlineExceeded`] when the time is over.
    pub fn authorise_now(self) -> Result<(EventPublication, Authority), KnownFailure> {
        let spec = self.authority.session.spec();
        let plan = spec.plans.current();
        let granted = plan.authorise_publish(spec.publication, &spec.tenant, self.event.topic())?;
        if *granted != self.authority.reference {
            return Err(KnownFailure::PermissionDenied);
        }
        if spec.deadline.has_passed(spec.clock.mono()) {
            return Err(KnownFailure::DeadlineExceeded);
        }
        self.authority.started.store(true, Ordering::Relaxed);
        Ok((self.event, self.authority))
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
}

/// Writes its record when it goes, whichever way that is: a dropped future leaves a true record too.
struct AuditEntry {
    audit: Arc<dyn AuditSink>,
    started: Arc<AtomicBool>,
    record: Option<AuditRecord>,
}

impl AuditEntry {
    fn finish(&mut self, outcome: &PublicationOutcome) {
        let started = self.started.load(Ordering::Relaxed);
        if let Some(mut record) = self.record.take() {
            record.observed = observed(outcome, started);
            record.told = Some(told(outcome));
            self.audit.record(record);
        }
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        if let Some(mut record) = self.record.take() {
            if self.started.load(Ordering::Relaxed) {
                record.observed = ProviderOutcome::Unknown { cause: UncertainCause::Cancelled.kind() };
            }
            self.audit.record(record);
        }
    }
}

#[cfg(test)]
mod tests;
