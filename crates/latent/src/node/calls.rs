//! One call of a function for a person: through the running node, or on a node that lives for that one call.

use std::sync::Arc;

use bytes::Bytes;
use latent_capabilities::Origin;
use latent_core::{
    ActivationId, ActivationOutcome, BindingId, Clock, ContractName, CoreError, Deadline, FunctionName, LimitError, Offset, Partition,
    RouteName, ServiceName, SystemClock, TopicName,
};
use latent_node::{
    ActivationEnd, CallOrder, Catalog, InboundTarget, LocalActivationManager, Principal, ReserveRefusal, ResolveError, RouteKey,
};
use tokio::runtime::Runtime;

use super::composition::{Composition, Foundation};
use super::{Broker, failed, open_log};
use crate::config::Config;
use crate::config::nearest;
use crate::config::settings::ServiceConfig;
use crate::control::{Fault, Invocation, Invoked};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::limits;

/// What stands for the topic of an event in the keys of calls; no topic has the partition that goes with it.
const CALLS: &str = "latent-invoke";
/// Whom calls from the command line run as.
const OPERATOR: &str = "command-line";

/// Why a call was not admitted. Nothing ran and nothing was charged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallRefused {
    /// A name breaks its rule.
    #[error(transparent)]
    Name(#[from] CoreError),
    /// No service of that name is configured.
    #[error("there is no service {service}; {}", known_services(known, nearest.as_deref()))]
    UnknownService {
        /// As given.
        service: ServiceName,
        /// The services there are.
        known: Vec<String>,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// A part of the budget is out of range.
    #[error(transparent)]
    Budget(#[from] LimitError),
    /// The node's cells were made for less.
    #[error(
        "memory_bytes is {wanted_bytes} and a cell of this node holds {held_bytes}; ask for less, or raise cell_memory_bytes under [limits] and start the node again"
    )]
    Memory {
        /// Asked for.
        wanted_bytes: u64,
        /// What a cell holds.
        held_bytes: u64,
    },
    /// The catalog knows no such function for this tenant.
    #[error("{refused}; {}", offered(functions))]
    NotCallable {
        /// In the catalog's words.
        refused: ResolveError,
        /// What the service offers.
        functions: Vec<String>,
    },
    /// Admission or node said no.
    #[error(transparent)]
    Refused(#[from] ReserveRefusal),
}

impl CallRefused {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Name(_) => "invalid-name",
            Self::UnknownService { .. } => "unknown-service",
            Self::Budget(_) | Self::Memory { .. } => "out-of-range",
            Self::NotCallable { .. } | Self::Refused(ReserveRefusal::Route(_)) => "not-callable",
            Self::Refused(ReserveRefusal::Admission(_)) => "resource-exhausted",
            Self::Refused(ReserveRefusal::Stopping) => "stopping",
            Self::Refused(_) => "out-of-range",
        }
    }

    const fn is_permanent(&self) -> bool {
        match self {
            Self::Name(_) | Self::UnknownService { .. } | Self::Budget(_) | Self::Memory { .. } | Self::NotCallable { .. } => true,
            Self::Refused(ReserveRefusal::Stopping) => false,
            Self::Refused(refusal) => !refusal.waits_for_capacity(),
        }
    }
}

impl From<CallRefused> for Fault {
    fn from(refused: CallRefused) -> Self {
        let permanent = refused.is_permanent();
        Self { permanent, ..Self::refused(refused.kind(), refused.to_string()) }
    }
}

/// Functions that an error names at most.
const FUNCTIONS_NAMED_MAX: usize = 16;

fn offered(functions: &[String]) -> String {
    let named = functions.iter().take(FUNCTIONS_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match functions.len().saturating_sub(FUNCTIONS_NAMED_MAX) {
        0 if functions.is_empty() => "nothing can be called there".to_owned(),
        0 => format!("there is {named}"),
        more => format!("there is {named} and {more} more"),
    }
}

/// What keys of a call are derived from: its name if it has one, so that the same call again derives the same keys; else itself alone.
fn origin(name: Option<String>, activation: ActivationId) -> Result<Origin, CoreError> {
    let binding = BindingId::parse(&name.unwrap_or_else(|| activation.to_string()))?;
    Ok(Origin { binding, topic: TopicName::parse(CALLS)?, partition: Partition(u32::MAX), offset: Offset(0), stored_at: None })
}

/// As a delivery's end is logged: what the function decided is its business, what happened to it is a warning.
fn log_end(target: &InboundTarget, end: &ActivationEnd) {
    for line in end.report.log.iter().filter(|line| !line.text.trim().is_empty()) {
        tracing::info!(target: "guest", activation = %end.activation, source = %line.source, "{}", line.text);
    }
    let outcome = &end.report.outcome;
    let (service, function, activation) = (target.service.as_str(), format!("{}#{}", target.contract, target.function), end.activation);
    let (component, kind, reason) = (end.digest, outcome.kind(), Invoked::reason_of(outcome));
    let (fuel, memory_bytes) = (end.report.fuel_used, end.report.memory_bytes_peak);
    match outcome {
        ActivationOutcome::Success => {
            tracing::debug!(service, function, %activation, %component, outcome = kind, fuel, memory_bytes, "call ended");
        }
        ActivationOutcome::DeclaredFailure | ActivationOutcome::InvalidArguments { .. } => {
            tracing::info!(service, function, %activation, %component, outcome = kind, reason, fuel, memory_bytes, "call ended");
        }
        _ => tracing::warn!(service, function, %activation, %component, outcome = kind, reason, fuel, memory_bytes, "call ended"),
    }
}

/// Services that an error names at most.
const SERVICES_NAMED_MAX: usize = 8;

fn known_services(known: &[String], nearest: Option<&str>) -> String {
    if let Some(nearest) = nearest {
        return format!("did you mean {nearest}?");
    }
    let named = known.iter().take(SERVICES_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match known.len().saturating_sub(SERVICES_NAMED_MAX) {
        0 if known.is_empty() => "the configuration has none".to_owned(),
        0 => format!("the services are: {named}"),
        more => format!("the services are: {named} and {more} more"),
    }
}

/// Where calls go.
pub(super) struct Callee<'a> {
    pub(super) manager: &'a Arc<LocalActivationManager>,
    pub(super) catalog: &'a Catalog,
    pub(super) clock: &'a dyn Clock,
    /// Every service of the configuration.
    pub(super) services: &'a [ServiceConfig],
    /// Linear memory that a cell can hold.
    pub(super) memory_bytes_max: u64,
}

impl Callee<'_> {
    /// Runs one activation and waits for its end, on a thread that may block.
    ///
    /// # Errors
    /// [`CallRefused`]: an unknown service or function, a name or number that breaks its rule, a full node.
    pub(super) fn invoke(&self, invocation: Invocation, handed_over: &dyn Fn(ActivationId)) -> Result<Invoked, CallRefused> {
        let origin_name = invocation.origin.clone();
        let arguments = Bytes::from(invocation.arguments.clone());
        let target = self.target(invocation, arguments.len() as u64)?;
        let deadline_millis = target.budget.wall_time_millis.saturating_add(limits::INVOKE_WAIT_MILLIS.default);
        let reservation = self.manager.reserve_inbound(&target).map_err(|refusal| self.explained(&target, refusal))?;
        let deadline = Deadline::after(self.clock.mono(), deadline_millis);
        handed_over(reservation.activation());
        let origin = Some(origin(origin_name, reservation.activation())?);
        let end = self.manager.call(reservation, CallOrder { arguments, deadline, origin, trace: None }).wait();
        log_end(&target, &end);
        Ok(Invoked::of(end))
    }

    /// A refusal of the catalog, with what could have been named.
    fn explained(&self, target: &InboundTarget, refusal: ReserveRefusal) -> CallRefused {
        let ReserveRefusal::Route(refused) = refusal else { return CallRefused::Refused(refusal) };
        let key = RouteKey { tenant: target.tenant.clone(), service: target.service.clone(), route: target.route.clone() };
        let publication = self.catalog.route(&key).and_then(|(publication, _)| self.catalog.publication(publication));
        let contracts = publication.map(|publication| publication.content.contracts);
        let named = contracts.iter().flat_map(|contracts| contracts.iter());
        let functions = named.flat_map(|(contract, names)| names.iter().map(move |name| format!("{contract}#{name}"))).collect();
        CallRefused::NotCallable { refused, functions }
    }

    fn target(&self, invocation: Invocation, input_bytes: u64) -> Result<InboundTarget, CallRefused> {
        let service = ServiceName::parse(&invocation.service)?;
        let Some(configured) = self.services.iter().find(|configured| configured.name == service) else {
            let known: Vec<_> = self.services.iter().map(|configured| configured.name.to_string()).collect();
            let nearest = nearest(service.as_str(), known.iter().map(String::as_str)).map(str::to_owned);
            return Err(CallRefused::UnknownService { service, known, nearest });
        };
        let budget = invocation.budget.complete()?;
        if budget.memory_bytes > self.memory_bytes_max {
            return Err(CallRefused::Memory { wanted_bytes: budget.memory_bytes, held_bytes: self.memory_bytes_max });
        }
        Ok(InboundTarget {
            tenant: configured.tenant.clone(),
            principal: Principal::operator(&BindingId::parse(OPERATOR)?),
            service,
            contract: ContractName::parse(&invocation.contract)?,
            function: FunctionName::parse(&invocation.function)?,
            route: invocation.route.as_deref().map(RouteName::parse).transpose()?,
            budget,
            input_bytes_max: input_bytes.max(latent_node::limits::INPUT_BYTES.min),
        })
    }
}

/// One call on a node that is not running: its directory is ours for that long, no trigger wakes, and no event is delivered.
///
/// # Errors
/// Those of starting a node, and [`CliError::Log`] with the fault of a call that was not admitted.
pub(crate) fn invoke_stopped(config: &Config, invocation: Invocation, doing: &str) -> Result<Invoked, CliError> {
    let dir = DataDir::new(&config.node.data_dir);
    let log = open_log(config, &dir, "latent invoke", Broker::MustBeThere)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let runtime = Runtime::new().map_err(|error| failed("the command has no runtime", &error, "free threads or file descriptors"))?;
    let foundation = Foundation { config, bus: log.bus(), clock: Arc::clone(&clock), runtime: runtime.handle().clone() };
    let composition = Composition::new(foundation)?;
    let services: Vec<_> = config.services.iter().filter(|service| service.name.as_str() == invocation.service).cloned().collect();
    composition.publish(composition.admit(&services)?)?;
    composition.write_down();
    let callee = Callee {
        manager: &composition.manager,
        catalog: &composition.catalog,
        clock: clock.as_ref(),
        services: &config.services,
        memory_bytes_max: composition.memory_bytes_max(),
    };
    let invoked = callee.invoke(invocation, &|_| ()).map_err(|refused| CliError::Log { doing: doing.to_owned(), fault: refused.into() });
    runtime.block_on(composition.manager.shutdown());
    runtime.block_on(super::close_audit(Arc::clone(&composition.audit)));
    invoked
}
