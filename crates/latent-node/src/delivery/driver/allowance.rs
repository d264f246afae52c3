//! How much guests may write into the node's log: a bucket of bytes that fills with time. Pure. Each activation is bounded by its own
//! budget already; this bounds all of them together, so that no guest decides how fast the operator's disk fills.

use latent_core::MonoTime;

use crate::delivery::limits;

/// See the module.
#[derive(Debug)]
pub(super) struct LogAllowance {
    bytes: u64,
    filled_at: MonoTime,
    left_out: u64,
}

impl LogAllowance {
    /// A full bucket.
    pub(super) const fn new(now: MonoTime) -> Self {
        Self { bytes: limits::GUEST_LOG_BURST_BYTES.default, filled_at: now, left_out: 0 }
    }

    /// Takes room for a line, or counts it as left out.
    pub(super) fn take(&mut self, now: MonoTime, line_bytes: usize) -> bool {
        self.fill(now);
        let taken = self.bytes.checked_sub(line_bytes as u64);
        self.left_out += u64::from(taken.is_none());
        self.bytes = taken.unwrap_or(self.bytes);
        taken.is_some()
    }

    /// Lines left out since this was last asked, once there is room again.
    pub(super) fn lines_left_out(&mut self, now: MonoTime) -> Option<u64> {
        self.fill(now);
        let room = self.bytes > limits::GUEST_LOG_BURST_BYTES.default / 2;
        (room && self.left_out > 0).then(|| std::mem::take(&mut self.left_out))
    }

    fn fill(&mut self, now: MonoTime) {
        let micros = u64::try_from(now.since(self.filled_at).as_micros()).unwrap_or(u64::MAX);
        let gained = micros.saturating_mul(limits::GUEST_LOG_BYTES_PER_SECOND.default) / 1_000_000;
        // Time too short for a byte is kept for the next look.
        if gained > 0 {
            self.bytes = self.bytes.saturating_add(gained).min(limits::GUEST_LOG_BURST_BYTES.default);
            self.filled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_fits_exactly_then_lines_wait_for_time() {
        let burst = usize::try_from(limits::GUEST_LOG_BURST_BYTES.default).unwrap();
        let rate = usize::try_from(limits::GUEST_LOG_BYTES_PER_SECOND.default).unwrap();
        let mut allowance = LogAllowance::new(MonoTime::ZERO);
        assert!(allowance.take(MonoTime::ZERO, burst) && !allowance.take(MonoTime::ZERO, 1));
        let second = MonoTime::from_millis(1_000);
        assert!(!allowance.take(second, rate + 1) && allowance.take(second, rate));
        assert_eq!(allowance.lines_left_out(second), None);
        let later = MonoTime::from_millis(600_000);
        assert_eq!((allowance.lines_left_out(later), allowance.lines_left_out(later)), (Some(2), None));
        assert!(!allowance.take(later, burst + 1) && allowance.take(later, burst));
    }
}
