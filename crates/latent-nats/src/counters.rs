//! Counts for the snapshot: numbers only, which stop at their largest value.

use std::sync::atomic::{AtomicU64, Ordering};

use latent_core::{Epoch, PublicationOutcome};

/// What a provider has done and holds. Numbers only: no subject, no text of the broker, nothing of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NatsSnapshot {
    /// The epoch in force.
    pub epoch: Epoch,
    /// Mappings of the configuration.
    pub mappings: u64,
    /// Publications that wait for a connection.
    pub queued: u64,
    /// Publications that hold a connection or dial one.
    pub running: u64,
    /// Connections, from dial to closed socket.
    pub connections: u64,
    /// Connections that authenticated, since the installation.
    pub connected: u64,
    /// Attempts to connect that failed.
    pub connects_failed: u64,
    /// Parked connections that were found closed or unusable.
    pub parked_lost: u64,
    /// Publications handed to this provider.
    pub attempts: u64,
    /// Publications of which a byte may have left.
    pub possible_writes: u64,
    /// Receipts, duplicates included.
    pub acknowledged: u64,
    /// Receipts that said duplicate.
    pub duplicates: u64,
    /// Known failures, before or by an answer of the broker.
    pub failures: u64,
    /// Uncertain ends, those included that nobody waited for.
    pub uncertain: u64,
}

/// One number that stops at its largest value.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        // Fails only at the largest value, where it stays.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1));
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The next number, which nobody else gets; `None` when all are used.
    pub(crate) fn take(&self) -> Option<u64> {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1)).ok()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) attempts: Counter,
    pub(crate) possible_writes: Counter,
    pub(crate) acknowledged: Counter,
    pub(crate) duplicates: Counter,
    pub(crate) failures: Counter,
    pub(crate) uncertain: Counter,
}

impl Counters {
    /// Counts how one publication ended.
    fn count(&self, outcome: &PublicationOutcome) {
        match outcome {
            PublicationOutcome::Receipt(receipt) => {
                self.acknowledged.add_one();
                if receipt.duplicate {
                    self.duplicates.add_one();
                }
            }
            PublicationOutcome::KnownFailure(_) => self.failures.add_one(),
            PublicationOutcome::Uncertain(_) => self.uncertain.add_one(),
        }
    }
}

/// Counts one attempt and its end, once, also when its future is dropped.
pub(crate) struct CountedAttempt<'a> {
    counters: &'a Counters,
    possible_write: bool,
    ended: bool,
}

impl<'a> CountedAttempt<'a> {
    pub(crate) fn begin(counters: &'a Counters) -> Self {
        counters.attempts.add_one();
        Self { counters, possible_write: false, ended: false }
    }

    /// From here on a drop leaves an uncertain publication.
    pub(crate) fn may_be_written(&mut self) {
        self.possible_write = true;
        self.counters.possible_writes.add_one();
    }

    pub(crate) fn end(mut self, outcome: &PublicationOutcome) {
        self.ended = true;
        self.counters.count(outcome);
    }
}

impl Drop for CountedAttempt<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let counter = if self.possible_write { &self.counters.uncertain } else { &self.counters.failures };
        counter.add_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_stops_at_its_largest_value() {
        let counter = Counter(AtomicU64::new(u64::MAX - 1));
        counter.add_one();
        counter.add_one();
        assert_eq!(counter.get(), u64::MAX);
    }

    #[test]
    fn no_number_is_given_out_twice_and_none_when_all_are_used() {
        let counter = Counter::default();
        let take = || (0..1_000).map(|_| counter.take().unwrap()).collect::<Vec<_>>();
        let mut taken: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        taken.sort_unstable();
        assert_eq!(taken, (0..4_000).collect::<Vec<u64>>());
        assert_eq!(Counter(AtomicU64::new(u64::MAX)).take(), None);
    }

    #[test]
    fn an_attempt_that_is_dropped_counts_by_what_may_have_been_written() {
        let counters = Counters::default();
        drop(CountedAttempt::begin(&counters));
        let mut attempt = CountedAttempt::begin(&counters);
        attempt.may_be_written();
        drop(attempt);
        assert_eq!((counters.attempts.get(), counters.failures.get(), counters.uncertain.get()), (2, 1, 1));
    }
}
