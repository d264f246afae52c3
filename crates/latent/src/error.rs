//! Every way a command can fail, as data, with its three lines for people and its one object for machines.
//!
//! `Display` says what failed, [`CliError::why`] why, [`CliError::next_step`] what to do. Status 2 is for what is known to be wrong
//! before any data was touched; whatever the log or the node answers is 1, or 3 where it may have happened.

use std::path::PathBuf;

use crate::commands::new::ProjectError;
use crate::config::ConfigError;
use crate::control::{ControlError, Fault};
use crate::exit::ExitStatus;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The words after `latent` are not a command.
    #[error("{what}")]
    Usage {
        /// The parser's first line.
        what: String,
        /// Its hint, or the form of the command.
        why: String,
        /// Which help to read.
        next: String,
    },
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A manifest given on the command line cannot be used.
    #[error("the manifest {} cannot be used", file.display())]
    Manifest {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The command is part of a later version.
    #[error("{what} is not built in this version")]
    NotBuilt {
        /// What was asked for.
        what: String,
        /// What there is instead.
        instead: &'static str,
    },
    /// Another process has the data directory and does not answer.
    #[error("the data directory {} is in use and nobody answers on its control socket", dir.display())]
    Held {
        /// The directory.
        dir: PathBuf,
        /// Who holds it, in the log's words.
        holder: String,
    },
    /// The command needs a directory that nobody uses.
    #[error("a node is running on the data directory {}", dir.display())]
    NodeRunning {
        /// The directory.
        dir: PathBuf,
        /// The node.
        holder: String,
    },
    /// The running node could not be talked to.
    #[error("the running node did not do what was asked: {doing}")]
    Control {
        /// What was being done.
        doing: String,
        /// What went wrong on the socket.
        #[source]
        source: ControlError,
    },
    /// The log said no, or could not.
    #[error("{doing} failed")]
    Log {
        /// What was being done.
        doing: String,
        /// The log's answer.
        fault: Fault,
    },
    /// There is certainly no such event.
    #[error("topic {topic:?} has no event with uid {uid:?}")]
    NotFound {
        /// The topic.
        topic: String,
        /// The uid.
        uid: String,
    },
    /// A file given on the command line cannot be read.
    #[error("{} cannot be read", file.display())]
    Input {
        /// The file, `-` for standard input.
        file: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// A name or value of the command line breaks its rule.
    #[error("{option} is not usable")]
    Value {
        /// The argument.
        option: &'static str,
        /// The rule it breaks.
        reason: String,
    },
    /// A bulk publication in which not every event was stored. The events were told one by one.
    #[error("{refused} of {events} events were refused and {uncertain} are uncertain")]
    Incomplete {
        /// Events of the file.
        events: u64,
        /// Certainly not stored.
        refused: u64,
        /// May be stored.
        uncertain: u64,
        /// The last line that was read and why no further one was.
        stopped: Option<(u64, String)>,
    },
    /// No project could be made.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// Standard output cannot be written.
    #[error("the output cannot be written")]
    Output {
        /// The system's words.
        reason: String,
    },
    /// The node could not start, or stopped by itself.
    #[error("{what}")]
    Node {
        /// What failed.
        what: String,
        /// Why.
        why: String,
        /// What to do.
        next: String,
    },
}

impl CliError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Usage { .. } => "usage",
            Self::Config(_) => "config-invalid",
            Self::Manifest { .. } => "manifest",
            Self::NotBuilt { .. } => "not-built",
            Self::Held { .. } => "directory-held",
            Self::NodeRunning { .. } => "node-running",
            Self::Control { source, .. } => source.kind(),
            Self::Log { fault, .. } => &fault.kind,
            Self::NotFound { .. } => "not-found",
            Self::Input { .. } => "input",
            Self::Value { .. } => "value",
            Self::Incomplete { .. } => "incomplete",
            Self::Project(error) => error.kind(),
            Self::Output { .. } => "output",
            Self::Node { .. } => "node",
        }
    }

    /// How the process ends.
    pub(crate) fn status(&self) -> ExitStatus {
        match self {
            Self::Usage { .. } | Self::Config(_) | Self::Manifest { .. } | Self::NotBuilt { .. } | Self::Value { .. } => ExitStatus::Wrong,
            Self::Project(ProjectError::Name { .. } | ProjectError::NotEmpty(_)) => ExitStatus::Wrong,
            Self::Project(ProjectError::Write { .. }) => ExitStatus::Failed,
            Self::Log { fault, .. } if fault.uncertain => ExitStatus::Uncertain,
            Self::Incomplete { uncertain, .. } if *uncertain > 0 => ExitStatus::Uncertain,
            Self::Log { .. }
            | Self::Incomplete { .. }
            | Self::Held { .. }
            | Self::NodeRunning { .. }
            | Self::Control { .. }
            | Self::NotFound { .. }
            | Self::Input { .. }
            | Self::Output { .. }
            | Self::Node { .. } => ExitStatus::Failed,
        }
    }

    /// Why it failed; for a configuration every problem on a line of its own.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Usage { why, .. } | Self::Node { why, .. } => why.clone(),
            Self::Config(error) => error.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            Self::Manifest { reason, .. } | Self::Input { reason, .. } | Self::Value { reason, .. } | Self::Output { reason } => {
                reason.clone()
            }
            Self::NotBuilt { .. } => "it belongs to a later version".to_owned(),
            Self::Held { holder, .. } | Self::NodeRunning { holder, .. } => holder.clone(),
            Self::Control { source, .. } => source.to_string(),
            Self::Log { fault, .. } => fault.message.clone(),
            Self::NotFound { .. } => "the log was asked and knows no such uid".to_owned(),
            Self::Incomplete { stopped: None, .. } => "each of them is named above with its line".to_owned(),
            Self::Incomplete { stopped: Some((line, reason)), .. } => format!("nothing was sent after line {line}: {reason}"),
            Self::Project(error) => error.why(),
        }
    }

    /// What to do next.
    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::Usage { next, .. } | Self::Node { next, .. } => next.clone(),
            Self::Config(error) => format!("correct each of them and run `latent check -c {}`", error.path.display()),
            Self::Manifest { .. } => "correct the manifest and run the command again".to_owned(),
            Self::NotBuilt { instead, .. } => (*instead).to_owned(),
            Self::Held { .. } => "wait for that process to end or stop it, then run the command again".to_owned(),
            Self::NodeRunning { .. } => "stop the node first; it owns its data directory".to_owned(),
            Self::Control { source, .. } => source.next_step().to_owned(),
            Self::Log { fault, .. } => next_of(fault),
            Self::NotFound { .. } => "check topic and uid; `latent bus fetch` shows what is there".to_owned(),
            Self::Input { .. } => "name a file that can be read, or `-` for standard input".to_owned(),
            Self::Value { .. } => "give a value that keeps to this rule".to_owned(),
            Self::Incomplete { uncertain: 0, stopped: None, .. } => {
                "correct the refused lines and publish the file again; what is stored is not doubled".to_owned()
            }
            Self::Incomplete { .. } => "publish the same file again: it tells what is stored and doubles nothing".to_owned(),
            Self::Project(error) => error.next_step(),
            Self::Output { .. } => "check where the output goes and run the command again".to_owned(),
        }
    }
}

fn next_of(fault: &Fault) -> String {
    match (fault.uncertain, fault.continue_at) {
        (true, _) => "run the same command again: with the same uid it tells what is stored and doubles nothing".to_owned(),
        (false, Some(offset)) => format!("run it again with --offset {offset} to read on after it"),
        (false, None) if fault.permanent => "change what the message names; the same call fails again".to_owned(),
        (false, None) => "run the command again later".to_owned(),
    }
}
