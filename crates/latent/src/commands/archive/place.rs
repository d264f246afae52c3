//! Archives, keys and heads as the arguments name them.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use latent_bridge::cold::export::{ArchiveHead, ExportError};
use latent_bridge::cold::{ColdStore, ControlKeys, open_archive, open_to_read};
use latent_bridge::manifest::ColdFormat;
use latent_core::Limit;
use latent_secrets::control_key_from_file;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::component_file;
use crate::control::Fault;
use crate::error::CliError;
use crate::limits;

/// What to check an archive with.
#[derive(Debug, Args)]
pub(super) struct ProofArgs {
    /// A control key that segments are proven with, newest first: a file of 32 bytes, or of 64 hexadecimal digits, its owner's alone. Without it, those of the configuration
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Up to where the archive went: a file that `latent archive status --json` printed
    #[arg(long = "head", value_name = "FILE")]
    heads: Vec<PathBuf>,
    /// Take single events that no segment proves as well: of a topic whose `cold_format` was `objects` once
    #[arg(long)]
    pub(super) accept_unproven: bool,
}

/// Keys and heads.
pub(super) struct Proof {
    /// None when no key was named.
    pub(super) keys: Option<ControlKeys>,
    pub(super) heads: Vec<ArchiveHead>,
    /// How topics are archived, where the files of heads or a manifest say it.
    pub(super) formats: Vec<(String, ColdFormat)>,
    /// Of which archives the files of heads are, as far as they say it.
    archives: BTreeSet<String>,
}

impl Proof {
    /// Heads do not say of which copy they are, so those of other archives would be missed in the one that is looked at. A topic is in one
    /// archive, and tells.
    pub(super) fn refuse_heads_of_several(&self, topic: Option<&str>) -> Result<(), CliError> {
        if topic.is_some() || self.archives.len() < 2 {
            return Ok(());
        }
        let named = self.archives.iter().take(ARCHIVES_NAMED_MAX).map(|archive| format!("{archive:?}")).collect::<Vec<_>>().join(", ");
        let more = self.archives.len().saturating_sub(ARCHIVES_NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let reason = format!("the heads are of several archives ({named}{more}), and which topics this one should have they do not say");
        Err(CliError::Value { option: HEADS_WITHOUT_TOPIC, reason })
    }
}

/// Archives that an error names at most.
const ARCHIVES_NAMED_MAX: usize = 8;
/// What is wrong with heads whose key is not there.
pub(crate) const HEADS_WITHOUT_KEY: &str = "--head without its --key";
/// What is wrong with heads of several archives.
pub(crate) const HEADS_WITHOUT_TOPIC: &str = "--head without --topic";

/// Opens an archive that must be there.
pub(super) fn open(uri: &str) -> Result<Arc<dyn ColdStore>, CliError> {
    open_archive(uri).map_err(|error| not_opened(uri, &error))
}

/// Opens an archive that a manifest names. Where there is none, everything that should be in it is missing.
pub(super) fn open_expected(uri: &str) -> Result<Arc<dyn ColdStore>, CliError> {
    open_to_read(uri).map_err(|error| not_opened(uri, &error))
}

fn not_opened(uri: &str, error: &latent_bridge::BusError) -> CliError {
    CliError::Log { doing: format!("opening the archive {uri}"), fault: Fault::from(error) }
}

impl ProofArgs {
    /// `configured` are the keys of a configuration, for when none is named.
    pub(super) fn read(&self, configured: &[PathBuf]) -> Result<Proof, CliError> {
        let keys = self.key_bytes(configured)?;
        let keys: Vec<_> = keys.iter().map(|key| **key).collect();
        let ring = ControlKeys::new(&keys).map_err(|error| CliError::Value { option: "--key", reason: error.to_string() })?;
        let (mut heads, mut formats, mut archives) = (Vec::new(), Vec::new(), BTreeSet::new());
        for file in &self.heads {
            let told = heads_of(file, &ring)?;
            heads.extend(told.heads);
            formats.extend(told.formats);
            archives.extend(told.archives);
        }
        Ok(Proof { keys: (!keys.is_empty()).then_some(ring), heads, formats, archives })
    }

    /// The bytes of the keys, newest first.
    pub(super) fn key_bytes(&self, configured: &[PathBuf]) -> Result<Vec<Zeroizing<[u8; 32]>>, CliError> {
        let files = if self.keys.is_empty() { configured } else { &self.keys };
        files.iter().map(|file| key_of(file)).collect()
    }
}

/// The text of a file that is named on the command line, which must be a regular one and no longer than that. None when it is not there.
pub(super) fn text_of(option: &'static str, file: &Path, limit: Limit) -> Result<Option<String>, CliError> {
    let unusable = |reason: String| CliError::Value { option, reason: format!("{}: {reason}", file.display()) };
    let input = |error: io::Error| unusable(error.to_string());
    let opened = match component_file::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(input)?.0,
    };
    let mut content = Vec::new();
    opened.take(limit.max.saturating_add(1)).read_to_end(&mut content).map_err(input)?;
    if content.len() as u64 > limit.max {
        return Err(unusable(format!("it is longer than {} bytes ({})", limit.max, limit.name)));
    }
    String::from_utf8(content).map(Some).map_err(|error| unusable(error.to_string()))
}

fn key_of(file: &Path) -> Result<Zeroizing<[u8; 32]>, CliError> {
    control_key_from_file(file).map_err(|error| CliError::Value { option: "--key", reason: error.to_string() })
}

/// A line of `latent archive status --json`; only its proven document is believed, and how and where a topic is archived.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    document: Option<String>,
    #[serde(default)]
    topic: Option<String>,
    #[serde(default)]
    format: Option<ColdFormat>,
    #[serde(default)]
    archive: Option<String>,
}

/// What a file of heads says.
struct Told {
    heads: Vec<ArchiveHead>,
    formats: Vec<(String, ColdFormat)>,
    archives: BTreeSet<String>,
}

fn heads_of(file: &Path, ring: &ControlKeys) -> Result<Told, CliError> {
    let unusable = |reason: String| CliError::Value { option: "--head", reason: format!("{}: {reason}", file.display()) };
    let text = text_of("--head", file, limits::ARCHIVE_HEADS_BYTES)?;
    let text = text.ok_or_else(|| unusable("there is no such file".to_owned()))?;
    let mut told = Told { heads: Vec::new(), formats: Vec::new(), archives: BTreeSet::new() };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).map_err(|error| unusable(error.to_string()))?;
        if let (Some(topic), Some(format), None) = (line.topic, line.format, &line.document) {
            told.formats.push((topic, format));
        }
        told.archives.extend(line.archive);
        let Some(document) = line.document else { continue };
        told.heads.push(ArchiveHead::from_json(&document, ring).map_err(|error| unproven(file, &error))?);
    }
    if told.heads.is_empty() {
        return Err(unusable(
            "it holds no head; `latent archive status --json` prints them, of topics with cold_format: segments".to_owned(),
        ));
    }
    Ok(told)
}

fn unproven(file: &Path, error: &ExportError) -> CliError {
    let file = file.display();
    match error {
        ExportError::UnknownKey { key_id } => {
            let reason = format!("{file}: a head in it is proven with the control key {key_id}, which was not named");
            CliError::Value { option: HEADS_WITHOUT_KEY, reason }
        }
        _ => CliError::Value { option: "--head", reason: format!("{file}: a head in it is not as it was proven") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_at_its_limit_and_refused_one_byte_beyond_and_what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        let limit = Limit { max: 8, ..limits::ARCHIVE_HEADS_BYTES };
        for (bytes, is_taken) in [(7, true), (8, true), (9, false)] {
            std::fs::write(&file, "x".repeat(bytes)).unwrap();
            let text = text_of("--head", &file, limit);
            assert_eq!(text.is_ok(), is_taken, "{bytes}");
        }
        assert!(text_of("--head", &file, limit).unwrap_err().why().contains("longer than 8 bytes (archive_heads_bytes)"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        for path in [pipe.as_path(), folder.path()] {
            assert!(matches!(text_of("--head", path, limit), Err(CliError::Value { option: "--head", .. })), "{}", path.display());
        }
        assert_eq!(text_of("--head", &folder.path().join("none"), limit).unwrap(), None);
    }
}
