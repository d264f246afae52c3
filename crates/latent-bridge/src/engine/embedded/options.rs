//! What an embedder may choose about the engine. Everything has a default.

use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(test)]
use latent_core::Limit;
use latent_core::{Clock, LimitError, SystemClock};

use super::storage::{OsStorage, Storage};
use crate::cold::ArchiveOptions;
use crate::{BusError, limits};

/// Clock, storage, bounds, and the name under which the directory is held.
#[derive(Clone)]
pub struct EngineOptions {
    /// Gives `stored_at` and the time in minted uids.
    pub clock: Arc<dyn Clock>,
    /// The file system.
    pub storage: Arc<dyn Storage>,
    /// The bounds.
    pub limits: EngineLimits,
    /// What a second opener is told about this one, besides the process id. One line.
    pub holder: String,
    /// Folders in which a manifest's `schema_ref` is looked for, in this order. The working directory alone unless
    /// [`EngineOptions::with_manifest_folder`] adds the manifest's.
    pub schema_roots: Vec<PathBuf>,
    /// The archive of topics with a `cold_uri`.
    pub archive: ArchiveOptions,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::start()),
            storage: Arc::new(OsStorage),
            limits: EngineLimits::default(),
            holder: "latent-bridge".to_owned(),
            schema_roots: vec![PathBuf::from(".")],
            archive: ArchiveOptions::default(),
        }
    }
}

macro_rules! engine_limits {
    ($($(#[$doc:meta])* $field:ident: $limit:expr;)*) => {
        /// The engine's bounds. Each field has the range of the limit of the same name in `limits`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct EngineLimits {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Default for EngineLimits {
            fn default() -> Self {
                Self { $($field: $limit.default,)* }
            }
        }

        impl EngineLimits {
            /// Checks every field against its range.
            ///
            /// # Errors
            /// [`LimitError`] naming the first one outside.
            pub fn checked(self) -> Result<Self, LimitError> {
                $($limit.check(self.$field)?;)*
                Ok(self)
            }

            #[cfg(test)]
            fn with(limit: Limit, value: u64) -> Self {
                let mut limits = Self::default();
                $(if $limit == limit { limits.$field = value; })*
                limits
            }

            #[cfg(test)]
            const LIMITS: &[Limit] = &[$($limit,)*];
        }
    };
}

engine_limits! {
    /// Publications waiting for the writer.
    queue_records: limits::QUEUE_RECORDS;
    /// Bytes of publications waiting for the writer.
    queue_bytes: limits::QUEUE_BYTES;
    /// State log entries waiting for the writer.
    state_queue_entries: limits::STATE_QUEUE_ENTRIES;
    /// Bytes of state log entries waiting for the writer.
    state_queue_bytes: limits::STATE_QUEUE_BYTES;
    /// Commands sharing one sync.
    group_records: limits::GROUP_RECORDS;
    /// Bytes sharing one sync.
    group_bytes: limits::GROUP_BYTES;
    /// Size of a segment.
    segment_bytes: limits::SEGMENT_BYTES;
    /// Records of a segment.
    segment_records: limits::SEGMENT_RECORDS;
    /// Full segments with open files.
    open_segments: limits::OPEN_SEGMENTS;
    /// Zeros written ahead.
    preallocation_bytes: limits::PREALLOCATION_BYTES;
    /// Records of one read.
    fetch_records: limits::FETCH_RECORDS;
    /// Bytes of one read.
    fetch_bytes: limits::FETCH_BYTES;
    /// State logs open at once.
    state_logs: limits::STATE_LOGS;
    /// One entry of a state log.
    state_entry_bytes: limits::STATE_ENTRY_BYTES;
    /// One state log.
    state_log_bytes: limits::STATE_LOG_BYTES;
    /// Memory for filters of the uid index.
    uid_filter_bytes: limits::UID_FILTER_BYTES;
}

impl EngineOptions {
    /// Looks for schemas in the manifest's folder before anywhere else.
    #[must_use]
    pub fn with_manifest_folder(mut self, folder: &Path) -> Self {
        self.schema_roots.insert(0, folder.to_owned());
        self
    }

    pub(super) fn checked(&self) -> Result<(), BusError> {
        self.limits.checked().map_err(|error| BusError::Config { problem: error.to_string() })?;
        if self.holder.len() > 100 || self.holder.contains(['\n', '\r']) {
            return Err(BusError::Config { problem: "the holder's name must be one line of at most 100 bytes".to_owned() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_checked_at_its_edges() {
        for limit in EngineLimits::LIMITS {
            let with = |value| EngineLimits::with(*limit, value).checked();
            assert!(with(limit.min).is_ok() && with(limit.max).is_ok(), "{}", limit.name);
            assert_eq!(with(limit.max + 1).unwrap_err().name, limit.name);
            if let Some(below) = limit.min.checked_sub(1) {
                assert_eq!(with(below).unwrap_err().name, limit.name);
            }
        }
    }
}
