//! Reading the control keys that a configuration names, and the archive's options of a node.

use latent_bridge::cold::ArchiveOptions;
use latent_bridge::nats_bus::outbox_name;
use latent_secrets::{SecretError, control_key_from_file};

use crate::config::Config;

/// Where the outbox of an engine on a broker is, when nobody says (B-070).
const OUTBOX_DIR: &str = "AV_COLD_OUTBOX_DIR";

/// The archive of the embedded engine.
///
/// # Errors
/// [`SecretError::Key`] naming the file and what to do.
pub(crate) fn options(config: &Config) -> Result<ArchiveOptions, SecretError> {
    let keys = config.archive.control_key_files.iter().map(|file| control_key_from_file(file).map(|key| *key));
    Ok(ArchiveOptions { control_keys: keys.collect::<Result<_, _>>()?, ..ArchiveOptions::default() })
}

/// The archive of the engine on a broker: its outbox is where the environment says, or below the node's data directory.
///
/// # Errors
/// As [`options`].
pub(crate) fn options_on_broker(config: &Config) -> Result<ArchiveOptions, SecretError> {
    let below = || config.node.data_dir.join("cold-outbox").join(outbox_name(&config.engine.manifest.name));
    let outbox = std::env::var_os(OUTBOX_DIR).filter(|path| !path.is_empty()).map_or_else(below, Into::into);
    Ok(ArchiveOptions { outbox: Some(outbox), ..options(config)? })
}
