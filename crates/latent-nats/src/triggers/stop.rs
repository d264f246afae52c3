//! The stop signal of whoever drives the triggers.

use std::future::Future;

use tokio::sync::watch;

/// A watch channel, or none: a driver of single steps stops by not taking the next.
pub(crate) struct Stop(Option<watch::Receiver<bool>>);

impl Stop {
    pub(crate) const fn never() -> Self {
        Self(None)
    }

    pub(crate) const fn on(signal: watch::Receiver<bool>) -> Self {
        Self(Some(signal))
    }

    pub(crate) fn is_given(&self) -> bool {
        // A sender that is gone cannot say go on.
        self.0.as_ref().is_some_and(|signal| *signal.borrow() || signal.has_changed().is_err())
    }

    /// Resolves when it is given.
    pub(crate) async fn given(&mut self) {
        match &mut self.0 {
            // An error means that nobody can give it any more, which is the same.
            Some(signal) => drop(signal.wait_for(|stop| *stop).await),
            None => std::future::pending().await,
        }
    }

    /// The future's value, or `None` when the signal came first; the future is dropped then.
    pub(crate) async fn race<F: Future>(&mut self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.given() => None,
            value = future => Some(value),
        }
    }
}
