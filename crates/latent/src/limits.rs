//! Bounds of the configuration, the control socket and the bulk commands.
//!
//! A limit whose smallest and largest value are equal cannot be configured: it is part of a protocol or guards this process.

use latent_core::Limit;

/// The logical id of the node's own provider, for topics of the log.
pub(crate) const TOPICS_PROVIDER: &str = "topics";
/// The provider that the node's triggers on streams are installed as; their secrets are bound to it.
pub(crate) const TRIGGERS_PROVIDER: &str = "triggers";
/// The providers that triggers by `nats-jetstream-pull-v2` are installed as, on the broker of `[engine]` and on that of `[broker]`. Their secrets
/// are those of [`TRIGGERS_PROVIDER`].
pub(crate) const LANES_PROVIDERS: [&str; 2] = ["triggers.lanes", "triggers.lanes.streams"];

/// Text of the configuration file.
pub(crate) const CONFIG_FILE_BYTES: Limit = Limit {
    name: "config_file_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 1_048_576,
    max: 1_048_576,
    bounds: "text of one configuration file",
};
/// Ordered bindings of one configuration.
pub(crate) const BINDINGS: Limit = Limit {
    name: "bindings",
    unit: "count",
    default: 65_536,
    min: 65_536,
    max: 65_536,
    bounds: "bindings of a node on the embedded engine; a trigger counts once for each partition of its topic",
};
/// Time to let running work end when the node stops.
pub(crate) const DRAIN_MILLIS: Limit = Limit {
    name: "drain_millis",
    unit: "ms",
    default: 10_000,
    min: 0,
    max: 600_000,
    bounds: "time a stopping node waits for running activations",
};
/// Seconds between two maintenances.
pub(crate) const MAINTENANCE_INTERVAL_SECONDS: Limit = Limit {
    name: "maintenance_interval_seconds",
    unit: "s",
    default: 60,
    min: 1,
    max: 86_400,
    bounds: "time from the end of one maintenance of a node's log to the begin of the next",
};

/// A file of the node's own.
pub(crate) const HOST_FILE_BYTES: Limit = Limit {
    name: "host_file_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 1_048_576,
    max: 1_048_576,
    bounds: "one file under `host` in the data directory",
};
/// Bytes of a Unix socket's path.
pub(crate) const SOCKET_PATH_BYTES: Limit =
    Limit { name: "socket_path_bytes", unit: "bytes", default: 103, min: 103, max: 103, bounds: "path of the control socket" };
/// One line of the control protocol, its line break not counted.
pub(crate) const CONTROL_LINE_BYTES: Limit = Limit {
    name: "control_line_bytes",
    unit: "bytes",
    default: 4_194_304,
    min: 4_194_304,
    max: 4_194_304,
    bounds: "one request or answer on the control socket",
};
/// Connections served at once.
pub(crate) const CONTROL_CONNECTIONS: Limit = Limit {
    name: "control_connections",
    unit: "count",
    default: 16,
    min: 16,
    max: 16,
    bounds: "open connections of the control socket; one more is told so and closed",
};
/// Connections for administration alone.
pub(crate) const CONTROL_RESERVED_CONNECTIONS: Limit = Limit {
    name: "control_reserved_connections",
    unit: "count",
    default: 4,
    min: 4,
    max: 4,
    bounds: "further connections that serve administration only, when all others are taken",
};
/// Time such a connection may be silent.
pub(crate) const CONTROL_RESERVED_IDLE_MILLIS: Limit = Limit {
    name: "control_reserved_idle_millis",
    unit: "ms",
    default: 2_000,
    min: 2_000,
    max: 2_000,
    bounds: "time a connection for administration may be silent",
};
/// Time a connection may be silent, or take for one line.
pub(crate) const CONTROL_IDLE_MILLIS: Limit = Limit {
    name: "control_idle_millis",
    unit: "ms",
    default: 30_000,
    min: 10,
    max: 30_000,
    bounds: "time the control socket waits for one whole request, and for its answer to be taken",
};
/// Time a client waits for an answer.
pub(crate) const CONTROL_ANSWER_MILLIS: Limit = Limit {
    name: "control_answer_millis",
    unit: "ms",
    default: 30_000,
    min: 10,
    max: 30_000,
    bounds: "time a command waits for the running node to answer one request",
};
/// Time a call waits before it runs.
pub(crate) const INVOKE_WAIT_MILLIS: Limit = Limit {
    name: "invoke_wait_millis",
    unit: "ms",
    default: 30_000,
    min: 30_000,
    max: 30_000,
    bounds: "time a call of `latent invoke` may wait for its component and for a cell, beyond its own wall time",
};
/// Log in the answer to a call.
pub(crate) const INVOKED_LOG_BYTES: Limit = Limit {
    name: "invoked_log_bytes",
    unit: "bytes",
    default: 524_288,
    min: 524_288,
    max: 524_288,
    bounds: "a function's log in the answer to `latent invoke`, 32 bytes for each line beside its text; what is beyond is counted as cut",
};
/// Time a client waits for the end of a reload.
pub(crate) const RELOAD_WAIT_MILLIS: Limit = Limit {
    name: "reload_wait_millis",
    unit: "ms",
    default: 900_000,
    min: 900_000,
    max: 900_000,
    bounds: "time `latent reload` waits for components to compile and for changed triggers to end what they had begun",
};
/// Time a client waits for the first answer.
pub(crate) const CONTROL_GREETING_MILLIS: Limit = Limit {
    name: "control_greeting_millis",
    unit: "ms",
    default: 5_000,
    min: 5_000,
    max: 5_000,
    bounds: "time a command waits for a running node to say that it is there",
};
/// Time a command waits for a node that holds the lock and has no socket yet.
pub(crate) const NODE_START_MILLIS: Limit = Limit {
    name: "node_start_millis",
    unit: "ms",
    default: 3_000,
    min: 0,
    max: 3_000,
    bounds: "time a command waits for a starting node, and a starting node for a short command, that has the directory",
};
/// Statuses in one answer.
pub(crate) const STATUS_PAGE: Limit =
    Limit { name: "status_page", unit: "count", default: 512, min: 1, max: 512, bounds: "trigger statuses in one answer" };
/// Partitions in one answer.
pub(crate) const STATISTICS_PAGE: Limit =
    Limit { name: "statistics_page", unit: "count", default: 4_096, min: 1, max: 4_096, bounds: "partitions of `bus stats` in one answer" };
/// Partitions of a broker in which a uid is looked for at once.
pub(crate) const FINDS_AT_ONCE: Limit = Limit {
    name: "finds_at_once",
    unit: "count",
    default: 16,
    min: 1,
    max: 64,
    bounds: "partitions of a topic on a broker in which `bus find` without a key looks at once; the bus reads at most `broker_reads` at once",
};
/// Publications in one answer.
pub(crate) const SERVICE_PAGE: Limit =
    Limit { name: "service_page", unit: "count", default: 512, min: 1, max: 512, bounds: "publications of `service list` in one answer" };
/// Names in one answer about publications.
pub(crate) const SERVICE_PAGE_NAMES: Limit = Limit {
    name: "service_page_names",
    unit: "count",
    default: 8_192,
    min: 4_096,
    max: 8_192,
    bounds: "tenants and routes in one answer of `service list`, unless a single publication has more",
};
/// Routes shown of one publication.
pub(crate) const SERVICE_ROUTES: Limit = Limit {
    name: "service_routes",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 1_024,
    bounds: "routes that `service list` shows of one publication",
};
/// Characters of the last error in a status.
pub(crate) const STATUS_TEXT_CHARS: Limit = Limit {
    name: "status_text_chars",
    unit: "chars",
    default: 500,
    min: 500,
    max: 500,
    bounds: "text of the last error in a trigger's status",
};

/// Records of one batch.
pub(crate) const PUBLISH_BATCH_RECORDS: Limit = Limit {
    name: "publish_batch_records",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 1_024,
    bounds: "records one bulk publication hands over before it waits for their results",
};
/// Payload bytes of one batch.
pub(crate) const PUBLISH_BATCH_BYTES: Limit = Limit {
    name: "publish_batch_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 524_288,
    max: 1_048_576,
    bounds: "keys and payloads one bulk publication hands over before it waits, unless a single record is larger",
};
/// Characters of the reason for which an event was refused.
pub(crate) const FAULT_TEXT_CHARS: Limit = Limit {
    name: "fault_text_chars",
    unit: "chars",
    default: 500,
    min: 500,
    max: 500,
    bounds: "text of the reason why one event of a bulk publication was not stored",
};
/// Time a bulk publication waits for a busy log.
pub(crate) const BUSY_WAIT_MILLIS: Limit = Limit {
    name: "busy_wait_millis",
    unit: "ms",
    default: 60_000,
    min: 0,
    max: 60_000,
    bounds: "time a bulk publication waits for a busy log to take one more record",
};
/// Records of one page.
pub(crate) const FETCH_PAGE_RECORDS: Limit =
    Limit { name: "fetch_page_records", unit: "count", default: 128, min: 1, max: 128, bounds: "records read from the log at a time" };
/// Payload bytes of one page.
pub(crate) const FETCH_PAGE_BYTES: Limit = Limit {
    name: "fetch_page_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 524_288,
    max: 1_048_576,
    bounds: "keys and payloads in one answer of the running node, unless a single record is larger",
};

/// A file of heads.
pub(crate) const ARCHIVE_HEADS_BYTES: Limit = Limit {
    name: "archive_heads_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: 67_108_864,
    max: 67_108_864,
    bounds: "one file of --head: a line for each partition of an archive",
};
/// How far a restoration is.
pub(crate) const RESTORE_PROGRESS_BYTES: Limit = Limit {
    name: "restore_progress_bytes",
    unit: "bytes",
    default: 33_554_432,
    min: 33_554_432,
    max: 33_554_432,
    bounds: "the file of --progress of a restoration: a name and a number for each partition",
};
/// The file that keeps how far a migration is.
pub(crate) const MIGRATE_PROGRESS_BYTES: Limit = Limit {
    name: "migrate_progress_bytes",
    unit: "bytes",
    default: 33_554_432,
    min: 33_554_432,
    max: 33_554_432,
    bounds: "file that keeps how far a migration is, about 300 bytes for each partition",
};
/// Numbers of replays looked at behind the last one that is there.
pub(crate) const REPLAY_GAP: Limit = Limit {
    name: "replay_gap",
    unit: "count",
    default: 16,
    min: 16,
    max: 16,
    bounds: "consecutive replays of one event that retention may have removed before a later one is not found any more",
};
/// Replays of one event.
pub(crate) const REPLAYS: Limit = Limit {
    name: "replays",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 1_024,
    bounds: "times that one event is published again out of dead letters",
};
/// Triggers in the story of an event.
pub(crate) const WHY_TRIGGERS: Limit = Limit {
    name: "why_triggers",
    unit: "count",
    default: 512,
    min: 512,
    max: 512,
    bounds: "triggers that `latent why` shows of one event",
};
/// Runs in the story of an event.
pub(crate) const WHY_RUNS: Limit = Limit {
    name: "why_runs",
    unit: "count",
    default: 64,
    min: 64,
    max: 64,
    bounds: "runs that `latent why` shows of one event, the newest",
};
/// Publications in the story of an event.
pub(crate) const WHY_OUTPUTS: Limit = Limit {
    name: "why_outputs",
    unit: "count",
    default: 512,
    min: 512,
    max: 512,
    bounds: "publications that `latent why` shows of one event, those of the newest runs; what is beyond is counted",
};
/// Publications that are looked up for the story of an event.
pub(crate) const WHY_LOOKUPS: Limit = Limit {
    name: "why_lookups",
    unit: "count",
    default: 64,
    min: 64,
    max: 64,
    bounds: "publications of which `latent why` looks up where they lie, those of the newest runs first",
};
/// Log in the story of an event.
pub(crate) const WHY_LOG_BYTES: Limit = Limit {
    name: "why_log_bytes",
    unit: "bytes",
    default: 262_144,
    min: 262_144,
    max: 262_144,
    bounds: "log that `latent why` shows of one event, 32 bytes for each line beside its text; what is beyond is counted as cut",
};
/// Characters of a payload that people see.
pub(crate) const SHOWN_PAYLOAD_CHARS: Limit = Limit {
    name: "shown_payload_chars",
    unit: "chars",
    default: 4_096,
    min: 4_096,
    max: 4_096,
    bounds: "payload that `latent deadletter show` prints for people; with --json it comes whole",
};

/// Records of a measured log.
pub(crate) const BENCH_RECORDS: Limit = Limit {
    name: "bench_records",
    unit: "count",
    default: 1_000_000,
    min: 1_000,
    max: 10_000_000,
    bounds: "records that `latent bench bus` stores in its largest log, about 500 bytes each",
};

/// Slices of each side that `latent bench publish` measures.
pub(crate) const BENCH_ROUNDS: Limit = Limit {
    name: "bench_rounds",
    unit: "count",
    default: 7,
    min: 2,
    max: 100,
    bounds: "slices of each side of a row of `latent bench publish`",
};

/// Files of one project that are watched.
pub(crate) const DEV_WATCHED_FILES: Limit = Limit {
    name: "dev_watched_files",
    unit: "count",
    default: 8_192,
    min: 8_192,
    max: 8_192,
    bounds: "files and folders of one project that `latent dev` looks at; changes of those beyond are not seen, which is said",
};
/// Time between two looks at the files.
pub(crate) const DEV_LOOK_MILLIS: Limit = Limit {
    name: "dev_look_millis",
    unit: "ms",
    default: 200,
    min: 200,
    max: 200,
    bounds: "time between two looks of `latent dev` at the files it watches",
};
/// Time without a change before a change is acted upon.
pub(crate) const DEV_QUIET_MILLIS: Limit = Limit {
    name: "dev_quiet_millis",
    unit: "ms",
    default: 150,
    min: 150,
    max: 150,
    bounds: "time for which files have to stay as they are before `latent dev` builds them, so that a save in several steps is one change",
};
/// Time until a reload that met another one is tried again.
pub(crate) const DEV_AGAIN_MILLIS: Limit = Limit {
    name: "dev_again_millis",
    unit: "ms",
    default: 1_000,
    min: 1_000,
    max: 1_000,
    bounds: "time until `latent dev` tries again to take something in for which the node was busy",
};
/// What a build may say.
pub(crate) const DEV_BUILD_OUTPUT_BYTES: Limit = Limit {
    name: "dev_build_output_bytes",
    unit: "bytes",
    default: 65_536,
    min: 65_536,
    max: 65_536,
    bounds: "what a build of `latent dev` says; its first bytes are shown, those beyond are counted",
};
/// What cargo may say of a project.
pub(crate) const DEV_METADATA_BYTES: Limit = Limit {
    name: "dev_metadata_bytes",
    unit: "bytes",
    default: 16_777_216,
    min: 0,
    max: 16_777_216,
    bounds: "what `cargo metadata` says of a project to `latent dev`",
};
/// Time a build has for ending when it is told to.
pub(crate) const DEV_BUILD_STOP_MILLIS: Limit = Limit {
    name: "dev_build_stop_millis",
    unit: "ms",
    default: 1_000,
    min: 1_000,
    max: 1_000,
    bounds: "time between asking a build to end and killing it, when `latent dev` is told to stop",
};
/// Messages that wait to be printed.
pub(crate) const DEV_WAITING_MESSAGES: Limit = Limit {
    name: "dev_waiting_messages",
    unit: "count",
    default: 4_096,
    min: 1,
    max: 4_096,
    bounds: "messages of `latent dev` that wait to be printed; further activations are counted instead of shown",
};
/// Bytes of messages that wait to be printed.
pub(crate) const DEV_WAITING_BYTES: Limit = Limit {
    name: "dev_waiting_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 262_144,
    max: 8_388_608,
    bounds: "memory of messages of `latent dev` that wait to be printed; activations beyond it are counted instead of shown",
};

/// Every limit of this crate.
#[cfg(test)]
pub(crate) const ALL: &[Limit] = &[
    CONFIG_FILE_BYTES,
    BINDINGS,
    DRAIN_MILLIS,
    MAINTENANCE_INTERVAL_SECONDS,
    HOST_FILE_BYTES,
    SOCKET_PATH_BYTES,
    CONTROL_LINE_BYTES,
    CONTROL_CONNECTIONS,
    CONTROL_RESERVED_CONNECTIONS,
    CONTROL_RESERVED_IDLE_MILLIS,
    CONTROL_IDLE_MILLIS,
    CONTROL_ANSWER_MILLIS,
    INVOKE_WAIT_MILLIS,
    INVOKED_LOG_BYTES,
    RELOAD_WAIT_MILLIS,
    CONTROL_GREETING_MILLIS,
    NODE_START_MILLIS,
    STATUS_PAGE,
    STATISTICS_PAGE,
    FINDS_AT_ONCE,
    SERVICE_PAGE,
    SERVICE_PAGE_NAMES,
    SERVICE_ROUTES,
    STATUS_TEXT_CHARS,
    PUBLISH_BATCH_RECORDS,
    PUBLISH_BATCH_BYTES,
    FAULT_TEXT_CHARS,
    BUSY_WAIT_MILLIS,
    FETCH_PAGE_RECORDS,
    FETCH_PAGE_BYTES,
    MIGRATE_PROGRESS_BYTES,
    ARCHIVE_HEADS_BYTES,
    RESTORE_PROGRESS_BYTES,
    REPLAY_GAP,
    REPLAYS,
    WHY_TRIGGERS,
    WHY_RUNS,
    WHY_OUTPUTS,
    WHY_LOOKUPS,
    WHY_LOG_BYTES,
    SHOWN_PAYLOAD_CHARS,
    BENCH_RECORDS,
    BENCH_ROUNDS,
    DEV_WATCHED_FILES,
    DEV_LOOK_MILLIS,
    DEV_QUIET_MILLIS,
    DEV_AGAIN_MILLIS,
    DEV_BUILD_OUTPUT_BYTES,
    DEV_METADATA_BYTES,
    DEV_BUILD_STOP_MILLIS,
    DEV_WAITING_MESSAGES,
    DEV_WAITING_BYTES,
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_default_lies_in_its_range() {
        for limit in super::ALL {
            assert!(limit.is_consistent(), "{}", limit.name);
        }
    }
}
