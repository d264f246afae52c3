//! Single events that nothing vouches for: no segment of a proven chain has them, and the log was not there to compare. Anybody who can write
//! into the archive can have made them.

use latent_core::Offset;

use crate::limits;

/// Some of them, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unproven {
    pub(super) first: Offset,
    pub(super) last: Offset,
    pub(super) count: u64,
    /// Of the first of them.
    pub(super) path: String,
}

/// Those of one partition that were not told yet.
#[derive(Debug, Default)]
pub(super) struct UnprovenEvents(Vec<Unproven>);

impl UnprovenEvents {
    pub(super) fn push(&mut self, offset: Offset, path: &str) {
        let is_full = self.0.len() >= limits::ARCHIVE_FINDINGS.default_usize();
        match self.0.last_mut() {
            // Too many ranges become one, and never none.
            Some(range) if is_full || range.last.0.checked_add(1) == Some(offset.0) => {
                range.last = offset;
                range.count += 1;
            }
            _ => self.0.push(Unproven { first: offset, last: offset, count: 1, path: path.to_owned() }),
        }
    }

    /// The last one is in a segment after all.
    pub(super) fn forget_last(&mut self, offset: Offset) {
        let Some(range) = self.0.last_mut().filter(|range| range.last == offset) else { return };
        range.count -= 1;
        range.last = Offset(offset.0.saturating_sub(1));
        if range.count == 0 {
            self.0.pop();
        }
    }

    pub(super) fn take(&mut self) -> Vec<Unproven> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range_and_too_many_ranges_lose_none() {
        let mut events = UnprovenEvents::default();
        for offset in [3, 4, 5, 9] {
            events.push(Offset(offset), &offset.to_string());
        }
        events.forget_last(Offset(9));
        events.forget_last(Offset(5));
        events.forget_last(Offset(1));
        assert_eq!(events.take(), [Unproven { first: Offset(3), last: Offset(4), count: 2, path: "3".to_owned() }]);
        let max = limits::ARCHIVE_FINDINGS.default;
        (0..=max).for_each(|n| events.push(Offset(2 * n), ""));
        let ranges = events.take();
        assert_eq!((ranges.len() as u64, ranges.iter().map(|range| range.count).sum::<u64>()), (max, max + 1));
    }
}
