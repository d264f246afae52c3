//! The bounds of the pools, checked once. They come from the node's configuration or are the defaults of [`limits`](crate::limits).

use latent_core::{Limit, LimitError};

use crate::limits;

/// Every bound of a node's provider pools. Made with [`PoolSettings::default`] and changed with [`PoolSettings::set`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    values: [u64; COUNT],
}

const COUNT: usize = limits::POOLS.len();

impl Default for PoolSettings {
    fn default() -> Self {
        let mut values = [0; COUNT];
        for (value, limit) in values.iter_mut().zip(limits::POOLS) {
            *value = limit.default;
        }
        Self { values }
    }
}

impl PoolSettings {
    /// The same settings with one bound changed. A limit that is none of the pools' changes nothing.
    ///
    /// # Errors
    /// [`LimitError`] when the value is outside the limit's range.
    pub fn set(mut self, limit: &Limit, value: u64) -> Result<Self, LimitError> {
        let checked = limit.check(value)?;
        let place = limits::POOLS.iter().position(|known| known.name == limit.name);
        if let Some(slot) = place.and_then(|place| self.values.get_mut(place)) {
            *slot = checked;
        }
        Ok(self)
    }

    /// The bound in force, the limit's default for one that is none of the pools'.
    pub fn get(&self, limit: &Limit) -> u64 {
        let place = limits::POOLS.iter().position(|known| known.name == limit.name);
        place.and_then(|place| self.values.get(place)).copied().unwrap_or(limit.default)
    }

    /// What all pools together may account for, in bytes: an accounting bound, not the memory of the process.
    pub fn accounted_bytes(&self) -> u64 {
        self.get(&limits::POOL_BYTES).saturating_add(self.get(&limits::POOL_METADATA_BYTES))
    }
}

/// The same numbers as the machine reads them, without a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) running: u64,
    pub(super) queued: u64,
    pub(super) queued_per_tenant: u64,
    pub(super) clients: u64,
    pub(super) connections: u64,
    pub(super) connections_per_tenant: u64,
    pub(super) connections_per_provider: u64,
    pub(super) bytes: u64,
    pub(super) metadata_bytes: u64,
    pub(super) chunk_bytes: u64,
    pub(super) idle_millis: u64,
    pub(super) backoff_min_millis: u64,
    pub(super) backoff_max_millis: u64,
}

impl Bounds {
    pub(super) fn of(settings: &PoolSettings) -> Self {
        let get = |limit| settings.get(limit);
        Self {
            running: get(&limits::POOL_CALLS_RUNNING),
            queued: get(&limits::POOL_CALLS_QUEUED),
            queued_per_tenant: get(&limits::POOL_CALLS_QUEUED_PER_TENANT),
            clients: get(&limits::POOL_CLIENTS),
            connections: get(&limits::POOL_CONNECTIONS),
            connections_per_tenant: get(&limits::POOL_CONNECTIONS_PER_TENANT),
            connections_per_provider: get(&limits::POOL_CONNECTIONS_PER_PROVIDER),
            bytes: get(&limits::POOL_BYTES),
            metadata_bytes: get(&limits::POOL_METADATA_BYTES),
            chunk_bytes: get(&limits::POOL_CHUNK_BYTES),
            idle_millis: get(&limits::POOL_IDLE_MILLIS),
            backoff_min_millis: get(&limits::DIAL_BACKOFF_MIN_MILLIS),
            backoff_max_millis: get(&limits::DIAL_BACKOFF_MAX_MILLIS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_taken_at_its_edges_and_refused_beyond() {
        for limit in limits::POOLS {
            for value in [limit.min, limit.max] {
                assert_eq!(PoolSettings::default().set(limit, value).unwrap().get(limit), value, "{}", limit.name);
            }
            assert!(PoolSettings::default().set(limit, limit.max + 1).is_err(), "{}", limit.name);
            assert!(limit.min == 0 || PoolSettings::default().set(limit, limit.min - 1).is_err(), "{}", limit.name);
        }
    }
}
