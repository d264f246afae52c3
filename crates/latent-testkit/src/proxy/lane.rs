//! What happens to the bytes of one direction of one connection, decided without I/O.
//!
//! Bytes come in by [`Lane::push`]. [`Lane::next`] says what is to be done with those at the front: send so many, let a fault happen,
//! or wait. No byte beyond the place of a fault is ever given out before the fault has happened.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{At, Fault};

/// Bytes that a lane takes in ahead of what it may send. A peer that sends more has to wait.
pub(super) const PENDING_BYTES_MAX: usize = 512 << 10;
/// Bytes of each direction of each connection that are kept for tests to read.
pub(super) const TRANSCRIPT_BYTES_MAX: usize = 64 << 10;

/// A fault that waits for its place.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) at: At,
    pub(super) fault: Fault,
    /// True once it has happened, on whichever connection came there first.
    pub(super) spent: Arc<AtomicBool>,
    /// Up to which byte of the connection its pattern was counted.
    pub(super) seen: u64,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Send this many of the pending bytes.
    Send(usize),
    /// All bytes before this place are sent; the fault happens now.
    Happen(Fault),
    /// Nothing until something changes.
    Wait,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    pending: VecDeque<u8>,
    sent: u64,
    transcript: Vec<u8>,
    rules: Vec<Rule>,
    stalled: bool,
}

impl Lane {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        Self { rules, ..Self::default() }
    }

    pub(super) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// How many bytes it takes in now.
    pub(super) fn room(&self) -> usize {
        PENDING_BYTES_MAX.saturating_sub(self.pending.len())
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
    }

    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn transcript(&self) -> &[u8] {
        &self.transcript
    }

    pub(super) const fn stall(&mut self) {
        self.stalled = true;
    }

    pub(super) const fn release(&mut self) {
        self.stalled = false;
    }

    /// The bytes at the front, as far as they lie together.
    pub(super) fn front(&self, count: usize) -> &[u8] {
        let front = self.pending.as_slices().0;
        &front[..count.min(front.len())]
    }

    /// Notes that `count` bytes from the front were sent.
    pub(super) fn advance(&mut self, count: usize) {
        let room = TRANSCRIPT_BYTES_MAX - self.transcript.len();
        let (kept, sent) = (count.min(room), u64::try_from(count).unwrap_or(u64::MAX));
        self.transcript.extend(self.pending.iter().take(kept));
        self.pending.drain(..count);
        self.sent += sent;
    }

    /// Forgets bytes that nobody is there to take.
    pub(super) fn discard(&mut self, count: usize) {
        self.pending.drain(..count);
    }

    /// Decides. `flushed` says that everything given out so far has really left; `ended` that no more bytes will come.
    pub(super) fn next(&mut self, flushed: bool, ended: bool) -> Next {
        if self.stalled {
            return Next::Wait;
        }
        self.rules.retain(|rule| !rule.spent.load(Ordering::SeqCst));
        self.pending.make_contiguous();
        self.find_places();
        let here = self.rules.iter().position(|rule| rule.at == At::Byte(self.sent) && self.can_happen(rule.fault));
        if let Some(index) = here {
            return if flushed { self.happen(index, ended) } else { Next::Wait };
        }
        let ahead = self.rules.iter().filter_map(|rule| match rule.at {
            At::Byte(position) => usize::try_from(position.checked_sub(self.sent)?).ok(),
            At::Before(_) | At::After(_) | At::BeforeNext(..) => None,
        });
        let waiting = if ended { 0 } else { self.possible_beginning() };
        let allowed = ahead.min().unwrap_or(usize::MAX).min(self.pending.len() - waiting);
        if allowed == 0 { Next::Wait } else { Next::Send(allowed) }
    }

    fn can_happen(&self, fault: Fault) -> bool {
        // Only a byte that is there can be another one.
        !(matches!(fault, Fault::Garble(_)) && self.pending.is_empty())
    }

    fn happen(&mut self, index: usize, ended: bool) -> Next {
        let rule = self.rules.remove(index);
        if rule.spent.swap(true, Ordering::SeqCst) {
            // Another connection came there first: as if the rule had never been.
            return self.next(true, ended);
        }
        match rule.fault {
            Fault::Garble(mask) => self.pending.iter_mut().take(1).for_each(|byte| *byte ^= mask),
            Fault::Stall => self.stalled = true,
            Fault::Cut | Fault::CutBrokerSide | Fault::CutClientSide | Fault::Delay(_) => {}
        }
        Next::Happen(rule.fault)
    }

    /// A pattern that has come has a place, counted in bytes from the start of the connection.
    fn find_places(&mut self) {
        for index in 0..self.rules.len() {
            if matches!(self.rules[index].at, At::BeforeNext(..)) {
                self.pass_over(index);
            }
            let found = match &self.rules[index].at {
                At::Byte(_) | At::BeforeNext(_, 1..) => None,
                At::Before(pattern) | At::BeforeNext(pattern, 0) => self.find(pattern, self.rules[index].seen),
                At::After(pattern) => self.find(pattern, 0).map(|start| start + pattern.len()),
            };
            if let Some(offset) = found {
                self.rules[index].at = At::Byte(self.sent + u64::try_from(offset).unwrap_or(u64::MAX));
            }
        }
    }

    /// Passes over the occurrences before the one that is meant, as far as they have come.
    fn pass_over(&mut self, index: usize) {
        while let At::BeforeNext(pattern, left @ 1..) = &self.rules[index].at {
            let Some(start) = self.find(pattern, self.rules[index].seen) else { return };
            let (at, seen) = (At::BeforeNext(pattern.clone(), left - 1), self.sent + u64::try_from(start).unwrap_or(u64::MAX) + 1);
            (self.rules[index].at, self.rules[index].seen) = (at, seen);
        }
    }

    /// Where it comes first among the pending bytes, from this byte of the connection on.
    fn find(&self, pattern: &[u8], seen: u64) -> Option<usize> {
        let from = usize::try_from(seen.saturating_sub(self.sent)).unwrap_or(usize::MAX);
        let pending = self.pending.as_slices().0.get(from..).unwrap_or_default();
        pending.windows(pattern.len().max(1)).position(|window| window == pattern).map(|start| from + start)
    }

    /// How many of the last bytes may be the beginning of a pattern: they wait until it is known.
    fn possible_beginning(&self) -> usize {
        let pending = self.pending.as_slices().0;
        let patterns = self.rules.iter().filter_map(|rule| match &rule.at {
            At::Byte(_) => None,
            At::Before(pattern) | At::After(pattern) | At::BeforeNext(pattern, _) => Some(pattern),
        });
        let longest = |pattern: &Vec<u8>| (1..pattern.len()).rev().find(|length| pending.ends_with(&pattern[..*length])).unwrap_or(0);
        patterns.map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(at: At, fault: Fault) -> Rule {
        Rule { at, fault, spent: Arc::default(), seen: 0 }
    }

    /// Pushes chunk after chunk; gives what was sent, `|` where a fault happened.
    fn run(rules: Vec<Rule>, chunks: &[&str]) -> String {
        let mut lane = Lane::new(rules);
        let mut log = String::new();
        for chunk in std::iter::once(&"").chain(chunks) {
            lane.push(chunk.as_bytes());
            loop {
                match lane.next(true, false) {
                    Next::Send(count) => {
                        // One byte at a time: whatever the size of a write, places stay places.
                        let byte = lane.front(count)[0];
                        lane.advance(1);
                        log.push(char::from(byte));
                    }
                    Next::Happen(_) => log.push('|'),
                    Next::Wait => break,
                }
            }
        }
        log
    }

    #[test]
    fn a_fault_happens_after_exactly_the_bytes_before_its_place() {
        let cases = [
            (At::Byte(0), "|abcdef"),
            (At::Byte(1), "a|bcdef"),
            (At::Byte(3), "abc|def"),
            (At::Byte(6), "abcdef|"),
            (At::Byte(7), "abcdef"),
            (At::Before(b"cde".to_vec()), "ab|cdef"),
            (At::After(b"cde".to_vec()), "abcde|f"),
            (At::After(b"ef".to_vec()), "abcdef|"),
            (At::Before(b"cx".to_vec()), "abcdef"),
            (At::BeforeNext(b"ef".to_vec(), 0), "abcd|ef"),
            (At::BeforeNext(b"ef".to_vec(), 1), "abcdef"),
        ];
        for (at, expected) in cases {
            for chunks in [&["abcdef"][..], &["abc", "def"], &["a", "b", "c", "d", "e", "f"]] {
                assert_eq!(run(vec![rule(at.clone(), Fault::Cut)], chunks), expected, "{at:?} {chunks:?}");
            }
        }
    }

    #[test]
    fn occurrences_are_counted_however_they_come() {
        // What may be the beginning of the next one waits.
        for (count, expected) in [(0, "|aabaab.aa"), (1, "aab|aab.aa"), (2, "aabaab.|aa"), (3, "aabaab.a")] {
            for chunks in [&["aabaab.aa"][..], &["a", "abaa", "b.a", "a"], &["a", "a", "b", "a", "a", "b", ".", "a", "a"]] {
                assert_eq!(run(vec![rule(At::BeforeNext(b"aa".to_vec(), count), Fault::Cut)], chunks), expected, "{count} {chunks:?}");
            }
        }
    }

    #[test]
    fn a_garbled_byte_waits_until_it_is_there_and_is_the_only_one_changed() {
        assert_eq!(run(vec![rule(At::Byte(2), Fault::Garble(0x20))], &["ab", "cd"]), "ab|Cd");
    }

    #[test]
    fn nothing_passes_a_stall_until_it_is_released() {
        let mut lane = Lane::new(vec![rule(At::Byte(1), Fault::Stall)]);
        lane.push(b"abc");
        assert_eq!(lane.next(true, false), Next::Send(1));
        lane.advance(1);
        assert_eq!(lane.next(false, false), Next::Wait, "the byte before has not left yet");
        assert_eq!(lane.next(true, false), Next::Happen(Fault::Stall));
        assert_eq!(lane.next(true, false), Next::Wait);
        lane.release();
        assert_eq!(lane.next(true, false), Next::Send(2));
    }

    #[test]
    fn the_beginning_of_a_pattern_waits_for_its_rest_or_the_end() {
        let mut lane = Lane::new(vec![rule(At::Before(b"MSG ".to_vec()), Fault::Stall)]);
        lane.push(b"aMS");
        assert_eq!(lane.next(true, false), Next::Send(1));
        assert_eq!(lane.next(true, true), Next::Send(3));
    }

    #[test]
    fn a_rule_that_another_connection_spent_does_nothing() {
        let used = rule(At::Byte(1), Fault::Cut);
        used.spent.store(true, Ordering::SeqCst);
        assert_eq!(run(vec![used], &["abc"]), "abc");
    }

    #[test]
    fn what_is_kept_and_what_is_taken_in_ahead_is_bounded() {
        let mut lane = Lane::new(Vec::new());
        lane.push(&vec![b'x'; PENDING_BYTES_MAX]);
        assert_eq!(lane.room(), 0);
        lane.next(true, false);
        lane.advance(PENDING_BYTES_MAX);
        assert_eq!((lane.room(), lane.transcript().len()), (PENDING_BYTES_MAX, TRANSCRIPT_BYTES_MAX));
    }
}
