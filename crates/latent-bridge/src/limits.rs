//! Bounds of manifests and of the embedded engine. What bounds a record itself stands in `latent_core::limits`.

use latent_core::Limit;

/// A manifest's text (B-013).
pub const MANIFEST_BYTES: Limit =
    Limit { name: "manifest_bytes", unit: "bytes", default: 262_144, min: 0, max: 262_144, bounds: "text of one bridge manifest" };
/// Copies of the log (B-017).
pub const REPLICATION_FACTOR: Limit =
    Limit { name: "replication_factor", unit: "count", default: 1, min: 1, max: 5, bounds: "copies of a topic on a cluster" };
/// Partitions of a topic (B-019).
pub const PARTITIONS: Limit =
    Limit { name: "partitions", unit: "count", default: 8, min: 1, max: 1_024, bounds: "partitions of one topic" };
/// Hours in hot storage (B-019).
pub const HOT_HOURS: Limit =
    Limit { name: "hot_hours", unit: "hours", default: 720, min: 1, max: 87_600, bounds: "hours an event stays in hot storage" };

/// Any file that is read whole (B-029).
pub const CONTROL_FILE_BYTES: Limit = Limit {
    name: "control_file_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 1_048_576,
    max: 1_048_576,
    bounds: "manifest, format, lock, watermark or schema file",
};
/// Commands waiting for the writer.
pub const QUEUE_RECORDS: Limit = Limit {
    name: "log_queue_records",
    unit: "count",
    default: 8_192,
    min: 1,
    max: 1_048_576,
    bounds: "publications waiting for the log writer; beyond it a publication is refused as busy",
};
/// Bytes waiting for the writer.
pub const QUEUE_BYTES: Limit = Limit {
    name: "log_queue_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: 1_048_576,
    max: 4_294_967_296,
    bounds: "bytes of publications waiting for the log writer",
};
/// Entries of state logs waiting for the writer.
pub const STATE_QUEUE_ENTRIES: Limit = Limit {
    name: "state_queue_entries",
    unit: "count",
    default: 65_536,
    min: 1,
    max: 1_048_576,
    bounds: "state log entries waiting for the log writer, apart from publications",
};
/// Bytes for state logs waiting for the writer.
pub const STATE_QUEUE_BYTES: Limit = Limit {
    name: "state_queue_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: 1_048_576,
    max: 4_294_967_296,
    bounds: "bytes of state log entries waiting for the log writer",
};
/// Commands that share one sync.
pub const GROUP_RECORDS: Limit = Limit {
    name: "log_group_records",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 65_536,
    bounds: "publications and state entries that share one group commit",
};
/// Bytes that share one sync.
pub const GROUP_BYTES: Limit = Limit {
    name: "log_group_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 1,
    max: 67_108_864,
    bounds: "bytes that share one group commit; one larger record is a group of its own",
};
/// Size at which a segment is followed by the next.
pub const SEGMENT_BYTES: Limit = Limit {
    name: "log_segment_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: 1_024,
    max: 1_073_741_824,
    bounds: "one segment file; a group that does not fit starts the next segment",
};
/// Records of one segment.
pub const SEGMENT_RECORDS: Limit = Limit {
    name: "log_segment_records",
    unit: "count",
    default: 524_288,
    min: 1,
    max: 8_388_608,
    bounds: "records of one segment, about 50 bytes of memory each while it is written; a group that does not fit starts the next segment",
};
/// Full segments with open files.
pub const OPEN_SEGMENTS: Limit = Limit {
    name: "open_segments",
    unit: "count",
    default: 32,
    min: 1,
    max: 4_096,
    bounds: "full segments of a data directory whose two files are kept open for reading",
};
/// Zeros written ahead of the log's end.
pub const PREALLOCATION_BYTES: Limit = Limit {
    name: "log_preallocation_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 0,
    max: 67_108_864,
    bounds: "zeros written ahead of the end of a log, so that a commit does not change its size",
};
/// Records of one fetch.
pub const FETCH_RECORDS: Limit = Limit {
    name: "fetch_records",
    unit: "count",
    default: 4_096,
    min: 1,
    max: 65_536,
    bounds: "records or heads that one read returns, whatever was asked for",
};
/// Bytes of one fetch.
pub const FETCH_BYTES: Limit = Limit {
    name: "fetch_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 1,
    max: 268_435_456,
    bounds: "bytes that one read returns; the first record is returned whatever its size",
};
/// Bytes of all pages of one `fetch`.
pub const FETCH_TOTAL_BYTES: Limit = Limit {
    name: "fetch_total_bytes",
    unit: "bytes",
    default: 268_435_456,
    min: 268_435_456,
    max: 268_435_456,
    bounds: "payloads, keys, attributes and other texts that one call of `fetch` collects, and 256 bytes for each event",
};
/// Records of one page of a lookup without an index (B-003).
pub const FIND_PAGE_RECORDS: Limit = Limit {
    name: "find_page_records",
    unit: "count",
    default: 1_024,
    min: 1_024,
    max: 1_024,
    bounds: "records read at a time when a uid is looked up on an engine without an index",
};
/// State logs open at once.
pub const STATE_LOGS: Limit =
    Limit { name: "state_logs", unit: "count", default: 64, min: 0, max: 1_024, bounds: "state logs of one data directory open at once" };
/// Name of a state log.
pub const STATE_LOG_NAME_BYTES: Limit =
    Limit { name: "state_log_name_bytes", unit: "bytes", default: 64, min: 1, max: 64, bounds: "name of a state log" };
/// One entry of a state log.
pub const STATE_ENTRY_BYTES: Limit =
    Limit { name: "state_entry_bytes", unit: "bytes", default: 65_536, min: 1, max: 1_048_576, bounds: "one entry of a state log" };
/// One state log.
pub const STATE_LOG_BYTES: Limit = Limit {
    name: "state_log_bytes",
    unit: "bytes",
    default: 268_435_456,
    min: 1_024,
    max: 4_294_967_296,
    bounds: "one state log; beyond it appends are refused until it is replaced by a shorter one",
};
/// Results of `publish_batch` not yet waited for.
pub const BATCH_IN_FLIGHT: Limit = Limit {
    name: "batch_in_flight",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 1_024,
    bounds: "publications of one batch handed over and not yet answered",
};
/// Bytes of `publish_batch` not yet waited for.
pub const BATCH_IN_FLIGHT_BYTES: Limit = Limit {
    name: "batch_in_flight_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 1,
    max: 8_388_608,
    bounds: "payload bytes of one batch handed over and not yet answered",
};

/// Offsets given up at once by `raise_next`.
pub const RAISED_OFFSETS: Limit = Limit {
    name: "raised_offsets",
    unit: "count",
    default: 16_777_216,
    min: 1,
    max: 16_777_216,
    bounds: "offsets of one partition that are given up at once because another file of the store has seen them",
};
/// Memory of the uid index.
pub const UID_FILTER_BYTES: Limit = Limit {
    name: "uid_filter_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: 0,
    max: 4_294_967_296,
    bounds: "filters of the uid index in memory, over all topics; what has no room is looked up on disk",
};
/// Runs merged at once.
pub const UID_MERGE_RUNS: Limit = Limit {
    name: "uid_merge_runs",
    unit: "count",
    default: 4,
    min: 4,
    max: 4,
    bounds: "neighbouring runs of the uid index that are merged into one, and so about how many of one level there are",
};

/// Records of one archive segment.
pub const ARCHIVE_SEGMENT_RECORDS: Limit = Limit {
    name: "archive_segment_records",
    unit: "count",
    default: 16_384,
    min: 1,
    max: 65_536,
    bounds: "records of one segment of the cold archive",
};
/// Content of one archive segment.
pub const ARCHIVE_SEGMENT_BYTES: Limit = Limit {
    name: "archive_segment_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 1_048_576,
    max: 67_108_864,
    bounds: "records of one segment of the cold archive, before they are compressed",
};
/// Content of one block of an archive segment.
pub const ARCHIVE_BLOCK_BYTES: Limit = Limit {
    name: "archive_block_bytes",
    unit: "bytes",
    default: 262_144,
    min: 1_024,
    max: 1_048_576,
    bounds: "records after which a block of an archive segment ends, before they are compressed",
};
/// What a block may become when it is read.
pub const ARCHIVE_BLOCK_RAW_BYTES: Limit = Limit {
    name: "archive_block_raw_bytes",
    unit: "bytes",
    default: 2_097_152,
    min: 2_097_152,
    max: 2_097_152,
    bounds: "one block of an archive segment when it is no longer compressed",
};
/// A whole archive segment as it is read.
pub const ARCHIVE_SEGMENT_OBJECT_BYTES: Limit = Limit {
    name: "archive_segment_object_bytes",
    unit: "bytes",
    default: 83_886_080,
    min: 83_886_080,
    max: 83_886_080,
    bounds: "one object of an archive that is read as a segment",
};
/// How long an event may wait for its segment to become full.
pub const ARCHIVE_SEGMENT_AGE_MILLIS: Limit = Limit {
    name: "archive_segment_age_millis",
    unit: "ms",
    default: 3_600_000,
    min: 3_600_000,
    max: 3_600_000,
    bounds: "age of an event at which its archive segment is written though it is not full",
};
/// Names asked of a store at once.
pub const ARCHIVE_LIST_PAGE: Limit = Limit {
    name: "archive_list_page",
    unit: "count",
    default: 1_000,
    min: 1_000,
    max: 1_000,
    bounds: "names of archived objects that are asked for at once",
};
/// Names of one directory in memory.
pub const ARCHIVE_LIST_NAMES: Limit = Limit {
    name: "archive_list_names",
    unit: "count",
    default: 65_536,
    min: 65_536,
    max: 65_536,
    bounds: "names of one directory of an archive in memory while it is listed; one with more is read once for each so many",
};
/// What a maintenance tells in words.
pub const ARCHIVE_PROBLEMS: Limit = Limit {
    name: "archive_problems",
    unit: "count",
    default: 8,
    min: 8,
    max: 8,
    bounds: "things that a maintenance says in words of what it could not archive; the log has all of them",
};
/// What is told one by one of what is wrong with an archive.
pub const ARCHIVE_FINDINGS: Limit = Limit {
    name: "archive_findings",
    unit: "count",
    default: 1_000,
    min: 1_000,
    max: 1_000,
    bounds: "things wrong with an archive that are told one by one; beyond it they are counted",
};
/// Holes that the head of a partition's archive names; the chain has all of them.
pub const ARCHIVE_HOLES: Limit = Limit {
    name: "archive_holes",
    unit: "count",
    default: 64,
    min: 64,
    max: 64,
    bounds: "holes of a partition's archive that its head names one by one; beyond it the oldest stand in the segments alone and are counted",
};
/// Records restored together.
pub const RESTORE_BATCH_RECORDS: Limit = Limit {
    name: "restore_batch_records",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 8_192,
    bounds: "records of an archive that are published together when it is restored",
};
/// Bytes restored together.
pub const RESTORE_BATCH_BYTES: Limit = Limit {
    name: "restore_batch_bytes",
    unit: "bytes",
    default: 4_194_304,
    min: 1_048_576,
    max: 67_108_864,
    bounds: "payload of records of an archive that are published together when it is restored",
};

/// Levels of a schema's document.
pub const SCHEMA_DEPTH: Limit =
    Limit { name: "schema_depth", unit: "count", default: 64, min: 1, max: 64, bounds: "levels of JSON of one topic's schema" };
/// Regular expressions of a schema.
pub const SCHEMA_PATTERNS: Limit =
    Limit { name: "schema_patterns", unit: "count", default: 256, min: 0, max: 256, bounds: "regular expressions of one topic's schema" };
/// Memory of one compiled regular expression.
pub const SCHEMA_PATTERN_BYTES: Limit = Limit {
    name: "schema_pattern_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 1_048_576,
    max: 1_048_576,
    bounds: "memory of one compiled regular expression of a schema",
};
/// Subschemas inside one another, which is how deep the stack goes.
pub const SCHEMA_RECURSION: Limit = Limit {
    name: "schema_recursion",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 1_024,
    bounds: "subschemas inside one another while an event is checked",
};
/// Estimated work of one check.
pub const SCHEMA_STEPS: Limit = Limit {
    name: "schema_steps",
    unit: "count",
    default: 33_554_432,
    min: 1,
    max: 33_554_432,
    bounds: "estimated steps of checking one event against its topic's schema",
};
/// Estimated work up to which every violation is looked for.
pub const SCHEMA_REPORT_STEPS: Limit = Limit {
    name: "schema_report_steps",
    unit: "count",
    default: 131_072,
    min: 1,
    max: 131_072,
    bounds: "estimated steps of a check up to which a refusal tells more than one violation",
};
/// Violations that a refusal tells (B-025).
pub const SCHEMA_VIOLATIONS: Limit = Limit {
    name: "schema_violations",
    unit: "count",
    default: 3,
    min: 3,
    max: 3,
    bounds: "violations of a schema that a refusal tells; the others are counted",
};
/// Text of one violation.
pub const SCHEMA_VIOLATION_BYTES: Limit =
    Limit { name: "schema_violation_bytes", unit: "bytes", default: 256, min: 256, max: 256, bounds: "text of one violation of a schema" };

/// Operations waiting for a connector's thread (B-081).
pub const CONNECTOR_QUEUE: Limit = Limit {
    name: "connector_queue",
    unit: "count",
    default: 1_024,
    min: 1_024,
    max: 1_024,
    bounds: "operations handed to a connector's thread and not begun yet",
};
/// Time of one operation of a connector (B-082).
pub const CONNECTOR_OPERATION_MILLIS: Limit = Limit {
    name: "connector_operation_millis",
    unit: "ms",
    default: 10_000,
    min: 1,
    max: 60_000,
    bounds: "time of one operation on a broker: one request, one page of a read, the wait for one acknowledgement",
};
/// Time of one attempt to connect to a broker.
pub const CONNECT_MILLIS: Limit = Limit {
    name: "connect_millis",
    unit: "ms",
    default: 9_000,
    min: 9_000,
    max: 9_000,
    bounds: "time of one attempt to connect to a broker, over all its servers; less than an operation has, so that the error can say which",
};

/// Publications in flight on a broker.
pub const FLIGHTS: Limit = Limit {
    name: "flights",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 1_024,
    bounds: "publications handed to a broker and not answered yet",
};
/// Bytes in flight on a broker.
pub const FLIGHT_BYTES: Limit = Limit {
    name: "flight_bytes",
    unit: "bytes",
    default: 33_554_432,
    min: 1,
    max: 268_435_456,
    bounds: "headers and bodies handed to a broker and not answered yet; one alone is taken whatever its size",
};
/// Reads of a broker at once.
pub const BROKER_READS: Limit =
    Limit { name: "broker_reads", unit: "count", default: 64, min: 64, max: 64, bounds: "reads of a broker that run at once; others wait" };
/// Consumers kept for who reads on.
pub const KEPT_READERS: Limit = Limit {
    name: "kept_readers",
    unit: "count",
    default: 64,
    min: 64,
    max: 64,
    bounds: "consumers on a broker kept for a reader that may read on; the one kept longest goes first",
};
/// Idle time after which the broker removes a reader's consumer (B-065).
pub const READER_IDLE_MILLIS: Limit = Limit {
    name: "reader_idle_millis",
    unit: "ms",
    default: 30_000,
    min: 30_000,
    max: 30_000,
    bounds: "time after which a broker removes an idle consumer that nobody deleted",
};
/// How long the broker may take to fill a pull (B-065).
pub const PULL_EXPIRY_MILLIS: Limit =
    Limit { name: "pull_expiry_millis", unit: "ms", default: 500, min: 500, max: 500, bounds: "time a broker has for one pull" };
/// Places of readers.
pub const GIVEN_OFFSETS: Limit = Limit {
    name: "given_offsets",
    unit: "count",
    default: 256,
    min: 256,
    max: 256,
    bounds: "places in a partition at which readers stand, remembered so that each of them is told when a topic's history changes",
};
/// How long a read waits for a broker that says nothing, and for a connection that is lost.
pub const READ_PATIENCE_MILLIS: Limit = Limit {
    name: "read_patience_millis",
    unit: "ms",
    default: 9_000,
    min: 9_000,
    max: 9_000,
    bounds: "time for the first message of a pull, and for a lost connection to come back while something is read; less than an operation has, so that the error can say what it was",
};
/// After which a page that has something ends.
pub const PAGE_MILLIS: Limit = Limit {
    name: "page_millis",
    unit: "ms",
    default: 4_000,
    min: 4_000,
    max: 4_000,
    bounds: "time after which a page of a read that has something ends, so that a slow link gets on page by page",
};
/// What one message that was stored under another `max_payload` may take.
pub const MESSAGE_BYTES: Limit = Limit {
    name: "message_bytes",
    unit: "bytes",
    default: 134_217_728,
    min: 134_217_728,
    max: 134_217_728,
    bounds: "one message that a broker stored when it allowed more than it does now; twice what a broker may be told to allow",
};
/// Messages that the client cannot read.
pub const UNPARSABLE_KEPT: Limit = Limit {
    name: "unparsable_kept",
    unit: "count",
    default: 4_096,
    min: 4_096,
    max: 4_096,
    bounds: "places of messages in a topic whose headers the client cannot read; one more, and the first of them costs the connection again",
};
/// Empty pulls in a row (B-062).
pub const EMPTY_PULLS: Limit = Limit {
    name: "empty_pulls",
    unit: "count",
    default: 8,
    min: 8,
    max: 8,
    bounds: "pulls in a row that give nothing while the broker says that there is more",
};
/// Messages of one pull of a lookup (B-059).
pub const LOOKUP_PAGE_RECORDS: Limit = Limit {
    name: "lookup_page_records",
    unit: "count",
    default: 4_096,
    min: 1,
    max: 16_384,
    bounds: "headers read at a time when a uid is looked up on a broker",
};
/// Time of one whole lookup.
pub const LOOKUP_MILLIS: Limit = Limit {
    name: "lookup_millis",
    unit: "ms",
    default: 600_000,
    min: 1,
    max: 3_600_000,
    bounds: "time of one lookup of a uid on a broker over all its pages",
};
/// Memory of lookups.
pub const LOOKUP_UIDS: Limit = Limit {
    name: "lookup_uids",
    unit: "count",
    default: 4_194_304,
    min: 2,
    max: 67_108_864,
    bounds: "uids, at about 20 bytes each, whose places in a broker's streams are remembered; beyond it the oldest are read again",
};

/// Records of one publication of a migration.
pub const MIGRATE_BATCH_RECORDS: Limit = Limit {
    name: "migrate_batch_records",
    unit: "count",
    default: 4_096,
    min: 4_096,
    max: 4_096,
    bounds: "records that a migration publishes before it notes how far it is",
};
/// Tries of a migration.
pub const MIGRATE_ATTEMPTS: Limit = Limit {
    name: "migrate_attempts",
    unit: "count",
    default: 12,
    min: 12,
    max: 12,
    bounds: "failures one after the other, with nothing done between them, that a migration waits out; the pauses between them grow from 50 ms to 5 s",
};
/// Keys of the archive's ring.
pub const CONTROL_KEYS: Limit = Limit {
    name: "control_keys",
    unit: "count",
    default: 8,
    min: 1,
    max: 8,
    bounds: "control keys of the archive, the newest of which signs",
};
/// A cold object of one event, and an intent.
pub const COLD_OBJECT_BYTES: Limit = Limit {
    name: "cold_object_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 1_048_576,
    max: 1_048_576,
    bounds: "cold object or intent of one event that is read",
};
/// The outbox (B-070).
pub const COLD_INTENTS: Limit = Limit {
    name: "cold_intents",
    unit: "count",
    default: 262_144,
    min: 1,
    max: 4_194_304,
    bounds: "archive intents that wait; beyond it nothing expires from topics with cold_uri, and on a broker publications to them are refused as busy",
};
/// Age of an intent without offset (B-078).
pub const COLD_GRACE_MILLIS: Limit = Limit {
    name: "cold_grace_millis",
    unit: "ms",
    default: 60_000,
    min: 60_000,
    max: 60_000,
    bounds: "time for which an intent is left to its publisher",
};
/// Before an intent that failed is tried again.
pub const COLD_RETRY_MILLIS: Limit = Limit {
    name: "cold_retry_millis",
    unit: "ms",
    default: 5_000,
    min: 5_000,
    max: 5_000,
    bounds: "pause after the first failure of an archive intent; it doubles with each further one",
};
/// The longest pause of an intent that failed.
pub const COLD_RETRY_MILLIS_MAX: Limit = Limit {
    name: "cold_retry_millis_max",
    unit: "ms",
    default: 300_000,
    min: 300_000,
    max: 300_000,
    bounds: "longest pause between two attempts of an archive intent",
};
/// Before an intent in quarantine is looked at again.
pub const COLD_QUARANTINE_MILLIS: Limit = Limit {
    name: "cold_quarantine_millis",
    unit: "ms",
    default: 3_600_000,
    min: 3_600_000,
    max: 3_600_000,
    bounds: "pause before an archive intent in quarantine is looked at again",
};
/// Records staged together.
pub const COLD_BATCH_RECORDS: Limit = Limit {
    name: "cold_batch_records",
    unit: "count",
    default: 256,
    min: 1,
    max: 4_096,
    bounds: "records whose archive intents share one sync of the outbox",
};
/// Bytes staged together.
pub const COLD_BATCH_BYTES: Limit = Limit {
    name: "cold_batch_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 1_048_576,
    max: 67_108_864,
    bounds: "payload of records that are archived together, in memory",
};
/// Work of one pass.
pub const COLD_PASS_INTENTS: Limit = Limit {
    name: "cold_pass_intents",
    unit: "count",
    default: 65_536,
    min: 1,
    max: 4_194_304,
    bounds: "archive intents that one pass of maintenance tries, and records that it exports",
};
/// Publications waiting for the outbox.
pub const COLD_STAGE_QUEUE: Limit = Limit {
    name: "cold_stage_queue",
    unit: "count",
    default: 4_096,
    min: 1,
    max: 65_536,
    bounds: "publications to archived topics on a broker that wait for their intent; beyond it one is refused as busy",
};
/// Bytes waiting for the outbox.
pub const COLD_STAGE_QUEUE_BYTES: Limit = Limit {
    name: "cold_stage_queue_bytes",
    unit: "bytes",
    default: 33_554_432,
    min: 1_048_576,
    max: 1_073_741_824,
    bounds: "payload of publications that wait for their intent",
};
/// Uploads waiting for a thread.
pub const COLD_UPLOAD_QUEUE: Limit = Limit {
    name: "cold_upload_queue",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 65_536,
    bounds: "acknowledged events that wait for their upload; what is more is left to maintenance",
};
/// Uploads at once.
pub const COLD_UPLOADS: Limit =
    Limit { name: "cold_uploads", unit: "count", default: 8, min: 1, max: 64, bounds: "objects written to cold stores at once" };
/// Calls that hang.
pub const COLD_OVERDUE_CALLS: Limit = Limit {
    name: "cold_overdue_calls",
    unit: "count",
    default: 8,
    min: 8,
    max: 8,
    bounds: "calls of one folder of cold objects that are over their time and have not ended; beyond them none is made",
};
/// Failures in a row.
pub const COLD_STORE_FAILURES: Limit = Limit {
    name: "cold_store_failures",
    unit: "count",
    default: 3,
    min: 3,
    max: 3,
    bounds: "calls of one cold store that fail in a row before a pass leaves it alone; one that takes too long is enough",
};

/// Every limit of this crate.
pub const ALL: &[Limit] = &[
    MANIFEST_BYTES,
    REPLICATION_FACTOR,
    PARTITIONS,
    HOT_HOURS,
    CONTROL_FILE_BYTES,
    QUEUE_RECORDS,
    QUEUE_BYTES,
    STATE_QUEUE_ENTRIES,
    STATE_QUEUE_BYTES,
    GROUP_RECORDS,
    GROUP_BYTES,
    SEGMENT_BYTES,
    SEGMENT_RECORDS,
    OPEN_SEGMENTS,
    PREALLOCATION_BYTES,
    FETCH_RECORDS,
    FETCH_BYTES,
    FETCH_TOTAL_BYTES,
    FIND_PAGE_RECORDS,
    STATE_LOGS,
    STATE_LOG_NAME_BYTES,
    STATE_ENTRY_BYTES,
    STATE_LOG_BYTES,
    BATCH_IN_FLIGHT,
    BATCH_IN_FLIGHT_BYTES,
    RAISED_OFFSETS,
    UID_FILTER_BYTES,
    UID_MERGE_RUNS,
    ARCHIVE_SEGMENT_RECORDS,
    ARCHIVE_SEGMENT_BYTES,
    ARCHIVE_BLOCK_BYTES,
    ARCHIVE_BLOCK_RAW_BYTES,
    ARCHIVE_SEGMENT_OBJECT_BYTES,
    ARCHIVE_SEGMENT_AGE_MILLIS,
    ARCHIVE_LIST_PAGE,
    ARCHIVE_LIST_NAMES,
    ARCHIVE_PROBLEMS,
    ARCHIVE_FINDINGS,
    ARCHIVE_HOLES,
    RESTORE_BATCH_RECORDS,
    RESTORE_BATCH_BYTES,
    SCHEMA_DEPTH,
    SCHEMA_PATTERNS,
    SCHEMA_PATTERN_BYTES,
    SCHEMA_RECURSION,
    SCHEMA_STEPS,
    SCHEMA_REPORT_STEPS,
    SCHEMA_VIOLATIONS,
    SCHEMA_VIOLATION_BYTES,
    CONNECTOR_QUEUE,
    CONNECTOR_OPERATION_MILLIS,
    FLIGHTS,
    FLIGHT_BYTES,
    BROKER_READS,
    KEPT_READERS,
    READER_IDLE_MILLIS,
    PULL_EXPIRY_MILLIS,
    READ_PATIENCE_MILLIS,
    PAGE_MILLIS,
    MESSAGE_BYTES,
    UNPARSABLE_KEPT,
    GIVEN_OFFSETS,
    EMPTY_PULLS,
    LOOKUP_PAGE_RECORDS,
    LOOKUP_MILLIS,
    LOOKUP_UIDS,
    CONNECT_MILLIS,
    MIGRATE_BATCH_RECORDS,
    MIGRATE_ATTEMPTS,
    CONTROL_KEYS,
    COLD_OBJECT_BYTES,
    COLD_INTENTS,
    COLD_GRACE_MILLIS,
    COLD_RETRY_MILLIS,
    COLD_RETRY_MILLIS_MAX,
    COLD_QUARANTINE_MILLIS,
    COLD_BATCH_RECORDS,
    COLD_BATCH_BYTES,
    COLD_PASS_INTENTS,
    COLD_STAGE_QUEUE,
    COLD_STAGE_QUEUE_BYTES,
    COLD_UPLOAD_QUEUE,
    COLD_UPLOADS,
    COLD_OVERDUE_CALLS,
    COLD_STORE_FAILURES,
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_default_lies_in_its_range_and_no_name_is_used_twice() {
        let mut names = std::collections::BTreeSet::new();
        for limit in super::ALL {
            assert!(limit.is_consistent(), "{}", limit.name);
            assert!(names.insert(limit.name), "{}", limit.name);
        }
    }
}
