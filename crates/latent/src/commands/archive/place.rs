//! Archives, keys and heads as the arguments name them.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use latent_bridge::cold::export::ArchiveHead;
use latent_bridge::cold::{ColdStore, ControlKeys, open_archive};
use latent_secrets::control_key_from_file;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::control::Fault;
use crate::error::CliError;

/// A file of heads: one line for each partition.
const HEADS_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What to check an archive with.
#[derive(Debug, Args)]
pub(super) struct ProofArgs {
    /// A control key that segments are proven with, newest first: a file of 32 bytes, or of 64 hexadecimal digits, its owner's alone. Without it, those of the configuration
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Up to where the archive went: a file that `latent archive status --json` printed
    #[arg(long = "head", value_name = "FILE")]
    heads: Vec<PathBuf>,
}

/// Keys and heads.
pub(super) struct Proof {
    /// None when no key was named.
    pub(super) keys: Option<ControlKeys>,
    pub(super) heads: Vec<ArchiveHead>,
}

/// Opens an archive that must be there.
pub(super) fn open(uri: &str) -> Result<Arc<dyn ColdStore>, CliError> {
    open_archive(uri).map_err(|error| CliError::Log { doing: format!("opening the archive {uri}"), fault: Fault::from(&error) })
}

impl ProofArgs {
    /// `configured` are the keys of a configuration, for when none is named.
    pub(super) fn read(&self, configured: &[PathBuf]) -> Result<Proof, CliError> {
        let keys = self.key_bytes(configured)?;
        let keys: Vec<_> = keys.iter().map(|key| **key).collect();
        let ring = ControlKeys::new(&keys).map_err(|error| CliError::Value { option: "--key", reason: error.to_string() })?;
        let mut heads = Vec::new();
        for file in &self.heads {
            heads.extend(heads_of(file, &ring)?);
        }
        Ok(Proof { keys: (!keys.is_empty()).then_some(ring), heads })
    }

    /// The bytes of the keys, newest first.
    pub(super) fn key_bytes(&self, configured: &[PathBuf]) -> Result<Vec<Zeroizing<[u8; 32]>>, CliError> {
        let files = if self.keys.is_empty() { configured } else { &self.keys };
        files.iter().map(|file| key_of(file)).collect()
    }
}

fn input(file: &Path, error: &std::io::Error) -> CliError {
    CliError::Input { file: file.to_owned(), reason: error.to_string() }
}

fn read(file: &Path, bytes_max: u64) -> Result<Vec<u8>, CliError> {
    let mut content = Vec::new();
    File::open(file).and_then(|opened| opened.take(bytes_max).read_to_end(&mut content)).map_err(|error| input(file, &error))?;
    Ok(content)
}

fn key_of(file: &Path) -> Result<Zeroizing<[u8; 32]>, CliError> {
    control_key_from_file(file).map_err(|error| CliError::Value { option: "--key", reason: error.to_string() })
}

/// A line of `latent archive status --json`; only its proven document is used.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    document: Option<String>,
}

fn heads_of(file: &Path, ring: &ControlKeys) -> Result<Vec<ArchiveHead>, CliError> {
    let content = read(file, HEADS_BYTES_MAX)?;
    let unusable = |reason: String| CliError::Value { option: "--head", reason: format!("{}: {reason}", file.display()) };
    let text = std::str::from_utf8(&content).map_err(|error| unusable(error.to_string()))?;
    let mut heads = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).map_err(|error| unusable(error.to_string()))?;
        let Some(document) = line.document else { continue };
        let head = ArchiveHead::from_json(&document, ring);
        heads.push(head.map_err(|_| unusable("a head in it is not proven by a key that was named with --key".to_owned()))?);
    }
    Ok(heads)
}
