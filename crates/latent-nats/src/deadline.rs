//! The one deadline of an operation as a timer. Made once, inside the operation's own future; every stage races against the
//! same one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use latent_core::{Clock, Deadline};
use tokio::time::{Instant, Sleep, sleep_until};

/// The end of an operation's time. It goes off once and stays.
pub(crate) struct Timer<'s> {
    sleep: Pin<&'s mut Sleep>,
    deadline: Deadline,
}

/// Sleeps until `deadline`: what a [`Timer`] is made of.
pub(crate) fn sleep(deadline: Deadline, clock: &dyn Clock) -> Sleep {
    let left = deadline.at().since(clock.mono());
    let now = Instant::now();
    // Too far away to be reached means never.
    sleep_until(now.checked_add(left).unwrap_or(now + std::time::Duration::from_secs(86_400 * 365)))
}

impl<'s> Timer<'s> {
    /// Of the sleep until `deadline`.
    pub(crate) fn new(sleep: Pin<&'s mut Sleep>, deadline: Deadline) -> Self {
        Self { sleep, deadline }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// The future's value, or `None` when the time was over first. A value that is there counts, however late it is looked at.
    pub(crate) async fn race<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context| self.poll_race(future.as_mut(), context)).await
    }

    fn poll_race<F: Future>(&mut self, future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if let Poll::Ready(value) = future.poll(context) {
            return Poll::Ready(Some(value));
        }
        if self.sleep.is_elapsed() {
            return Poll::Ready(None);
        }
        self.sleep.as_mut().poll(context).map(|()| None)
    }
}
