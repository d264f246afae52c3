//! Why an intent is not finished, and whether time alone may help. No I/O.

use super::put::PutFault;
use crate::BusError;

/// Why one intent could not be finished.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Put(#[from] PutFault),
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("configuration: cold store {uri:?} must not be used: {problem}; nothing is archived there")]
    Unfit { uri: String, problem: String },
    #[error("configuration: topic {topic:?} has no cold_uri any more; add it to the manifest again, or move the intent away")]
    NoTarget { topic: String },
}

impl Fault {
    /// Whether time alone may heal it.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Put(fault) => fault.is_passing(),
            Self::Bus(error) => matches!(
                error,
                BusError::Io { .. }
                    | BusError::Busy { .. }
                    | BusError::Timeout { .. }
                    | BusError::NotSent { .. }
                    | BusError::Uncertain { .. }
                    | BusError::Poisoned { .. }
                    | BusError::HistoryChanged { .. }
                    | BusError::Rejected { permanent: false, .. }
            ),
            Self::Unfit { .. } | Self::NoTarget { .. } => false,
        }
    }
}
