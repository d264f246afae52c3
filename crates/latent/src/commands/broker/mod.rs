//! `latent broker`: the operator's side of a broker, with the operator's own user.
//!
//! `place` says where the broker is and who the operator is, `raw` compares streams of raw subjects, `durables` says which consumers triggers need, `users` says who may do what on which
//! broker, `block` writes that down for the broker, `verify` asks the broker about it, `check` says what is unsafe.

mod block;
mod check;
mod durables;
mod permissions;
mod place;
mod provision;
mod raw;
mod users;
mod verify;

use clap::Subcommand;
use latent_bridge::nats_bus::NatsOptions;

use crate::config::Config;
use crate::error::CliError;
use crate::output::Output;

/// How the operator of the environment connects to a configuration's broker.
///
/// # Errors
/// [`CliError`] naming what is missing.
pub(crate) fn operator_options(config: &Config) -> Result<NatsOptions, CliError> {
    place::options(Some(config), &config.engine.manifest_path)
}

/// `latent broker`.
#[derive(Debug, Subcommand)]
pub(crate) enum BrokerCommand {
    /// Show what the streams on the broker need, and with --apply make and change them
    Provision(provision::ProvisionArgs),
    /// Print the broker's `authorization` block with the least rights, or let the broker prove them
    Permissions(permissions::PermissionsArgs),
    /// Say in plain words what of a broker is unsafe
    Check(check::CheckArgs),
}

/// Runs `latent broker …`.
///
/// # Errors
/// [`CliError`].
pub(crate) fn broker(command: &BrokerCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        BrokerCommand::Provision(args) => provision::provision(args, output),
        BrokerCommand::Permissions(args) => permissions::permissions(args, output),
        BrokerCommand::Check(args) => check::check(args, output),
    }
}
