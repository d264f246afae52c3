//! What an embedder may choose about the archive, and what the archive tells of itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::places::ColdStores;
use super::segment::SegmentSizes;
use crate::embedded::{OsStorage, Storage};
use crate::limits;

/// Keys, places and bounds of the archive. Of no use to a bus of which no topic has a `cold_uri`.
#[derive(Clone)]
pub struct ArchiveOptions {
    /// Control keys, the newest first: it signs, all verify. They can be set later; until then nothing is staged.
    pub control_keys: Vec<[u8; 32]>,
    /// The outbox of an engine on a broker. None: `AV_COLD_OUTBOX_DIR`, or else `data/cold-outbox/<manifest name>` below the working
    /// directory. The embedded engine's is in its own directory.
    pub outbox: Option<PathBuf>,
    /// The file system of the outbox and of folders on an engine on a broker. The embedded engine uses its own.
    pub storage: Arc<dyn Storage>,
    /// Opens the stores that `cold_uri`s name. None: folders, and what the crate's features add.
    pub stores: Option<Arc<dyn ColdStores>>,
    /// How large segments become, of topics with `cold_format: segments`.
    pub segment_sizes: SegmentSizes,
    /// Whether stores are asked at the start if they can be used, and folders made. Otherwise they are before the first object is written to
    /// them, and who only looks leaves nothing behind.
    pub probes_at_start: bool,
    /// See [`limits::COLD_INTENTS`].
    pub intents_max: u64,
    /// See [`limits::COLD_UPLOADS`].
    pub uploads: u64,
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self {
            control_keys: Vec::new(),
            outbox: None,
            storage: Arc::new(OsStorage),
            stores: None,
            segment_sizes: SegmentSizes::default(),
            probes_at_start: true,
            intents_max: limits::COLD_INTENTS.default,
            uploads: limits::COLD_UPLOADS.default,
        }
    }
}

impl fmt::Debug for ArchiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.control_keys.len();
        f.debug_struct("ArchiveOptions").field("control_keys", &keys).field("outbox", &self.outbox).finish_non_exhaustive()
    }
}

/// What waits in the archive's outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveStatistics {
    /// Intents that wait, for whatever.
    pub intents: u64,
    /// Those of them that somebody has to look at.
    pub intents_quarantined: u64,
    /// How many may wait.
    pub intents_max: u64,
}
