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
            // What still runs is dropped with the runtime: whoever waits for it is told that it was interrupted.
            drop(runtime);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(serve).map_err(refused)?;
        Ok(Self { commands: Some(commands), thread: Some(thread), handle })
    }

    /// The runtime, for tasks that live as long as it.
    pub const fn handle(&self) -> &Handle {
        &self.handle
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
            let result = tokio::time::timeout(limit, operation).await;
            completer.complete(result.map_err(|_| ConnectorFault::TimedOut));
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

impl Drop for ConnectorExecutor {
    fn drop(&mut self) {
        self.commands = None;
        let other = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id());
        if other.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a connector's thread panicked");
        }
    }
}
