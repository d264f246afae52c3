//! What a caller brings to the manager, be it an event or a person: whom it calls, as whom, with what, until when. Plain data.

use std::fmt;

use bytes::Bytes;
use latent_capabilities::Origin;
use latent_core::{
    ActivationId, BindingId, Budget, ComponentDigest, ContractName, CoreError, Deadline, DeliveredEvent, FunctionName, RouteName,
    ServiceName, TenantId, TraceId, UnixMillis,
};
use latent_wasmtime::ActivationReport;

use crate::Call;
use crate::admission::Refusal;
use crate::catalog::ResolveError;

/// The trusted identity an activation runs as: fixed by configuration, never taken from an event. Its tenant is the target's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal {
    kind: PrincipalKind,
    subject: BindingId,
}

/// What kind of caller a principal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrincipalKind {
    /// A trigger's binding.
    Trigger,
    /// A person at the command line.
    Operator,
}

impl Principal {
    /// `trigger:<id>`: what a binding's activations run as unless configured otherwise.
    pub fn trigger(binding: &BindingId) -> Self {
        Self { kind: PrincipalKind::Trigger, subject: binding.clone() }
    }

    /// `operator:<name>`.
    pub fn operator(name: &BindingId) -> Self {
        Self { kind: PrincipalKind::Operator, subject: name.clone() }
    }

    /// Its kind.
    pub const fn kind(&self) -> PrincipalKind {
        self.kind
    }

    /// Who, within the kind.
    pub const fn subject(&self) -> &BindingId {
        &self.subject
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PrincipalKind::Trigger => "trigger",
            PrincipalKind::Operator => "operator",
        };
        write!(f, "{kind}:{}", self.subject)
    }
}

/// Whom a binding or a direct caller calls. A binding's is made once from the configuration; each delivery reserves with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboundTarget {
    /// For which tenant.
    pub tenant: TenantId,
    /// As whom.
    pub principal: Principal,
    /// Which service.
    pub service: ServiceName,
    /// Which contract of it.
    pub contract: ContractName,
    /// Which function of that.
    pub function: FunctionName,
    /// Through which route; `None` is the default one.
    pub route: Option<RouteName>,
    /// What each activation may use.
    pub budget: Budget,
    /// The largest input that will be handed over: an event counted as [`event_input_bytes`] does, or the bytes of arguments. Charged
    /// whole from reservation to end.
    pub input_bytes_max: u64,
}

impl InboundTarget {
    /// The call as the catalog takes it.
    pub fn call(&self) -> Call<'_> {
        Call {
            tenant: &self.tenant,
            service: &self.service,
            route: self.route.as_ref(),
            contract: &self.contract,
            function: &self.function,
        }
    }
}

/// One delivery, handed over together with its reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboundOrder {
    /// The event.
    pub event: DeliveredEvent,
    /// What keys are derived from: the event's own place, or that of the original of which it is a replay.
    pub origin: Origin,
    /// When guest code must have ended. The wait for a cell counts, and nothing extends it; the settle margin is already taken off.
    pub deadline: Deadline,
}

/// One direct call, handed over together with its reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOrder {
    /// The arguments, in the form of [`latent_wasmtime::values`].
    pub arguments: Bytes,
    /// When guest code must have ended, the wait for a cell included.
    pub deadline: Deadline,
    /// What keys are derived from; without it `derive` has none to give.
    pub origin: Option<Origin>,
    /// The trace to continue. Only a trusted caller may bring one; without it the activation begins its own.
    pub trace: Option<TraceId>,
}

/// What a function is called with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// An event for a handler.
    Event(DeliveredEvent),
    /// Arguments in the form of [`latent_wasmtime::values`].
    Values(Bytes),
}

impl Input {
    /// Memory counted for it.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Event(event) => event_input_bytes(event),
            Self::Values(arguments) => arguments.len() as u64,
        }
    }
}

/// Memory counted for one event: payload, key, media type, uid, and its attributes' names and values.
pub fn event_input_bytes(event: &DeliveredEvent) -> u64 {
    let attributes: usize = event.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    let uid = event.uid.as_ref().map_or(0, |uid| uid.as_str().len());
    let text = event.key.len() + event.media_type.as_str().len() + uid + attributes;
    event.payload.len().saturating_add(text) as u64
}

/// How an activation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the outcome decides what happens to the event"]
pub struct ActivationEnd {
    /// Its id.
    pub activation: ActivationId,
    /// Its trace.
    pub trace: TraceId,
    /// When its last check was passed and its guest could start; `None` when it ended before that, so that no guest code ran.
    pub started_at: Option<UnixMillis>,
    /// The component that it was to run.
    pub digest: ComponentDigest,
    /// From start to end in microseconds; 0 if it did not start.
    pub run_micros: u64,
    /// Outcome, what was used, what became of its publications, and the guest's log.
    pub report: ActivationReport,
}

impl ActivationEnd {
    /// What a dead letter says beside its reason: the words of a rejection, else which failure it was, both in one line; may be empty.
    pub fn detail(&self) -> String {
        crate::delivery::detail_of(self)
    }
}

/// Why nothing was reserved. Nothing was charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveRefusal {
    /// The call leads nowhere, or may not be made.
    #[error(transparent)]
    Route(#[from] ResolveError),
    /// A bound of admission is reached.
    #[error(transparent)]
    Admission(#[from] Refusal),
    /// The target's budget or input size is out of range.
    #[error(transparent)]
    Target(#[from] CoreError),
    /// The node takes no new work.
    #[error("the node is stopping and takes no new work")]
    Stopping,
}

impl ReserveRefusal {
    /// True when it is worth asking again after capacity was returned. Otherwise only a change of catalog, configuration or node
    /// helps.
    pub const fn waits_for_capacity(&self) -> bool {
        match self {
            Self::Admission(refusal) => !refusal.is_final(),
            Self::Route(_) | Self::Target(_) | Self::Stopping => false,
        }
    }
}

/// Where activation ids and traces come from: 16 bytes nobody can foresee, other ones each time.
pub trait IdSource: Send + Sync {
    /// The next 16 bytes.
    fn next_id(&self) -> [u8; 16];
}

impl<F: Fn() -> [u8; 16] + Send + Sync> IdSource for F {
    fn next_id(&self) -> [u8; 16] {
        self()
    }
}
