//! How much memory the filters of all runs of a data directory take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by every run of a data directory. Clones are the same budget.
#[derive(Debug, Clone)]
pub(in super::super) struct FilterBudget(Arc<Account>);

#[derive(Debug)]
struct Account {
    bytes_max: u64,
    taken: AtomicU64,
}

impl FilterBudget {
    /// `bytes_max` is the limit `uid_filter_bytes`.
    pub(in super::super) fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Account { bytes_max, taken: AtomicU64::new(0) }))
    }

    /// What the resident filters take now.
    #[cfg(test)]
    pub(super) fn taken_bytes(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// The largest filter that is made. One that took more would keep too many others out.
    pub(super) fn filter_bytes_max(&self) -> u64 {
        self.0.bytes_max / 4
    }

    /// Takes `bytes`, if they are left when `returning` come back. A merged run's filter takes the place of those it was merged from,
    /// and until the last reader let these go both are in memory: more than the budget by at most the new filter.
    pub(super) fn take(&self, bytes: u64, returning: u64) -> Option<FilterShare> {
        let with = |taken: u64| {
            let stays = taken.saturating_sub(returning).checked_add(bytes)?;
            let taken = taken.checked_add(bytes)?;
            (stays <= self.0.bytes_max).then_some(taken)
        };
        self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).ok()?;
        Some(FilterShare { account: Arc::clone(&self.0), bytes })
    }
}

/// Part of a budget, returned when it is dropped.
#[derive(Debug)]
pub(super) struct FilterShare {
    account: Arc<Account>,
    bytes: u64,
}

impl FilterShare {
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for FilterShare {
    fn drop(&mut self) {
        self.account.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_exactly_what_it_has_and_takes_it_back() {
        let budget = FilterBudget::new(100);
        let first = budget.take(60, 0).unwrap();
        assert!(budget.take(41, 0).is_none());
        let second = budget.clone().take(40, 0).unwrap();
        assert_eq!((budget.taken_bytes(), first.bytes()), (100, 60));
        assert!(budget.take(1, 0).is_none() && budget.take(u64::MAX, 0).is_none());
        drop(first);
        assert_eq!(budget.taken_bytes(), 40);
        drop(second);
        assert_eq!(budget.taken_bytes(), 0);
        assert!(FilterBudget::new(0).take(1, 0).is_none());
    }

    #[test]
    fn a_filter_may_take_the_place_of_those_that_will_come_back() {
        let budget = FilterBudget::new(100);
        let inputs = budget.take(80, 0).unwrap();
        assert!(budget.take(101, 80).is_none());
        let merged = budget.take(100, 80).unwrap();
        assert_eq!(budget.taken_bytes(), 180);
        drop(inputs);
        assert_eq!(budget.taken_bytes(), 100);
        drop(merged);
    }
}
