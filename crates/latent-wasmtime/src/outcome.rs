//! The one place where the end of a guest's run becomes an [`ActivationOutcome`].

use std::fmt::{self, Write as _};

use latent_core::{ActivationOutcome, BudgetKind, TrapCode};
use wasmtime::component::Val;
use wasmtime::{FrameInfo, PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::activation_log::harmless;
use crate::bindings::exports::latent::events::handler::{HandlerError, RetryHint};
use crate::limits;
use crate::values::{self, ValuesError, ValuesProblem};

/// Raised by the epoch callback when the deadline has passed.
#[derive(Debug)]
pub(crate) struct DeadlinePassed;

impl fmt::Display for DeadlinePassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

impl std::error::Error for DeadlinePassed {}

/// The outcome of a handler that returned.
pub(crate) fn of_result(result: Result<(), HandlerError>) -> ActivationOutcome {
    match result {
        Ok(()) => ActivationOutcome::Success,
        Err(HandlerError::Reject(reason)) => ActivationOutcome::Rejected { reason: bounded_reason(&reason) },
        Err(HandlerError::Retry(RetryHint { reason, delay_millis })) => {
            ActivationOutcome::RetryRequested { reason: bounded_reason(&reason), delay_millis }
        }
    }
}

/// The outcome of a function that returned `results`: an `err` is a failure that the function declared only where it is the whole
/// result.
pub(crate) fn of_values(results: &[Val]) -> ActivationOutcome {
    if values::is_declared_failure(results) { ActivationOutcome::DeclaredFailure } else { ActivationOutcome::Success }
}

/// The outcome of a function whose results do not fit the form of values.
pub(crate) fn of_unencodable(error: &ValuesError) -> ActivationOutcome {
    if matches!(error.problem, ValuesProblem::OverLimit { .. }) {
        return ActivationOutcome::BudgetExhausted(BudgetKind::Result);
    }
    ActivationOutcome::HostFailure { reason: error.to_string() }
}

fn bounded_reason(reason: &str) -> String {
    harmless(reason, limits::REASON_BYTES.max_usize()).0
}

/// How far a run had come when it raised an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The store and the instance were being made: mostly the host's work.
    Starting,
    /// The handler was called: what goes wrong now is the guest's doing, also when the host notices it, as with a result that lies
    /// outside its memory.
    Handling,
}

/// The outcome of a run that raised `error`. `refused` is what the limiter refused last.
pub(crate) fn of_error(error: &wasmtime::Error, stage: Stage, refused: Option<BudgetKind>) -> ActivationOutcome {
    if error.is::<DeadlinePassed>() {
        return ActivationOutcome::Timeout;
    }
    if let Some(I32Exit(status)) = error.downcast_ref::<I32Exit>() {
        return ActivationOutcome::Trap { code: TrapCode::Exit, detail: format!("the guest called exit with status {status}") };
    }
    match (error.downcast_ref::<Trap>(), refused) {
        (Some(Trap::OutOfFuel), _) => ActivationOutcome::BudgetExhausted(BudgetKind::Fuel),
        (Some(Trap::Interrupt), _) => ActivationOutcome::Timeout,
        // What a refused growth leads to: an abort, a wild access, a null call, or an instance that could not be made at all.
        (
            Some(Trap::UnreachableCodeReached | Trap::MemoryOutOfBounds | Trap::TableOutOfBounds | Trap::IndirectCallToNull) | None,
            Some(kind),
        ) => ActivationOutcome::BudgetExhausted(kind),
        (Some(trap), _) => ActivationOutcome::Trap { code: trap_code(*trap), detail: detail(error) },
        (None, None) if is_guests_fault(error, stage) => ActivationOutcome::Trap { code: TrapCode::Unlisted, detail: detail(error) },
        (None, None) => ActivationOutcome::HostFailure { reason: detail(error) },
    }
}

/// What the engine says of a result that would take the host more memory than the store's allowance. It has no type of its own that could
/// be asked for; the exact version pin and a test with a real guest hold this text.
const TOO_MUCH_DATA: &str = "too much data is being copied between the host and the guest";

/// The outcome of a called function that raised `error`: as [`of_error`], and a result that is far too large is what a result that is a
/// little too large is.
pub(crate) fn of_call(error: &wasmtime::Error, refused: Option<BudgetKind>) -> ActivationOutcome {
    // While the guest runs there is a backtrace; then it was an argument of a host call.
    if !error.is::<WasmBacktrace>() && error.root_cause().to_string().starts_with(TOO_MUCH_DATA) {
        return ActivationOutcome::BudgetExhausted(BudgetKind::Result);
    }
    of_error(error, Stage::Handling, refused)
}

/// True for errors that the host raised on behalf of a guest, such as one that handed over too much.
fn is_guests_fault(error: &wasmtime::Error, stage: Stage) -> bool {
    let hosts_own = error.is::<PoolConcurrencyLimitError>() || error.is::<std::io::Error>();
    !hosts_own && (stage == Stage::Handling || error.is::<WasmBacktrace>())
}

fn trap_code(trap: Trap) -> TrapCode {
    match trap {
        Trap::UnreachableCodeReached => TrapCode::Unreachable,
        Trap::MemoryOutOfBounds | Trap::HeapMisaligned => TrapCode::MemoryOutOfBounds,
        Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => TrapCode::TableAccess,
        Trap::StackOverflow => TrapCode::StackOverflow,
        Trap::IntegerOverflow | Trap::IntegerDivisionByZero | Trap::BadConversionToInteger => TrapCode::Arithmetic,
        // The engine's set is open; what has no name here keeps its text in the detail.
        _ => TrapCode::Unlisted,
    }
}

/// The root cause and the guest's frames, innermost first: `cause; in a (src/lib.rs:3) < b < c`.
fn detail(error: &wasmtime::Error) -> String {
    let mut text = error.root_cause().to_string();
    let frames = error.downcast_ref::<WasmBacktrace>().map_or(&[][..], WasmBacktrace::frames);
    for (at, frame) in frames.iter().filter(|frame| frame.func_name().is_some()).enumerate() {
        text.push_str(if at == 0 { "; in " } else { " < " });
        describe(frame, &mut text);
    }
    harmless(&text, limits::TRAP_DETAIL_BYTES.max_usize()).0
}

fn describe(frame: &FrameInfo, text: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{:#}", rustc_demangle::demangle(frame.func_name().unwrap_or_default()));
    let place = frame.symbols().first().and_then(|symbol| Some((symbol.file()?, symbol.line()?)));
    if let Some((file, line)) = place {
        let _ = write!(text, " ({file}:{line})");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raised(trap: Trap, refused: Option<BudgetKind>) -> ActivationOutcome {
        of_error(&wasmtime::Error::from(trap), Stage::Handling, refused)
    }

    #[test]
    fn each_trap_has_its_code() {
        let table = [
            (Trap::UnreachableCodeReached, TrapCode::Unreachable),
            (Trap::MemoryOutOfBounds, TrapCode::MemoryOutOfBounds),
            (Trap::TableOutOfBounds, TrapCode::TableAccess),
            (Trap::IndirectCallToNull, TrapCode::TableAccess),
            (Trap::BadSignature, TrapCode::TableAccess),
            (Trap::StackOverflow, TrapCode::StackOverflow),
            (Trap::IntegerOverflow, TrapCode::Arithmetic),
            (Trap::IntegerDivisionByZero, TrapCode::Arithmetic),
            (Trap::BadConversionToInteger, TrapCode::Arithmetic),
            (Trap::CannotEnterComponent, TrapCode::Unlisted),
        ];
        for (trap, expected) in table {
            assert!(matches!(raised(trap, None), ActivationOutcome::Trap { code, .. } if code == expected), "{trap:?}");
        }
    }

    #[test]
    fn an_abort_after_a_refused_growth_is_that_budget_and_an_unrelated_trap_is_not() {
        for kind in [BudgetKind::Memory, BudgetKind::Tables] {
            assert_eq!(raised(Trap::UnreachableCodeReached, Some(kind)), ActivationOutcome::BudgetExhausted(kind));
            assert!(matches!(raised(Trap::IntegerDivisionByZero, Some(kind)), ActivationOutcome::Trap { .. }));
            assert_eq!(raised(Trap::OutOfFuel, Some(kind)), ActivationOutcome::BudgetExhausted(BudgetKind::Fuel));
            assert_eq!(of_error(&wasmtime::Error::new(DeadlinePassed), Stage::Handling, Some(kind)), ActivationOutcome::Timeout);
        }
    }

    #[test]
    fn an_exit_is_a_trap_whatever_its_status() {
        for status in [0, 1] {
            let outcome = of_error(&wasmtime::Error::new(I32Exit(status)), Stage::Handling, None);
            assert!(matches!(outcome, ActivationOutcome::Trap { code: TrapCode::Exit, .. }), "{status}");
        }
    }

    #[test]
    fn what_no_guest_caused_is_a_host_failure() {
        let reason = || "no stacks left".to_owned();
        let starting = of_error(&wasmtime::Error::msg(reason()), Stage::Starting, None);
        assert_eq!(starting, ActivationOutcome::HostFailure { reason: reason() });
        let handling = of_error(&wasmtime::Error::new(std::io::Error::other(reason())), Stage::Handling, None);
        assert_eq!(handling, ActivationOutcome::HostFailure { reason: reason() });
    }

    #[test]
    fn a_reason_is_bounded_at_its_edge_and_made_harmless() {
        for (bytes, kept) in [(1_023, 1_023), (1_024, 1_024), (1_025, 1_024), (100_000, 1_024)] {
            let rejected = of_result(Err(HandlerError::Reject("r".repeat(bytes))));
            assert_eq!(rejected, ActivationOutcome::Rejected { reason: "r".repeat(kept) }, "{bytes}");
        }
        let hint = RetryHint { reason: "a\u{1b}[2J".to_owned(), delay_millis: Some(7) };
        let retry = of_result(Err(HandlerError::Retry(hint)));
        assert_eq!(retry, ActivationOutcome::RetryRequested { reason: "a\\u{1b}[2J".to_owned(), delay_millis: Some(7) });
    }
}
