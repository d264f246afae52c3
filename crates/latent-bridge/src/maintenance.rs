//! What one pass of maintenance did, as data.

use serde::Serialize;

/// What one call of [`crate::EventBus::maintain`] did and what it left for the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MaintenanceReport {
    /// Records that left hot storage because their time was up.
    pub expired_records: u64,
    /// Files of the log that left with them.
    pub expired_segments: u64,
    /// Topics left alone because they take no writes until they are opened again, sorted.
    pub skipped_topics: Vec<String>,
    /// Files whose records have expired and that could not be removed yet.
    pub unremoved_files: u64,
    /// Archive intents brought to their end.
    pub intents_completed: u64,
    /// Archive intents that still wait.
    pub intents_pending: u64,
}
