//! How often something is tried again that failed in a way that may pass, and after which pause.

use crate::{BusError, limits};

/// The first pause; each further one is twice as long.
const PAUSE_MILLIS: u64 = 50;
const PAUSE_MILLIS_MAX: u64 = 5_000;

/// Tries without progress between them.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u64,
}

impl Patience {
    /// Something was done since the last failure.
    pub(super) fn renew(&mut self) {
        self.failures = 0;
    }

    /// How long to wait before the next try; `None` when there is to be none.
    pub(super) fn pause(&mut self, error: &BusError) -> Option<u64> {
        self.failures += 1;
        if !may_pass(error) || self.failures >= limits::MIGRATE_ATTEMPTS.default {
            return None;
        }
        let doublings = u32::try_from(self.failures - 1).unwrap_or(u32::MAX);
        Some(PAUSE_MILLIS.saturating_mul(2_u64.saturating_pow(doublings)).min(PAUSE_MILLIS_MAX))
    }
}

/// Whether the same may work in a moment, with nothing else known than before.
const fn may_pass(error: &BusError) -> bool {
    let is_lasting = matches!(
        error,
        BusError::HistoryChanged { .. }
            | BusError::Poisoned { .. }
            | BusError::InUse { .. }
            | BusError::OutboxInUse { .. }
            | BusError::Disordered { .. }
            | BusError::Unreadable { .. }
    );
    !error.is_permanent() && !is_lasting
}
