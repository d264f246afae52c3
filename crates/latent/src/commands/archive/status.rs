//! `latent archive status`, and what a configuration says of archives.

use std::path::{Path, PathBuf};

use clap::Args;
use latent_bridge::cold::ArchiveStatistics;
use latent_bridge::cold::export::{AttestedHead, KeptHole};
use latent_bridge::manifest::ColdFormat;
use latent_core::{Clock as _, Partition, SystemClock, UnixMillis};
use serde_json::{Value, json};

use super::heads::{self, UnreadHead};
use super::place::{Proof, ProofArgs};
use super::waiting::Left;
use crate::access::{Access, CommandBus, Stopped, without_bindings};
use crate::config::{self, NamedFiles};
use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::error::CliError;
use crate::output::{Form, Output};
use crate::table::Table;

/// Arguments of `latent archive status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent archive status -c latent.toml
  latent archive status -c latent.toml --json > heads.jsonl

INTENTS are events whose way into the archive has begun and is not finished; those in quarantine need somebody to look. For topics with \
`cold_format: segments` COLD is the last offset that is in the archive. The lines of --json attest that with a proof: kept apart from the \
archive, they are what `latent archive verify --head` needs to find what is missing at its end.

On a broker, HOLES counts ranges of offsets that it removed before they were archived, and LEFT is how long it keeps the oldest event that is \
in no segment yet.

A node that runs is asked; else the directory is opened, and --key names the control keys that heads are checked with.")]
pub(crate) struct StatusArgs {
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
    #[command(flatten)]
    proof: ProofArgs,
}

/// A topic that is archived.
pub(super) struct ArchivedTopic {
    pub(super) name: String,
    pub(super) partitions: u32,
    pub(super) uri: String,
    pub(super) format: ColdFormat,
    /// How long its events stay in hot storage.
    pub(super) hot_hours: u32,
}

impl ArchivedTopic {
    /// The word of manifests and documents.
    const fn format_word(&self) -> &'static str {
        match self.format {
            ColdFormat::Segments => "segments",
            ColdFormat::Objects => "objects",
        }
    }
}

/// The log of a configuration, and its topics that are archived.
pub(super) struct ArchivedLog {
    pub(super) bus: CommandBus,
    pub(super) engine: Engine,
    pub(super) topics: Vec<ArchivedTopic>,
    /// Keys and heads.
    pub(super) proof: Proof,
}

/// Opens the log of a configuration.
pub(super) fn archived(path: &Path, holder: &str, proof: &ProofArgs) -> Result<ArchivedLog, CliError> {
    let config = config::load(path, NamedFiles::NotNeeded)?.config;
    let engine = if config.engine.broker().is_some() { Engine::Nats } else { Engine::Embedded };
    let topics = config.engine.manifest.topics.iter().filter_map(|topic| {
        let format = topic.retention.cold_format.unwrap_or(ColdFormat::Objects);
        let uri = topic.retention.cold_uri.clone()?;
        let hot_hours = topic.retention.hot_hours;
        Some(ArchivedTopic { name: topic.name.clone(), partitions: topic.partitions, uri, format, hot_hours })
    });
    let topics = topics.collect();
    let stopped = Stopped { bindings: &without_bindings, config: Some(&config) };
    let bus = CommandBus::of(Access::open_knowing(&DataDir::new(&config.node.data_dir), holder, stopped)?)?;
    let keys = proof.key_bytes(&config.archive.control_key_files)?;
    if !keys.is_empty() {
        let keys: Vec<_> = keys.iter().map(|key| **key).collect();
        bus.bus().set_control_keys(&keys).map_err(|error| CliError::Value { option: "--key", reason: error.to_string() })?;
    }
    let proof = proof.read(&config.archive.control_key_files)?;
    Ok(ArchivedLog { bus, engine, topics, proof })
}

/// Prints intents, then each topic's partitions.
pub(super) fn status(args: &StatusArgs, output: &mut Output) -> Result<(), CliError> {
    let archived = archived(&args.config, "latent archive status", &args.proof)?;
    if let Some(intents) = archived.bus.bus().archive_statistics() {
        tell_intents(intents, archived.bus.is_of_node(), output)?;
    }
    let mut unread = Vec::new();
    let now = SystemClock::start().unix();
    let mut table = Table::new(&["TOPIC", "PARTITION", "FORMAT", "SEGMENTS", "COLD", "HOLES", "LEFT", "ARCHIVE"]);
    for topic in &archived.topics {
        let lines = archived.lines(topic, now, &mut unread);
        if lines.is_empty() {
            let row = [&*topic.name, "all", topic.format_word(), "-", "-", "-", "-", &*topic.uri];
            table.push(row.map(str::to_owned).to_vec());
            if output.form() == Form::Json {
                output.json(&json!({ "topic": topic.name, "format": topic.format_word(), "archive": topic.uri }))?;
            }
        }
        for line in lines {
            if output.form() == Form::Json {
                output.json(&line.document(topic))?;
            }
            table.push(line.row(topic));
        }
    }
    let ended = heads::all_read(&unread);
    if output.form() == Form::Json {
        return ended;
    }
    if archived.topics.is_empty() {
        output.hint("no topic of the manifest has a cold_uri");
        return Ok(());
    }
    table.to_string().lines().try_for_each(|line| output.text(line))?;
    ended
}

/// Who only sees files does not know which intents are in quarantine: the node that runs remembers it.
fn tell_intents(intents: ArchiveStatistics, is_of_node: bool, output: &mut Output) -> Result<(), CliError> {
    let quarantined = match intents.intents_quarantined {
        _ if !is_of_node => "; how many of them are in quarantine only a running node knows".to_owned(),
        0 => String::new(),
        count => format!(", {count} of them in quarantine"),
    };
    let known = is_of_node.then_some(intents.intents_quarantined);
    let ArchiveStatistics { intents, intents_max, .. } = intents;
    let document = json!({ "intents": { "intents": intents, "intents_quarantined": known, "intents_max": intents_max } });
    let quarantined = if intents == 0 { String::new() } else { quarantined };
    output.line(&document, || format!("{intents} of at most {intents_max} intents wait{quarantined}"))
}

/// One partition.
struct Line {
    partition: Partition,
    head: Option<AttestedHead>,
    /// Its head is there and cannot be read.
    is_unread: bool,
    left: Left,
}

impl ArchivedLog {
    /// The partitions of which there is something to say.
    fn lines(&self, topic: &ArchivedTopic, now: UnixMillis, unread: &mut Vec<UnreadHead>) -> Vec<Line> {
        let (known, heads) = (unread.len(), self.heads(&topic.name, topic.partitions, unread));
        let mut heads = heads.into_iter().peekable();
        let removes_by_age = self.engine == Engine::Nats && topic.format == ColdFormat::Segments;
        let mut lines = Vec::new();
        for partition in (0..topic.partitions).map(Partition) {
            let head = heads.next_if(|attested| attested.head.place.partition == partition);
            let is_unread = unread.iter().skip(known).any(|unread| unread.partition == partition);
            let end = head.as_ref().and_then(|attested| attested.head.end());
            let left = match (removes_by_age, is_unread) {
                (_, true) => Left::Unknown,
                (true, false) => Left::of(&**self.bus.bus(), topic, partition, end, now),
                (false, false) => Left::Nothing,
            };
            if head.is_some() || left != Left::Nothing {
                lines.push(Line { partition, head, is_unread, left });
            }
        }
        lines
    }
}

impl Line {
    fn document(&self, topic: &ArchivedTopic) -> Value {
        let mut document = json!({
            "topic": topic.name, "partition": self.partition.0, "format": topic.format_word(), "archive": topic.uri,
            "left_seconds": self.left.seconds(),
        });
        if self.is_unread {
            document["unread"] = true.into();
        }
        let Some(AttestedHead { head, document: proven }) = &self.head else { return document };
        document["segments"] = head.segments.into();
        document["cold"] = head.end().map(|end| end.0).into();
        document["looked"] = head.lookout.map(|lookout| lookout.upto.0).into();
        document["holes"] = head.holes.total().into();
        document["holes_named"] = head.holes.kept().iter().map(hole).collect();
        document["document"] = proven.as_str().into();
        document
    }

    fn row(&self, topic: &ArchivedTopic) -> Vec<String> {
        let head = self.head.as_ref().map(|attested| &attested.head);
        let none = if self.is_unread { "unknown" } else { "-" };
        let or_none = |number: Option<u64>| number.map_or_else(|| none.to_owned(), |number| number.to_string());
        vec![
            topic.name.clone(),
            self.partition.to_string(),
            topic.format_word().to_owned(),
            or_none(head.map(|head| head.segments)),
            or_none(head.and_then(|head| head.end()).map(|end| end.0)),
            or_none(head.map(|head| head.holes.total())),
            self.left.words(),
            topic.uri.clone(),
        ]
    }
}

fn hole(kept: &KeptHole) -> Value {
    let one = &kept.hole;
    json!({ "first": one.first.0, "last": one.last.0, "events": one.events, "found_at": one.found_at.0, "reason": one.reason.word() })
}
