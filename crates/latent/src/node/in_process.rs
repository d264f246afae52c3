//! A node inside another command: the assembly of `latent run`, without a control socket, signals and maintenance. For measurements, which
//! publish to its log and look at what it delivers.

use std::sync::Arc;

use latent_bridge::{EmbeddedBroker, EventBus};
use latent_node::AuditFile;
use latent_node::LocalActivationManager;
use latent_node::delivery::{DeliveryHandle, DeliveryTotals};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::assembly::{Assembly, assemble_publishing};
use super::{close_audit, failed, open_embedded};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::log::Log;

/// See the module. What runs when it is dropped is left to end by itself; its log is released with the last handle on it.
pub(crate) struct InProcessNode {
    runtime: Runtime,
    log: Arc<EmbeddedBroker>,
    deliveries: DeliveryHandle,
    manager: Arc<LocalActivationManager>,
    audit: Arc<AuditFile>,
    stop: watch::Sender<bool>,
    delivering: JoinHandle<()>,
}

impl InProcessNode {
    /// Starts delivering. What functions publish goes to the bus that `publishing` makes of the log.
    ///
    /// # Errors
    /// As [`super::run`].
    pub(crate) fn start(config: Config, publishing: impl FnOnce(&Arc<EmbeddedBroker>) -> Arc<dyn EventBus>) -> Result<Self, CliError> {
        let dir = DataDir::new(&config.node.data_dir);
        let log = Arc::new(open_embedded(&config, &dir, "latent bench")?);
        let runtime = Runtime::new().map_err(|error| failed("the node has no runtime", &error, "free threads or file descriptors"))?;
        let assembly = assemble_publishing(config, Log::Embedded(Arc::clone(&log)), publishing(&log), runtime.handle())?;
        let Assembly { driver, manager, audit, reports, maintenance: _ } = assembly;
        let (stop, stopped) = watch::channel(false);
        let delivering = runtime.spawn(driver.run(stopped));
        Ok(Self { runtime, log, deliveries: reports.deliveries.clone(), manager, audit, stop, delivering })
    }

    /// Its log, whose topics can be published to and read.
    pub(crate) fn log(&self) -> &EmbeddedBroker {
        &self.log
    }

    /// What was delivered since the start.
    pub(crate) fn totals(&self) -> DeliveryTotals {
        self.deliveries.totals()
    }

    /// Events settled since the start: [`InProcessNode::totals`] without its percentiles.
    pub(crate) fn settled(&self) -> u64 {
        self.deliveries.settled()
    }

    /// Ends it in order: nothing new begins, what runs is stopped.
    pub(crate) fn end(self) {
        let Self { runtime, manager, audit, stop, delivering, .. } = self;
        // An error means that the driver has ended already, which is what is wanted.
        let _ = stop.send(true);
        runtime.block_on(async {
            manager.shutdown().await;
            let _ = delivering.await;
            close_audit(audit).await;
        });
    }
}
