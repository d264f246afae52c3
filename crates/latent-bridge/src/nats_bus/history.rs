//! Whether a stream is still the one it was. No I/O.
//!
//! A stream that was made anew has another time of creation. One whose store was brought back from a copy ends earlier than it did. Either
//! way offsets from before may be of other events now, so what was remembered of them is forgotten and somebody is told.

use super::words::Told;

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

    /// The highest sequence that was seen. To be taken before the broker is asked: what it answers is then that old at most.
    pub(super) const fn highest(&self) -> u64 {
        self.highest
    }

    /// What the broker says of the stream, asked when `highest` was the highest sequence seen. The words of a change, which is taken in.
    pub(super) fn observe(&mut self, highest: u64, created: &str, last: u64) -> Option<String> {
        let problem = if created != self.created {
            format!("its stream was made at {} before and at {} now", Told(&self.created), Told(created))
        } else if last < highest && highest <= self.highest {
            format!("its stream reached sequence {highest} before and ends at {last} now")
        } else {
            self.note(last);
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

    fn asked_now(history: &mut History, created: &str, last: u64) -> Option<String> {
        history.observe(history.highest(), created, last)
    }

    #[test]
    fn a_stream_that_goes_on_is_the_same() {
        let mut history = History::new("a".to_owned(), 5);
        assert_eq!(asked_now(&mut history, "a", 5), None);
        assert_eq!(asked_now(&mut history, "a", 9), None);
        history.note(12);
        assert_eq!((asked_now(&mut history, "a", 12), history.epoch()), (None, 0));
        let asked = history.highest();
        history.note(14);
        assert_eq!(history.observe(asked, "a", 13), None, "an answer may be older than what came meanwhile");
        assert_eq!((history.highest(), history.epoch()), (14, 0));
    }

    #[test]
    fn one_made_anew_and_one_that_ends_earlier_are_told_once_with_both_sides() {
        let mut history = History::new("a".to_owned(), 5);
        history.note(9);
        let asked = history.highest();
        let told = history.observe(asked, "a", 8).unwrap();
        assert!(told.contains("sequence 9") && told.contains("ends at 8"), "{told}");
        assert_eq!(history.observe(asked, "a", 8), None, "told once, also to who asked at the same time");
        assert_eq!((asked_now(&mut history, "a", 8), history.epoch()), (None, 1));
        let told = asked_now(&mut history, "b", 100).unwrap();
        assert!(told.contains("made at a before and at b now"), "{told}");
        assert_eq!((asked_now(&mut history, "b", 100), history.epoch()), (None, 2));
        assert!(history.changed_at(7).contains("sequence 7"));
        assert_eq!(history.epoch(), 3);
    }
}
