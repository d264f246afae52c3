//! Being told to stop: Ctrl-C or a termination signal ends a following command in order, with status 0.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::error::CliError;
use crate::exit::ExitStatus;

/// How long a command that was told to stop may go on: it may hang in a write to a reader that does not read.
const GRACE: Duration = Duration::from_secs(2);

/// Set once by a signal.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal {
    state: Arc<(Mutex<bool>, Condvar)>,
}

impl StopSignal {
    /// Listens for SIGINT and SIGTERM from now on, on a thread of its own. Soon after one the process ends, whatever it is doing: only for
    /// commands that change nothing. `last` runs before that, puts in order what has to be, and says with which status it ends.
    ///
    /// # Errors
    /// [`CliError::Node`] when the system refuses the handler or the thread.
    pub(crate) fn install_then(last: impl FnOnce() -> ExitStatus + Send + 'static) -> Result<Self, CliError> {
        let failed = |error: std::io::Error| CliError::Node {
            what: "the command cannot listen for signals".to_owned(),
            why: error.to_string(),
            next: "free file descriptors or threads and run it again".to_owned(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?)
        };
        let stop = Self { state: Arc::default() };
        let set = stop.clone();
        let listen = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            set.set();
            std::thread::sleep(GRACE);
            std::process::exit(last().code().into());
        };
        std::thread::Builder::new().name("latent-signals".to_owned()).spawn(listen).map_err(failed)?;
        Ok(stop)
    }

    fn set(&self) {
        let (stopped, changed) = &*self.state;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// True after a signal.
    pub(crate) fn is_set(&self) -> bool {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a signal comes or `pause` is over.
    pub(crate) fn wait(&self, pause: Duration) {
        let (stopped, changed) = &*self.state;
        let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner);
        // Which of the two it was is asked separately.
        let _ = changed.wait_timeout_while(stopped, pause, |stopped| !*stopped);
    }
}
