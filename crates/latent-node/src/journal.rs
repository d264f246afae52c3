//! The journal: the last activations that ended, bounded in number and in text. Pure data; the manager writes, status and `why` read.
//!
//! Only activations are entered, so a reservation that found no event pushes nothing out. Invariants: at most `entries_max` entries;
//! their guest logs hold at most `log_bytes_max` bytes together, the oldest logs going first while their entries stay.

use std::collections::VecDeque;
use std::sync::Arc;

use latent_capabilities::Origin;
use latent_core::{
    ActivationId, ActivationOutcome, ComponentDigest, ContractName, FunctionName, PublicationId, RouteGeneration, ServiceName, TenantId,
    TraceId, UnixMillis,
};
use latent_wasmtime::LogLine;

use crate::inbound::Principal;
use crate::{NodeLimits, limits};

/// One ended activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its id.
    pub activation: ActivationId,
    /// Its trace.
    pub trace: TraceId,
    /// For which tenant it ran.
    pub tenant: TenantId,
    /// As whom.
    pub principal: Principal,
    /// Which service was called.
    pub service: ServiceName,
    /// Which contract.
    pub contract: ContractName,
    /// Which function.
    pub function: FunctionName,
    /// The route's generation it was pinned to.
    pub generation: RouteGeneration,
    /// The publication it was pinned to.
    pub publication: PublicationId,
    /// That publication's component.
    pub digest: ComponentDigest,
    /// The delivery it answered to; `None` for a direct call.
    pub delivery: Option<Delivery>,
    /// How it ended.
    pub ended: Ended,
    /// When it was handed over.
    pub queued_at: UnixMillis,
    /// When it started; `None` when no guest code ran.
    pub started_at: Option<UnixMillis>,
    /// From handing over to start, or to the end if it did not start.
    pub wait_micros: u64,
    /// From start to end; 0 if it did not start.
    pub run_micros: u64,
    /// Fuel used.
    pub fuel_used: u64,
    /// Largest sum of linear memory held.
    pub memory_bytes_peak: u64,
    /// Publications attempted.
    pub outbound_requests: u64,
    /// What is kept of the guest's log.
    pub log: Vec<LogLine>,
    /// Bytes of the guest's log that are not kept: beyond its budget, or dropped here.
    pub log_bytes_cut: u64,
}

/// One delivery of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Where the event came from.
    pub origin: Origin,
    /// Which run of the event it was, counted from 1.
    pub count: u32,
}

/// An outcome as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// [`ActivationOutcome::kind`].
    pub kind: &'static str,
    /// The guest's or the host's reason, cut to `journal_detail_bytes`; empty for outcomes without one.
    pub detail: String,
}

impl Ended {
    /// What is kept of `outcome`.
    pub fn of(outcome: &ActivationOutcome) -> Self {
        let detail = match outcome {
            ActivationOutcome::Rejected { reason }
            | ActivationOutcome::RetryRequested { reason, .. }
            | ActivationOutcome::InvalidArguments { reason }
            | ActivationOutcome::IncompatibleContract { reason }
            | ActivationOutcome::PermissionRefused { reason }
            | ActivationOutcome::HostFailure { reason } => cut(reason).to_owned(),
            ActivationOutcome::Trap { code, detail } => cut(&format!("{}: {detail}", code.kind())).to_owned(),
            ActivationOutcome::Success
            | ActivationOutcome::DeclaredFailure
            | ActivationOutcome::Timeout
            | ActivationOutcome::Cancelled
            | ActivationOutcome::BudgetExhausted(_) => String::new(),
        };
        Self { kind: outcome.kind(), detail }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(limits::JOURNAL_DETAIL_BYTES.max_usize())]
}

impl JournalEntry {
    fn log_bytes(&self) -> u64 {
        self.log.iter().map(line_bytes).sum()
    }

    fn drop_log(&mut self) -> u64 {
        let bytes = self.log_bytes();
        // What the guest wrote: text and line breaks.
        let written: u64 = self.log.iter().map(|line| line.text.len() as u64 + 1).sum();
        self.log = Vec::new();
        self.log_bytes_cut = self.log_bytes_cut.saturating_add(written);
        bytes
    }
}

/// A line costs its text and what holds it: the line itself and the allocator's smallest piece.
const LINE_BYTES: u64 = size_of::<LogLine>() as u64 + 32;

fn line_bytes(line: &LogLine) -> u64 {
    (line.text.len() as u64).saturating_add(LINE_BYTES)
}

/// The last ended activations.
#[derive(Debug)]
pub struct Journal {
    entries: VecDeque<Arc<JournalEntry>>,
    entries_max: usize,
    log_bytes: u64,
    log_bytes_max: u64,
    /// Entries at the front whose logs were dropped.
    without_log: usize,
}

impl Journal {
    /// An empty journal.
    pub fn new(limits: &NodeLimits) -> Self {
        Self {
            entries: VecDeque::new(),
            entries_max: limits.journal_entries.max(1) as usize,
            log_bytes: 0,
            log_bytes_max: limits.journal_log_bytes,
            without_log: 0,
        }
    }

    /// Enters an activation that ended; older entries and logs make room.
    pub fn push(&mut self, entry: JournalEntry) {
        if self.entries.len() >= self.entries_max {
            self.pop_oldest();
        }
        self.log_bytes = self.log_bytes.saturating_add(entry.log_bytes());
        self.entries.push_back(Arc::new(entry));
        while self.log_bytes > self.log_bytes_max {
            let Some(oldest) = self.entries.get_mut(self.without_log) else { break };
            // Readers may still hold the entry with its log; theirs stays as it was.
            self.log_bytes = self.log_bytes.saturating_sub(Arc::make_mut(oldest).drop_log());
            self.without_log += 1;
        }
    }

    /// The entry of an activation, if it is still remembered.
    pub fn find(&self, activation: ActivationId) -> Option<Arc<JournalEntry>> {
        self.entries.iter().rev().find(|entry| entry.activation == activation).cloned()
    }

    /// The last entries, newest first, at most `count_max`.
    pub fn newest(&self, count_max: usize) -> Vec<Arc<JournalEntry>> {
        self.entries.iter().rev().take(count_max).cloned().collect()
    }

    /// Entries kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when nothing has ended yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn pop_oldest(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.log_bytes = self.log_bytes.saturating_sub(oldest.log_bytes());
            self.without_log = self.without_log.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
