//! The gate: whether everything that is unsettled at the broker is known here. Pure.
//!
//! The broker tells how many messages are unsettled, not which. With `U` what is unsettled and unknown here, and `K` what is known here,
//! an answer that says `|K|` shows that `U` is empty **only if all of `K` is unsettled**. What was delivered first under this pin is: nobody
//! else can settle it. A message that somebody had before (*foreign*) may be settled by that one at any time, late; then an unknown message
//! takes its place in the number. So a foreign message counts only when two answers enclose a delivery of it, with no settlement between
//! them: settlements only lower the number, deliveries of new messages raise it, and the deliveries are numbered without gaps, so that one
//! knows all of them. That holds however late anything arrives.

use std::collections::BTreeMap;

use super::command::Inspected;
use super::held::Held;

/// From where on nothing was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Base {
    /// What was delivered after this was unsettled then, and so is now.
    proof: u64,
    /// Deliveries at the last answer.
    deliveries: u64,
    /// Unsettled messages then.
    unacknowledged: u64,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Gate {
    is_open: bool,
    base: Option<Base>,
    /// Deliveries since the last answer: order → whether it was the message's first.
    arrivals: BTreeMap<u64, bool>,
    /// The numbers would fit but for foreign messages: those are not renewed, so that they come again if they are unsettled.
    doubts: bool,
    /// Something unsettled was not known at the last answer.
    misses_some: bool,
}

/// As many deliveries without an answer in between are counted; with more, the next answer is a new base.
const ARRIVALS_MAX: usize = 4_096;

impl Gate {
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Something has to come, for the first time or again, before it may open.
    pub(super) const fn waits_for_more(&self) -> bool {
        !self.is_open && (self.misses_some || self.doubts)
    }

    pub(super) fn note_delivery(&mut self, order: u64, first: bool) {
        let is_new = self.base.is_none_or(|base| order > base.deliveries);
        if !self.is_open && is_new && self.arrivals.len() < ARRIVALS_MAX {
            self.arrivals.insert(order, first);
        }
        self.misses_some = false;
    }

    /// Whether the message was unsettled at the last answer.
    pub(super) fn is_proven(&self, held: &Held) -> bool {
        !held.foreign || self.base.is_some_and(|base| held.delivery.order > base.proof)
    }

    /// Whether it is better to let the message come again.
    pub(super) fn doubts(&self, held: &Held) -> bool {
        !self.is_open && self.doubts && !self.is_proven(held)
    }

    /// An answer that was given before this pin's first delivery: what is delivered from there on was unsettled then.
    pub(super) fn take_early(&mut self, seen: &Inspected) {
        if !self.is_open {
            self.move_base(seen);
        }
    }

    /// An answer that was given after this pin's first delivery.
    pub(super) fn take(&mut self, seen: &Inspected, known: &BTreeMap<u64, Held>) {
        if self.is_open {
            return;
        }
        self.move_base(seen);
        let counted = || known.values().filter(|held| held.first_order <= seen.deliveries);
        let count = counted().count() as u64;
        let all_proven = counted().all(|held| self.is_proven(held));
        self.is_open = seen.unacknowledged == count && all_proven;
        self.doubts = seen.unacknowledged <= count && !all_proven;
        self.misses_some = seen.unacknowledged > count;
        if self.is_open {
            self.arrivals.clear();
        }
    }

    fn move_base(&mut self, seen: &Inspected) {
        let since: Vec<bool> = self.arrivals.range(..=seen.deliveries).map(|(_, first)| *first).collect();
        self.arrivals = self.arrivals.split_off(&seen.deliveries.saturating_add(1));
        let first = since.iter().filter(|first| **first).count() as u64;
        let goes_on = self.base.filter(|base| {
            let all_seen = seen.deliveries.checked_sub(base.deliveries) == Some(since.len() as u64);
            all_seen && seen.unacknowledged == base.unacknowledged + first
        });
        let proof = goes_on.map_or(seen.deliveries, |base| base.proof);
        self.base = Some(Base { proof, deliveries: seen.deliveries, unacknowledged: seen.unacknowledged });
    }

    #[cfg(test)]
    pub(super) fn open_by_mistake(&mut self) {
        self.is_open = true;
    }

    #[cfg(test)]
    pub(super) fn trust_everybody(&mut self, seen: &Inspected, known: &BTreeMap<u64, Held>) {
        self.is_open |= seen.unacknowledged == known.len() as u64;
    }
}
