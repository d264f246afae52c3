//! When a pass over a partition has ended, and when it has not: decisions without I/O (B-061, B-062, B-066).
//!
//! An empty pull says nothing by itself: the broker may have been slow. The end is what the broker attests, by telling that nothing is
//! pending behind what it delivered, or by a fresh consumer for which nothing is pending.

use latent_core::Limit;

use crate::limits;

/// Empty pulls of one consumer. One that was made on a replica which was behind may stay silent for good, seen on 2.14.6 in a cluster.
const EMPTIES_OF_A_CONSUMER: u64 = 2;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Pull again.
    Pull,
    /// Pull again, by another consumer: this one is said to have messages and does not send them.
    Replace,
    /// The broker said that nothing is behind: a fresh consumer at the cursor must say so, too, where absence is to be proved.
    Attested,
    /// It says that there is more and does not send it.
    Stalled,
}

/// Counts what a pass has met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    empties: u64,
    limit: Limit,
}

impl Default for Pass {
    fn default() -> Self {
        Self { empties: 0, limit: limits::EMPTY_PULLS }
    }
}

impl Pass {
    /// A pull gave `count` messages; `pending` is what the broker said last about those behind.
    pub(super) const fn pulled(&mut self, count: usize, pending: u64) -> Next {
        if pending == 0 {
            return Next::Attested;
        }
        if count > 0 {
            self.empties = 0;
            return Next::Pull;
        }
        self.empties += 1;
        match self.empties {
            empties if empties >= self.limit.default => Next::Stalled,
            empties if empties.is_multiple_of(EMPTIES_OF_A_CONSUMER) => Next::Replace,
            _ => Next::Pull,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_empty_pulls_are_slowness_and_the_eighth_is_a_stall() {
        let mut pass = Pass::default();
        for _ in 0..3 {
            assert_eq!([pass.pulled(0, 1), pass.pulled(0, 1)], [Next::Pull, Next::Replace]);
        }
        assert_eq!([pass.pulled(0, 1), pass.pulled(0, 1)], [Next::Pull, Next::Stalled]);
    }

    #[test]
    fn one_message_makes_the_count_begin_again() {
        let mut pass = Pass::default();
        for _ in 0..3 {
            for _ in 0..7 {
                assert!(matches!(pass.pulled(0, 9), Next::Pull | Next::Replace));
            }
            assert_eq!(pass.pulled(1, 8), Next::Pull);
        }
    }

    #[test]
    fn only_what_the_broker_says_is_an_end() {
        let mut pass = Pass::default();
        assert_eq!(pass.pulled(1_024, 1), Next::Pull);
        assert_eq!(pass.pulled(3, 0), Next::Attested);
        assert_eq!(pass.pulled(0, 0), Next::Attested);
    }
}
