//! `[archive]`: the control keys of topics with a `cold_uri`.

use std::path::Path;

use latent_secrets::control_key_from_file;

use super::draft::Draft;
use super::load::NamedFiles;
use super::problem::Fault;
use super::section::{Report, Section};
use super::settings::ArchiveConfig;

const EXAMPLE: &str = "control_key_files = [\"archive.key\"], the newest first";

/// Reads the table. Without one there are no keys.
pub(super) fn read(report: &mut Report<'_>, section: Option<Section<'_>>, folder: &Path, named: NamedFiles) -> ArchiveConfig {
    let Some(mut section) = section else { return ArchiveConfig::default() };
    let files = section.required_texts(report, "control_key_files", EXAMPLE);
    let max = latent_bridge::limits::CONTROL_KEYS;
    for file in &files {
        if file.value.is_empty() {
            report.push(file.at, Fault::Empty { table: section.label().to_owned(), key: "control_key_files", example: EXAMPLE });
        } else if named == NamedFiles::MustExist
            && let Err(problem) = usable(&folder.join(file.value))
        {
            report.push(file.at, Fault::ControlKey { problem });
        }
    }
    if files.len() > max.max_usize() {
        let at = section.place_of("control_key_files");
        report.push(at, Fault::TooManyKeys { count: files.len(), max: max.max });
    }
    section.finish(report, &[]);
    ArchiveConfig { control_key_files: files.into_iter().map(|file| folder.join(file.value)).collect() }
}

/// Whether a node could start with this key.
fn usable(file: &Path) -> Result<(), String> {
    control_key_from_file(file).map(drop).map_err(|error| error.to_string())
}

/// What is to be archived needs a key, so that the archive takes nothing that this node did not write (B-073).
pub(super) fn check(report: &mut Report<'_>, draft: &Draft) {
    let Some(engine) = &draft.engine else { return };
    let archived = engine.manifest.topics.iter().find(|topic| topic.retention.cold_uri.is_some());
    if let Some(topic) = archived.filter(|_| draft.archive.control_key_files.is_empty()) {
        report.push(engine.manifest_at, Fault::NoControlKey { topic: topic.name.clone() });
    }
}
