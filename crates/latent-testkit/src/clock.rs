//! A clock that stands still until it is moved.

use std::sync::atomic::{AtomicU64, Ordering};

use latent_core::{Clock, MonoTime, UnixMillis};

/// Monotonic and wall time, moved by hand. Share it by `Arc`; each read and each move is atomic on its own.
#[derive(Debug)]
pub struct ManualClock {
    mono_micros: AtomicU64,
    unix_millis: AtomicU64,
}

impl ManualClock {
    /// A clock at monotonic zero and wall time `unix`.
    pub const fn starting_at(unix: UnixMillis) -> Self {
        Self { mono_micros: AtomicU64::new(0), unix_millis: AtomicU64::new(unix.0) }
    }

    /// Lets `millis` pass on both clocks.
    pub fn advance_millis(&self, millis: u64) {
        self.mono_micros.fetch_add(millis.saturating_mul(1_000), Ordering::SeqCst);
        self.unix_millis.fetch_add(millis, Ordering::SeqCst);
    }

    /// Lets the wall clock jump, forwards or backwards, while monotonic time stands still.
    pub fn jump_to(&self, unix: UnixMillis) {
        self.unix_millis.store(unix.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn mono(&self) -> MonoTime {
        MonoTime::from_micros(self.mono_micros.load(Ordering::SeqCst))
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(self.unix_millis.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_by_hand_and_on_both_clocks_alike() {
        let clock = ManualClock::starting_at(UnixMillis(1_000));
        assert_eq!((clock.mono(), clock.unix()), (MonoTime::ZERO, UnixMillis(1_000)));
        clock.advance_millis(250);
        assert_eq!((clock.mono(), clock.unix()), (MonoTime::from_millis(250), UnixMillis(1_250)));
    }

    #[test]
    fn a_jump_of_the_wall_clock_leaves_monotonic_time_alone() {
        let clock = ManualClock::starting_at(UnixMillis(90_000));
        clock.advance_millis(5);
        clock.jump_to(UnixMillis(7));
        assert_eq!((clock.mono(), clock.unix()), (MonoTime::from_millis(5), UnixMillis(7)));
    }
}
