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
    /// Records that were handed to the archive because their time was up: each has its cold object or a durable intent.
    pub archived_records: u64,
    /// Holes found in archives of segments: ranges that the broker removed before they were archived.
    pub archive_holes: u64,
    /// Topics of which what has expired stays, because it could not be archived, sorted.
    pub unarchived_topics: Vec<String>,
    /// Topics whose cold store could not be reached, sorted. What is to be archived there waits.
    pub unreachable_topics: Vec<String>,
    /// Archive intents brought to their end.
    pub intents_completed: u64,
    /// Archive intents that still wait.
    pub intents_pending: u64,
    /// Archive intents that were tried and failed in this pass. They are kept and tried again.
    pub intents_failed: u64,
    /// Archive intents that time alone will not help: somebody has to look.
    pub intents_quarantined: u64,
    /// What could not be archived, in words: which event or topic, where to, why, and what to do. The first
    /// [`crate::limits::ARCHIVE_PROBLEMS`].
    pub archive_problems: Vec<String>,
}
