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
    bounds: "manifest, format, lock or watermark file of a data directory",
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
    PREALLOCATION_BYTES,
    FETCH_RECORDS,
    FETCH_BYTES,
    STATE_LOGS,
    STATE_LOG_NAME_BYTES,
    STATE_ENTRY_BYTES,
    STATE_LOG_BYTES,
    BATCH_IN_FLIGHT,
    BATCH_IN_FLIGHT_BYTES,
    RAISED_OFFSETS,
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
