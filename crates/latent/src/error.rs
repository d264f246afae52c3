//! Every way a command can fail, as data, with its three lines for people and its one object for machines.
//!
//! `Display` says what failed, [`CliError::why`] why, [`CliError::next_step`] what to do. Status 2 is for what is known to be wrong
//! before any data was touched; whatever the log or the node answers is 1, or 3 where it may have happened.

use std::path::PathBuf;

use latent_secrets::SecretError;

use crate::broker::{BrokerError, EnvironmentFault};
use crate::commands::archive::{HEADS_WITHOUT_KEY, HEADS_WITHOUT_TOPIC};
use crate::commands::bus::{EmptyLines, KEYLESS, MigrationCounts, PartitionFinding, Repetition, SentCounts, Stopped, named};
use crate::commands::deadletter::ReplayCounts;
use crate::commands::new::ProjectError;
use crate::commands::secret;
use crate::config::ConfigError;
use crate::control::{ControlError, Fault, Maintained};
use crate::exit::ExitStatus;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The words after `latent` are not a command.
    #[error("{what}")]
    Usage {
        /// The parser's first line.
        what: String,
        /// Its hint, or the form of the command.
        why: String,
        /// Which help to read.
        next: String,
    },
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A manifest given on the command line cannot be used.
    #[error("the manifest {} cannot be used", file.display())]
    Manifest {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The command is part of a later version.
    #[error("{what} is not built in this version")]
    NotBuilt {
        /// What was asked for.
        what: String,
        /// What there is instead.
        instead: &'static str,
    },
    /// Another process has the data directory and does not answer.
    #[error("the data directory {} is in use and nobody answers on its control socket", dir.display())]
    Held {
        /// The directory.
        dir: PathBuf,
        /// Who holds it, in the log's words.
        holder: String,
    },
    /// The command needs a directory that nobody uses.
    #[error("a node is already running on the data directory {} (pid {pid})", dir.display())]
    NodeRunning {
        /// The directory.
        dir: PathBuf,
        /// The node's configured name.
        name: String,
        /// The node's process.
        pid: u32,
    },
    /// The system does not let this user at the data directory or its socket.
    #[error("there is no permission for the data directory {}", dir.display())]
    NoPermission {
        /// The directory.
        dir: PathBuf,
        /// What was tried, and the system's words.
        reason: String,
        /// Whether there is a directory that somebody owns.
        existence: Existence,
    },
    /// A log was made in the data directory before.
    #[error("the data directory {} is already provisioned", dir.display())]
    Provisioned {
        /// The directory.
        dir: PathBuf,
        /// The log's answer.
        fault: Fault,
    },
    /// No log was made in the data directory yet.
    #[error("the data directory {} is not provisioned", dir.display())]
    NotProvisioned {
        /// The directory.
        dir: PathBuf,
    },
    /// The running node could not be talked to.
    #[error("{doing} failed")]
    Control {
        /// What was being done.
        doing: String,
        /// What went wrong on the socket.
        #[source]
        source: ControlError,
    },
    /// The log said no, or could not.
    #[error("{doing} failed")]
    Log {
        /// What was being done.
        doing: String,
        /// The log's answer.
        fault: Fault,
    },
    /// A record in the way of a reader is damaged.
    #[error("{doing} failed")]
    Damaged {
        /// What was being done.
        doing: String,
        /// The partition it lies in.
        partition: u32,
        /// Where reading can go on in that partition.
        continue_at: u64,
        /// The log's answer.
        fault: Fault,
    },
    /// A topic was followed, and some of its partitions could not be read when that ended.
    #[error("{} of {topic} could not be read when the tail ended", partitions_of(places))]
    Unread {
        /// The topic.
        topic: String,
        /// Each partition, and the offset to go on at.
        places: Vec<(u32, u64)>,
        /// Why the first of them could not be read.
        fault: Fault,
    },
    /// The log has no topic of this name.
    #[error("there is no topic {topic:?}")]
    UnknownTopic {
        /// As given.
        topic: String,
        /// The one that was probably meant.
        nearest: Option<String>,
        /// Topics there are.
        declared: Vec<String>,
    },
    /// Nothing of this name is published or was revoked.
    #[error("there is no service {service:?}")]
    UnknownService {
        /// As given.
        service: String,
        /// The one that was probably meant.
        nearest: Option<String>,
        /// Services there are.
        known: Vec<String>,
    },
    /// Nothing is known of a trigger of this id.
    #[error("there is no trigger {trigger:?}")]
    UnknownTrigger {
        /// As given.
        trigger: String,
        /// The one that was probably meant.
        nearest: Option<String>,
        /// Triggers that could be meant.
        known: Vec<String>,
    },
    /// Dead letters that were not published again, or may not have been. They were told one by one.
    #[error("{} of {} dead letters were refused and {} are uncertain", counts.refused, counts.letters(), counts.uncertain)]
    Unreplayed {
        /// What became of all.
        counts: ReplayCounts,
    },
    /// No event that can be read has this uid.
    #[error("topic {topic:?} has no event with uid {uid:?}")]
    NotFound {
        /// The topic.
        topic: String,
        /// The uid.
        uid: String,
    },
    /// A file given on the command line cannot be read.
    #[error("{} cannot be read", file.display())]
    Input {
        /// The file, `-` for standard input.
        file: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// A name or value of the command line breaks its rule.
    #[error("{option} is not usable")]
    Value {
        /// The argument.
        option: &'static str,
        /// The rule it breaks.
        reason: String,
    },
    /// A bulk publication in which not every event was stored. The events were told one by one.
    #[error("{}", incomplete(counts))]
    Incomplete {
        /// What became of the events.
        counts: SentCounts,
        /// What publishing the file again would do.
        repetition: Repetition,
        /// Of the refused, those that may be stored another time.
        passing: u64,
        /// Where it ended before the file did.
        stopped: Option<Stopped>,
    },
    /// Two logs between which no topic can be brought as it is. Nothing was done.
    #[error("the destination is not made for these topics")]
    Unmigratable {
        /// Each reason.
        problems: Vec<String>,
        /// What to do about them.
        next: &'static str,
    },
    /// Partitions that are not the same on both sides. Each was told.
    #[error("{} of {} partitions are not the same on both sides", findings.len(), counts.partitions)]
    Unmigrated {
        /// What became of all.
        counts: MigrationCounts,
        /// Why, of each.
        findings: Vec<PartitionFinding>,
        /// Nothing was to be copied.
        is_comparison: bool,
    },
    /// The file that keeps how far a migration is cannot be used.
    #[error("the progress of the migration cannot be kept in {}", file.display())]
    ProgressFile {
        /// The file.
        file: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// Archives that are not as they should be. What is wrong was told one by one.
    #[error("{findings} {} wrong with the archive", if *findings == 1 { "thing is" } else { "things are" })]
    UnsoundArchive {
        /// How many things.
        findings: u64,
        /// All of them are proofs by a key that was not given.
        lacks_key: bool,
    },
    /// A maintenance that left something undone. What it did was told.
    #[error("the maintenance is incomplete")]
    Unmaintained {
        /// What it did and left.
        done: Box<Maintained>,
    },
    /// The node got a request that changes something, and no answer came.
    #[error("{doing} may have happened")]
    Unanswered {
        /// What was asked for.
        doing: String,
        /// What hid the answer.
        #[source]
        source: ControlError,
    },
    /// No project could be made.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// Something went wrong while it was measured.
    #[error("{doing} failed")]
    Bench {
        /// What was being done.
        doing: String,
        /// The system's words, or what was not as it has to be.
        reason: String,
    },
    /// A signal ended the command before it was done.
    #[error("{what} was interrupted")]
    Interrupted {
        /// What did not come to its end.
        what: &'static str,
    },
    /// Standard output cannot be written.
    #[error("the output cannot be written")]
    Output {
        /// The system's words.
        reason: String,
    },
    /// The configuration says nothing of secrets.
    #[error("{} has no [secrets]", config.display())]
    NoSecretStore {
        /// The configuration.
        config: PathBuf,
    },
    /// The secret store said no, or could not.
    #[error("{doing} failed")]
    Secret {
        /// What was being done.
        doing: &'static str,
        /// The store's answer.
        #[source]
        source: SecretError,
    },
    /// A command without a node, and an environment that says nothing usable of the broker.
    #[error("{}", fault.what())]
    Environment {
        /// What of it.
        fault: EnvironmentFault,
        /// The variable and what is wrong with it.
        reason: String,
    },
    /// The broker behind the topics, or what is on it.
    #[error("{doing} failed")]
    Broker {
        /// What was being done.
        doing: String,
        /// Why not.
        #[source]
        source: Box<BrokerError>,
    },
    /// Streams of raw subjects that are not as the configuration says.
    #[error("{} of the streams that providers publish to {} not fit", problems.len(), if problems.len() == 1 { "does" } else { "do" })]
    UnfitStreams {
        /// Each stream with what is wrong.
        problems: Vec<String>,
    },
    /// What of a broker is unsafe. It was told one by one.
    #[error("the broker is not safe")]
    UnsafeBroker {
        /// How many findings.
        count: usize,
    },
    /// Users of a broker who may do less than they need or more than they should.
    #[error("the permissions on the broker are not shown to be as they should")]
    Permissions {
        /// Each permission with its user.
        problems: Vec<String>,
    },
    /// The function ran, or could not, and did not succeed.
    #[error("the invocation ended: {outcome}")]
    Invocation {
        /// Kind of the outcome.
        outcome: String,
        /// Why, in the words of the function or the host; empty where the outcome says it.
        reason: String,
    },
    /// The node could not start, or stopped by itself.
    #[error("{what}")]
    Node {
        /// What failed.
        what: String,
        /// Why.
        why: String,
        /// What to do.
        next: String,
    },
}

/// Whether a data directory was there when permission for it was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existence {
    /// It is there, and somebody else's.
    There,
    /// It would have to be made.
    NotThere,
}

fn partitions_of(places: &[(u32, u64)]) -> String {
    named(&places.iter().map(|(partition, _)| *partition).collect::<Vec<_>>())
}

/// Without a refused or uncertain event, it is the end of the file that is missing.
fn incomplete(counts: &SentCounts) -> String {
    match (counts.refused, counts.uncertain) {
        (0, 0) => format!("the publication stopped after {} events", counts.events()),
        (refused, uncertain) => format!("{refused} of {} events were refused and {uncertain} are uncertain", counts.events()),
    }
}

/// Topics that an error names at most.
const TOPICS_NAMED_MAX: usize = 8;

/// What a maintenance left undone, and why.
pub(crate) fn incomplete_maintenance(done: &Maintained) -> String {
    let mut parts = Vec::new();
    let named: Vec<_> = done.skipped_topics.iter().take(TOPICS_NAMED_MAX).map(|topic| format!("{topic:?}")).collect();
    match (done.skipped_topics.len(), done.skipped_topics.len().saturating_sub(TOPICS_NAMED_MAX)) {
        (0, _) => {}
        (1, _) => parts.push(format!("topic {} refuses writes since one of them failed", named.join(", "))),
        (_, 0) => parts.push(format!("topics {} refuse writes since one of them failed", named.join(", "))),
        (_, more) => parts.push(format!("topics {} and {more} more refuse writes since one of them failed", named.join(", "))),
    }
    match done.unremoved_files {
        0 => {}
        1 => parts.push("1 file could not be removed".to_owned()),
        files => parts.push(format!("{files} files could not be removed")),
    }
    if !done.unarchived_topics.is_empty() {
        let named: Vec<_> = done.unarchived_topics.iter().take(TOPICS_NAMED_MAX).map(|topic| format!("{topic:?}")).collect();
        parts.push(format!("what has expired of {} stays, because it could not be archived", named.join(", ")));
    }
    if !done.unreachable_topics.is_empty() {
        let named: Vec<_> = done.unreachable_topics.iter().take(TOPICS_NAMED_MAX).map(|topic| format!("{topic:?}")).collect();
        parts.push(format!("the cold store of {} could not be reached and {} exports wait", named.join(", "), done.intents_pending));
    }
    if done.intents_quarantined > 0 {
        let exports = if done.intents_quarantined == 1 { "1 export to the archive needs" } else { "exports to the archive need" };
        let count = if done.intents_quarantined == 1 { String::new() } else { format!("{} ", done.intents_quarantined) };
        parts.push(format!("{count}{exports} somebody to look"));
    }
    let told = done.archive_problems.iter().map(|problem| format!("\n{problem}"));
    parts.join("; ") + &told.collect::<String>()
}

impl CliError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Usage { .. } => "usage",
            Self::Config(_) => "config-invalid",
            Self::Manifest { .. } => "manifest",
            Self::NotBuilt { .. } => "not-built",
            Self::Held { .. } => "directory-held",
            Self::NodeRunning { .. } => "node-running",
            Self::NoPermission { .. } => "no-permission",
            Self::NotProvisioned { .. } => "not-provisioned",
            Self::Control { source, .. } | Self::Unanswered { source, .. } => source.kind(),
            Self::UnsoundArchive { .. } => "archive-unsound",
            Self::Unmaintained { .. } => "maintenance-incomplete",
            Self::Log { fault, .. } | Self::Damaged { fault, .. } | Self::Provisioned { fault, .. } => &fault.kind,
            Self::Unread { .. } => "partitions-unread",
            Self::UnknownTopic { .. } => "unknown-topic",
            Self::UnknownService { .. } => "unknown-service",
            Self::UnknownTrigger { .. } => "unknown-trigger",
            Self::Unreplayed { .. } => "replay-incomplete",
            Self::NotFound { .. } => "not-found",
            Self::Input { .. } => "input",
            Self::Value { .. } => "value",
            Self::Incomplete { .. } => "incomplete",
            Self::Unmigratable { .. } => "migration-unfit",
            Self::Unmigrated { .. } => "migration-incomplete",
            Self::ProgressFile { .. } => "migration-progress",
            Self::Project(error) => error.kind(),
            Self::Bench { .. } => "bench",
            Self::Interrupted { .. } => "interrupted",
            Self::Output { .. } => "output",
            Self::NoSecretStore { .. } => "no-secret-store",
            Self::Secret { source, .. } => source.kind(),
            Self::Environment { .. } => "environment",
            Self::Broker { source, .. } => source.kind(),
            Self::UnfitStreams { .. } => "unfit-streams",
            Self::Permissions { .. } => "broker-permissions",
            Self::UnsafeBroker { .. } => "broker-unsafe",
            Self::Invocation { outcome, .. } => outcome,
            Self::Node { .. } => "node",
        }
    }

    /// How the process ends.
    pub(crate) fn status(&self) -> ExitStatus {
        match self {
            Self::Usage { .. } | Self::Config(_) | Self::Manifest { .. } | Self::NotBuilt { .. } | Self::Value { .. } => ExitStatus::Wrong,
            Self::Project(ProjectError::Name { .. } | ProjectError::NotEmpty(_)) => ExitStatus::Wrong,
            Self::Project(ProjectError::Write { .. }) => ExitStatus::Failed,
            Self::Unanswered { .. } => ExitStatus::Uncertain,
            Self::NoSecretStore { .. } | Self::Environment { .. } | Self::Unmigratable { .. } => ExitStatus::Wrong,
            Self::Secret { source, .. } => secret::status(source),
            Self::Log { fault, .. } if fault.uncertain => ExitStatus::Uncertain,
            Self::Incomplete { counts, .. } if counts.uncertain > 0 => ExitStatus::Uncertain,
            Self::Unreplayed { counts } if counts.uncertain > 0 => ExitStatus::Uncertain,
            Self::Unmigrated { findings, .. } if findings.iter().any(|finding| finding.is_uncertain) => ExitStatus::Uncertain,
            Self::Log { .. }
            | Self::Damaged { .. }
            | Self::Unread { .. }
            | Self::UnknownTopic { .. }
            | Self::UnknownService { .. }
            | Self::UnknownTrigger { .. }
            | Self::Unreplayed { .. }
            | Self::Incomplete { .. }
            | Self::UnsoundArchive { .. }
            | Self::Unmaintained { .. }
            | Self::Unmigrated { .. }
            | Self::ProgressFile { .. }
            | Self::Held { .. }
            | Self::NodeRunning { .. }
            | Self::NoPermission { .. }
            | Self::NotProvisioned { .. }
            | Self::Provisioned { .. }
            | Self::Control { .. }
            | Self::NotFound { .. }
            | Self::Input { .. }
            | Self::Bench { .. }
            | Self::Interrupted { .. }
            | Self::Output { .. }
            | Self::Invocation { .. }
            | Self::Broker { .. }
            | Self::UnfitStreams { .. }
            | Self::Permissions { .. }
            | Self::UnsafeBroker { .. }
            | Self::Node { .. } => ExitStatus::Failed,
        }
    }

    /// Why it failed; for a configuration every problem on a line of its own.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Usage { why, .. } | Self::Node { why, .. } => why.clone(),
            Self::Invocation { outcome, reason } if reason.is_empty() => format!("see `{outcome}` in docs/errors.md"),
            Self::Invocation { reason, .. } => reason.clone(),
            Self::Config(error) => error.why(),
            Self::Manifest { reason, .. }
            | Self::Input { reason, .. }
            | Self::Value { reason, .. }
            | Self::Bench { reason, .. }
            | Self::Output { reason }
            | Self::Environment { reason, .. }
            | Self::NoPermission { reason, .. } => reason.clone(),
            Self::NoSecretStore { .. } => "where secrets are, and the key that they are sealed under, is said there".to_owned(),
            Self::Secret { source, .. } => source.to_string(),
            Self::Broker { source, .. } => source.to_string(),
            Self::UnfitStreams { problems } | Self::Permissions { problems } | Self::Unmigratable { problems, .. } => problems.join("\n"),
            Self::Unmigrated { findings, .. } => named_findings(findings),
            Self::ProgressFile { reason, .. } => reason.clone(),
            Self::UnsafeBroker { count } => format!("{count} of the findings above are unsafe"),
            Self::Interrupted { .. } => "a signal asked it to stop".to_owned(),
            Self::NotBuilt { .. } => "it belongs to a later version".to_owned(),
            Self::Held { holder, .. } => holder.clone(),
            Self::NodeRunning { name, .. } => format!("node {name:?} answers on its control socket"),
            Self::NotProvisioned { .. } => "no node was started on it yet, so it holds no topics".to_owned(),
            Self::Control { source, .. } | Self::Unanswered { source, .. } => source.to_string(),
            Self::UnsoundArchive { .. } => "each is named above with its topic, partition and offsets".to_owned(),
            Self::Unmaintained { done } => incomplete_maintenance(done),
            Self::Log { fault, .. } | Self::Damaged { fault, .. } | Self::Unread { fault, .. } | Self::Provisioned { fault, .. } => {
                fault.message.clone()
            }
            Self::UnknownTopic { declared, .. } => declared_topics(declared),
            Self::UnknownService { known, .. } => known_services(known),
            Self::UnknownTrigger { known, .. } => known_triggers(known),
            Self::Unreplayed { .. } => "they are named above with their reasons".to_owned(),
            Self::NotFound { .. } => "no event that can be read has this uid".to_owned(),
            Self::Incomplete { stopped: None, .. } => "they are named above with their lines".to_owned(),
            Self::Incomplete { stopped: Some(stopped), .. } => stopped.words(),
            Self::Project(error) => error.why(),
        }
    }

    /// What to do next.
    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::Usage { next, .. } | Self::Node { next, .. } => next.clone(),
            Self::Environment { fault, .. } => fault.next_step().to_owned(),
            Self::Broker { source, .. } => source.next_step(),
            Self::UnfitStreams { .. } => "make or change these streams with the broker's own tools, or correct the [[provider]]; then run it again".to_owned(),
            Self::UnsafeBroker { .. } => "do what stands behind each of them, then check again".to_owned(),
            Self::Permissions { .. } => {
                "put what `latent broker permissions` prints in the broker's configuration and reload it; store passwords that are not at hand".to_owned()
            }
            Self::Invocation { outcome, .. } => after_invocation(outcome).to_owned(),
            Self::Config(error) => error.next_step(),
            Self::Manifest { .. } => "correct the manifest and run the command again".to_owned(),
            Self::NotBuilt { instead, .. } => (*instead).to_owned(),
            Self::Held { .. } => "wait for that process to end or stop it, then run the command again".to_owned(),
            Self::NodeRunning { .. } => "use that node, or stop it first; it owns its data directory".to_owned(),
            Self::NoPermission { dir, existence: Existence::There, .. } => {
                format!("run it as the user who owns {}, or choose a data_dir that you may write", dir.display())
            }
            Self::NoPermission { existence: Existence::NotThere, .. } => "choose a data_dir that you may write".to_owned(),
            Self::Provisioned { .. } => {
                "nothing, if the manifest is the same; `latent run` applies one that was changed to the directory".to_owned()
            }
            Self::NotProvisioned { .. } => "start the node (`latent run -c FILE`), or run `latent bus provision`".to_owned(),
            Self::Control { source, .. } => source.next_step().to_owned(),
            Self::Unanswered { doing, .. } if doing == crate::commands::invoke::DOING => {
                "see the node's log for how it ended; run it again only if what the function does bears being done twice (--origin keeps its keys)".to_owned()
            }
            Self::Unanswered { .. } => "see whether the node still runs and run it again: what was done is not done twice".to_owned(),
            Self::UnsoundArchive { .. } | Self::Unmaintained { .. } => after_archiving(self).to_owned(),
            Self::Log { fault, .. } => next_of(fault),
            Self::Damaged { partition, continue_at, .. } => {
                format!("run it again with --partition {partition} --offset {continue_at} to read on after it")
            }
            Self::Unread { topic, places, .. } => after_tail(topic, places),
            Self::UnknownTopic { nearest, .. } => {
                after_unknown(nearest.as_deref(), "name one of them, or add it to the manifest and start the node again")
            }
            Self::UnknownService { nearest, .. } => {
                after_unknown(nearest.as_deref(), "name one of them, or add a [[service]] to the configuration and start the node again")
            }
            Self::UnknownTrigger { nearest, .. } => after_unknown(nearest.as_deref(), "correct the id"),
            Self::Unreplayed { counts } if counts.uncertain > 0 => {
                "run the same command again: what was published again is recognised and not doubled".to_owned()
            }
            Self::Unreplayed { .. } => "see the reasons, then run the same command again: it doubles nothing".to_owned(),
            Self::NotFound { .. } => {
                "check topic and uid; `latent bus fetch` shows what is there, `latent bus stats` what is damaged; what has expired of a topic with a \
                 cold_uri is in its archive".to_owned()
            }
            Self::Input { .. } => "name a file that can be read, or `-` for standard input".to_owned(),
            Self::Value { option, .. } => after_value(option).to_owned(),
            Self::Incomplete { repetition: Repetition::StoresAnew, .. } => STORE_THE_REST.to_owned(),
            Self::Incomplete { counts, repetition, stopped: None, passing } if counts.uncertain == 0 => {
                after_refusals(counts.refused, *passing, *repetition)
            }
            Self::Incomplete { .. } => "publish the same file again: it tells what is stored and doubles nothing".to_owned(),
            Self::Unmigratable { .. } | Self::Unmigrated { .. } | Self::ProgressFile { .. } => after_migration(self).to_owned(),
            Self::Project(error) => error.next_step(),
            Self::NoSecretStore { .. } => {
                "add [secrets] with key_file = \"secrets.key\"; docs/secrets.md says how to make that file".to_owned()
            }
            Self::Secret { source, .. } => secret::next_step(source).to_owned(),
            Self::Bench { .. } => "look at the disk under the measured folder and run it again".to_owned(),
            Self::Interrupted { .. } => "run it again to its end; what was printed holds".to_owned(),
            Self::Output { .. } => "check where the output goes and run the command again".to_owned(),
        }
    }
}

/// What to do about archives, and a maintenance.
fn after_archiving(error: &CliError) -> &'static str {
    match error {
        CliError::UnsoundArchive { lacks_key: true, .. } => {
            "name the key that they are proven with as well: one more --key, or a line of control_key_files in [archive]"
        }
        CliError::UnsoundArchive { .. } => {
            "keep the archive as it is, compare it with another copy of it, and restore what is sound with --topic and --partition"
        }
        CliError::Unmaintained { done } if done.skipped_topics.is_empty() && done.unremoved_files == 0 => {
            "see to the cold stores and exports that it names: docs/archive.md has a line for each of these messages; then run it again"
        }
        _ => "look at the disk and the node's log, start the node again, then run it once more",
    }
}

fn after_value(option: &str) -> &'static str {
    match option {
        "--progress" => "name another file, or remove this one to begin anew: what is there is known by its uid",
        "--into" => "name one topic of the archive with --topic",
        KEYLESS => "name the node's configuration, which has the control key: -c FILE instead of --engine nats",
        "--head" => "name a file that `latent archive status --json` printed",
        HEADS_WITHOUT_KEY => "name that key as well: --key FILE, once for each key",
        HEADS_WITHOUT_TOPIC => "name with --topic one of the topics that are in this archive, and verify them one after the other",
        _ => "give a value that keeps to this rule",
    }
}

fn named_findings(findings: &[PartitionFinding]) -> String {
    let named =
        findings.iter().take(TOPICS_NAMED_MAX).map(|finding| format!("{}/p{}: {}", finding.topic, finding.partition, finding.message));
    let more = findings.len().saturating_sub(TOPICS_NAMED_MAX);
    let rest = (more > 0).then(|| format!("and {more} more, which are told above"));
    named.chain(rest).collect::<Vec<_>>().join("\n")
}

/// What to do about the first finding; the others are seen to afterwards.
fn after_migration(error: &CliError) -> &'static str {
    let (findings, is_comparison) = match error {
        CliError::Unmigratable { next, .. } => return next,
        CliError::Unmigrated { findings, is_comparison, .. } => (findings, *is_comparison),
        _ => return "name a file in a folder that you may write with --progress",
    };
    match findings.first().map(|finding| finding.kind) {
        Some("gave-up") => "see to what it says and run it again: it goes on where it was and doubles nothing",
        Some("missing") if is_comparison => "run it without --verify-only: it copies what is missing",
        Some("missing") => "run it again: the source took more meanwhile",
        Some("unreadable") => {
            "look at it with `latent bus fetch`; --skip-unreadable passes over such records of the source, and the destination must have none"
        }
        Some("refused") => {
            "change the topic of the destination so that it takes the event (its schema, the broker's max_payload), then run it again"
        }
        Some("doubled") => "docs/migrate.md says what can be done about a uid that is twice in a stream",
        _ => "empty the topic of the destination, or provision another one: it holds what is not of the source; docs/migrate.md says how",
    }
}

fn after_unknown(nearest: Option<&str>, otherwise: &str) -> String {
    nearest.map_or_else(|| otherwise.to_owned(), |nearest| format!("did you mean {nearest}?"))
}

fn after_tail(topic: &str, places: &[(u32, u64)]) -> String {
    let more = if places.len() > 1 { ", and so for each of the others" } else { "" };
    let (partition, offset) = places.first().copied().unwrap_or_default();
    format!("see to what it says; `latent bus tail {topic} --partition {partition} --from {offset}` goes on there{more}")
}

const STORE_THE_REST: &str = "publish only what is not stored: with --fresh-uids every line of the file would be stored anew";
const CORRECT_IN_PLACE: &str = "correct the refused lines in place and publish the file again; keep every other line at its number, because a line \
     that moved is a new event (a file whose lines move needs --uid-pointer from the start)";
const CORRECT_OR_BLANK: &str = "correct the refused lines in place or leave them blank, and publish the file again; keep every other line at its \
     number, because a line that moved is a new event (a file whose lines move needs --uid-pointer from the start)";

/// What to do when every line was answered and some were refused.
fn after_refusals(refused: u64, passing: u64, repetition: Repetition) -> String {
    let correct = match repetition {
        Repetition::ByUid => "correct the refused lines and publish the file again; what is stored is not doubled",
        Repetition::ByPlace(EmptyLines::PassedOver) => CORRECT_OR_BLANK,
        Repetition::ByPlace(EmptyLines::AreEvents) => CORRECT_IN_PLACE,
        Repetition::StoresAnew => STORE_THE_REST,
    };
    match refused.saturating_sub(passing) {
        _ if passing == 0 => correct.to_owned(),
        0 => {
            "make room, or see to the node, as those lines say, then publish the same file again; what is stored is not doubled".to_owned()
        }
        _ => format!("make room, or see to the node, as some of those lines say; {correct}"),
    }
}

/// What to do after a call that did not succeed.
fn after_invocation(outcome: &str) -> &'static str {
    match outcome {
        "declared-failure" => "the result says why; call it with other arguments",
        "invalid-arguments" => "give one JSON array that fits the parameters; docs/values.md has the form of each type",
        "incompatible-contract" => "see `latent service list` for what the service offers",
        "fuel-exhausted" => "raise --cpu-fuel if the work is honest",
        "memory-exhausted" => "raise --memory-bytes if the work is honest; `cell_memory_bytes` under [limits] bounds it",
        "timeout" => "raise --wall-time-millis if the work is honest",
        "result-exhausted" => "let the function give back less; docs/values.md has the limits",
        _ => "see the function's log, if it wrote one, and the outcome's name in docs/errors.md",
    }
}

fn declared_topics(declared: &[String]) -> String {
    let named = declared.iter().take(TOPICS_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match declared.len().saturating_sub(TOPICS_NAMED_MAX) {
        0 => format!("the topics are: {named}"),
        more => format!("the topics are: {named} and {more} more; see `latent bus topics`"),
    }
}

fn known_services(known: &[String]) -> String {
    let named = known.iter().take(TOPICS_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match (known.len(), known.len().saturating_sub(TOPICS_NAMED_MAX)) {
        (0, _) => "the node has no service".to_owned(),
        (_, 0) => format!("the services are: {named}"),
        (_, more) => format!("the services are: {named} and {more} more; see `latent service list`"),
    }
}

fn known_triggers(known: &[String]) -> String {
    let named = known.iter().take(TOPICS_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match (known.len(), known.len().saturating_sub(TOPICS_NAMED_MAX)) {
        (0, _) => "there is none that could be meant".to_owned(),
        (_, 0) => format!("it could be: {named}"),
        (_, more) => format!("it could be: {named} or one of {more} more"),
    }
}

/// The step after a fault of administration, which its kind alone tells.
fn next_of_administration(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "revocation-not-durable" => {
            "look at the disk under the data directory and run the same command again before the node stops; `latent service list` shows what is in force"
        }
        "clock-not-durable" => "look at the disk under the data directory and run the same command again before the node stops",
        "outbox-in-use" => {
            "stop the process that holds it, or give this one an outbox of its own; of a data directory it must be a folder and no link to one"
        }
        "unknown-control-key" => {
            "put the old key back at the end of control_key_files in [archive], and start a node that runs again; docs/archive.md says when a key can go"
        }
        "clock-held" => "see `latent clock status`; set the clock right, or run `latent clock confirm` if it is right",
        "route-moved" => "look at it with `latent service list`, then run it again with the generation in force",
        "epoch-conflict" => "see `latent reload --dry-run` for what is in force, then decide again",
        "needs-restart" => "put it back, or start the node again",
        "other-file" => "name the file that the node was started with",
        "no-dead-letter" => "see `latent deadletter list` for the places there are",
        "trigger-configured" => "change the configuration first, or leave the trigger as it is",
        "not-callable" => "name one of those; `latent service list` shows publications and routes",
        "unknown-service" => "correct the name, or add the service and run `latent reload`",
        "resource-exhausted" => "run it again when less is going on",
        "stopping" => "start the node again",
        "invalid-name" => "correct the name",
        "node-stopped" => "start the node, or change the configuration that it starts with",
        "unknown-publication" | "ambiguous-publication" | "unknown-tenant" => "see `latent service list` for what there is",
        "tenant-needed" => "run it again with --tenant",
        "host-file-damaged" => "put the file back as it was, from a backup; docs/services.md says what else can be done",
        "host-file-io" => "look at permissions and space under the data directory and run it again",
        _ => return None,
    })
}

fn next_of(fault: &Fault) -> String {
    if let Some(next) = next_of_administration(&fault.kind) {
        return next.to_owned();
    }
    match (fault.uncertain, fault.continue_at) {
        (true, _) => "run the same command again: with the same uid it tells what is stored and doubles nothing".to_owned(),
        (false, Some(offset)) => format!("read on after it with `latent bus fetch --offset {offset}`"),
        (false, None) if fault.permanent => "change what the message names; the same call fails again".to_owned(),
        (false, None) => "run the command again later".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_administration_has_a_step_of_its_own() {
        let fault = |kind: &str, uncertain| Fault { uncertain, ..Fault::refused(kind, "m".to_owned()) };
        for (kind, uncertain, begin) in [
            ("revocation-not-durable", true, "look at the disk under the data directory and run"),
            ("clock-held", false, "see `latent clock status`"),
            ("node-stopped", false, "start the node"),
            ("uncertain", true, "run the same command again: with the same uid"),
        ] {
            assert!(next_of(&fault(kind, uncertain)).starts_with(begin), "{kind}");
        }
    }

    fn next_step(passing: u64, repetition: Repetition) -> String {
        let counts = SentCounts { refused: 3, ..SentCounts::default() };
        CliError::Incomplete { counts, repetition, stopped: None, passing }.next_step()
    }

    #[test]
    fn what_to_do_after_refusals_depends_on_their_reason_and_on_the_uids() {
        let by_place = Repetition::ByPlace(EmptyLines::PassedOver);
        let cases = [
            (0, by_place, "correct the refused lines in place or leave them blank"),
            (0, Repetition::ByPlace(EmptyLines::AreEvents), "correct the refused lines in place and publish"),
            (0, Repetition::ByUid, "correct the refused lines and publish the file again"),
            (0, Repetition::StoresAnew, "publish only what is not stored"),
            (3, Repetition::StoresAnew, "publish only what is not stored"),
            (3, by_place, "make room, or see to the node, as those lines say, then publish the same file"),
            (2, by_place, "make room, or see to the node, as some of those lines say; correct the refused lines in place"),
        ];
        for (passing, repetition, begin) in cases {
            let told = next_step(passing, repetition);
            assert!(told.starts_with(begin), "{passing} {repetition:?}: {told}");
        }
        assert!(next_step(0, by_place).contains("a line that moved is a new event"));
        assert!(!next_step(3, by_place).contains("correct"), "nothing is wrong with the lines");
    }
}
