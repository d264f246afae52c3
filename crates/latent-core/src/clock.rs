//! Time as an argument. Decision code takes these values; only shells hold a [`Clock`].

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point of monotonic time, in microseconds since a start that is only known to its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoTime(u64);

impl MonoTime {
    /// The clock's start.
    pub const ZERO: Self = Self(0);

    /// `micros` microseconds after the clock's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// `millis` milliseconds after the clock's start, saturating.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Microseconds since the clock's start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This point plus `millis`, saturating.
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis.saturating_mul(1_000)))
    }

    /// Time from `earlier` to this point, zero if `earlier` lies after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Wall-clock time in milliseconds since 1970; before 1970 counts as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMillis(pub u64);

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a shell gets its time from.
pub trait Clock: Send + Sync {
    /// Monotonic time: for waits, deadlines and durations.
    fn mono(&self) -> MonoTime;
    /// Wall-clock time: for timestamps that people and other machines read, never for waits.
    fn unix(&self) -> UnixMillis;
}

/// The machine's own clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn mono(&self) -> MonoTime {
        MonoTime(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn unix(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
