//! The connector's own thread: one named thread with a runtime of one worker, which runs operations for callers that are none of its
//! tasks (B-081 to B-083). Knows nothing of what it runs.

use std::future::Future;
use std::thread::JoinHandle;
use std::time::Duration;

use latent_core::Ticket;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::{BusError, limits};

/// What became of an operation other than its own result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorFault {
    /// It took longer than `connector_operation_millis`.
    #[error("connector operation timed out")]
    TimedOut,
    /// The connector has ended.
    #[error("connector runtime is closed")]
    Closed,
    /// The operation's task ended without a result.
    #[error("connector operation was interrupted")]
    Interrupted,
    /// So many operations wait that none is taken.
    #[error("busy: {limit} is used up; try again later", limit = limits::CONNECTOR_QUEUE.name)]
    Busy,
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module. Dropping it tells the runtime to end and waits for its thread.
#[derive(Debug)]
pub struct ConnectorExecutor {
    commands: Option<mpsc::Sender<Task>>,
    thread: Option<JoinHandle<()>>,
    handle: Handle,
}

impl ConnectorExecutor {
    /// Starts the thread `name` and its runtime.
    ///
    /// # Errors
    /// [`BusError::Backend`] when the system gives no thread or no runtime.
    pub fn new(name: &'static str) -> Result<Self, BusError> {
        let refused = |error: std::io::Error| BusError::Backend(format!("the thread {name} could not be started: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let handle = runtime.handle().clone();
        let (commands, mut queue) = mpsc::channel::<Task>(limits::CONNECTOR_QUEUE.default_usize());
        let serve = move || {
            runtime.block_on(async {
                while let Some(task) = queue.recv().await {
                    tokio::spawn(task);
                }
            });
            // What still runs is dropped with the runtime: whoever waits for it is told that it was interrupted. A look-up of a name may
            // block a thread of the system's for long after nobody wants it; that is not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(serve).map_err(refused)?;
        Ok(Self { commands: Some(commands), thread: Some(thread), handle })
    }

    /// The runtime, for tasks that live as long as it.
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Whether this is the connector's own thread, which must not wait for it.
    pub fn is_own_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// Runs `operation` on the connector's thread. It has `connector_operation_millis` (10 s) of its own; operations overlap.
    pub fn submit<T: Send + 'static>(&self, operation: impl Future<Output = T> + Send + 'static) -> Ticket<Result<T, ConnectorFault>> {
        self.submit_within(Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default), operation)
    }

    /// As [`ConnectorExecutor::submit`], with another limit: for work that has bounded steps of its own.
    pub fn submit_within<T: Send + 'static>(
        &self,
        limit: Duration,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> Ticket<Result<T, ConnectorFault>> {
        let (ticket, completer) = Ticket::pair(Err(ConnectorFault::Interrupted));
        let task: Task = Box::pin(async move {
            completer.complete(limited(limit, operation).await);
        });
        let Some(commands) = &self.commands else { return Ticket::ready(Err(ConnectorFault::Closed)) };
        match commands.try_send(task) {
            Ok(()) => ticket,
            Err(mpsc::error::TrySendError::Full(_)) => Ticket::ready(Err(ConnectorFault::Busy)),
            Err(mpsc::error::TrySendError::Closed(_)) => Ticket::ready(Err(ConnectorFault::Closed)),
        }
    }

    /// [`ConnectorExecutor::submit`], waited for. Works on any thread, also inside another runtime, whose thread it blocks.
    ///
    /// # Errors
    /// [`ConnectorFault`].
    pub fn run<T: Send + 'static>(&self, operation: impl Future<Output = T> + Send + 'static) -> Result<T, ConnectorFault> {
        self.submit(operation).wait()
    }
}

async fn limited<T>(limit: Duration, operation: impl Future<Output = T>) -> Result<T, ConnectorFault> {
    tokio::time::timeout(limit, operation).await.map_err(|_| ConnectorFault::TimedOut)
}

impl Drop for ConnectorExecutor {
    fn drop(&mut self) {
        self.commands = None;
        let is_own = self.is_own_thread();
        let other = self.thread.take().filter(|_| !is_own);
        if other.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a connector's thread panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn an_operation_runs_on_the_thread_of_that_name_and_gives_its_result() {
        let executor = ConnectorExecutor::new("latent-nats-bus").unwrap();
        let name = executor.run(async { std::thread::current().name().map(str::to_owned) });
        assert_eq!(name, Ok(Some("latent-nats-bus".to_owned())));
    }

    #[test]
    fn dropping_waits_for_no_thread_that_the_system_holds() {
        let executor = ConnectorExecutor::new("latent-nats-bus").unwrap();
        let (release, held) = mpsc::channel::<()>();
        let (started, is_started) = mpsc::channel();
        executor.handle().spawn_blocking(move || {
            started.send(()).unwrap();
            let _ = held.recv();
        });
        is_started.recv().unwrap();
        drop(executor);
        release.send(()).unwrap();
    }

    #[test]
    fn operations_overlap_and_each_has_its_own_limit() {
        let executor = ConnectorExecutor::new("latent-nats-bus").unwrap();
        let (started, is_started) = mpsc::channel();
        let waiting = executor.submit_within(LONG, async move {
            started.send(()).unwrap();
            pending::<()>().await;
        });
        is_started.recv().unwrap();
        assert_eq!(executor.run(async { 7 }), Ok(7), "beside one that does not end");
        let timed_out = executor.submit_within(Duration::ZERO, pending::<()>()).wait();
        assert_eq!(timed_out, Err(ConnectorFault::TimedOut));
        drop(executor);
        assert_eq!(waiting.wait(), Err(ConnectorFault::Interrupted));
    }

    #[test]
    fn the_limit_of_an_operation_is_ten_seconds() {
        // In virtual time: the clock of a paused runtime jumps to the next timer.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let limit = Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default);
        assert_eq!(limit, Duration::from_secs(10));
        let ended = runtime.block_on(async {
            let began = tokio::time::Instant::now();
            let ended = limited(limit, pending::<()>()).await;
            (ended, began.elapsed())
        });
        assert_eq!(ended.0, Err(ConnectorFault::TimedOut));
        assert!(ended.1 >= limit && ended.1 < limit * 2, "{:?}", ended.1);
    }

    #[test]
    fn a_caller_inside_another_runtime_is_served_and_so_is_its_drop() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let executor = ConnectorExecutor::new("latent-cold-store").unwrap();
            assert_eq!(executor.run(async { 1 }), Ok(1));
            let ticket = executor.submit(async { 2 });
            assert_eq!(ticket.await, Ok(2));
            drop(executor);
        });
    }

    #[test]
    fn an_operation_that_panics_is_interrupted_and_the_next_one_runs() {
        let executor = ConnectorExecutor::new("latent-nats-bus").unwrap();
        let panicking = executor.submit(async {
            if true {
                panic!("as the test wants it");
            }
        });
        assert_eq!(panicking.wait(), Err(ConnectorFault::Interrupted));
        assert_eq!(executor.run(async { 3 }), Ok(3));
    }

    #[test]
    fn more_operations_than_the_queue_holds_are_refused_and_the_queue_goes_on() {
        let executor = ConnectorExecutor::new("latent-nats-bus").unwrap();
        let (held, is_held) = mpsc::channel();
        let (release, is_released) = mpsc::channel::<()>();
        // Keeps the one worker, so that nothing is taken from the queue.
        let keeper = executor.submit_within(LONG, async move {
            held.send(()).unwrap();
            let _ = is_released.recv();
        });
        is_held.recv().unwrap();
        let queued: Vec<_> = (0..limits::CONNECTOR_QUEUE.default).map(|n| executor.submit_within(LONG, async move { n })).collect();
        assert_eq!(executor.submit(async {}).wait(), Err(ConnectorFault::Busy));
        release.send(()).unwrap();
        assert_eq!(keeper.wait(), Ok(()));
        assert!(queued.into_iter().map(Ticket::wait).eq((0..limits::CONNECTOR_QUEUE.default).map(Ok)));
    }

    #[test]
    fn the_words_of_each_fault_are_fixed() {
        let words = |fault: ConnectorFault| fault.to_string();
        assert_eq!(words(ConnectorFault::TimedOut), "connector operation timed out");
        assert_eq!(words(ConnectorFault::Closed), "connector runtime is closed");
        assert_eq!(words(ConnectorFault::Interrupted), "connector operation was interrupted");
    }

    #[test]
    fn a_runtime_that_has_ended_is_closed() {
        let mut executor = ConnectorExecutor::new("latent-nats-bus").unwrap();
        executor.commands = None;
        assert_eq!(executor.run(async {}), Err(ConnectorFault::Closed));
    }

    #[test]
    fn dropping_it_on_its_own_thread_does_not_wait_for_itself() {
        let executor = ConnectorExecutor::new("latent-nats-bus").unwrap();
        let (given, taken) = mpsc::channel::<ConnectorExecutor>();
        let (done, is_done) = mpsc::channel();
        let ticket = executor.submit_within(LONG, async move {
            drop(taken.recv());
            done.send(()).unwrap();
        });
        given.send(executor).unwrap();
        is_done.recv().unwrap();
        assert!(matches!(ticket.wait(), Ok(()) | Err(ConnectorFault::Interrupted)));
    }
}
