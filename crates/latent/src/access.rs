//! The way of a command to its data: a running node if there is one, else the directory itself.
//!
//! With a socket that answers, the node is asked. With no socket and a free lock, the log is opened here and the node counts as
//! stopped. With the lock held and no answer, the command refuses and names the holder. Topics on a broker belong to no directory: what is
//! only about them asks the broker itself when no node answers.

mod broker_target;
mod node_bus;
mod stopped;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latent_bridge::{BusError, EmbeddedBroker, NatsBus};
use latent_topics::{DeliveryStore, TopicsError};
use tokio::runtime::Runtime;

use crate::config::Config;
use crate::control::{Answer, ControlClient, ControlError, ControlTarget, Fault, NodeInfo, Request, TriggerStatus, answer};
use crate::data_dir::DataDir;
use crate::engine::{Engine, engine_options};
use crate::error::{CliError, Existence};
use crate::limits;
use crate::logging;
use broker_target::BrokerTarget;
pub(crate) use node_bus::CommandBus;
use stopped::{StoppedLog, StoppedNode};

const REACHING: &str = "reaching the running node";
/// How often a starting node is looked for.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Where requests go.
pub(crate) enum Access {
    /// To the running node.
    Node(ControlClient),
    /// To the directory, which is ours as long as this lives.
    Directory(OpenDirectory),
    /// To a broker, without a node.
    Broker(OpenBroker),
}

/// A bus on a broker that this process has opened.
pub(crate) struct OpenBroker {
    target: Arc<dyn ControlTarget>,
    runtime: Runtime,
}

/// A log that this process has opened, answering like a node that is stopped.
pub(crate) struct OpenDirectory {
    target: Arc<dyn ControlTarget>,
    runtime: Runtime,
}

/// What a directory says of its node's bindings while the node is stopped.
pub(crate) type StoppedStatus<'s> = &'s dyn Fn(&EmbeddedBroker) -> Result<Vec<TriggerStatus>, CliError>;

/// What is known of a node that is stopped, beside its log.
#[derive(Clone, Copy)]
pub(crate) struct Stopped<'s> {
    /// Its bindings.
    pub(crate) bindings: StoppedStatus<'s>,
    /// What it would be; `None` for a command that names a directory alone, which is then taken for that of the embedded engine.
    pub(crate) config: Option<&'s Config>,
}

/// No command but `trigger status` asks for bindings.
pub(crate) fn without_bindings(_: &EmbeddedBroker) -> Result<Vec<TriggerStatus>, CliError> {
    Ok(Vec::new())
}

impl Access {
    /// Finds the way. `holder` is what others are told while the directory is ours.
    ///
    /// # Errors
    /// [`CliError::Held`], [`CliError::Control`] for a node of another version, [`CliError::NotProvisioned`],
    /// [`CliError::NoPermission`], [`CliError::Log`] when the directory cannot be opened.
    pub(crate) fn open(dir: &DataDir, holder: &str, bindings: StoppedStatus<'_>) -> Result<Self, CliError> {
        Self::open_knowing(dir, holder, Stopped { bindings, config: None })
    }

    /// As [`Access::open`], with what the configuration says.
    ///
    /// # Errors
    /// As [`Access::open`].
    pub(crate) fn open_knowing(dir: &DataDir, holder: &str, stopped: Stopped<'_>) -> Result<Self, CliError> {
        let deadline = Instant::now() + Duration::from_millis(limits::NODE_START_MILLIS.default);
        loop {
            if let Some(client) = Self::try_node(dir)? {
                return Ok(Self::Node(client));
            }
            // What opening repairs is told by whoever opens first, and that is this command.
            logging::to_stderr(logging::OF_A_COMMAND)?;
            match StoppedLog::open(dir, holder, stopped.config) {
                Ok(log) => return OpenDirectory::new(dir, log, stopped).map(Self::Directory),
                // A node that is starting has the lock before it has the socket.
                Err(BusError::InUse { .. }) if Instant::now() < deadline => std::thread::sleep(RETRY_PAUSE),
                Err(BusError::InUse { holder, .. }) => {
                    return Err(CliError::Held { dir: dir.log().to_owned(), holder: format!("held by {holder}") });
                }
                Err(BusError::Config { .. }) if matches!(EmbeddedBroker::is_provisioned(dir.log()), Ok(false)) => {
                    return Err(CliError::NotProvisioned { dir: dir.log().to_owned() });
                }
                Err(error) => return Err(log_error(dir.log(), &error)),
            }
        }
    }

    /// Asks a broker, with no node between.
    ///
    /// # Errors
    /// [`CliError::Node`] when the system gives no runtime.
    pub(crate) fn to_broker(bus: NatsBus) -> Result<Self, CliError> {
        Ok(Self::Broker(OpenBroker { target: Arc::new(BrokerTarget::new(bus)), runtime: runtime()? }))
    }

    /// What keeps the topics.
    ///
    /// # Errors
    /// As [`Access::ask`].
    pub(crate) fn engine(&mut self) -> Result<Engine, CliError> {
        match self {
            Self::Directory(directory) => Ok(directory.target.engine()),
            Self::Broker(broker) => Ok(broker.target.engine()),
            Self::Node(_) => match self.ask(REACHING, Request::Ping)? {
                // A node of a version with other engines is not talked to at all.
                Answer::Node(info) => Ok(Engine::of_word(&info.engine).unwrap_or(Engine::Embedded)),
                _ => Err(unexpected(REACHING)),
            },
        }
    }

    /// Fails when a node answers on the directory.
    ///
    /// # Errors
    /// [`CliError::NodeRunning`], and those of [`Access::try_node`].
    pub(crate) fn refuse_running_node(dir: &DataDir) -> Result<(), CliError> {
        let Some(client) = Self::try_node(dir)? else { return Ok(()) };
        match Self::Node(client).ask(REACHING, Request::Ping)? {
            Answer::Node(NodeInfo { name, pid, .. }) => Err(CliError::NodeRunning { dir: dir.log().to_owned(), name, pid }),
            _ => Err(unexpected(REACHING)),
        }
    }

    /// The running node, or `None` when nobody answers.
    ///
    /// # Errors
    /// [`CliError::Control`] when somebody answers who is not a node of this version, [`CliError::NoPermission`].
    pub(crate) fn try_node(dir: &DataDir) -> Result<Option<ControlClient>, CliError> {
        if dir.check_socket_path().is_err() {
            // No node can listen on such a path either.
            return Ok(None);
        }
        match ControlClient::greet(&dir.control_socket()) {
            Ok(client) => Ok(Some(client)),
            // Whether a silent node is there at all is told by the lock.
            Err(ControlError::NotListening | ControlError::NoAnswer { .. } | ControlError::Closed | ControlError::Ended(_)) => Ok(None),
            Err(source) => Err(socket_error(dir.log(), source)),
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
            Self::Directory(OpenDirectory { target, runtime }) | Self::Broker(OpenBroker { target, runtime }) => {
                match runtime.block_on(answer(target, request)) {
                    Answer::Fault(fault) => Err(ControlError::Refused(fault)),
                    answer => Ok(answer),
                }
            }
        }
    }
}

fn runtime() -> Result<Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread().build().map_err(|error| CliError::Node {
        what: "the command could not be started".to_owned(),
        why: error.to_string(),
        next: "free file descriptors or threads and run it again".to_owned(),
    })
}

/// The error of an answer that belongs to another request.
pub(crate) fn unexpected(doing: &str) -> CliError {
    CliError::Control { doing: doing.to_owned(), source: ControlError::Unexpected }
}

/// Opens the embedded log as a node would: offsets that deliveries know and the log has lost must not be given to what is published here.
fn open_log(dir: &Path, holder: &str) -> Result<EmbeddedBroker, BusError> {
    let log = EmbeddedBroker::open_with(dir, engine_options(holder, None))?;
    let given_up = DeliveryStore::open_existing(&log).and_then(|store| Ok(store.map_or(Ok(()), |store| store.give_up_lost_offsets(&log))?));
    match given_up {
        Ok(()) => Ok(log),
        Err(TopicsError::Bus(error)) => Err(error),
        Err(error) => Err(BusError::Config { problem: error.to_string() }),
    }
}

/// The log's error about its directory.
pub(crate) fn log_error(dir: &Path, error: &BusError) -> CliError {
    if let BusError::Io { kind, .. } = error
        && is_forbidden(*kind)
    {
        return no_permission(dir, error.to_string());
    }
    CliError::Log { doing: format!("opening the data directory {}", dir.display()), fault: Fault::from(error) }
}

fn socket_error(dir: &Path, source: ControlError) -> CliError {
    match source {
        ControlError::Unusable(error) if is_forbidden(error.kind()) => {
            no_permission(dir, format!("its control socket cannot be used: {error}"))
        }
        source => CliError::Control { doing: REACHING.to_owned(), source },
    }
}

fn is_forbidden(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

fn no_permission(dir: &Path, reason: String) -> CliError {
    // What cannot even be looked at is taken for there: somebody owns it or what it lies in.
    let missing = std::fs::metadata(dir).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let existence = if missing { Existence::NotThere } else { Existence::There };
    CliError::NoPermission { dir: dir.to_owned(), reason, existence }
}

impl OpenDirectory {
    fn new(dir: &DataDir, log: StoppedLog, stopped: Stopped<'_>) -> Result<Self, CliError> {
        let statuses = match &log {
            StoppedLog::Embedded(log) => (stopped.bindings)(log)?,
            // The broker is not asked: what it has of triggers, only their users may see.
            StoppedLog::Broker { .. } => stopped.config.map(crate::node::stopped_streams).unwrap_or_default(),
        };
        let target = StoppedNode::new(dir, log, stopped.config, statuses);
        Ok(Self { target: Arc::new(target), runtime: runtime()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(dir: &Path) -> [CliError; 2] {
        let (kind, reason) = (ErrorKind::PermissionDenied, "Permission denied".to_owned());
        let of_log = log_error(dir, &BusError::Io { operation: "open", file: "lock".to_owned(), kind, reason });
        [of_log, socket_error(dir, ControlError::Unusable(kind.into()))]
    }

    #[test]
    fn without_permission_the_owner_or_another_directory_is_advised() {
        let temp = tempfile::tempdir().unwrap();
        for (dir, advice) in [(temp.path().to_owned(), "as the user who owns"), (temp.path().join("new"), "choose a data_dir")] {
            for error in denied(&dir) {
                assert_eq!(error.kind(), "no-permission");
                assert!(error.next_step().contains(advice), "{}", error.next_step());
            }
        }
    }

    #[test]
    fn other_failures_keep_their_own_kind() {
        let dir = Path::new("data");
        let (kind, reason) = (ErrorKind::StorageFull, "full".to_owned());
        assert_eq!(log_error(dir, &BusError::Io { operation: "open", file: "lock".to_owned(), kind, reason }).kind(), "io");
        let error = socket_error(dir, ControlError::Unexpected);
        assert_eq!((error.kind(), error.to_string().as_str()), ("control-malformed", "reaching the running node failed"));
    }
}
