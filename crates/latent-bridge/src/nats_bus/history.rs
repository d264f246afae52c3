//! Whether a stream is still the one it was. No I/O.
//!
//! A stream that was made anew has another time of creation. One whose store was brought back from a copy ends earlier than it did. Either
//! way offsets from before may be of other events now, so what was remembered of them is forgotten and somebody is told.

/// What is known of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct History {
    created: String,
    /// The highest sequence that was seen.
    highest: u64,
    /// Grows with each change.
    epoch: u64,
}

impl History {
    pub(super) const fn new(created: String, highest: u64) -> Self {
        Self { created, highest, epoch: 0 }
    }

    /// A sequence that the stream has, or had.
    pub(super) fn note(&mut self, sequence: u64) {
        self.highest = self.highest.max(sequence);
    }

    /// Grows with each change; what was remembered in another epoch is of another history.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What the broker says of the stream now. The words of a change, which is taken in.
    pub(super) fn observe(&mut self, created: &str, last: u64) -> Option<String> {
        let problem = if created != self.created {
            format!("its stream was made at {} before and at {created} now", self.created)
        } else if last < self.highest {
            format!("its stream reached sequence {} before and ends at {last} now", self.highest)
        } else {
            self.highest = last;
            return None;
        };
        self.change(created, last);
        Some(problem)
    }

    /// A record is another one than it was.
    pub(super) fn changed_at(&mut self, sequence: u64) -> String {
        let created = self.created.clone();
        self.change(&created, self.highest);
        format!("sequence {sequence} holds another event than before")
    }

    fn change(&mut self, created: &str, last: u64) {
        created.clone_into(&mut self.created);
        self.highest = last;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_goes_on_is_the_same() {
        let mut history = History::new("a".to_owned(), 5);
        assert_eq!(history.observe("a", 5), None);
        assert_eq!(history.observe("a", 9), None);
        history.note(12);
        assert_eq!((history.observe("a", 12), history.epoch()), (None, 0));
    }

    #[test]
    fn one_made_anew_and_one_that_ends_earlier_are_told_once_with_both_sides() {
        let mut history = History::new("a".to_owned(), 5);
        history.note(9);
        let told = history.observe("a", 8).unwrap();
        assert!(told.contains("sequence 9") && told.contains("ends at 8"), "{told}");
        assert_eq!((history.observe("a", 8), history.epoch()), (None, 1));
        let told = history.observe("b", 100).unwrap();
        assert!(told.contains("at a before and at b now"), "{told}");
        assert_eq!((history.observe("b", 100), history.epoch()), (None, 2));
        assert!(history.changed_at(7).contains("sequence 7"));
        assert_eq!(history.epoch(), 3);
    }
}
