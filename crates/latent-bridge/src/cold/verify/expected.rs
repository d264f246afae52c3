//! What of a partition must be in its archive, whatever the archive itself says: as the manifest, the log and the outbox know it.

use latent_core::{Offset, Partition};

use crate::manifest::ColdFormat;

/// What must be in the archive of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: Partition,
    /// The first offset that was to be archived there: what is older was stored before, and nobody promised it.
    pub since: Offset,
    /// What is before this offset must be there. Where offsets are dense every one of them, else those that the log still has.
    pub until: Offset,
}

/// What is known of an archive from elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'k> {
    /// What must be there, of each partition that should have an archive.
    pub expected: &'k [Expectation],
    /// So many events may be on their way: their intents are durable.
    pub waiting: u64,
    /// How topics are archived, as far as that is known.
    pub formats: &'k [(String, ColdFormat)],
    /// Single events that nothing proves are taken where segments are proven: the form of the archive was changed once.
    pub accepts_unproven: bool,
}

impl Known<'_> {
    pub(super) fn format(&self, topic: &str) -> Option<ColdFormat> {
        self.formats.iter().find(|(name, _)| name == topic).map(|(_, format)| *format)
    }
}

/// How far a partition's offsets were seen, against what is expected of them.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    since: u64,
    until: u64,
    has_begun: bool,
    /// Behind the last one that was seen.
    next: u64,
}

impl Coverage {
    pub(super) fn new(expected: Option<&Expectation>) -> Self {
        let bounds = expected.map(|expected| (expected.since.0, expected.until.0));
        let (since, until) = bounds.unwrap_or_default();
        Self { since, until, ..Self::default() }
    }

    /// The first offset of the archive, the first time. What is missing before it.
    pub(super) fn begin(&mut self, first: Offset) -> Option<(Offset, Offset)> {
        if std::mem::replace(&mut self.has_begun, true) {
            return None;
        }
        range(self.since, self.until.min(first.0))
    }

    /// Everything up to this offset is there, or was told.
    pub(super) fn saw(&mut self, last: Offset) {
        self.next = self.next.max(last.0.saturating_add(1));
    }

    /// What is missing at the end, or altogether.
    pub(super) fn end(&self) -> Option<(Offset, Offset)> {
        range(self.since.max(self.next), self.until)
    }
}

/// From `first` to the one before `end`, if that is anything.
fn range(first: u64, end: u64) -> Option<(Offset, Offset)> {
    let last = end.checked_sub(1).filter(|last| *last >= first)?;
    Some((Offset(first), Offset(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(since: u64, until: u64) -> Coverage {
        let (since, until) = (Offset(since), Offset(until));
        Coverage::new(Some(&Expectation { topic: String::new(), partition: Partition(0), since, until }))
    }

    fn told(range: Option<(Offset, Offset)>) -> Option<(u64, u64)> {
        range.map(|(first, last)| (first.0, last.0))
    }

    #[test]
    fn what_is_missing_lies_before_the_first_and_behind_the_last_and_within_what_is_expected() {
        let mut one = coverage(5, 20);
        assert_eq!(told(one.begin(Offset(8))), Some((5, 7)));
        assert_eq!(told(one.begin(Offset(9))), None, "there is one first");
        one.saw(Offset(17));
        one.saw(Offset(10));
        assert_eq!(told(one.end()), Some((18, 19)));
        one.saw(Offset(19));
        assert_eq!(told(one.end()), None);
        assert_eq!(told(coverage(5, 20).begin(Offset(5))), None);
        assert_eq!(told(coverage(5, 20).begin(Offset(90))), Some((5, 19)));
        assert_eq!(told(coverage(5, 20).end()), Some((5, 19)), "nothing is there");
        assert_eq!(told(coverage(5, 5).end()), None);
        assert_eq!(told(Coverage::new(None).begin(Offset(7))), None);
        assert_eq!(told(Coverage::new(None).end()), None);
    }
}
