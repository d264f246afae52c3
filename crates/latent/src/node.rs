//! Assembles a node from a configuration and runs it until it is told to stop.
//!
//! `shelf` keeps components, `composition` makes the host of functions, `calls` runs one of them for a person, `accounting` adds up its memory, `assembly` adds the triggers, `lane_bindings` those that a broker wakes with many messages at a time, `in_process` runs it inside another command, `reports`, `stream_status` and `lane_status` say what they do, `remembering` what is remembered of them, `reload` takes the configuration in again, `maintenance` keeps the log in order. The order of starting: log, components, bindings, driver, control socket;
//! of stopping: nothing new is begun, what runs may end within the drain limit, what does not is stopped and stays unsettled, then the
//! socket closes and the log is released.

mod accounting;
mod assembly;
mod calls;
mod composition;
mod in_process;
mod lane_bindings;
mod lane_status;
mod maintenance;
mod providers;
mod reload;
mod remembering;
mod reports;
mod shelf;
mod spare_memory;
mod stream_status;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latent_bridge::embedded::EngineOptions;
use latent_bridge::{BusError, EmbeddedBroker};
use latent_node::{AuditClose, AuditFile, EndListener};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::access::{Access, log_error};
use crate::archive_keys;
use crate::broker::{self, BrokerError};
use crate::config::{Config, EngineConfig};
use crate::control::{ControlServer, ControlSocket, ControlTarget};
use crate::data_dir::DataDir;
use crate::engine::engine_options;
use crate::error::CliError;
use crate::late_bus::LateBus;
use crate::limits;
use crate::log::Log;
use crate::logging;
use crate::output::Output;
pub(crate) use accounting::AccountingBound;
use assembly::Assembly;
pub(crate) use calls::invoke_stopped;
pub(crate) use composition::Ids;
pub(crate) use in_process::InProcessNode;
pub(crate) use remembering::{forget, memory_of, removed_events, removed_triggers, stopped_events};
pub(crate) use reports::stopped_status;
pub(crate) use stream_status::stopped_streams;

/// How long clients may take to read their last answers, and a maintenance to end.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The log: what the broker's client says of its connection, the bus says in its own words.
const LOG_FILTER: &str = "info,async_nats=error";

/// How often a directory that is in use is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Runs the node until SIGTERM or SIGINT.
///
/// # Errors
/// [`CliError::Value`] for an unusable `LATENT_LOG`, and those of [`Node::start`].
pub(crate) fn run(config: Config, output: &mut Output) -> Result<(), CliError> {
    logging::to_stderr(LOG_FILTER)?;
    let runtime = runtime()?;
    let node = Node::start(config, "latent run", &runtime, None)?;
    output.text(&format!("latent {} is running; its data is in {}", node.name(), node.data().display()))?;
    let accounting = node.assembly.reports.accounting();
    output.text(&format!("memory is accounted to at most {} MiB; `LATENT_LOG=debug` shows of what", accounting.bytes.div_ceil(1 << 20)))?;
    for part in &accounting.parts {
        tracing::debug!(part = part.name, bytes = part.bytes, "accounting bound");
    }
    output.flush()?;
    runtime.block_on(node.serve());
    // What may still block on the log's threads must not keep the process.
    runtime.shutdown_timeout(CLOSE_WAIT);
    Ok(())
}

/// What a node runs on.
///
/// # Errors
/// [`CliError::Node`].
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    Runtime::new().map_err(|error| failed("the node has no runtime", &error, "free threads or file descriptors"))
}

/// A node with all its parts, its directory and its socket. It delivers and answers from [`Node::serve`] on.
pub(crate) struct Node {
    assembly: Assembly,
    socket: ControlServer,
    signals: Signals,
    dir: DataDir,
    drain: Duration,
    stop: watch::Sender<bool>,
}

impl Node {
    /// Puts a node together; components that are new are compiled, so it may take a while. `holder` is what others are told while the
    /// directory is ours; without `signals` it listens from the end of its assembly on.
    ///
    /// # Errors
    /// [`CliError::NodeRunning`] and [`CliError::Held`] when another process has the data directory, [`CliError::Log`] and
    /// [`CliError::Node`] naming the part that could not be started. Nothing has been delivered then, and everything is released.
    pub(crate) fn start(config: Config, holder: &str, runtime: &Runtime, signals: Option<Signals>) -> Result<Self, CliError> {
        let dir = DataDir::new(&config.node.data_dir);
        let log = open_log(&config, &dir, holder, Broker::MayComeLater)?;
        if let Some(log) = log.embedded().filter(|log| log.recovered_torn_records() > 0) {
            tracing::warn!(records = log.recovered_torn_records(), "unfinished writes of an earlier process were cut off");
        }
        let drain = Duration::from_millis(config.node.drain_millis);
        let assembly = assembly::assemble(config, log.clone(), runtime.handle())?;
        let signals = signals.map_or_else(|| Signals::listen(runtime), Ok)?;
        let _inside = runtime.enter();
        let socket =
            ControlSocket::bind(&dir, &log).map_err(|error| failed("the control socket cannot be opened", &error, "see the reason"))?;
        let socket =
            ControlServer::new(socket).map_err(|error| failed("the control socket cannot be served", &error, "free file descriptors"))?;
        spare_memory::give_back();
        Ok(Self { assembly, socket, signals, dir, drain, stop: watch::Sender::new(false) })
    }

    /// As configured.
    pub(crate) fn name(&self) -> String {
        self.assembly.name()
    }

    /// Where its data is.
    pub(crate) fn data(&self) -> &Path {
        self.dir.log()
    }

    /// The node as commands see it.
    pub(crate) fn target(&self) -> Arc<dyn ControlTarget> {
        Arc::clone(&self.assembly.reports) as _
    }

    /// True from the moment on at which nothing new begins.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Tells `listener` of every activation that ends.
    ///
    /// # Errors
    /// [`CliError::Node`] when somebody listens already.
    pub(crate) fn on_end(&self, listener: EndListener) -> Result<(), CliError> {
        self.assembly.manager.on_end(listener).map_err(|error| failed("the activations cannot be watched", &error, "report it"))
    }

    /// Delivers and answers until a signal comes, then ends everything in order.
    pub(crate) async fn serve(self) {
        let Self { assembly, socket, mut signals, dir: _, drain, stop } = self;
        let Assembly { driver, manager, audit, reports, maintenance: (schedule, maintainer, clock) } = assembly;
        let stopped = stop.subscribe();
        let (close, closed) = watch::channel(false);
        let maintaining = tokio::spawn(maintenance::maintain_until(stopped.clone(), maintainer, clock, schedule));
        let (composition, until) = (Arc::clone(&reports.composition), stopped.clone());
        let tending = tokio::spawn(async move { composition.providers.tend_until(until).await });
        let (cut, is_cut) = watch::channel(false);
        let pulling = reports.composition.providers.take_triggers().map(|mut triggers| {
            let (manager, drain) = (Arc::clone(&manager), stopped.clone());
            tokio::spawn(async move { triggers.run_draining(&manager, drain, is_cut).await })
        });
        let (let_go, are_idle) = watch::channel(false);
        let lanes = reports.composition.providers.take_lanes().into_iter().map(|lanes| tokio::spawn(lanes.run(are_idle.clone())));
        let lanes: Vec<_> = lanes.collect();
        let delivering = tokio::spawn(driver.run(stopped));
        let providers_of = Arc::clone(&reports);
        let answering = tokio::spawn(socket.serve(reports, closed));
        signals.next().await;
        tracing::info!("stopping: nothing new begins");
        // Errors here and below mean that the other side has ended already, which is what is wanted.
        let _ = stop.send(true);
        tokio::select! {
            () = manager.drain() => {}
            () = tokio::time::sleep(drain) => tracing::warn!("activations did not end in time and are stopped; their events stay unsettled"),
            () = signals.next() => tracing::warn!("told again: running activations are stopped; their events stay unsettled"),
        }
        // What did not end in time is left to the broker, which delivers it again.
        let _ = cut.send(true);
        manager.shutdown().await;
        if let Some(pulling) = pulling {
            let _ = pulling.await;
        }
        let _ = delivering.await;
        // Whoever used them is done: what ran is settled, and the rest is left to the broker.
        let _ = let_go.send(true);
        for lanes in lanes {
            let _ = lanes.await;
        }
        let _ = tending.await;
        providers_of.composition.providers.shut_down();
        close_audit(audit).await;
        // It is made for ending anywhere, as a crash does; a node that stops does not wait long for it.
        if tokio::time::timeout(CLOSE_WAIT, maintaining).await.is_err() {
            tracing::warn!("a maintenance did not end in time; the next start finishes it");
        }
        let _ = close.send(true);
        // A client that does not read its answer must not keep the node.
        if tokio::time::timeout(CLOSE_WAIT, answering).await.is_err() {
            tracing::warn!("clients on the control socket did not read their answers; they are cut off");
        }
        tracing::info!("stopped");
    }
}

/// Whether a broker that is not reached is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broker {
    /// By the node that runs meanwhile.
    MayComeLater,
    /// It is an error.
    MustBeThere,
}

/// Opens the log on the engine of the configuration.
fn open_log(config: &Config, dir: &DataDir, holder: &str, broker: Broker) -> Result<Log, CliError> {
    if config.engine.broker().is_none() {
        return open_embedded(config, dir, holder).map(|log| Log::Embedded(Arc::new(log)));
    }
    let lock = when_free(dir, || dir.take(holder))?;
    // Streams are made elsewhere, by who may: a node looks whether they are as the manifest says, and changes nothing.
    let bus = match when_outbox_is_free(|| broker::open(config)) {
        Ok(bus) => LateBus::there(bus),
        Err(error) if broker == Broker::MayComeLater && error.may_pass() => {
            let (manifest, again) = (config.engine.manifest.clone(), config.clone());
            LateBus::awaited(manifest, &error, Box::new(move || broker::open(&again)))
                .map_err(|error| failed("the broker cannot be waited for", &error, "free threads"))?
        }
        Err(error) => return Err(error.during("opening the topics on the broker")),
    };
    Ok(Log::on_broker(bus, lock))
}

/// Opens the log in the data directory.
fn open_embedded(config: &Config, dir: &DataDir, holder: &str) -> Result<EmbeddedBroker, CliError> {
    let EngineConfig { manifest, manifest_path, .. } = &config.engine;
    const KEYS: &str = "a control key of the archive cannot be used";
    let archive =
        archive_keys::options(config).map_err(|error| failed(KEYS, &error, "correct the file, or control_key_files in [archive],"))?;
    when_free(dir, || {
        let options = EngineOptions { archive: archive.clone(), ..engine_options(holder, Some(manifest_path)) };
        EmbeddedBroker::open_or_apply_with(dir.log(), manifest, options)
    })
}

/// Opens what has the directory's lock. A short command may have it at this moment, so it is tried for a while.
fn when_free<T>(dir: &DataDir, open: impl Fn() -> Result<T, BusError>) -> Result<T, CliError> {
    let give_up = Instant::now() + Duration::from_millis(limits::NODE_START_MILLIS.default);
    loop {
        match open() {
            Ok(opened) => return Ok(opened),
            Err(BusError::InUse { .. } | BusError::OutboxInUse { .. }) if Instant::now() < give_up => std::thread::sleep(RETRY_PAUSE),
            Err(BusError::InUse { holder, .. }) => {
                Access::refuse_running_node(dir)?;
                return Err(CliError::Held { dir: dir.log().to_owned(), holder: format!("held by {holder}") });
            }
            Err(error) => return Err(log_error(dir.log(), &error)),
        }
    }
}

/// As [`when_free`], of the archive's outbox of topics on a broker: a node that was just told to stop has it for another moment.
fn when_outbox_is_free<T>(open: impl Fn() -> Result<T, BrokerError>) -> Result<T, BrokerError> {
    let give_up = Instant::now() + Duration::from_millis(limits::NODE_START_MILLIS.default);
    loop {
        match open() {
            Err(BrokerError::Outbox { .. }) if Instant::now() < give_up => std::thread::sleep(RETRY_PAUSE),
            opened => return opened,
        }
    }
}

/// Nothing runs any more, so every record there will be is queued.
async fn close_audit(audit: Arc<AuditFile>) {
    let within = Duration::from_millis(latent_node::limits::AUDIT_CLOSE_MILLIS.default);
    if let Ok(AuditClose::Unfinished { queued }) = tokio::task::spawn_blocking(move || audit.close(within)).await {
        tracing::warn!(queued, "the disk did not take the last audit records in time; they may be missing from their file");
    }
}

/// Signals that end a node. Each copy is told of every signal since its original was made.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    count: watch::Receiver<u64>,
    seen: u64,
}

impl Signals {
    /// Listens for SIGINT and SIGTERM from now on.
    ///
    /// # Errors
    /// [`CliError::Node`] when the system refuses it.
    pub(crate) fn listen(runtime: &Runtime) -> Result<Self, CliError> {
        let failed = |error| failed("the node cannot listen for signals", &error, "free file descriptors");
        let _inside = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        // With a handler, a file that grows beyond the process's limit is an error of its write, as a full disk is; without one, an end.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map_err(failed)?);
        let (counted, count) = watch::channel(0);
        runtime.spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                counted.send_modify(|count| *count += 1);
            }
        });
        Ok(Self { count, seen: 0 })
    }

    /// Waits for a signal that this copy was not told of yet.
    pub(crate) async fn next(&mut self) {
        let seen = self.seen;
        // The sender is gone only when the runtime is, and then nobody waits.
        let _ = self.count.wait_for(|count| *count > seen).await;
        self.seen += 1;
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display, next: &str) -> CliError {
    CliError::Node { what: what.to_owned(), why: error.to_string(), next: format!("{next} and start the node again") }
}
