//! The journal: the last activations that ended, bounded in number and in text. Pure data; the manager writes, status and `why` read.
//!
//! Only activations are entered, so a reservation that found no event pushes nothing out. Invariants: at most `entries_max` entries;
//! their guest logs, and apart from them the publications they name, hold at most so many bytes together, the oldest going first while
//! their entries stay.

use std::collections::VecDeque;
use std::sync::Arc;

use latent_capabilities::{Origin, Publications};
use latent_core::{
    ActivationId, ActivationOutcome, ComponentDigest, ContractName, FunctionName, Offset, Partition, Place, PublicationId, RouteGeneration,
    ServiceName, TenantId, TopicName, TraceId, UnixMillis,
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
    /// What became of them; those beyond the bounds of an activation and of the journal are counted only.
    pub publications: Publications,
    /// What is kept of the guest's log.
    pub log: Vec<LogLine>,
    /// Bytes of the guest's log that are not kept: beyond its budget, or dropped here.
    pub log_bytes_cut: u64,
}

/// One delivery of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Where the event was taken from.
    pub place: Place,
    /// What keys are derived from: the same place, or that of the original of which it is a replay.
    pub origin: Origin,
    /// Which run of the event it was, counted from 1.
    pub count: u32,
}

impl Delivery {
    /// True when the event stands for an earlier one.
    pub fn is_replay(&self) -> bool {
        let Place { topic, partition, offset } = &self.place;
        (topic, partition, offset) != (&self.origin.topic, &self.origin.partition, &self.origin.offset)
    }
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

    fn drop_log(&mut self) {
        // What the guest wrote: text and line breaks.
        let written: u64 = self.log.iter().map(|line| line.text.len() as u64 + 1).sum();
        self.log = Vec::new();
        self.log_bytes_cut = self.log_bytes_cut.saturating_add(written);
    }

    fn drop_publications(&mut self) {
        self.publications.drop_kept();
    }
}

/// A line costs its text and what holds it: the line itself and the allocator's smallest piece.
const LINE_BYTES: u64 = size_of::<LogLine>() as u64 + 32;

fn line_bytes(line: &LogLine) -> u64 {
    (line.text.len() as u64).saturating_add(LINE_BYTES)
}

/// What entries hold of one kind, bounded over all of them; the oldest lose it first.
#[derive(Debug)]
struct Held {
    bytes: u64,
    bytes_max: u64,
    /// Entries at the front that have lost it.
    without: usize,
    of: fn(&JournalEntry) -> u64,
    lose: fn(&mut JournalEntry),
}

impl Held {
    const fn new(bytes_max: u64, of: fn(&JournalEntry) -> u64, lose: fn(&mut JournalEntry)) -> Self {
        Self { bytes: 0, bytes_max, without: 0, of, lose }
    }

    /// The last entry is new.
    fn pushed(&mut self, entries: &mut VecDeque<Arc<JournalEntry>>) {
        self.bytes = self.bytes.saturating_add(entries.back().map_or(0, |entry| (self.of)(entry)));
        while self.bytes > self.bytes_max {
            let Some(oldest) = entries.get_mut(self.without) else { break };
            self.without += 1;
            let bytes = (self.of)(oldest);
            // An entry without anything is not copied for it.
            if bytes > 0 {
                // Readers may still hold the entry with what it had; theirs stays as it was.
                (self.lose)(Arc::make_mut(oldest));
                self.bytes = self.bytes.saturating_sub(bytes);
            }
        }
    }

    /// The first entry is gone.
    fn popped(&mut self, oldest: &JournalEntry) {
        self.bytes = self.bytes.saturating_sub((self.of)(oldest));
        self.without = self.without.saturating_sub(1);
    }
}

/// The last ended activations.
#[derive(Debug)]
pub struct Journal {
    entries: VecDeque<Arc<JournalEntry>>,
    entries_max: usize,
    logs: Held,
    publications: Held,
}

impl Journal {
    /// An empty journal.
    pub fn new(limits: &NodeLimits) -> Self {
        Self {
            entries: VecDeque::new(),
            entries_max: limits.journal_entries.max(1) as usize,
            logs: Held::new(limits.journal_log_bytes, JournalEntry::log_bytes, JournalEntry::drop_log),
            publications: Held::new(limits.journal_publication_bytes, |entry| entry.publications.bytes(), JournalEntry::drop_publications),
        }
    }

    /// Enters an activation that ended; older entries, logs and publications make room.
    pub fn push(&mut self, entry: JournalEntry) {
        if self.entries.len() >= self.entries_max {
            self.pop_oldest();
        }
        self.entries.push_back(Arc::new(entry));
        self.logs.pushed(&mut self.entries);
        self.publications.pushed(&mut self.entries);
    }

    /// The entry of an activation, if it is still remembered.
    pub fn find(&self, activation: ActivationId) -> Option<Arc<JournalEntry>> {
        self.entries.iter().rev().find(|entry| entry.activation == activation).cloned()
    }

    /// The activations on one event that are still remembered, newest first. A replay of it has a place of its own.
    pub fn of_event(&self, topic: &TopicName, partition: Partition, offset: Offset) -> Vec<Arc<JournalEntry>> {
        let on_event = |entry: &&Arc<JournalEntry>| {
            let place = entry.delivery.as_ref().map(|delivery| &delivery.place);
            place.is_some_and(|place| place.offset == offset && place.partition == partition && place.topic == *topic)
        };
        self.entries.iter().rev().filter(on_event).cloned().collect()
    }

    /// The last entries, newest first, at most `count_max`.
    pub fn newest(&self, count_max: usize) -> Vec<Arc<JournalEntry>> {
        self.entries.iter().rev().take(count_max).cloned().collect()
    }

    /// The oldest entry that is still remembered.
    pub fn oldest(&self) -> Option<&JournalEntry> {
        self.entries.front().map(Arc::as_ref)
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
            self.logs.popped(&oldest);
            self.publications.popped(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
