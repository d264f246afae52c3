//! Archives, keys and heads as the arguments name them.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use latent_bridge::cold::export::ArchiveHead;
use latent_bridge::cold::{ColdStore, ControlKeys, open_archive};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::control::Fault;
use crate::error::CliError;

/// Bytes of a control key.
const KEY_BYTES: usize = 32;
/// A file of heads: one line for each partition.
const HEADS_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What to check an archive with.
#[derive(Debug, Args)]
pub(super) struct ProofArgs {
    /// A control key that segments are proven with, newest first: a file of 32 bytes, or of 64 hexadecimal digits
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
    pub(super) fn read(&self) -> Result<Proof, CliError> {
        let keys = self.keys.iter().map(|file| key_of(file)).collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<_> = keys.iter().map(|key| **key).collect();
        let ring = ControlKeys::new(&keys).map_err(|error| CliError::Value { option: "--key", reason: error.to_string() })?;
        let mut heads = Vec::new();
        for file in &self.heads {
            heads.extend(heads_of(file, &ring)?);
        }
        Ok(Proof { keys: (!keys.is_empty()).then_some(ring), heads })
    }

    /// The bytes of the keys, newest first.
    pub(super) fn key_bytes(&self) -> Result<Vec<Zeroizing<[u8; KEY_BYTES]>>, CliError> {
        self.keys.iter().map(|file| key_of(file)).collect()
    }
}

fn input(file: &Path, error: &std::io::Error) -> CliError {
    CliError::Input { file: file.to_owned(), reason: error.to_string() }
}

fn read(file: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let mut content = Zeroizing::new(Vec::new());
    File::open(file).and_then(|opened| opened.take(bytes_max).read_to_end(&mut content)).map_err(|error| input(file, &error))?;
    Ok(content)
}

fn key_of(file: &Path) -> Result<Zeroizing<[u8; KEY_BYTES]>, CliError> {
    let content = read(file, 2 * KEY_BYTES as u64 + 3)?;
    key_in(&content).ok_or_else(|| {
        let reason = format!("{} holds neither 32 bytes nor 64 hexadecimal digits", file.display());
        CliError::Value { option: "--key", reason }
    })
}

fn key_in(content: &[u8]) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    if let Ok(bytes) = <[u8; KEY_BYTES]>::try_from(content) {
        return Some(Zeroizing::new(bytes));
    }
    let text = std::str::from_utf8(content).ok()?.trim_end_matches(['\r', '\n']);
    let is_hex = text.len() == 2 * KEY_BYTES && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then_some(())?;
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(key)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_or_64_digits() {
        let digits = "0a".repeat(32);
        assert_eq!(key_in(&[10; 32]).map(|key| *key), Some([10; 32]));
        for text in [digits.clone(), digits.to_uppercase(), format!("{digits}\n"), format!("{digits}\r\n")] {
            assert_eq!(key_in(text.as_bytes()).map(|key| *key), Some([10; 32]), "{text:?}");
        }
        for wrong in [&b""[..], &[1; 31], &[1; 33], digits[1..].as_bytes(), digits.replace('a', "g").as_bytes()] {
            assert!(key_in(wrong).is_none());
        }
    }
}
