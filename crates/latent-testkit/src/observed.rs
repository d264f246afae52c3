//! Waiting for a state of a fixture that runs on another thread, on any runtime and in real time.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::wait::HANG_LIMIT;

/// How often a fixture wakes everybody without a change, so that a wait in vain ends.
pub(crate) const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// Wakes those who wait for a change. A waiter that waits too long fails its test instead of hanging it.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    waiting: Mutex<Vec<Waker>>,
}

impl Observed {
    /// Something has changed: everybody looks again.
    pub(crate) fn changed(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Registers for the next change. To be called before looking.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Waits until `look` says yes. The fixture calls [`Observed::changed`] every [`LOOK_AGAIN_EVERY`].
    pub(crate) async fn until(&self, awaited: &str, look: impl Fn() -> bool) {
        let start = Instant::now();
        poll_fn(|context| {
            self.register(context.waker());
            if look() {
                return Poll::Ready(());
            }
            assert!(start.elapsed() < HANG_LIMIT, "waited {HANG_LIMIT:?} in vain: {awaited}");
            Poll::Pending
        })
        .await;
    }
}
