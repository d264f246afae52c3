//! `[engine]`, with the manifest it names.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, ManifestError};

use super::draft::EngineDraft;
use super::load::NamedFiles;
use super::problem::Fault;
use super::section::{Report, Section, nearest};
use crate::component_file;
use crate::engine::engine_options;
use crate::limits::MAINTENANCE_INTERVAL_SECONDS;

const KINDS: &[&str] = &["embedded", "nats"];
const ON_NATS: &str = "remove it; only kind = \"embedded\" is built, and it needs none of these";
const LATER: &[(&str, &str)] = &[
    ("address", ON_NATS),
    ("allow_non_public_peer", ON_NATS),
    ("server_name", ON_NATS),
    ("roots", ON_NATS),
    ("tls_first", ON_NATS),
    ("bus_credential", ON_NATS),
    ("trigger_credentials", ON_NATS),
];

/// Reads the table and the manifest, and the schemas it refers to if they must be there.
pub(super) fn read(report: &mut Report<'_>, section: Option<Section<'_>>, folder: &Path, files: NamedFiles) -> Option<EngineDraft> {
    let mut section = section?;
    let on_nats = read_kind(report, &mut section);
    if on_nats {
        // One problem is enough: the engine as a whole is not there.
        section.pass_over(LATER.iter().map(|(key, _)| *key));
    } else {
        section.refuse_later(report, LATER);
    }
    let manifest = section.required_text(report, "manifest", "manifest = \"bridge.yaml\"");
    let maintenance = section.integer_or_default(report, "maintenance_interval_seconds", &MAINTENANCE_INTERVAL_SECONDS);
    section.finish(report, LATER);
    let manifest = manifest?;
    let path = folder.join(manifest.value);
    match read_manifest(&path) {
        Ok(parsed) => {
            if files == NamedFiles::MustExist {
                schema_refusals(&path, &parsed).for_each(|refusal| report.push(manifest.at, Fault::Schema(refusal)));
            }
            Some(EngineDraft { manifest: parsed, manifest_path: path, maintenance_interval_seconds: maintenance.value })
        }
        Err(refusal) => {
            report.push(manifest.at, Fault::Manifest(refusal));
            None
        }
    }
}

/// Reports what is wrong with the kind; true when it is NATS.
fn read_kind(report: &mut Report<'_>, section: &mut Section<'_>) -> bool {
    let Some(kind) = section.required_text(report, "kind", "kind = \"embedded\"") else { return false };
    match kind.value {
        "embedded" => false,
        "nats" => {
            let fault = Fault::NotBuilt {
                table: section.label().to_owned(),
                setting: "kind = \"nats\"".to_owned(),
                instead: "use kind = \"embedded\"; topics, services and triggers stay as they are when the cluster engine comes",
            };
            report.push(kind.at, fault);
            true
        }
        other => {
            let fault = Fault::Choice {
                table: section.label().to_owned(),
                key: "kind",
                found: other.to_owned(),
                allowed: KINDS,
                nearest: nearest(other, KINDS.iter().copied()),
            };
            report.push(kind.at, fault);
            false
        }
    }
}

/// Why topics' schemas cannot be used. The engine stops at the first one, so it is asked for each topic by itself.
fn schema_refusals(path: &Path, manifest: &BridgeManifest) -> impl Iterator<Item = ManifestRefusal> {
    let options = engine_options("latent check", Some(path));
    manifest.topics.iter().filter_map(move |topic| {
        let (name, topics) = (manifest.name.clone(), vec![topic.clone()]);
        let (manifest_version, replication_factor) = (manifest.manifest_version, manifest.replication_factor);
        let alone = BridgeManifest { manifest_version, name, replication_factor, topics };
        EmbeddedBroker::check_schemas(&alone, &options).err().map(|error| ManifestRefusal::of_the_engine(path, error))
    })
}

/// Why a manifest cannot be used, and where in its file, as editors and terminals know places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestRefusal {
    file: PathBuf,
    /// Line and column, both from 1.
    place: Option<(u64, u64)>,
    problem: String,
}

impl fmt::Display for ManifestRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl ManifestRefusal {
    fn of_the_file(path: &Path, error: &io::Error) -> Self {
        Self { file: path.to_owned(), place: None, problem: error.to_string() }
    }

    fn of_the_engine(path: &Path, error: BusError) -> Self {
        let problem = match error {
            BusError::Config { problem } => problem,
            error => error.to_string(),
        };
        Self { file: path.to_owned(), place: None, problem }
    }

    fn of_the_text(path: &Path, error: ManifestError) -> Self {
        let (place, problem) = match error {
            ManifestError::Parse { problem, line, column } => {
                let place = line.zip(column);
                (place, place.map_or_else(|| problem.clone(), |place| without_place(&problem, place)))
            }
            ManifestError::Invalid { field, problem, line, column } => (line.zip(column), format!("{field}: {problem}")),
            error => (None, error.to_string()),
        };
        Self { file: path.to_owned(), place, problem }
    }
}

/// The parser ends its words with the place, which is told already.
fn without_place(problem: &str, (line, column): (u64, u64)) -> String {
    problem.strip_suffix(&format!(" at line {line}, column {column}")).unwrap_or(problem).to_owned()
}

/// Reads one byte more than a manifest may have, so that its own parser names the cap.
pub(crate) fn read_manifest(path: &Path) -> Result<BridgeManifest, ManifestRefusal> {
    let cap = latent_bridge::limits::MANIFEST_BYTES.max;
    let mut text = String::new();
    let (file, _) = component_file::open(path).map_err(|error| ManifestRefusal::of_the_file(path, &error))?;
    file.take(cap.saturating_add(1)).read_to_string(&mut text).map_err(|error| ManifestRefusal::of_the_file(path, &error))?;
    let manifest = BridgeManifest::from_yaml(&text).map_err(|error| ManifestRefusal::of_the_text(path, error))?;
    // The only engine there is. What it cannot do is told before anything is started.
    EmbeddedBroker::check_supported(&manifest).map_err(|error| ManifestRefusal::of_the_engine(path, error))?;
    Ok(manifest)
}
