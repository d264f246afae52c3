//! Why a command of this tool failed, and what to do about it.

use std::path::PathBuf;
use std::time::Duration;

use crate::USAGE;

/// What a command ends in when it does not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The arguments name no command.
    #[error("no such command\n\n{USAGE}")]
    Usage,
    /// A tool that a clone does not bring is not installed.
    #[error("{what} is missing; install it with: {install}")]
    Missing {
        /// The tool.
        what: &'static str,
        /// The command that installs it.
        install: &'static str,
    },
    /// A program could not be started at all.
    #[error("cannot start `{command}`: {source}")]
    Start {
        /// The command line.
        command: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A program ended badly; it has said why on standard error.
    #[error("`{command}` failed ({status})")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// A file or folder of the clone could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A program or a file said something this tool does not understand.
    #[error("{what} is not what was expected: {problem}")]
    Unexpected {
        /// Whose words.
        what: String,
        /// What is wrong with them.
        problem: String,
    },
    /// `cargo metadata` failed.
    #[error("cargo metadata for {manifest}: {source}")]
    Metadata {
        /// The workspace's manifest.
        manifest: String,
        /// Cargo's reason.
        source: cargo_metadata::Error,
    },
    /// Something that should come by itself did not come in time.
    #[error("waited {waited:?} for {awaited}; the node's own words are in {}", log.display())]
    TimedOut {
        /// What was waited for.
        awaited: String,
        /// How long.
        waited: Duration,
        /// Where to look.
        log: PathBuf,
    },
    /// The node ended while it was needed.
    #[error("the node ended by itself ({status}); its own words are in {}", log.display())]
    NodeEnded {
        /// How it ended.
        status: std::process::ExitStatus,
        /// Where to look.
        log: PathBuf,
    },
    /// The person at the keyboard stopped the command.
    #[error("interrupted")]
    Interrupted,
    /// A check of the tree found something; each finding has been printed.
    #[error("{check}: {count} to mend")]
    Findings {
        /// Which check.
        check: &'static str,
        /// How many.
        count: usize,
    },
    /// Steps or tests of `cargo xtask test` failed; each has been named.
    #[error("{failed} failed")]
    Failed {
        /// How many.
        failed: u64,
    },
    /// Nothing ran, which proves nothing.
    #[error("no test ran")]
    NothingRan,
}

impl Failure {
    /// 2 when the call itself is wrong, 1 when what it asked for failed.
    pub(crate) const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage => 2,
            _ => 1,
        }
    }

    /// A file that could not be used.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
