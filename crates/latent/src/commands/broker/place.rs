//! Where the operator's broker is, and who the operator is there: the user always from the environment, never the node's own.

use std::path::Path;

use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, nats_credentials};

use crate::broker::{self, EnvironmentFault, PASSWORD, URL, USER};
use crate::config::Config;
use crate::error::CliError;

use super::users::Site;

/// The broker of a configuration: where `[engine]` is, else the one that all providers and triggers of streams share.
pub(super) fn site(config: &Config) -> Result<Site, CliError> {
    let of_providers = config.providers.iter().map(|provider| Site::of_provider(&provider.nats));
    let of_triggers = config.streams.iter().map(Site::of_streams).chain(config.lanes.iter().map(Site::of_lanes));
    let of_providers: Vec<_> = of_providers.chain(of_triggers).collect();
    let wrong = |reason: String| Err(CliError::Value { option: "--config", reason });
    match (config.engine.broker(), of_providers.split_first()) {
        (Some(engine), _) => Ok(Site::of_engine(engine)),
        (None, None) => wrong(format!(
            "{} has nothing on a broker: no [engine] kind = \"nats\", no [[provider]], no [[trigger]] of a stream",
            config.path.display()
        )),
        (None, Some((first, others))) if others.iter().all(|other| other.address == first.address) => Ok(first.clone()),
        (None, Some(_)) => wrong("its providers and triggers are on several brokers; name the one that is meant in AV_NATS_URL".to_owned()),
    }
}

/// How the operator connects. With a configuration and no `AV_NATS_URL`, the configuration says where the broker is.
pub(super) fn options(config: Option<&Config>, manifest: &Path) -> Result<NatsOptions, CliError> {
    let credentials = operator()?.ok_or_else(|| {
        EnvironmentFault::Operator.because(format!(
            "{USER} and {PASSWORD} are not set; streams are made and looked at by an operator, not by the node's own user"
        ))
    })?;
    if let (Some(config), NatsCredentials::UserPassword { user, .. }) = (config, &credentials) {
        let is_of_node = config.engine.broker().is_some_and(|engine| engine.bus_credential.user == *user);
        if is_of_node {
            return Err(EnvironmentFault::Operator
                .because(format!("{USER} is {user:?}, the node's own user, which must not be able to make streams; set another one")));
        }
    }
    let named = std::env::var_os(URL).is_some();
    let mut options = match config {
        Some(config) if !named => {
            for variable in broker::WHERE {
                if std::env::var_os(variable).is_some() {
                    return Err(EnvironmentFault::Variable
                        .because(format!("{variable} is set and {URL} is not; set both, or neither to use the configuration's broker")));
                }
            }
            broker::with_manifest(site(config)?.options(), manifest)
        }
        _ => broker::options_from_environment(manifest)?,
    };
    options.credentials = Some(credentials);
    options.connection_name = "latent-broker".to_owned();
    Ok(options)
}

/// The operator of the environment.
pub(super) fn operator() -> Result<Option<NatsCredentials>, CliError> {
    let wrong = |reason: String| EnvironmentFault::Variable.because(reason);
    let read = |name: &str| match std::env::var(name) {
        Ok(text) if text.is_empty() => Err(wrong(format!("{name} is set and empty"))),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(wrong(format!("{name} is not UTF-8"))),
    };
    nats_credentials(read(USER)?, read(PASSWORD)?).map_err(|error| EnvironmentFault::Operator.because(error.to_string()))
}
