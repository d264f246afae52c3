//! One call of a function for a person: through the running node, or on a node that lives for that one call.

use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::{BindingId, Clock, ContractName, Deadline, FunctionName, RouteName, ServiceName, SystemClock};
use latent_node::{CallOrder, InboundTarget, LocalActivationManager, Principal, ReserveRefusal};
use tokio::runtime::Runtime;

use super::composition::{Composition, Foundation};
use super::{failed, open_log};
use crate::config::Config;
use crate::config::settings::ServiceConfig;
use crate::control::{Fault, Invocation, Invoked};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::limits;

/// Whom calls from the command line run as.
const OPERATOR: &str = "command-line";

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
    /// A fault when nothing was admitted: an unknown service or function, a name or number that breaks its rule, a full node.
    pub(super) fn invoke(&self, invocation: Invocation) -> Result<Invoked, Fault> {
        let arguments = Bytes::from(invocation.arguments.clone());
        let target = self.target(invocation, arguments.len() as u64)?;
        let deadline_millis = target.budget.wall_time_millis.saturating_add(limits::INVOKE_WAIT_MILLIS.default);
        let reservation = self.manager.reserve_inbound(&target).map_err(|refusal| refused(&refusal))?;
        let deadline = Deadline::after(self.clock.mono(), deadline_millis);
        let end = self.manager.call(reservation, CallOrder { arguments, deadline, trace: None }).wait();
        Ok(Invoked::of(end))
    }

    fn target(&self, invocation: Invocation, input_bytes: u64) -> Result<InboundTarget, Fault> {
        let wrong = |error: latent_core::CoreError| Fault::refused("invalid-name", error.to_string());
        let service = ServiceName::parse(&invocation.service).map_err(wrong)?;
        let Some(known) = self.services.iter().find(|known| known.name == service) else {
            let names = self.services.iter().map(|known| known.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Fault::refused("unknown-service", format!("there is no service {service}; the services are: {names}")));
        };
        let budget = invocation.budget.complete().map_err(|error| Fault::refused("out-of-range", error.to_string()))?;
        Ok(InboundTarget {
            tenant: known.tenant.clone(),
            principal: Principal::operator(&BindingId::parse(OPERATOR).map_err(wrong)?),
            service,
            contract: ContractName::parse(&invocation.contract).map_err(wrong)?,
            function: FunctionName::parse(&invocation.function).map_err(wrong)?,
            route: invocation.route.as_deref().map(RouteName::parse).transpose().map_err(wrong)?,
            budget,
            input_bytes_max: input_bytes.max(latent_node::limits::INPUT_BYTES.min),
        })
    }
}

fn refused(refusal: &ReserveRefusal) -> Fault {
    let (kind, permanent) = match refusal {
        ReserveRefusal::Route(_) => ("not-callable", true),
        ReserveRefusal::Admission(_) => ("resource-exhausted", !refusal.waits_for_capacity()),
        ReserveRefusal::Stopping => ("resource-exhausted", false),
        _ => ("out-of-range", true),
    };
    Fault { permanent, ..Fault::refused(kind, refusal.to_string()) }
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
    let invoked = callee.invoke(invocation).map_err(|fault| CliError::Log { doing: doing.to_owned(), fault });
    runtime.block_on(composition.manager.shutdown());
    runtime.block_on(super::close_audit(Arc::clone(&composition.audit)));
    invoked
}
