//! Assembles a node from a configuration and runs it until it is told to stop.
//!
//! `shelf` keeps components, `composition` makes the host of functions, `calls` runs one of them for a person, `accounting` adds up its memory, `assembly` adds the triggers, `reports` says what they do, `reload` takes the configuration in again, `maintenance` keeps the log in order. The order of starting: log, components, bindings, driver, control socket;
//! of stopping: nothing new is begun, what runs may end within the drain limit, what does not is stopped and stays unsettled, then the
//! socket closes and the log is released.

mod accounting;
mod assembly;
mod calls;
mod composition;
mod maintenance;
mod reload;
mod reports;
mod shelf;
mod spare_memory;

use std::sync::Arc;
use std::time::{Duration, Instant};

use latent_bridge::{BusError, EmbeddedBroker};
use latent_node::{AuditClose, AuditFile};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::access::{Access, log_error};
use crate::config::{Config, EngineConfig};
use crate::control::{ControlServer, ControlSocket};
use crate::data_dir::DataDir;
use crate::engine::engine_options;
use crate::error::CliError;
use crate::limits;
use crate::logging;
use crate::output::Output;
pub(crate) use accounting::AccountingBound;
use assembly::Assembly;
pub(crate) use calls::invoke_stopped;
pub(crate) use composition::Ids;
pub(crate) use reports::stopped_status;

/// How long clients may take to read their last answers, and a maintenance to end.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// How often a directory that is in use is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Runs the node until SIGTERM or SIGINT.
///
/// # Errors
/// [`CliError::Value`] for an unusable `LATENT_LOG`, [`CliError::NodeRunning`] and [`CliError::Held`] when another process has the data
/// directory, [`CliError::Log`] and [`CliError::Node`] naming the part that could not be started. Nothing has been delivered then.
pub(crate) fn run(config: Config, output: &mut Output) -> Result<(), CliError> {
    logging::to_stderr("info")?;
    let dir = DataDir::new(&config.node.data_dir);
    let log = Arc::new(open_log(&config, &dir, "latent run")?);
    if log.recovered_torn_records() > 0 {
        tracing::warn!(records = log.recovered_torn_records(), "unfinished writes of an earlier process were cut off");
    }
    let runtime = Runtime::new().map_err(|error| failed("the node has no runtime", &error, "free threads or file descriptors"))?;
    let drain = Duration::from_millis(config.node.drain_millis);
    let assembly = assembly::assemble(config, Arc::clone(&log), runtime.handle())?;
    let signals = {
        let _inside = runtime.enter();
        Signals::listen().map_err(|error| failed("the node cannot listen for signals", &error, "free file descriptors"))?
    };
    let socket = {
        let _inside = runtime.enter();
        let socket =
            ControlSocket::bind(&dir, &log).map_err(|error| failed("the control socket cannot be opened", &error, "see the reason"))?;
        ControlServer::new(socket).map_err(|error| failed("the control socket cannot be served", &error, "free file descriptors"))?
    };
    spare_memory::give_back();
    output.text(&format!("latent {} is running; its data is in {}", assembly.name(), dir.log().display()))?;
    let accounting = assembly.reports.accounting();
    output.text(&format!("memory is accounted to at most {} MiB; `LATENT_LOG=debug` shows of what", accounting.bytes.div_ceil(1 << 20)))?;
    for part in &accounting.parts {
        tracing::debug!(part = part.name, bytes = part.bytes, "accounting bound");
    }
    output.flush()?;
    runtime.block_on(serve(assembly, socket, signals, drain));
    // What may still block on the log's threads must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// Opens the log. A short command may have the directory at this moment, so it is tried for a while.
fn open_log(config: &Config, dir: &DataDir, holder: &str) -> Result<EmbeddedBroker, CliError> {
    let EngineConfig::Embedded { manifest, manifest_path, .. } = &config.engine;
    let give_up = Instant::now() + Duration::from_millis(limits::NODE_START_MILLIS.default);
    loop {
        match EmbeddedBroker::open_or_apply_with(dir.log(), manifest, engine_options(holder, Some(manifest_path))) {
            Ok(log) => return Ok(log),
            Err(BusError::InUse { .. }) if Instant::now() < give_up => std::thread::sleep(RETRY_PAUSE),
            Err(BusError::InUse { holder, .. }) => {
                Access::refuse_running_node(dir)?;
                return Err(CliError::Held { dir: dir.log().to_owned(), holder: format!("held by {holder}") });
            }
            Err(error) => return Err(log_error(dir.log(), &error)),
        }
    }
}

/// Delivers and answers until a signal comes, then ends everything in order.
async fn serve(assembly: Assembly, socket: ControlServer, mut signals: Signals, drain: Duration) {
    let Assembly { driver, manager, audit, reports, maintenance: (schedule, maintainer, clock) } = assembly;
    let (stop, stopped) = watch::channel(false);
    let (close, closed) = watch::channel(false);
    let maintaining = tokio::spawn(maintenance::maintain_until(stopped.clone(), maintainer, clock, schedule));
    let delivering = tokio::spawn(driver.run(stopped));
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
    manager.shutdown().await;
    let _ = delivering.await;
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

/// Nothing runs any more, so every record there will be is queued.
async fn close_audit(audit: Arc<AuditFile>) {
    let within = Duration::from_millis(latent_node::limits::AUDIT_CLOSE_MILLIS.default);
    if let Ok(AuditClose::Unfinished { queued }) = tokio::task::spawn_blocking(move || audit.close(within)).await {
        tracing::warn!(queued, "the disk did not take the last audit records in time; they may be missing from their file");
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display, next: &str) -> CliError {
    CliError::Node { what: what.to_owned(), why: error.to_string(), next: format!("{next} and start the node again") }
}
