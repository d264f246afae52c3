//! `[engine]`, with the manifest it names.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, ManifestError};

use super::broker;
use super::draft::EngineDraft;
use super::load::NamedFiles;
use super::problem::Fault;
use super::section::{Report, Section, nearest};
use super::settings::EngineKind;
use crate::component_file;
use crate::engine::{Engine, engine_options};
use crate::limits::MAINTENANCE_INTERVAL_SECONDS;

const KINDS: &[&str] = &[Engine::Embedded.word(), Engine::Nats.word()];
/// Keys that only one of the two kinds has. They are not suggested for the other.
const OF_EMBEDDED: &[(&str, &str)] = &[("maintenance_interval_seconds", "")];
const OF_NATS: &[(&str, &str)] = &[
    ("address", ""),
    ("allow_non_public_peer", ""),
    ("server_name", ""),
    ("roots", ""),
    ("tls_first", ""),
    ("bus_credential", ""),
    ("trigger_credentials", ""),
];

/// What could be read of the table.
pub(super) struct EngineRead {
    /// Whether it says that the log is on a broker.
    pub(super) is_on_nats: bool,
    pub(super) engine: Option<EngineDraft>,
}

/// Reads the table and the manifest, and the schemas it refers to if they must be there.
pub(super) fn read(report: &mut Report<'_>, section: Option<Section<'_>>, folder: &Path, files: NamedFiles) -> EngineRead {
    let Some(mut section) = section else { return EngineRead { is_on_nats: false, engine: None } };
    let engine = read_kind(report, &mut section);
    let kind = engine.and_then(|engine| read_settings(report, &mut section, engine, folder));
    let manifest = section.required_text(report, "manifest", "manifest = \"bridge.yaml\"");
    let at = section.place_of("bus_credential");
    let others = match engine {
        Some(Engine::Nats) => OF_EMBEDDED,
        Some(Engine::Embedded) => OF_NATS,
        None => {
            // Which of them belong there is not known.
            section.pass_over(OF_EMBEDDED.iter().chain(OF_NATS).map(|(key, _)| *key));
            &[]
        }
    };
    section.finish(report, others);
    let draft = manifest.and_then(|manifest| {
        let path = folder.join(manifest.value);
        match read_manifest(&path) {
            Ok(parsed) => {
                if files == NamedFiles::MustExist {
                    schema_refusals(&path, &parsed).for_each(|refusal| report.push(manifest.at, Fault::Schema(refusal)));
                }
                Some(EngineDraft { manifest: parsed, manifest_path: path, manifest_at: manifest.at, kind, at })
            }
            Err(refusal) => {
                report.push(manifest.at, Fault::Manifest(refusal));
                None
            }
        }
    });
    EngineRead { is_on_nats: engine == Some(Engine::Nats), engine: draft }
}

/// The kind, or `None` after what is wrong with it was reported.
fn read_kind(report: &mut Report<'_>, section: &mut Section<'_>) -> Option<Engine> {
    let kind = section.required_text(report, "kind", "kind = \"embedded\"")?;
    let engine = Engine::of_word(kind.value);
    if engine.is_none() {
        let fault = Fault::Choice {
            table: section.label().to_owned(),
            key: "kind",
            found: kind.value.to_owned(),
            allowed: KINDS,
            nearest: nearest(kind.value, KINDS.iter().copied()),
        };
        report.push(kind.at, fault);
    }
    engine
}

/// The settings that this kind has; those of the other one are refused.
fn read_settings(report: &mut Report<'_>, section: &mut Section<'_>, engine: Engine, folder: &Path) -> Option<EngineKind> {
    match engine {
        Engine::Embedded => {
            refuse_others(report, section, OF_NATS, engine);
            let seconds = section.integer_or_default(report, "maintenance_interval_seconds", &MAINTENANCE_INTERVAL_SECONDS);
            Some(EngineKind::Embedded { maintenance_interval_seconds: seconds.value })
        }
        Engine::Nats => {
            refuse_others(report, section, OF_EMBEDDED, engine);
            broker::read(report, section, folder).map(EngineKind::Nats)
        }
    }
}

fn refuse_others(report: &mut Report<'_>, section: &mut Section<'_>, keys: &[(&'static str, &str)], engine: Engine) {
    section.pass_over(keys.iter().map(|(key, _)| *key));
    for (key, _) in keys.iter().filter(|(key, _)| section.is_present(key)) {
        report.push(section.place_of(key), Fault::OtherEngine { table: section.label().to_owned(), key, engine });
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
    let mut manifest = BridgeManifest::from_yaml(&text).map_err(|error| ManifestRefusal::of_the_text(path, error))?;
    place_archives(path, &mut manifest)?;
    // What the engine cannot do is told before anything is started.
    check_supported(&manifest).map_err(|error| ManifestRefusal::of_the_engine(path, error))?;
    Ok(manifest)
}

/// A folder of an archive is relative to the manifest's folder, as schemas are: from wherever a command is run, it is the same one.
fn place_archives(path: &Path, manifest: &mut BridgeManifest) -> Result<(), ManifestRefusal> {
    let is_relative = |uri: &str| !uri.contains("://") && Path::new(uri).is_relative();
    for topic in &mut manifest.topics {
        let Some(uri) = topic.retention.cold_uri.as_mut().filter(|uri| is_relative(uri)) else { continue };
        // A bare file name has the empty path as its parent, which names the working directory.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let folder = folder.canonicalize().map_err(|error| ManifestRefusal::of_the_file(path, &error))?;
        let placed = folder.join(&uri);
        let problem = || {
            format!("topic {:?}: cold_uri {uri:?} lies in {}, which is not UTF-8; name an absolute folder", topic.name, folder.display())
        };
        let placed = placed.to_str().ok_or_else(|| ManifestRefusal { file: path.to_owned(), place: None, problem: problem() })?;
        placed.clone_into(uri);
    }
    Ok(())
}

fn check_supported(manifest: &BridgeManifest) -> Result<(), BusError> {
    // Both engines have the same archives, and nothing else of a manifest is of one of them alone.
    EmbeddedBroker::check_supported(manifest)
}
