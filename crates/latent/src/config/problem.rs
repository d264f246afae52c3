//! Every fault a configuration can have, as data: what is wrong, what to do next, and the name machines know it by.

use std::fmt;
use std::path::{Path, PathBuf};

use latent_core::{CoreError, Limit, LimitError};

use super::engine::ManifestRefusal;
use super::place::Place;
use crate::engine::Engine;

/// A fault and the byte at which it stands.
#[derive(Debug)]
pub(super) struct Problem {
    /// `None`: the file as a whole.
    pub(super) at: Option<usize>,
    pub(super) fault: Fault,
}

/// What is wrong. `Display` says what; [`Fault::next_step`] says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the file does not exist")]
    NoFile,
    #[error("the file cannot be read: {reason}")]
    Unreadable { reason: String },
    #[error("the file is too large: {0}")]
    TooLarge(LimitError),
    #[error("the file is not UTF-8 text")]
    NotText,
    #[error("this is not TOML: {message}")]
    Syntax { message: String },
    #[error("unknown key {key:?} in {}", named(.table))]
    UnknownKey { table: String, key: String, nearest: Option<String>, known: Vec<&'static str> },
    #[error("{key} in {} must be {expected}, not {found}", named(.table))]
    WrongType { table: String, key: &'static str, expected: &'static str, found: &'static str },
    #[error("{key} in {} is one table and must be a list of tables", named(.table))]
    SingleTable { table: String, key: &'static str },
    #[error("{key} is missing in {}", named(.table))]
    Missing { table: String, key: &'static str, example: &'static str },
    #[error("{key} in {} is empty", named(.table))]
    Empty { table: String, key: &'static str, example: &'static str },
    #[error("{key} in {} is {value}, outside {min} to {max} ({unit})", named(.table), min = .limit.min, max = .limit.max, unit = .limit.unit)]
    OutOfRange { table: String, key: &'static str, value: i64, limit: Limit },
    #[error("{first} and {second} in {} exclude each other", named(.table))]
    Exclusive { table: String, first: &'static str, second: &'static str },
    #[error(transparent)]
    Name(CoreError),
    #[error("{key} in {} is {found:?}", named(.table))]
    Choice { table: String, key: &'static str, found: String, allowed: &'static [&'static str], nearest: Option<&'static str> },
    #[error("{setting} in {} is not built in this version", named(.table))]
    NotBuilt { table: String, setting: String, instead: &'static str },
    #[error("{what} {name:?} is given twice; line {first_line} has the first")]
    Duplicate { what: &'static str, name: String, first_line: usize },
    #[error("{by} names topic {topic:?}, which has no [[topic]]")]
    UnknownTopic { by: String, topic: String, nearest: Option<String> },
    #[error("topic {topic:?} is not in the manifest {manifest}")]
    TopicNotInManifest { topic: String, manifest: String, nearest: Option<String> },
    #[error("{by} of tenant {tenant:?} may not {right} {preposition} topic {topic:?} of tenant {owner:?}", preposition = preposition(.right))]
    NotShared { by: String, topic: String, owner: String, tenant: String, right: &'static str },
    #[error("{by} names service {service:?}, which has no [[service]]")]
    UnknownService { by: String, service: String, nearest: Option<String> },
    #[error("{by} of tenant {tenant:?} names service {service:?} of tenant {owner:?}")]
    ForeignService { by: String, service: String, owner: String, tenant: String },
    #[error("topic {topic:?} is shared with its own tenant {tenant:?}")]
    SharedWithOwner { topic: String, tenant: String },
    #[error("retry_delay_max_millis is {longest}, less than retry_delay_millis {first}")]
    RetryDelays { first: u64, longest: u64 },
    #[error("{by} parks in topic {topic:?}, which has a schema: what could not be handled would often not fit it")]
    DeadLetterSchema { by: String, topic: String },
    #[error("{by} parks events in a circle: {}", .circle.join(" → "))]
    DeadLetterCircle { by: String, circle: Vec<String> },
    #[error("{what} cannot be used: {problem}")]
    Streams { what: String, problem: String },
    #[error("{by} is woken by a stream, and no broker is configured")]
    NoBroker { by: String },
    #[error("{by} reads the stream of the topic {topic:?}, which is no raw stream")]
    StreamOfTopic { by: String, topic: String },
    #[error("triggers of tenant {tenant:?} are woken by a broker and have no credential there")]
    NoTriggerCredential { tenant: String, in_engine: bool },
    #[error("provider id {id:?} is the node's own")]
    ReservedProvider { id: String },
    #[error("{what} cannot be used: {problem}")]
    Provider { what: String, problem: String },
    #[error("the broker of [engine] cannot be used: {what}: {problem}")]
    Broker { what: String, problem: String },
    #[error("{key} in {} is no setting of kind = {:?}", named(.table), .engine.word())]
    OtherEngine { table: String, key: &'static str, engine: Engine },
    #[error("its [engine] is nats, and `latent dev` has its topics in a directory, never on a broker")]
    DevOnNats,
    #[error("topic {topic:?} is shared between tenants, which the engine nats does not allow")]
    ShareOnNats { topic: String },
    #[error("the name of a secret cannot be used: {problem}")]
    SecretName { problem: String },
    #[error("topic {topic:?} has a cold_uri in the manifest, and there is no control key in [archive]")]
    NoControlKey { topic: String },
    #[error("control_key_files in [archive] names {count} files, and at most {max} keys are kept")]
    TooManyKeys { count: usize, max: u64 },
    #[error("{problem}")]
    ControlKey { problem: String },
    #[error("{who} has credentials and there is no [secrets]")]
    NoSecrets { who: String },
    #[error("provider {provider:?} maps topics of tenant {tenant:?} and has no credential for it")]
    NoCredential { provider: String, tenant: String },
    #[error("provider {provider:?} has a credential for tenant {tenant:?} and maps no topic of it")]
    UnusedCredential { provider: String, tenant: String },
    #[error("{by} is granted topic {topic:?}, which {first} and {second} could both serve")]
    AmbiguousTopic { by: String, topic: String, first: String, second: String },
    #[error("{total} bindings are configured: each trigger counts once for each partition of its topic")]
    TooManyBindings { total: u64, most: u64 },
    #[error("the manifest cannot be used: {0}")]
    Manifest(ManifestRefusal),
    #[error("a schema of the manifest cannot be used: {0}")]
    Schema(ManifestRefusal),
    #[error("the component {file} cannot be used: {reason}")]
    Component { file: String, reason: String },
    #[error("the component {file} is not WebAssembly")]
    NotWasm { file: String },
    #[error("the component {file} is a core module, and a function is a component")]
    CoreModule { file: String },
    #[error("the component {file} has another version of the binary form than this host reads")]
    ComponentVersion { file: String },
    #[error("the control socket's path {path} is too long: {limit}")]
    SocketPath { path: String, limit: LimitError },
}

/// A table's label in a sentence.
fn named(table: &str) -> &str {
    if table.is_empty() { "the file" } else { table }
}

fn preposition(right: &str) -> &'static str {
    if right == "publish" { "to" } else { "to the events of" }
}

impl Fault {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::NoFile => "config-no-file",
            Self::Unreadable { .. } => "config-unreadable",
            Self::TooLarge(_) => "config-too-large",
            Self::NotText => "config-not-text",
            Self::Syntax { .. } => "config-syntax",
            Self::UnknownKey { .. } => "config-unknown-key",
            Self::WrongType { .. } | Self::SingleTable { .. } => "config-wrong-type",
            Self::Missing { .. } => "config-missing-key",
            Self::Empty { .. } => "config-empty",
            Self::OutOfRange { .. } => "config-out-of-range",
            Self::Exclusive { .. } => "config-exclusive",
            Self::Name(_) => "config-name",
            Self::Choice { .. } => "config-choice",
            Self::NotBuilt { .. } => "config-not-built",
            Self::Duplicate { .. } => "config-duplicate",
            Self::UnknownTopic { .. } => "config-unknown-topic",
            Self::TopicNotInManifest { .. } => "config-topic-not-in-manifest",
            Self::NotShared { .. } => "config-not-shared",
            Self::UnknownService { .. } => "config-unknown-service",
            Self::ForeignService { .. } => "config-foreign-service",
            Self::SharedWithOwner { .. } => "config-shared-with-owner",
            Self::RetryDelays { .. } => "config-retry-delays",
            Self::DeadLetterSchema { .. } => "config-dead-letter-schema",
            Self::DeadLetterCircle { .. } => "config-dead-letter-circle",
            Self::Streams { .. } => "config-streams",
            Self::NoBroker { .. } => "config-no-broker",
            Self::StreamOfTopic { .. } => "config-stream-of-topic",
            Self::NoTriggerCredential { .. } => "config-no-credential",
            Self::ReservedProvider { .. } => "config-reserved-provider",
            Self::Provider { .. } => "config-provider",
            Self::Broker { .. } => "config-broker",
            Self::OtherEngine { .. } => "config-other-engine",
            Self::DevOnNats => "config-dev-on-nats",
            Self::ShareOnNats { .. } => "config-share-on-nats",
            Self::SecretName { .. } => "config-secret-name",
            Self::NoControlKey { .. } => "config-no-control-key",
            Self::TooManyKeys { .. } => "config-control-keys",
            Self::ControlKey { .. } => "config-control-key",
            Self::NoSecrets { .. } => "config-no-secrets",
            Self::NoCredential { .. } => "config-no-credential",
            Self::UnusedCredential { .. } => "config-unused-credential",
            Self::AmbiguousTopic { .. } => "config-ambiguous-topic",
            Self::TooManyBindings { .. } => "config-too-many-bindings",
            Self::Manifest(_) | Self::Schema(_) => "config-manifest",
            Self::Component { .. } => "config-component",
            Self::NotWasm { .. } => "config-component-not-wasm",
            Self::CoreModule { .. } => "config-component-core-module",
            Self::ComponentVersion { .. } => "config-component-version",
            Self::SocketPath { .. } => "config-socket-path",
        }
    }

    /// What to do about it.
    pub(super) fn next_step(&self) -> String {
        match self {
            Self::NoFile => "go to your project's folder, name a file with -c FILE, or make one with `latent new NAME`".to_owned(),
            Self::Unreadable { .. } => "name a file that you may read with -c FILE".to_owned(),
            Self::TooLarge(_) => "split the node's work over several nodes".to_owned(),
            Self::NotText => "save the file as UTF-8".to_owned(),
            Self::Syntax { .. } => "correct this first; the rest of the file is read after it".to_owned(),
            Self::UnknownKey { nearest, known, .. } => {
                meant(nearest.as_deref()).unwrap_or_else(|| format!("remove it, or use one of: {}", known.join(", ")))
            }
            Self::WrongType { expected, .. } => format!("write {expected}"),
            Self::SingleTable { table, key } if table.is_empty() => format!("write [[{key}]]"),
            Self::SingleTable { key, .. } => format!("write {key} = [{{ … }}]"),
            Self::Missing { example, .. } | Self::Empty { example, .. } => format!("add {example}"),
            Self::OutOfRange { limit, .. } => format!("choose a value in that range; the default is {}", limit.default),
            Self::Exclusive { first, second, .. } => format!("keep {first} or {second}"),
            Self::Name(_) => "choose a name that keeps to this rule".to_owned(),
            Self::Choice { allowed, nearest, .. } => meant(*nearest).unwrap_or_else(|| format!("use one of: {}", allowed.join(", "))),
            Self::NotBuilt { instead, .. } => (*instead).to_owned(),
            Self::Duplicate { .. } => "give each one its own name".to_owned(),
            Self::UnknownTopic { topic, nearest, .. } => {
                meant(nearest.as_deref()).unwrap_or_else(|| format!("add [[topic]] with name = {topic:?} and its owner's tenant"))
            }
            Self::TopicNotInManifest { nearest, .. } => {
                meant(nearest.as_deref()).unwrap_or_else(|| "add it to the manifest's topics".to_owned())
            }
            Self::NotShared { tenant, right, .. } => {
                format!("let its owner add share = [{{ tenant = {tenant:?}, may = [{right:?}] }}] to the [[topic]]")
            }
            Self::UnknownService { service, nearest, .. } => {
                meant(nearest.as_deref()).unwrap_or_else(|| format!("add [[service]] with name = {service:?}"))
            }
            Self::ForeignService { .. } => "a trigger runs a service of its own tenant; correct tenant or service".to_owned(),
            Self::SharedWithOwner { .. } => "the owner needs no share; remove it".to_owned(),
            Self::RetryDelays { .. } => "make the longest delay at least as long as the first".to_owned(),
            Self::DeadLetterSchema { .. } => "park in a topic without schema_ref".to_owned(),
            Self::DeadLetterCircle { .. } => "park in a topic whose own triggers park elsewhere, or nowhere".to_owned(),
            Self::Streams { .. } | Self::NoBroker { .. } | Self::StreamOfTopic { .. } => self.next_step_of_streams(),
            Self::NoTriggerCredential { .. } => self.next_step_of_streams(),
            Self::ReservedProvider { .. } => "choose another id".to_owned(),
            Self::Provider { .. } => "correct it; docs/publisher.md lists every setting".to_owned(),
            Self::Broker { .. } => "correct it; docs/configuration.md lists every setting of [engine]".to_owned(),
            Self::OtherEngine { engine, .. } => {
                let other = if *engine == Engine::Nats { Engine::Embedded } else { Engine::Nats };
                format!("remove it, or use kind = {:?}", other.word())
            }
            Self::DevOnNats => "use kind = \"embedded\" in the folder's latent.toml, or `latent run -c FILE` with this one".to_owned(),
            Self::ShareOnNats { .. } => "remove share, and give the other tenant a topic of its own".to_owned(),
            Self::SecretName { .. } => "use the name under which `latent secret list` shows it".to_owned(),
            Self::NoControlKey { .. } | Self::TooManyKeys { .. } | Self::ControlKey { .. } => self.next_step_of_archive(),
            Self::NoSecrets { .. } => "add [secrets] with key_file = \"secrets.key\"; docs/secrets.md shows how to make one".to_owned(),
            Self::NoCredential { tenant, .. } => {
                format!("add credentials = [{{ tenant = {tenant:?}, user = \"USER\", secret = \"NAME\" }}]")
            }
            Self::UnusedCredential { .. } => "remove it, or map a topic of the tenant".to_owned(),
            Self::AmbiguousTopic { .. } => "rename one of them: a topic has one provider".to_owned(),
            Self::TooManyBindings { most, .. } => format!("keep the sum within {most}"),
            Self::Manifest(_) => "correct the manifest, or name another one with manifest = \"bridge.yaml\" in [engine]".to_owned(),
            Self::Schema(_) => {
                "correct the schema file or the topic's schema_ref; where the file is gone, `latent run` would use the copy that \
                 the data directory keeps, if it has one"
                    .to_owned()
            }
            Self::Component { .. } => format!("build it with `{BUILD}`, or correct the path (it is relative to the configuration file)"),
            Self::NotWasm { .. } => format!("name the file that `{BUILD}` makes"),
            Self::CoreModule { .. } | Self::ComponentVersion { .. } => format!("build it with `{BUILD}`"),
            Self::SocketPath { .. } => "choose a data_dir with a shorter path".to_owned(),
        }
    }
}

impl Fault {
    /// The same of what is about the archive.
    fn next_step_of_archive(&self) -> String {
        let step = match self {
            Self::ControlKey { .. } => "correct the file or its name; docs/archive.md shows how to make one",
            Self::TooManyKeys { .. } => "leave out the oldest, once `latent bus maintain` leaves no export of its time pending",
            _ => "add [archive] with control_key_files = [\"archive.key\"]; docs/archive.md shows how to make one",
        };
        step.to_owned()
    }

    /// The same of what is about triggers on streams.
    fn next_step_of_streams(&self) -> String {
        match self {
            Self::NoBroker { .. } => "add [broker] with address, server_name, roots and credentials; docs/triggers.md shows one".to_owned(),
            Self::StreamOfTopic { topic, .. } => format!("write topic = {topic:?} instead of stream, consumer and filter"),
            Self::NoTriggerCredential { tenant, in_engine: true } => {
                format!("add trigger_credentials = {{ {tenant} = \"NAME\" }} to [engine]")
            }
            Self::NoTriggerCredential { tenant, in_engine: false } => {
                format!("add credentials = [{{ tenant = {tenant:?}, user = \"USER\", secret = \"NAME\" }}] to [broker]")
            }
            _ => "correct it; docs/triggers.md lists every setting".to_owned(),
        }
    }
}

/// Makes a component of a function in Rust.
const BUILD: &str = "cargo build --release --target wasm32-wasip2";

fn meant(nearest: Option<&str>) -> Option<String> {
    nearest.map(|word| format!("did you mean {word:?}?"))
}

/// What is allowed and still worth knowing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Caution {
    #[error(
        "operation_timeout_millis of trigger {trigger:?} is {millis}: below 500 the 50 ms kept for settling are more than a tenth of it"
    )]
    ShortOperation { trigger: String, millis: u64 },
    #[error("wall_time_millis of trigger {trigger:?} is {millis} and will be cut to {cut_to}, so that its outcome can be settled in time")]
    WallTimeCut { trigger: String, millis: u64, cut_to: u64 },
    #[error("topic {topic:?} is shared between tenants, which the embedded engine allows and NATS does not")]
    ShareCannotMove { topic: String },
    #[error("service {service:?} may publish to topic {topic:?}, which also wakes it: each event can make another, without end")]
    Loop { service: String, topic: String },
}

impl Caution {
    const fn kind(&self) -> &'static str {
        match self {
            Self::ShortOperation { .. } => "short-operation-timeout",
            Self::WallTimeCut { .. } => "wall-time-cut",
            Self::ShareCannotMove { .. } => "share-cannot-move",
            Self::Loop { .. } => "publishes-to-its-own-topic",
        }
    }

    fn next_step(&self) -> String {
        match self {
            Self::ShortOperation { .. } => "use at least 500".to_owned(),
            Self::WallTimeCut { cut_to, .. } => format!("lower it to {cut_to}, or raise operation_timeout_millis"),
            Self::ShareCannotMove { .. } => "give the other tenant a topic of its own before moving to a cluster".to_owned(),
            Self::Loop { .. } => "publish to another topic unless this is meant".to_owned(),
        }
    }
}

/// A problem or a warning with its place in the file, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct PlacedProblem {
    /// The file as the operator named it.
    pub(crate) file: String,
    /// Line from 1; `None`: the file as a whole.
    pub(crate) line: Option<usize>,
    /// Column from 1, in characters.
    pub(crate) column: Option<usize>,
    /// Name for machines.
    pub(crate) kind: &'static str,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do.
    pub(crate) next: String,
}

/// A warning is shown like a problem and stops nothing.
pub(crate) type Warning = PlacedProblem;

impl PlacedProblem {
    fn new(path: &Path, place: Option<Place>, kind: &'static str, message: String, next: String) -> Self {
        let file = path.display().to_string();
        Self { file, line: place.map(|place| place.line), column: place.map(|place| place.column), kind, message, next }
    }

    pub(super) fn of(path: &Path, text: &str, problem: &Problem) -> Self {
        let place = problem.at.map(|at| Place::of(text, at));
        Self::new(path, place, problem.fault.kind(), problem.fault.to_string(), problem.fault.next_step())
    }

    pub(super) fn caution(path: &Path, text: &str, at: usize, caution: &Caution) -> Self {
        Self::new(path, Some(Place::of(text, at)), caution.kind(), caution.to_string(), caution.next_step())
    }
}

impl fmt::Display for PlacedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}; {}", self.message, self.next)
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.what())]
pub(crate) struct ConfigError {
    /// The file.
    pub(crate) path: PathBuf,
    /// Every problem found, in the order of the file.
    pub(crate) problems: Vec<PlacedProblem>,
}

impl ConfigError {
    /// The one problem of a file that could not even be looked at.
    fn of_the_file(&self) -> Option<&PlacedProblem> {
        self.problems.first().filter(|problem| problem.line.is_none())
    }

    fn what(&self) -> String {
        let path = self.path.display();
        match (self.of_the_file(), self.problems.len()) {
            (Some(_), _) => format!("the configuration {path} cannot be used"),
            (None, 1) => format!("{path} is not a valid configuration (1 problem)"),
            (None, count) => format!("{path} is not a valid configuration ({count} problems)"),
        }
    }

    /// Every problem on a line of its own.
    pub(crate) fn why(&self) -> String {
        match self.of_the_file() {
            Some(problem) => problem.message.clone(),
            None => self.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        }
    }

    /// What to do about all of them.
    pub(crate) fn next_step(&self) -> String {
        match self.of_the_file() {
            Some(problem) => problem.next.clone(),
            None => format!("correct each of them and run `latent check -c {}`", self.path.display()),
        }
    }
}
