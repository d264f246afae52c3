//! Drives the epoch by which computing guests are interrupted: one thread, which ticks only while somebody computes.
//!
//! Activations that follow one another closely must not wake the thread each time: waking it costs more than a short activation. So it
//! looks at each tick whether anybody is left, and only a parked thread is woken.
//!
//! Invariant: with nobody left for a whole interval, the thread is parked and waits on no timer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::limits;

#[derive(Default)]
struct Shared {
    live: AtomicUsize,
    /// Set by the thread *before* it looks at `live` for the last time, read by holders *after* they raised it. One of the two sees the
    /// other, so nobody computes beside a thread that stays parked.
    parked: AtomicBool,
    stopping: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, bool> {
        // Every guarded section is one assignment, so a poisoned lock still guards a whole state.
        self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.live.load(SeqCst) == 0
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
        self.shared.live.fetch_add(1, SeqCst);
        if self.shared.parked.load(SeqCst) {
            // Under the lock, so that the thread is either waiting already or has not looked yet.
            let _stopping = self.shared.lock();
            self.shared.changed.notify_one();
        }
        Ticking(Arc::clone(&self.shared))
    }
}

fn run(shared: &Shared, tick: impl Fn()) {
    let interval = Duration::from_millis(limits::TICK_MILLIS.default);
    let mut stopping = shared.lock();
    while !*stopping {
        if shared.is_idle() {
            shared.parked.store(true, SeqCst);
            let waited = shared.changed.wait_while(stopping, |stopping| !*stopping && shared.is_idle());
            stopping = waited.unwrap_or_else(PoisonError::into_inner);
            shared.parked.store(false, SeqCst);
        } else {
            let waited = shared.changed.wait_timeout_while(stopping, interval, |stopping| !*stopping);
            stopping = waited.unwrap_or_else(PoisonError::into_inner).0;
            tick();
        }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.shared.lock() = true;
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
    use std::time::Instant;

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

    #[test]
    fn many_short_holds_make_no_more_ticks_than_one_long_one() {
        let (sender, ticks) = mpsc::channel();
        let ticker = Ticker::start(move || sender.send(()).unwrap_or_default()).unwrap();
        let started = Instant::now();
        let mut count = 0;
        while count < 5 {
            drop(ticker.tick_while_held());
            count += ticks.try_iter().count();
        }
        drop(ticker);
        count += ticks.iter().count();
        let intervals = started.elapsed().as_millis() / u128::from(limits::TICK_MILLIS.default);
        // The last tick may be the one of the stop.
        assert!(count as u128 <= intervals + 1, "{count} ticks in {intervals} intervals");
    }

    #[test]
    fn a_parked_thread_is_woken_however_the_hold_falls_into_its_last_look() {
        let (sender, ticks) = mpsc::channel();
        let ticker = Ticker::start(move || sender.send(()).unwrap_or_default()).unwrap();
        for _ in 0..50 {
            let held = ticker.tick_while_held();
            ticks.recv().unwrap();
            drop(held);
            while !ticker.shared.parked.load(SeqCst) {
                std::thread::yield_now();
            }
        }
    }
}
