//! Group commit in front of a store that has none: what an event log on top of it would have to add, in a small and fast form.
//!
//! Whoever finds no commit under way leads: takes all that wait, commits them together, wakes those it committed, and hands the lead to
//! the first of those who came meanwhile. Invariants: at most one publisher leads; while somebody waits, somebody leads.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use crate::engine::Engine;
use crate::event::Event;
use crate::failure::Failure;

/// What a waiting publisher is told.
const WAIT: u8 = 0;
const LEAD: u8 = 1;
const STORED: u8 = 2;
const FAILED: u8 = 3;

/// See the module.
pub(crate) struct GroupCommit<'e> {
    engine: &'e dyn Engine,
    state: Mutex<State<'e>>,
}

#[derive(Default)]
struct State<'e> {
    waiting: Vec<Waiting<'e>>,
    led: bool,
}

struct Waiting<'e> {
    event: &'e Event,
    word: Arc<AtomicU8>,
    thread: Thread,
}

impl Waiting<'_> {
    fn tell(&self, word: u8) {
        self.word.store(word, Ordering::Release);
        self.thread.unpark();
    }
}

impl<'e> GroupCommit<'e> {
    pub(crate) fn over(engine: &'e dyn Engine) -> Self {
        Self { engine, state: Mutex::default() }
    }

    /// Stores one event, in a commit that others may share.
    pub(crate) fn publish(&self, event: &'e Event) -> Result<(), Failure> {
        let word = Arc::new(AtomicU8::new(WAIT));
        let leads = {
            let mut state = self.lock();
            state.waiting.push(Waiting { event, word: Arc::clone(&word), thread: std::thread::current() });
            !std::mem::replace(&mut state.led, true)
        };
        if leads {
            return self.lead(&word);
        }
        loop {
            match word.load(Ordering::Acquire) {
                WAIT => std::thread::park(),
                LEAD => return self.lead(&word),
                STORED => return Ok(()),
                _ => return Err(Failure::GroupFailed),
            }
        }
    }

    /// Commits everything that waits, the leader's own event among it.
    fn lead(&self, own: &Arc<AtomicU8>) -> Result<(), Failure> {
        let group = std::mem::take(&mut self.lock().waiting);
        let result = self.engine.commit(&group.iter().map(|waiting| waiting.event).collect::<Vec<_>>());
        let word = if result.is_ok() { STORED } else { FAILED };
        group.iter().filter(|waiting| !Arc::ptr_eq(&waiting.word, own)).for_each(|waiting| waiting.tell(word));
        let mut state = self.lock();
        match state.waiting.first() {
            Some(next) => next.tell(LEAD),
            None => state.led = false,
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State<'e>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes what it is asked to commit; the first commit fails when `fails`.
    #[derive(Default)]
    struct Noting {
        commits: Mutex<Vec<Vec<u64>>>,
        fails: bool,
    }

    impl Engine for Noting {
        fn commit(&self, events: &[&Event]) -> Result<(), Failure> {
            self.commits.lock().unwrap().push(events.iter().map(|event| event.number).collect());
            if self.fails { Err(Failure::Unsupported { engine: "noting", what: "commit" }) } else { Ok(()) }
        }

        fn read(&self, _visit: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
            Ok(())
        }

        fn find(&self, _event: &Event) -> Result<bool, Failure> {
            Ok(false)
        }
    }

    #[test]
    fn every_event_is_committed_once_before_its_publisher_goes_on() {
        let (engine, events) = (Noting::default(), Event::numbered_from(0, 400).unwrap());
        let group = GroupCommit::over(&engine);
        std::thread::scope(|scope| {
            for own in events.chunks(100) {
                let (group, engine) = (&group, &engine);
                scope.spawn(move || {
                    for event in own {
                        group.publish(event).unwrap();
                        assert!(engine.commits.lock().unwrap().iter().flatten().any(|number| *number == event.number));
                    }
                });
            }
        });
        let mut committed: Vec<_> = engine.commits.lock().unwrap().iter().flatten().copied().collect();
        committed.sort_unstable();
        assert_eq!(committed, (0..400).collect::<Vec<_>>());
    }

    #[test]
    fn a_failed_commit_fails_its_publisher() {
        let (engine, event) = (Noting { fails: true, ..Noting::default() }, Event::numbered(0).unwrap());
        assert!(GroupCommit::over(&engine).publish(&event).is_err());
    }
}
