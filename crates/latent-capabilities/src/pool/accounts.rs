//! What the pools account for: what exists now, and what has happened since the node started.

use super::PoolRefusal;

/// What exists now. Each number is a sum that the machine keeps.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    pub(super) running: u64,
    pub(super) queued: u64,
    pub(super) clients: u64,
    pub(super) connections: u64,
    pub(super) parked: u64,
    pub(super) bytes: u64,
    pub(super) metadata_bytes: u64,
    pub(super) totals: PoolTotals,
}

/// What the clients of one name hold together.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) clients: u64,
    pub(super) connections: u64,
    pub(super) queued: u64,
}

/// The shares of all tenants, or of all providers. A share without clients is given to the next new name.
#[derive(Debug)]
pub(super) struct Shares<N>(Vec<(N, Share)>);

impl<N> Default for Shares<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Clone + PartialEq> Shares<N> {
    /// The place of a name, with one client more.
    pub(super) fn enter(&mut self, name: &N) -> usize {
        let known = self.0.iter().position(|(known, share)| known == name && share.clients > 0);
        let place = known.or_else(|| self.0.iter().position(|(_, share)| share.clients == 0)).unwrap_or(self.0.len());
        if place == self.0.len() {
            self.0.push((name.clone(), Share::default()));
        }
        if let Some((kept, share)) = self.0.get_mut(place) {
            kept.clone_from(name);
            share.clients += 1;
        }
        place
    }

    /// The name at a place.
    pub(super) fn name(&self, place: usize) -> Option<&N> {
        self.0.get(place).map(|(name, _)| name)
    }

    /// The share at a place that [`Self::enter`] gave.
    pub(super) fn get(&self, place: usize) -> &Share {
        &self.0[place].1
    }

    /// The same, to change it.
    pub(super) fn of(&mut self, place: usize) -> &mut Share {
        &mut self.0[place].1
    }
}

/// What has happened since the pools were made. Counters stop at their largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolTotals {
    /// Connections that were dialled.
    pub dials: u64,
    /// Dials that led to no usable connection.
    pub dials_failed: u64,
    /// Calls that were given a parked connection.
    pub connections_reused: u64,
    /// Parked connections closed because of their age.
    pub connections_aged: u64,
    /// Parked connections closed to make room for others.
    pub connections_evicted: u64,
    /// Parked connections closed because their provider was replaced or removed.
    pub connections_retired: u64,
    /// Calls refused because a bound was reached.
    pub refused_limit: u64,
    /// Calls refused inside a dial backoff.
    pub refused_backoff: u64,
    /// Calls refused because their provider was replaced or removed while they waited.
    pub refused_retired: u64,
}

impl Accounts {
    pub(super) fn count(&mut self, which: impl FnOnce(&mut PoolTotals) -> &mut u64) {
        let counter = which(&mut self.totals);
        *counter = counter.saturating_add(1);
    }

    /// Counts a refusal and passes it on.
    pub(super) fn refused(&mut self, refusal: PoolRefusal) -> PoolRefusal {
        self.count(|totals| match refusal {
            PoolRefusal::Limit { .. } => &mut totals.refused_limit,
            PoolRefusal::Backoff { .. } => &mut totals.refused_backoff,
            PoolRefusal::Retired => &mut totals.refused_retired,
        });
        refusal
    }
}
