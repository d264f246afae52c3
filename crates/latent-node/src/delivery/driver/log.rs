//! The lines a node writes about an attempt: how it ended, and what its guest said. The guest's lines are bounded by its budget and
//! made harmless by the engine.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use latent_core::{ActivationOutcome, BindingId, MonoTime, Offset, Partition, UnixMillis};
use latent_wasmtime::{LogLevel, LogLine, LogSource};

use super::allowance::LogAllowance;
use crate::ActivationEnd;

/// Where the lines of guests go, for filters such as `info,guest=debug`.
macro_rules! guest_line {
    ($level:ident, $attempt:expr, $activation:expr, $line:expr) => {
        tracing::$level!(target: "guest", binding = %$attempt.binding, activation = %$activation, source = %$line.source, "{}", $line.text)
    };
}

/// One attempt on one event.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The binding.
    pub binding: &'a BindingId,
    /// The topic, or the stream of a broker.
    pub topic: &'a str,
    /// The partition.
    pub partition: Partition,
    /// The place in it.
    pub offset: Offset,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// How many there may be.
    pub attempts_max: u32,
    /// When the next one is due, if there is one.
    pub next_attempt_at: Option<UnixMillis>,
    /// How long it is until then.
    pub delay_millis: Option<u64>,
}

/// Writes what attempts came to, and what guests said, within a bound for all guests together. For sources that are not driven by
/// [`super::DeliveryDriver`], which does it by itself.
#[derive(Debug)]
pub struct AttemptLog(Mutex<LogAllowance>);

impl AttemptLog {
    /// With a full bucket.
    pub const fn new(now: MonoTime) -> Self {
        Self(Mutex::new(LogAllowance::new(now)))
    }

    /// Writes the guest's lines, then one about the end.
    pub fn tell(&self, attempt: &Attempt<'_>, end: &ActivationEnd, now: MonoTime) {
        // The guarded sections cannot panic half-way.
        attempt.log(end, now, &mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Attempt<'_> {
    /// Writes the guest's lines, then one about the end: of a success for debugging, of anything else for the operator.
    pub(super) fn log(&self, end: &ActivationEnd, now: MonoTime, allowance: &mut LogAllowance) {
        if let Some(lines) = allowance.lines_left_out(now) {
            tracing::warn!(lines, "functions wrote more than the node's log takes; lines were left out");
        }
        let said = end.report.log.iter().filter(|line| !line.text.trim().is_empty());
        said.filter(|line| allowance.take(now, line.text.len())).for_each(|line| self.log_guest(end, line));
        let (binding, topic, partition, offset) = (self.binding.as_str(), self.topic, self.partition.0, self.offset.0);
        let (activation, component, outcome, attempt) = (end.activation, end.digest, end.report.outcome.kind(), self.attempt);
        let (fuel, memory_bytes, log_bytes_cut) = (end.report.fuel_used, end.report.memory_bytes_peak, end.report.log_bytes_cut);
        if end.report.outcome == ActivationOutcome::Success {
            tracing::debug!(
                binding, topic, partition, offset, %activation, %component, attempt, outcome, fuel, memory_bytes, log_bytes_cut,
                "activation ended"
            );
            return;
        }
        let (reason, attempts_max) = (reason_of(&end.report.outcome), self.attempts_max);
        let reason = reason.as_deref();
        let (next_attempt_at, delay_millis) = (self.next_attempt_at.map(|at| at.0), self.delay_millis);
        // What the function decided is its business; what happened to it is a warning.
        match end.report.outcome {
            ActivationOutcome::Rejected { .. } | ActivationOutcome::RetryRequested { .. } => tracing::info!(
                binding, topic, partition, offset, %activation, %component, attempt, attempts_max, outcome, reason, delay_millis, next_attempt_at, fuel, memory_bytes,
                log_bytes_cut, "activation ended"
            ),
            _ => tracing::warn!(
                binding, topic, partition, offset, %activation, %component, attempt, attempts_max, outcome, reason, delay_millis, next_attempt_at, fuel, memory_bytes,
                log_bytes_cut, "activation ended"
            ),
        }
    }

    fn log_guest(&self, end: &ActivationEnd, line: &LogLine) {
        match line.source {
            LogSource::Log(LogLevel::Trace) => guest_line!(trace, self, end.activation, line),
            LogSource::Log(LogLevel::Debug) => guest_line!(debug, self, end.activation, line),
            LogSource::Log(LogLevel::Info) | LogSource::Stdout | LogSource::Stderr => guest_line!(info, self, end.activation, line),
            LogSource::Log(LogLevel::Warn) => guest_line!(warn, self, end.activation, line),
            LogSource::Log(LogLevel::Error) => guest_line!(error, self, end.activation, line),
        }
    }
}

/// How an attempt failed, in one line for the status; `None` for a success.
pub(super) fn failure_of(end: &ActivationEnd) -> Option<String> {
    let outcome = &end.report.outcome;
    if *outcome == ActivationOutcome::Success {
        return None;
    }
    let reason = reason_of(outcome);
    Some(match reason.as_deref().map(|reason| reason.lines().next().unwrap_or_default()) {
        Some(reason) if !reason.is_empty() => format!("{}: {reason}", outcome.kind()),
        _ => outcome.kind().to_owned(),
    })
}

/// What a dead letter says beside its reason: the words of a rejection, else which failure it was.
pub(crate) fn detail_of(end: &ActivationEnd) -> String {
    match &end.report.outcome {
        ActivationOutcome::Rejected { reason } => reason.lines().next().unwrap_or_default().to_owned(),
        _ => failure_of(end).unwrap_or_default(),
    }
}

/// Why an activation did not succeed, in the words its author or its engine gave.
fn reason_of(outcome: &ActivationOutcome) -> Option<Cow<'_, str>> {
    match outcome {
        ActivationOutcome::Rejected { reason }
        | ActivationOutcome::RetryRequested { reason, .. }
        | ActivationOutcome::InvalidArguments { reason }
        | ActivationOutcome::IncompatibleContract { reason }
        | ActivationOutcome::PermissionRefused { reason }
        | ActivationOutcome::HostFailure { reason } => Some(Cow::Borrowed(reason)),
        ActivationOutcome::Trap { code, detail } => Some(Cow::Owned(format!("{}: {detail}", code.kind()))),
        ActivationOutcome::Success
        | ActivationOutcome::DeclaredFailure
        | ActivationOutcome::Timeout
        | ActivationOutcome::Cancelled
        | ActivationOutcome::BudgetExhausted(_) => None,
    }
}
