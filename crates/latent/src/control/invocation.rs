//! The words of one call of a function, asked for by a person, and of its end.

use latent_core::{ActivationOutcome, Budget, LimitError};
use latent_node::ActivationEnd;
use latent_wasmtime::LogLine;
use serde::{Deserialize, Serialize};

use crate::limits;

/// A call of one function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Invocation {
    /// The service, as the configuration names it.
    pub(crate) service: String,
    /// Through which route; the default one if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) route: Option<String>,
    /// The exported interface.
    pub(crate) contract: String,
    /// The function in it.
    pub(crate) function: String,
    /// Its arguments: one positional array.
    pub(crate) arguments: String,
    /// A name from which its keys are derived; without one they are its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<String>,
    /// What it may use.
    pub(crate) budget: InvocationBudget,
}

/// What one call may use; what is not said is the default of an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InvocationBudget {
    /// Fuel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_fuel: Option<u64>,
    /// Linear memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
    /// Wall time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wall_time_millis: Option<u64>,
    /// Publications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outbound_requests: Option<u64>,
    /// Log, stdout and stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log_bytes: Option<u64>,
}

impl InvocationBudget {
    /// The whole budget.
    ///
    /// # Errors
    /// The first limit that is broken.
    pub(crate) fn complete(self) -> Result<Budget, LimitError> {
        let default = Budget::default();
        Ok(Budget {
            cpu_fuel: latent_core::limits::BUDGET_FUEL.check(self.cpu_fuel.unwrap_or(default.cpu_fuel))?,
            memory_bytes: latent_core::limits::BUDGET_MEMORY_BYTES.check(self.memory_bytes.unwrap_or(default.memory_bytes))?,
            wall_time_millis: latent_core::limits::BUDGET_WALL_TIME_MILLIS
                .check(self.wall_time_millis.unwrap_or(default.wall_time_millis))?,
            outbound_requests: latent_core::limits::BUDGET_OUTBOUND_REQUESTS
                .check(self.outbound_requests.unwrap_or(default.outbound_requests))?,
            log_bytes: latent_core::limits::BUDGET_LOG_BYTES.check(self.log_bytes.unwrap_or(default.log_bytes))?,
            ..default
        })
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Invoked {
    /// Kind of the outcome: a name of `docs/errors.md`.
    pub(crate) outcome: String,
    /// Why it is not a success, in the words of the function or the host; empty for outcomes that say all.
    pub(crate) reason: String,
    /// What the function gave back, also when that is its declared failure: one positional array.
    pub(crate) result: Option<String>,
    /// The activation's id.
    pub(crate) activation: String,
    /// Fuel used.
    pub(crate) fuel: u64,
    /// Largest sum of linear memory held.
    pub(crate) memory_bytes: u64,
    /// Publications attempted.
    pub(crate) outbound_requests: u64,
    /// From start to end; 0 if no guest code ran.
    pub(crate) wall_micros: u64,
    /// What the function wrote: source and text of each line.
    pub(crate) log: Vec<(String, String)>,
    /// Bytes of its log beyond the budget.
    pub(crate) log_bytes_cut: u64,
}

impl Invoked {
    /// What a command is told of an activation's end.
    pub(crate) fn of(end: ActivationEnd) -> Self {
        let report = end.report;
        let (log, left_out) = bounded_log(report.log);
        Self {
            outcome: report.outcome.kind().to_owned(),
            reason: Self::reason_of(&report.outcome),
            result: report.result.and_then(|result| String::from_utf8(result.into()).ok()),
            activation: end.activation.to_string(),
            fuel: report.fuel_used,
            memory_bytes: report.memory_bytes_peak,
            outbound_requests: report.outbound_requests,
            wall_micros: end.run_micros,
            log,
            log_bytes_cut: report.log_bytes_cut.saturating_add(left_out),
        }
    }

    /// Why it is not a success; empty for outcomes that say all.
    pub(crate) fn reason_of(outcome: &ActivationOutcome) -> String {
        reason_of(outcome)
    }

    /// True when the function said yes.
    pub(crate) fn is_success(&self) -> bool {
        self.outcome == ActivationOutcome::Success.kind()
    }
}

/// The log as far as it fits an answer beside a whole result, and how many bytes do not.
fn bounded_log(lines: Vec<LogLine>) -> (Vec<(String, String)>, u64) {
    let (mut room, mut left_out) = (limits::INVOKED_LOG_BYTES.max, 0_u64);
    let mut kept = Vec::new();
    for line in lines {
        // A line of JSON around each.
        let bytes = line.text.len() as u64 + 32;
        if let Some(rest) = room.checked_sub(bytes) {
            room = rest;
            kept.push((line.source.to_string(), line.text));
        } else {
            (room, left_out) = (0, left_out.saturating_add(line.text.len() as u64 + 1));
        }
    }
    (kept, left_out)
}

fn reason_of(outcome: &ActivationOutcome) -> String {
    match outcome {
        ActivationOutcome::Rejected { reason }
        | ActivationOutcome::RetryRequested { reason, .. }
        | ActivationOutcome::InvalidArguments { reason }
        | ActivationOutcome::IncompatibleContract { reason }
        | ActivationOutcome::PermissionRefused { reason }
        | ActivationOutcome::HostFailure { reason } => reason.clone(),
        ActivationOutcome::Trap { code, detail } => format!("{}: {detail}", code.kind()),
        ActivationOutcome::DeclaredFailure => "the function's result is an `err`".to_owned(),
        ActivationOutcome::Success | ActivationOutcome::Timeout | ActivationOutcome::Cancelled | ActivationOutcome::BudgetExhausted(_) => {
            String::new()
        }
    }
}
