//! The way of a command to its data: a running node if there is one, else the directory itself.
//!
//! With a socket that answers, the node is asked. With no socket and a free lock, the log is opened here and the node counts as
//! stopped. With the lock held and no answer, the command refuses and names the holder.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latent_bridge::embedded::EngineOptions;
use latent_bridge::{BusError, EmbeddedBroker, EventBus};
use tokio::runtime::Runtime;

use crate::control::{Answer, ControlClient, ControlError, ControlTarget, Fault, NodeInfo, NodeSummary, Request, TriggerStatus, answer};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::limits;

/// How often a starting node is looked for.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Where requests go.
pub(crate) enum Access {
    /// To the running node.
    Node(ControlClient),
    /// To the directory, which is ours as long as this lives.
    Directory(OpenDirectory),
}

/// A log that this process has opened, answering like a node that is stopped.
pub(crate) struct OpenDirectory {
    target: Arc<dyn ControlTarget>,
    runtime: Runtime,
}

/// What a directory says of its node's bindings while the node is stopped.
pub(crate) type StoppedStatus<'s> = &'s dyn Fn(&EmbeddedBroker) -> Result<Vec<TriggerStatus>, CliError>;

/// No command but `trigger status` asks for bindings.
pub(crate) fn without_bindings(_: &EmbeddedBroker) -> Result<Vec<TriggerStatus>, CliError> {
    Ok(Vec::new())
}

impl Access {
    /// Finds the way. `holder` is what others are told while the directory is ours.
    ///
    /// # Errors
    /// [`CliError::Held`], [`CliError::Control`] for a node of another version, [`CliError::Log`] when the directory is none.
    pub(crate) fn open(dir: &DataDir, holder: &str, stopped: StoppedStatus<'_>) -> Result<Self, CliError> {
        let deadline = Instant::now() + Duration::from_millis(limits::NODE_START_MILLIS.default);
        loop {
            if let Some(client) = Self::try_node(dir)? {
                return Ok(Self::Node(client));
            }
            match open_log(dir.log(), holder) {
                Ok(log) => return OpenDirectory::new(log, stopped).map(Self::Directory),
                // A node that is starting has the lock before it has the socket.
                Err(BusError::InUse { .. }) if Instant::now() < deadline => std::thread::sleep(RETRY_PAUSE),
                Err(BusError::InUse { holder, .. }) => {
                    return Err(CliError::Held { dir: dir.log().to_owned(), holder: format!("held by {holder}") });
                }
                Err(error) => return Err(log_error(dir.log(), &error)),
            }
        }
    }

    /// The running node, or `None` when nobody answers.
    ///
    /// # Errors
    /// [`CliError::Control`] when somebody answers who is not a node of this version.
    pub(crate) fn try_node(dir: &DataDir) -> Result<Option<ControlClient>, CliError> {
        if dir.check_socket_path().is_err() {
            // No node can listen on such a path either.
            return Ok(None);
        }
        match ControlClient::greet(&dir.control_socket()) {
            Ok(client) => Ok(Some(client)),
            // Whether a silent node is there at all is told by the lock.
            Err(ControlError::NotListening | ControlError::NoAnswer { .. } | ControlError::Closed | ControlError::Ended(_)) => Ok(None),
            Err(source) => Err(CliError::Control { doing: "greeting".to_owned(), source }),
        }
    }

    /// Asks; `doing` completes the sentence "… failed".
    ///
    /// # Errors
    /// [`CliError::Log`] with the answer's fault, [`CliError::Control`] when there was none.
    pub(crate) fn ask(&mut self, doing: &str, request: Request) -> Result<Answer, CliError> {
        match self.try_ask(request) {
            Ok(answer) => Ok(answer),
            Err(ControlError::Refused(fault)) => Err(CliError::Log { doing: doing.to_owned(), fault }),
            Err(source) => Err(CliError::Control { doing: doing.to_owned(), source }),
        }
    }

    /// As [`Access::ask`], keeping what happened on the socket.
    ///
    /// # Errors
    /// [`ControlError`]; of a directory only [`ControlError::Refused`].
    pub(crate) fn try_ask(&mut self, request: Request) -> Result<Answer, ControlError> {
        match self {
            Self::Node(client) => client.call(request),
            Self::Directory(directory) => match directory.runtime.block_on(answer(&directory.target, request)) {
                Answer::Fault(fault) => Err(ControlError::Refused(fault)),
                answer => Ok(answer),
            },
        }
    }
}

/// The error of an answer that belongs to another request.
pub(crate) fn unexpected(doing: &str) -> CliError {
    CliError::Control { doing: doing.to_owned(), source: ControlError::Unexpected }
}

fn open_log(dir: &Path, holder: &str) -> Result<EmbeddedBroker, BusError> {
    EmbeddedBroker::open_with(dir, EngineOptions { holder: holder.to_owned(), ..EngineOptions::default() })
}

/// The log's error about its directory.
pub(crate) fn log_error(dir: &Path, error: &BusError) -> CliError {
    CliError::Log { doing: format!("opening the data directory {}", dir.display()), fault: Fault::from(error) }
}

impl OpenDirectory {
    fn new(log: EmbeddedBroker, stopped: StoppedStatus<'_>) -> Result<Self, CliError> {
        let statuses = stopped(&log)?;
        let target = Arc::new(StoppedNode { log: Arc::new(log), statuses });
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|error| CliError::Node {
            what: "the command could not be started".to_owned(),
            why: error.to_string(),
            next: "free file descriptors or threads and run it again".to_owned(),
        })?;
        Ok(Self { target, runtime })
    }
}

/// A node that is not running, for whoever asks its directory.
struct StoppedNode {
    log: Arc<EmbeddedBroker>,
    statuses: Vec<TriggerStatus>,
}

impl ControlTarget for StoppedNode {
    fn bus(&self) -> Arc<dyn EventBus> {
        Arc::clone(&self.log) as Arc<dyn EventBus>
    }

    fn node_info(&self) -> NodeInfo {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        NodeInfo { name: String::new(), version, pid: std::process::id(), engine: "embedded".to_owned() }
    }

    fn trigger_status(&self) -> Vec<TriggerStatus> {
        self.statuses.clone()
    }

    fn node_summary(&self) -> NodeSummary {
        NodeSummary::default()
    }
}
