//! `latent broker permissions`.

use std::path::PathBuf;

use clap::Args;
use latent_bridge::nats_bus::NatsCredentials;
use serde_json::json;

use super::users::{self, BrokerUsers};
use super::{block, place, verify};
use crate::config::{self, Config, NamedFiles};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent broker permissions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent broker permissions -c latent.toml > new.conf && mv new.conf authorization.conf
  latent broker permissions -c latent.toml --verify

It prints what nats-server must allow each user of the configuration, and nothing more: one user for the node's bus, one for each tenant of a \
[[provider]], one for each tenant whose triggers a broker wakes, and an operator for `latent broker provision`. The file is put in place only \
when the command has succeeded: a server with an empty one lets everybody in. There is no password in it: each is a variable that the server \
must be given. A configuration with several brokers has a block for each.

With --verify the brokers are asked: each user whose password is at hand (in the store of secrets; the operator's in AV_NATS_USER and \
AV_NATS_PASSWORD) must be able to do what it needs, and nothing else that is tried: other subjects, streams, inboxes, administration. \
Nothing is stored, changed or removed by that, whatever the broker allows. A program that listens on a subject that somebody may publish to \
by mistake receives a message with the header `Nats-Expected-Stream: latent_probe`.

Exit status with --verify: 1 when a permission is missing or too much, or a user could not be asked, because its password is not at hand or \
its broker does not let it in; each is named. The operator of the environment is that of [engine]'s broker, and asked there alone.")]
pub(crate) struct PermissionsArgs {
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
    /// The operator's user on the broker; AV_NATS_USER unless said, else latent-operator
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
    /// Let the brokers prove it instead
    #[arg(long)]
    verify: bool,
}

pub(super) fn permissions(args: &PermissionsArgs, output: &mut Output) -> Result<(), CliError> {
    let config = config::load(&args.config, NamedFiles::NotNeeded)?.config;
    let operator = operator(args)?;
    let brokers = users::of(&config, &operator);
    if brokers.is_empty() {
        let reason = format!(
            "{} has nothing on a broker: no [engine] kind = \"nats\", no [[provider]], no [[trigger]] of a stream",
            config.path.display()
        );
        return Err(CliError::Value { option: "--config", reason });
    }
    if brokers.iter().any(|broker| broker.has(&operator)) {
        let reason = format!("{operator:?} is a user of the configuration already, which must not be able to make streams");
        return Err(CliError::Value { option: "--operator (or AV_NATS_USER)", reason });
    }
    if args.verify { verify::verify(&config, &brokers, output) } else { print(&config, &brokers, output) }
}

fn operator(args: &PermissionsArgs) -> Result<String, CliError> {
    let name = match (&args.operator, args.verify) {
        (Some(name), _) => name.clone(),
        // Who is at hand is who is asked about.
        (None, true) => match place::operator()? {
            Some(NatsCredentials::UserPassword { user, .. }) => user,
            _ => DEFAULT_OPERATOR.to_owned(),
        },
        (None, false) => {
            std::env::var(crate::broker::USER).ok().filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT_OPERATOR.to_owned())
        }
    };
    let usable = (1..=128).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    let reason = "a user's name is printable ASCII without spaces, of 1 to 128 bytes".to_owned();
    if usable { Ok(name) } else { Err(CliError::Value { option: "--operator", reason }) }
}

const DEFAULT_OPERATOR: &str = "latent-operator";

fn print(config: &Config, brokers: &[BrokerUsers], output: &mut Output) -> Result<(), CliError> {
    let document = json!({ "brokers": brokers.iter().map(block::document).collect::<Vec<_>>() });
    let name = config.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    output.line(&document, || brokers.iter().map(|broker| block::text(broker, &name)).collect::<Vec<_>>().join("\n").trim_end().to_owned())
}
