//! What runs guests: the seam between the activation manager and the engine, and the last check before a guest starts.
//!
//! A [`StartOrder`] does not show its input. [`StartOrder::confirm`] does, after asking the catalog and the clock: a backend that
//! waits for something (a component to load, say) confirms afterwards, and cannot forget to.

mod loaded;
mod wasm;

use std::future::Future;
use std::sync::{Arc, OnceLock};

use latent_capabilities::{Session, SessionSpec};
use latent_core::{ActivationOutcome, Budget, ComponentDigest, ContractName, FunctionName, MonoTime, TraceId, UnixMillis};
use latent_wasmtime::ActivationReport;

use crate::Input;
use crate::catalog::{Catalog, StartRefused};
use crate::route::Pin;

pub use wasm::{ComponentSource, LoadError, LoadedSnapshot, WasmBackend, WasmBackendOptions};

/// The future of one activation. Dropping it stops the guest and frees everything it held.
pub type BackendFuture = std::pin::Pin<Box<dyn Future<Output = ActivationReport> + Send>>;

/// Runs guests.
///
/// One order is at most one run in a fresh store. The backend keeps the order's deadline and budget, blocks no thread, and confirms
/// after its own waits, immediately before the guest starts.
pub trait ExecutionBackend: Send + Sync {
    /// Starts one activation.
    fn run(&self, order: Box<StartOrder>) -> BackendFuture;

    /// How many activations it can run at one time; `None` means any number. The manager asks for no more, so that nothing waits
    /// between confirmation and start.
    fn cells_max(&self) -> Option<usize>;
}

/// An activation that has a cell and has not started yet.
pub struct StartOrder {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) pin: Pin,
    pub(crate) contract: ContractName,
    pub(crate) function: FunctionName,
    pub(crate) session: SessionSpec,
    pub(crate) input: Input,
    pub(crate) budget: Budget,
    pub(crate) trace: TraceId,
    pub(crate) started: Arc<OnceLock<Start>>,
}

/// An activation that was confirmed, as whoever waits for it sees it.
pub(crate) struct Start {
    pub(crate) time: StartTime,
    /// Knows what became of its publications, also when nobody is left to report it.
    pub(crate) session: Session,
}

/// When an activation was confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartTime {
    pub(crate) unix: UnixMillis,
    pub(crate) mono: MonoTime,
}

/// An activation that may start now, and must, or end.
pub struct ConfirmedStart {
    /// The event, or the arguments.
    pub input: Input,
    /// What the activation may do, as whom, until when.
    pub session: Session,
    /// What it may use.
    pub budget: Budget,
    /// Its trace.
    pub trace: TraceId,
    /// The contract to call.
    pub contract: ContractName,
    /// The function of it.
    pub function: FunctionName,
}

/// Why an activation that has a cell did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// Its publication or route was revoked while it waited.
    #[error(transparent)]
    Refused(#[from] StartRefused),
    /// Its deadline passed while it waited.
    #[error("the deadline passed before the start")]
    DeadlinePassed,
}

impl StartOrder {
    /// The component to run.
    pub const fn digest(&self) -> ComponentDigest {
        self.pin.digest
    }

    /// The last check. Call it after every wait and start the guest at once.
    ///
    /// # Errors
    /// [`NotStarted`]; no guest code may run, and the activation ends with its [`NotStarted::into_report`].
    pub fn confirm(self: Box<Self>) -> Result<ConfirmedStart, NotStarted> {
        let mut session = self.session;
        let now = session.clock.mono();
        if session.deadline.has_passed(now) {
            return Err(NotStarted::DeadlinePassed);
        }
        self.catalog.start_allowed(&self.pin, &session.tenant)?;
        session.deadline = session.deadline.narrowed(now, self.budget.wall_time_millis);
        let time = StartTime { unix: session.clock.unix(), mono: now };
        let session = Session::open(session);
        // An order is confirmed once, because this takes it by value; the cell is empty.
        let _ = self.started.set(Start { time, session: session.clone() });
        Ok(ConfirmedStart {
            input: self.input,
            session,
            budget: self.budget,
            trace: self.trace,
            contract: self.contract,
            function: self.function,
        })
    }
}

impl NotStarted {
    /// The report of an activation that did not start.
    pub fn into_report(self) -> ActivationReport {
        ActivationReport::without_guest(match self {
            Self::Refused(refused) => ActivationOutcome::PermissionRefused { reason: refused.to_string() },
            Self::DeadlinePassed => ActivationOutcome::Timeout,
        })
    }
}
