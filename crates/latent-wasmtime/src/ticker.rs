//! Drives the epoch by which computing guests are interrupted: one thread, which ticks only while somebody computes.
//!
//! Invariant: the thread waits on a timer exactly while `live > 0`; otherwise it is parked without one.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::limits;

#[derive(Default)]
struct State {
    live: usize,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every guarded section is one assignment, so a poisoned lock still guards a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Owns the thread; joins it when dropped.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Keeps the ticks coming until it is dropped.
pub(crate) struct Ticking(Arc<Shared>);

impl Ticker {
    /// Starts the thread, parked. `tick` is called from it.
    pub(crate) fn start(tick: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("latent-epoch".to_owned()).spawn(move || run(&seen, tick))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Makes the thread tick for as long as the result lives.
    pub(crate) fn tick_while_held(&self) -> Ticking {
        let mut state = self.shared.lock();
        state.live += 1;
        if state.live == 1 {
            self.shared.changed.notify_one();
        }
        Ticking(Arc::clone(&self.shared))
    }
}

fn run(shared: &Shared, tick: impl Fn()) {
    let interval = Duration::from_millis(limits::TICK_MILLIS.default);
    let mut state = shared.lock();
    while !state.stopping {
        if state.live == 0 {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        } else {
            // An early wake-up only makes a tick come early, and a tick decides nothing: it makes guests look at their deadline.
            state = shared.changed.wait_timeout(state, interval).unwrap_or_else(PoisonError::into_inner).0;
            tick();
        }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.lock().live -= 1;
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panicked tick has nothing left to clean up.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_ticks_only_while_held_and_ends_when_dropped() {
        let (sender, ticks) = mpsc::channel();
        let ticker = Ticker::start(move || sender.send(()).unwrap_or_default()).unwrap();
        let held = ticker.tick_while_held();
        for _ in 0..3 {
            ticks.recv().unwrap();
        }
        drop(held);
        let _ = ticks.try_iter().count();
        drop(ticker);
        // The thread is gone and the sender with it, so this ends; at most the tick that was under way is left.
        assert!(ticks.iter().count() <= 1);
    }

    #[test]
    fn a_ticker_that_was_never_needed_never_ticks() {
        let (sender, ticks) = mpsc::channel();
        drop(Ticker::start(move || sender.send(()).unwrap_or_default()).unwrap());
        assert_eq!(ticks.iter().count(), 0);
    }
}
