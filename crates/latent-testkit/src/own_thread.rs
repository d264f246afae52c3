//! Fixtures run on a thread and a runtime of their own, so that a test may block its thread or pause its clock as it likes.

use std::future::Future;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs `future` to its end while the calling thread waits, also when that thread belongs to a runtime.
#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
pub(crate) fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let joined = std::thread::scope(|scope| scope.spawn(|| runtime().block_on(future)).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A task with a thread of its own. When its owner goes, the task and all that it spawned are dropped first.
#[derive(Debug)]
pub(crate) struct OwnThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OwnThread {
    /// Starts the task that `main` makes, inside the new runtime.
    #[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
    pub(crate) fn spawn<F: Future<Output = ()>>(name: &str, main: impl FnOnce() -> F + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            let runtime = runtime();
            runtime.block_on(async {
                tokio::select! {
                    () = main() => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread");
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic in the fixture has been printed; the test fails by what it then misses.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
