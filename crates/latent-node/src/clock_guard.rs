//! Whether the wall clock can be believed: what it says is compared with time that only goes forward, and with what an earlier
//! process saw. No I/O: observations in, a decision and a record to keep out.
//!
//! What depends on the age of things (retention, publishing again) asks here first. After a jump of more than
//! [`limits::CLOCK_JUMP_MILLIS`] it is held until the clock is where it was expected, or an operator says that it is right.
//!
//! An **offset** is wall time less steady time. Offsets from `low` to `high` are believed, give or take the tolerance:
//!
//! ```text
//! low = high          the steady time goes on from a time that was believed
//! high is open        another boot: time passed that nobody counted, so only a clock that goes back can be told
//! high below `seen`   another boot after a jump ahead: a clock that was set back since is believed, one that goes on is not
//! ```
//!
//! While it is believed, the offset follows the clock by at most [`limits::CLOCK_DRIFT_PPM`]: steering by a time service is no jump,
//! and small steps in a short time add up to one. While it is held, nothing follows.

use latent_core::{MonoTime, UnixMillis};

use crate::limits;

/// One start of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootId(pub u128);

/// What the clocks said at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The wall clock.
    pub unix: UnixMillis,
    /// Time that nobody sets. Best is one that counts while the machine sleeps; else each sleep looks like a jump ahead.
    pub steady: MonoTime,
    /// The boot whose time `steady` is; `None` when it begins with the process.
    pub boot: Option<BootId>,
}

/// What one process leaves for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRecord {
    /// The wall time that was believed, or the earliest such.
    pub believed_from: UnixMillis,
    /// The latest; `None` when any later one would have been.
    pub believed_to: Option<UnixMillis>,
    /// What the wall clock said.
    pub seen: UnixMillis,
    /// The steady time of that moment, when another process can compare with it.
    pub steady: Option<(BootId, MonoTime)>,
    /// Since when things were held, in believed time; `None` when they were not.
    pub held_since: Option<UnixMillis>,
}

/// What is known of earlier processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// There was none.
    Nothing,
    /// There was one, and what it left cannot be read. Nothing is believed before an operator says so.
    Damaged,
    /// What it left.
    Record(ClockRecord),
}

/// Why things are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Since when, in believed time as far as there is one.
    pub since: UnixMillis,
    /// What is wrong.
    pub cause: HoldCause,
}

/// What is wrong with the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldCause {
    /// It is so many milliseconds from where it should be: ahead, or behind if negative.
    Jump {
        /// Milliseconds.
        millis: i64,
    },
    /// What earlier processes knew is lost, so nothing can be compared.
    Unknown,
}

/// Microseconds of wall time less steady time: a clock that is looked at often is followed as far as one that is not. 128 bits: no
/// difference of two times overflows.
type Offset = i128;

#[derive(Debug, Clone, Copy)]
struct Believed {
    low: Offset,
    high: Option<Offset>,
}

/// The machine. `observe` before each use of the wall clock that can do harm; keep `record` when it is due.
#[derive(Debug)]
pub struct ClockGuard {
    /// `None` when nothing is.
    believed: Option<Believed>,
    last: Observation,
    hold: Option<Hold>,
    recorded_at: Option<MonoTime>,
}

impl ClockGuard {
    /// Judges the clock at the start of a process.
    pub fn begin(remembered: Remembered, now: Observation) -> Self {
        let offset = offset_of(now);
        let mut guard = Self { believed: None, last: now, hold: None, recorded_at: None };
        match remembered {
            Remembered::Nothing => guard.believed = Some(Believed { low: offset, high: Some(offset) }),
            Remembered::Damaged => guard.hold = Some(Hold { since: now.unix, cause: HoldCause::Unknown }),
            Remembered::Record(record) => guard.take_up(record, now),
        }
        guard
    }

    fn take_up(&mut self, record: ClockRecord, now: Observation) {
        let same_boot = record.steady.filter(|(boot, steady)| now.boot == Some(*boot) && *steady <= now.steady);
        self.believed = Some(match same_boot {
            Some((_, steady)) => {
                // What passed since counts as observed, so that a clock may have drifted meanwhile.
                self.last.steady = steady;
                let at = |unix: UnixMillis| offset_at(unix, steady);
                Believed { low: at(record.believed_from), high: record.believed_to.map(at) }
            }
            None => Believed::after_a_boot(&record, now.steady),
        });
        self.hold = record.held_since.map(|since| Hold { since, cause: HoldCause::Unknown });
        self.observe(now);
    }

    /// Judges the clock now. What depends on it is held while this is `Some`.
    pub fn observe(&mut self, now: Observation) -> Option<Hold> {
        let passed = now.steady.as_micros().saturating_sub(self.last.steady.as_micros());
        self.last = now;
        let Some(believed) = self.believed else { return self.hold };
        let (held_before, offset) = (self.hold, offset_of(now));
        let followed = if held_before.is_none() { believed.drifted(offset, passed.into()) } else { believed };
        // A clock that is believed again is believed exactly from here on; one that is not is compared with what was believed.
        (self.believed, self.hold) = if followed.deviation(offset).is_none() {
            (Some(followed.exactly(offset)), None)
        } else {
            let since = held_before.map_or_else(|| unix_of(believed.low, now.steady), |hold| hold.since);
            let cause = HoldCause::Jump { millis: clamped((offset - believed.low) / MICROS_A_MILLI) };
            (Some(believed), Some(Hold { since, cause }))
        };
        if self.hold.is_some() != held_before.is_some() {
            self.recorded_at = None;
        }
        self.hold
    }

    /// An operator says that the clock is right now.
    pub fn confirm(&mut self, now: Observation) {
        let offset = offset_of(now);
        *self = Self { believed: Some(Believed { low: offset, high: Some(offset) }), last: now, hold: None, recorded_at: None };
    }

    /// As last judged.
    pub const fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// True when the record should be kept now: after a change, and every [`limits::CLOCK_RECORD_SECONDS`].
    pub fn is_record_due(&self) -> bool {
        let due = |at: MonoTime| self.last.steady.since(at).as_secs() >= limits::CLOCK_RECORD_SECONDS.default;
        self.recorded_at.is_none_or(due)
    }

    /// What to keep, as of the last observation. `None` while what is kept is damaged: it stays so until somebody confirms.
    pub fn record(&self) -> Option<ClockRecord> {
        let Believed { low, high } = self.believed?;
        let Observation { unix, steady, boot } = self.last;
        Some(ClockRecord {
            believed_from: unix_of(low, steady),
            believed_to: high.map(|high| unix_of(high, steady)),
            seen: unix,
            steady: boot.map(|boot| (boot, steady)),
            held_since: self.hold.map(|hold| hold.since),
        })
    }

    /// The record of the last observation is kept.
    pub const fn handle_recorded(&mut self) {
        self.recorded_at = Some(self.last.steady);
    }
}

impl Believed {
    /// Time passed that nobody counted: the right time is what was believed, or later.
    fn after_a_boot(record: &ClockRecord, steady: MonoTime) -> Self {
        let at = |unix: UnixMillis| offset_at(unix, steady);
        let ahead = |to: UnixMillis| record.held_since.is_some() && at(record.seen) - at(to) > tolerance();
        let was_ahead = record.believed_to.is_some_and(ahead);
        Self { low: at(record.believed_from), high: was_ahead.then(|| at(record.seen) - 2 * tolerance() - 1) }
    }

    /// Follows a clock that is steered, as far as that can have brought it in the time that passed.
    fn drifted(self, offset: Offset, passed_micros: Offset) -> Self {
        let Some(high) = self.high.filter(|high| *high == self.low) else { return self };
        let reach = passed_micros * Offset::from(limits::CLOCK_DRIFT_PPM.default) / 1_000_000;
        let followed = high + (offset - high).clamp(-reach, reach);
        Self { low: followed, high: Some(followed) }
    }

    /// How far from the earliest time that is believed, if it is not.
    fn deviation(self, offset: Offset) -> Option<Offset> {
        let too_late = self.high.is_some_and(|high| offset > high + tolerance());
        (offset < self.low - tolerance() || too_late).then_some(offset - self.low)
    }

    fn exactly(self, offset: Offset) -> Self {
        let offset = if self.high == Some(self.low) { self.low } else { offset.max(self.low) };
        Self { low: offset, high: Some(offset) }
    }
}

fn tolerance() -> Offset {
    Offset::from(limits::CLOCK_JUMP_MILLIS.default) * MICROS_A_MILLI
}

const MICROS_A_MILLI: Offset = 1_000;

fn offset_of(now: Observation) -> Offset {
    offset_at(now.unix, now.steady)
}

fn offset_at(unix: UnixMillis, steady: MonoTime) -> Offset {
    Offset::from(unix.0) * MICROS_A_MILLI - Offset::from(steady.as_micros())
}

fn unix_of(offset: Offset, steady: MonoTime) -> UnixMillis {
    let millis = (offset + Offset::from(steady.as_micros())) / MICROS_A_MILLI;
    UnixMillis(u64::try_from(millis.max(0)).unwrap_or(u64::MAX))
}

fn clamped(millis: Offset) -> i64 {
    i64::try_from(millis).unwrap_or(if millis < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests;
