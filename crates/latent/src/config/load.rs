//! From a path to a configuration or all of its problems.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use toml_edit::Document;

use super::draft::Draft;
use super::problem::{ConfigError, Fault, PlacedProblem, Problem, Warning};
use super::section::{Report, Section};
use super::settings::Config;
use super::{archive, engine, links, node, provider, secrets, service, stream_trigger, streams, topic, trigger};
use crate::limits;

/// Which of the files that a configuration leads to must be there. A command that only reads a topic must not fail because nothing was
/// compiled yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedFiles {
    /// Components and schemas: `check`.
    MustExist,
    /// Components: `run`. A starting engine looks at schemas itself, and does without one that it keeps a copy of.
    ComponentsMustExist,
    /// None: everything else.
    NotNeeded,
}

/// A usable configuration and what is worth knowing about it.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The settings.
    pub(crate) config: Config,
    /// In the order of the file.
    pub(crate) warnings: Vec<Warning>,
}

/// Reads, parses and checks the file and what it names.
///
/// # Errors
/// [`ConfigError`] with every problem; after a syntax error the rest of the file cannot be looked at.
pub(crate) fn load(path: &Path, files: NamedFiles) -> Result<Loaded, ConfigError> {
    let failed = |fault| ConfigError { path: path.to_owned(), problems: vec![PlacedProblem::of(path, "", &Problem { at: None, fault })] };
    let text = read(path).map_err(failed)?;
    parse(path, &text, files)
}

/// As [`load`], for `latent dev`, which has its topics in a directory of its own: what a function publishes while it is written must not
/// reach a broker.
///
/// # Errors
/// As [`load`], and for topics on a broker.
pub(crate) fn load_for_dev(path: &Path, files: NamedFiles) -> Result<Loaded, ConfigError> {
    let loaded = load(path, files)?;
    if loaded.config.engine.broker().is_none() {
        return Ok(loaded);
    }
    let problem = Problem { at: None, fault: Fault::DevOnNats };
    Err(ConfigError { path: path.to_owned(), problems: vec![PlacedProblem::of(path, "", &problem)] })
}

fn read(path: &Path) -> Result<String, Fault> {
    let unreadable = |error: std::io::Error| Fault::Unreadable { reason: error.to_string() };
    let file = std::fs::File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Fault::NoFile,
        _ => unreadable(error),
    })?;
    let mut bytes = Vec::new();
    file.take(limits::CONFIG_FILE_BYTES.max.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    check_length(bytes.len())?;
    String::from_utf8(bytes).map_err(|_| Fault::NotText)
}

/// The file's cap. An empty file is too short for other reasons, which are told later.
fn check_length(bytes: usize) -> Result<(), Fault> {
    let limit = latent_core::Limit { min: 0, ..limits::CONFIG_FILE_BYTES };
    limit.check(bytes as u64).map(|_| ()).map_err(Fault::TooLarge)
}

/// Parses text that stands, or could stand, at `path`.
pub(crate) fn parse(path: &Path, text: &str, files: NamedFiles) -> Result<Loaded, ConfigError> {
    let mut report = Report::of(text);
    let (draft, cautions) = match Document::parse(text) {
        Ok(document) => {
            let draft = read_document(&mut report, &document, folder_of(path), files);
            let cautions = links::check(&mut report, &draft);
            (Some(draft), cautions)
        }
        Err(error) => {
            let at = error.span().map(|span| span.start);
            report.problems.push(Problem { at, fault: Fault::Syntax { message: one_line(error.message()) } });
            (None, Vec::new())
        }
    };
    if report.problems.is_empty()
        && let Some(config) = draft.and_then(|draft| draft.complete(path.to_owned()))
    {
        let mut cautions = cautions;
        cautions.sort_by_key(|(at, _)| *at);
        let warnings = cautions.iter().map(|(at, caution)| PlacedProblem::caution(path, text, *at, caution)).collect();
        return Ok(Loaded { config, warnings });
    }
    report.problems.sort_by_key(|problem| problem.at);
    let problems = report.problems.iter().map(|problem| PlacedProblem::of(path, text, problem)).collect();
    Err(ConfigError { path: path.to_owned(), problems })
}

fn read_document(report: &mut Report<'_>, document: &Document<&str>, folder: PathBuf, files: NamedFiles) -> Draft {
    let mut root = Section::new(String::new(), document.as_table(), 0);
    for (key, example) in [("node", "[node] with name and data_dir"), ("engine", "[engine] with kind and manifest")] {
        if !root.is_present(key) {
            report.push(0, Fault::Missing { table: String::new(), key, example });
        }
    }
    let (node_table, limits_table) = (root.table(report, "node"), root.table(report, "limits"));
    let node = node::read(report, node_table, limits_table, &folder);
    let engine_table = root.table(report, "engine");
    let engine::EngineRead { is_on_nats, engine } = engine::read(report, engine_table, &folder, files);
    let secrets_table = root.table(report, "secrets");
    let secrets_stand = secrets_table.is_some();
    let data_dir = node.as_ref().map(|node| node.data_dir.as_path());
    let secrets = secrets::read(report, secrets_table, &folder, data_dir);
    let archive_table = root.table(report, "archive");
    let archive = archive::read(report, archive_table, &folder, files);
    let pools_table = root.table(report, "pools");
    let pools = provider::read_pools(report, pools_table);
    let providers = root.tables(report, "provider").into_iter().map(|section| provider::read(report, section, &folder)).collect();
    let topics = root.tables(report, "topic").into_iter().map(|section| topic::read(report, section)).collect();
    let services = root.tables(report, "service").into_iter().map(|section| service::read(report, section, &folder, files)).collect();
    let broker_table = root.table(report, "broker");
    let streams = streams::read(report, broker_table, &folder);
    let (mut triggers, mut stream_triggers, mut raw_triggers) = (Vec::new(), Vec::new(), Vec::new());
    for section in root.tables(report, "trigger") {
        if stream_trigger::is_meant(&section) && stream_trigger::is_raw(&section) {
            raw_triggers.push(stream_trigger::read_raw(report, section));
        } else if stream_trigger::is_meant(&section) {
            stream_triggers.push(stream_trigger::read(report, section));
        } else {
            triggers.push(trigger::read(report, section));
        }
    }
    root.finish(report, &[]);
    Draft {
        node,
        is_on_nats,
        engine,
        secrets_stand,
        secrets,
        archive,
        pools,
        providers,
        topics,
        services,
        triggers,
        streams,
        stream_triggers,
        raw_triggers,
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_accepted_at_its_cap_and_refused_one_byte_beyond() {
        let cap = limits::CONFIG_FILE_BYTES.max_usize();
        assert!(check_length(0).is_ok() && check_length(cap - 1).is_ok() && check_length(cap).is_ok());
        assert!(matches!(check_length(cap + 1), Err(Fault::TooLarge(_))));
    }
}
