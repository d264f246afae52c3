//! The order in which queued activations get cells. A pure machine: [`Admission`] counts, this decides whose turn it is, time is an
//! argument.
//!
//! Each tenant has one line, first in, first out. A cell goes to the tenant that may start something and whose last start lies
//! furthest back; one that never started comes first, earlier joined before later. Therefore:
//!
//! - *Fair*: between two starts of one tenant, every other tenant that could start something starts something.
//! - *Work-conserving*: a cell stays free only while every waiting tenant is at its own running limit.
//! - *Bounded*: entries are bounded by the slots they hold, remembered starts by [`Scheduler::new`]'s argument. A tenant that is
//!   forgotten counts as one that never started, so nobody starves by being remembered.

use std::collections::{BTreeMap, VecDeque};

use latent_core::{ActivationId, Deadline, MonoTime, TenantId};

use crate::admission::{Admission, Queued, Running, Slot};

/// A queued activation: its slot and whatever is needed to run it.
#[derive(Debug)]
pub struct Entry<T> {
    /// Its id.
    pub activation: ActivationId,
    /// When it is of no use any more.
    pub deadline: Deadline,
    /// Its place.
    pub slot: Slot<Queued>,
    /// What to run.
    pub work: T,
}

/// An entry whose turn came, with its cell.
#[derive(Debug)]
pub struct Started<T> {
    /// Its id.
    pub activation: ActivationId,
    /// Its cell.
    pub slot: Slot<Running>,
    /// What to run.
    pub work: T,
}

#[derive(Debug)]
struct Line<T> {
    /// When it last became non-empty, as a count of such events.
    joined: u64,
    entries: VecDeque<Entry<T>>,
}

/// The waiting lines.
#[derive(Debug)]
pub struct Scheduler<T> {
    lines: BTreeMap<TenantId, Line<T>>,
    joins: u64,
    starts: u64,
    last_starts: BTreeMap<TenantId, u64>,
    tenants_remembered: usize,
}

impl<T> Scheduler<T> {
    /// Empty lines; the last starts of at most `tenants_remembered` tenants are remembered.
    pub fn new(tenants_remembered: usize) -> Self {
        Self { lines: BTreeMap::new(), joins: 0, starts: 0, last_starts: BTreeMap::new(), tenants_remembered: tenants_remembered.max(1) }
    }

    /// Puts an entry at the end of its tenant's line.
    pub fn enqueue(&mut self, entry: Entry<T>) {
        let line = self.lines.entry(entry.slot.tenant().clone()).or_insert_with(|| {
            self.joins += 1;
            Line { joined: self.joins, entries: VecDeque::new() }
        });
        line.entries.push_back(entry);
    }

    /// Gives the next free cell to the entry whose turn it is. To be called until it returns `None`, after every `enqueue` and
    /// every release of a running slot.
    pub fn next(&mut self, admission: &mut Admission) -> Option<Started<T>> {
        let tenant = self.next_tenant(admission)?.clone();
        let line = self.lines.get_mut(&tenant)?;
        let Entry { activation, deadline, slot, work } = line.entries.pop_front()?;
        let slot = match admission.start(slot) {
            Ok(slot) => slot,
            Err(slot) => {
                line.entries.push_front(Entry { activation, deadline, slot, work });
                return None;
            }
        };
        self.remove_if_empty(&tenant);
        self.remember_start(tenant);
        Some(Started { activation, slot, work })
    }

    /// Takes one entry out of the lines. `None` when it has started or was never here.
    pub fn cancel(&mut self, activation: ActivationId) -> Option<Entry<T>> {
        self.remove_first(|entry| entry.activation == activation)
    }

    /// Takes out one entry whose deadline has passed. To be called until it returns `None`.
    pub fn expire(&mut self, now: MonoTime) -> Option<Entry<T>> {
        self.remove_first(|entry| entry.deadline.has_passed(now))
    }

    /// Takes out one entry, whichever. To be called until it returns `None`.
    pub fn cancel_any(&mut self) -> Option<Entry<T>> {
        self.remove_first(|_| true)
    }

    /// When `expire` has something to do.
    pub fn next_deadline(&self) -> Option<Deadline> {
        self.lines.values().flat_map(|line| &line.entries).map(|entry| entry.deadline).min()
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn next_tenant(&self, admission: &Admission) -> Option<&TenantId> {
        let startable = self.lines.iter().filter(|(tenant, _)| admission.can_start(tenant));
        let turn = |tenant: &TenantId, line: &Line<T>| (self.last_starts.get(tenant).copied().unwrap_or(0), line.joined);
        startable.min_by_key(|(tenant, line)| turn(tenant, line)).map(|(tenant, _)| tenant)
    }

    fn remember_start(&mut self, tenant: TenantId) {
        self.starts += 1;
        self.last_starts.insert(tenant, self.starts);
        if self.last_starts.len() > self.tenants_remembered {
            let oldest = self.last_starts.iter().min_by_key(|(_, start)| **start).map(|(tenant, _)| tenant.clone());
            oldest.and_then(|tenant| self.last_starts.remove(&tenant));
        }
    }

    fn remove_first(&mut self, wanted: impl Fn(&Entry<T>) -> bool) -> Option<Entry<T>> {
        let place = |line: &Line<T>| line.entries.iter().position(&wanted);
        let (tenant, at) = self.lines.iter().find_map(|(tenant, line)| Some((tenant.clone(), place(line)?)))?;
        let entry = self.lines.get_mut(&tenant)?.entries.remove(at);
        self.remove_if_empty(&tenant);
        entry
    }

    fn remove_if_empty(&mut self, tenant: &TenantId) {
        if self.lines.get(tenant).is_some_and(|line| line.entries.is_empty()) {
            self.lines.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests;
