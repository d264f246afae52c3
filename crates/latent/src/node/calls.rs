//! One call of a function for a person: through the running node, or on a node that lives for that one call.

use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::{BindingId, Clock, ContractName, CoreError, Deadline, FunctionName, LimitError, RouteName, ServiceName, SystemClock};
use latent_node::{CallOrder, InboundTarget, LocalActivationManager, Principal, ReserveRefusal};
use tokio::runtime::Runtime;

use super::composition::{Composition, Foundation};
use super::{failed, open_log};
use crate::config::Config;
use crate::config::nearest;
use crate::config::settings::ServiceConfig;
use crate::control::{Fault, Invocation, Invoked};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::limits;

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
    /// Catalog, admission or node said no.
    #[error(transparent)]
    Refused(#[from] ReserveRefusal),
}

impl CallRefused {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Name(_) => "invalid-name",
            Self::UnknownService { .. } => "unknown-service",
            Self::Budget(_) => "out-of-range",
            Self::Refused(ReserveRefusal::Route(_)) => "not-callable",
            Self::Refused(ReserveRefusal::Admission(_)) => "resource-exhausted",
            Self::Refused(ReserveRefusal::Stopping) => "stopping",
            Self::Refused(_) => "out-of-range",
        }
    }

    const fn is_permanent(&self) -> bool {
        match self {
            Self::Name(_) | Self::UnknownService { .. } | Self::Budget(_) => true,
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
    pub(super) clock: &'a dyn Clock,
    /// Every service of the configuration.
    pub(super) services: &'a [ServiceConfig],
}

impl Callee<'_> {
    /// Runs one activation and waits for its end, on a thread that may block.
    ///
    /// # Errors
    /// [`CallRefused`]: an unknown service or function, a name or number that breaks its rule, a full node.
    pub(super) fn invoke(&self, invocation: Invocation) -> Result<Invoked, CallRefused> {
        let arguments = Bytes::from(invocation.arguments.clone());
        let target = self.target(invocation, arguments.len() as u64)?;
        let deadline_millis = target.budget.wall_time_millis.saturating_add(limits::INVOKE_WAIT_MILLIS.default);
        let reservation = self.manager.reserve_inbound(&target)?;
        let deadline = Deadline::after(self.clock.mono(), deadline_millis);
        let end = self.manager.call(reservation, CallOrder { arguments, deadline, trace: None }).wait();
        Ok(Invoked::of(end))
    }

    fn target(&self, invocation: Invocation, input_bytes: u64) -> Result<InboundTarget, CallRefused> {
        let service = ServiceName::parse(&invocation.service)?;
        let Some(configured) = self.services.iter().find(|configured| configured.name == service) else {
            let known: Vec<_> = self.services.iter().map(|configured| configured.name.to_string()).collect();
            let nearest = nearest(service.as_str(), known.iter().map(String::as_str)).map(str::to_owned);
            return Err(CallRefused::UnknownService { service, known, nearest });
        };
        Ok(InboundTarget {
            tenant: configured.tenant.clone(),
            principal: Principal::operator(&BindingId::parse(OPERATOR)?),
            service,
            contract: ContractName::parse(&invocation.contract)?,
            function: FunctionName::parse(&invocation.function)?,
            route: invocation.route.as_deref().map(RouteName::parse).transpose()?,
            budget: invocation.budget.complete()?,
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
    let log: Arc<EmbeddedBroker> = Arc::new(open_log(config, &dir, "latent invoke")?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let runtime = Runtime::new().map_err(|error| failed("the command has no runtime", &error, "free threads or file descriptors"))?;
    let bus = Arc::clone(&log) as Arc<dyn EventBus>;
    let foundation = Foundation { config, bus, clock: Arc::clone(&clock), runtime: runtime.handle().clone() };
    let composition = Composition::new(foundation)?;
    let services: Vec<_> = config.services.iter().filter(|service| service.name.as_str() == invocation.service).cloned().collect();
    composition.publish(composition.admit(&services)?)?;
    composition.write_down();
    let callee = Callee { manager: &composition.manager, clock: clock.as_ref(), services: &config.services };
    let invoked = callee.invoke(invocation).map_err(|refused| CliError::Log { doing: doing.to_owned(), fault: refused.into() });
    runtime.block_on(composition.manager.shutdown());
    runtime.block_on(super::close_audit(Arc::clone(&composition.audit)));
    invoked
}
