//! `latent archive`: what is in the cold archive, whether it is sound, and back from it.
//!
//! `destination` says what may be restored where, `expected` asks a log what must be in its archives, `heads` up to where they are, `place` finds
//! archives, keys and heads from the arguments, `told` shows progress and findings; each command has a file.

mod destination;
mod expected;
mod heads;
mod place;
mod restore;
mod status;
mod told;
mod verify;
mod waiting;

pub(crate) use place::{HEADS_WITHOUT_KEY, HEADS_WITHOUT_TOPIC};

use clap::Subcommand;

use crate::error::CliError;
use crate::output::Output;

/// `latent archive`.
#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Show what waits to be archived, and up to where each partition is
    Status(status::StatusArgs),
    /// Read an archive whole and name what is missing, extra, changed or replaced
    Verify(verify::VerifyArgs),
    /// Publish the events of an archive again, each once, in order
    Restore(restore::RestoreArgs),
}

/// Runs `latent archive …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn archive(command: &ArchiveCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        ArchiveCommand::Status(args) => status::status(args, output),
        ArchiveCommand::Verify(args) => verify::verify(args, output),
        ArchiveCommand::Restore(args) => restore::restore(args, output),
    }
}

/// What was under way when something failed that has no kind of its own.
#[derive(Clone, Copy)]
enum Task {
    Verifying,
    Restoring,
    /// A head is read whose control key was not given.
    LackingKey,
}

impl Task {
    const fn kind(self) -> &'static str {
        match self {
            Self::Verifying => "archive",
            Self::Restoring => "restore",
            Self::LackingKey => "unknown-control-key",
        }
    }
}
