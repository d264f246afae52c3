//! Sees when a function publishes: a provider in front of the one that is measured.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use latent_capabilities::{EventPublisher, PublishFuture, PublishRequest};

/// Remembers the moment of each call and hands it on.
pub(super) struct Watched {
    provider: Arc<dyn EventPublisher>,
    calls: Mutex<Vec<Instant>>,
}

impl Watched {
    pub(super) fn new(provider: Arc<dyn EventPublisher>) -> Self {
        Self { provider, calls: Mutex::default() }
    }

    /// Makes room for this many calls, so that none waits for memory.
    pub(super) fn expect(&self, calls: usize) {
        self.calls().reserve(calls);
    }

    /// From each call to the next one: the whole way from the function to its receipt, the function's own steps included. The last call
    /// has no next one.
    pub(super) fn take_turns(&self) -> Vec<Duration> {
        let mut calls = self.calls();
        let turns = calls.windows(2).filter_map(|pair| Some(pair.get(1)?.duration_since(*pair.first()?))).collect();
        calls.clear();
        turns
    }

    // Only whole values are ever put there, so a poisoned lock guards such too.
    fn calls(&self) -> std::sync::MutexGuard<'_, Vec<Instant>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventPublisher for Watched {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        self.calls().push(Instant::now());
        self.provider.publish(request)
    }

    fn retire(&self) {
        self.provider.retire();
    }
}
