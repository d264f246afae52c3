//! Admission: how much may be held at one time, for the node and for each tenant. A pure machine without time, queue or I/O.
//!
//! ```text
//!              reserve            queue             start
//!   (nothing) ─────────► Reserved ─────► Queued ───────────► Running
//!       ▲                   │               │                   │
//!       └───────────────────┴── release ────┴───────────────────┘
//! ```
//!
//! A [`Slot`] is the right to one activation. It is handed on by value, so each step happens once, and `release` returns exactly
//! what `reserve` took. Invariants, for every tenant `t`:
//!
//! - `running ≤ cells` and `running(t) ≤ tenant_running`: checked by `start`, nothing else.
//! - `reserved(t) + queued(t) ≤ tenant_queued`: a reservation already owns its place in the queue, so `queue` cannot be refused.
//!   This is why what is reserved can really run: it needs nothing more than a cell, and the cells come back.
//! - `reserved + queued + running ≤ admission_slots`. At most `⌈admission_slots / cells⌉` activations follow one another in a
//!   cell before the last of everything admitted has run (tenants at their running limit aside), which bounds every wait.
//! - `reserve` takes a slot only while `held(t) < free slots`. However many slots one tenant holds, others find some free, and what
//!   is released goes to whoever holds less. With two slots a cell a single tenant can still fill every cell.
//! - `input_bytes(t) ≤ tenant_input_bytes`.
//! - An account without slots does not exist: memory follows what is held, not who ever came.

use std::collections::BTreeMap;
use std::fmt;

use latent_core::TenantId;

use crate::NodeLimits;

/// A phase of a slot. Implemented by [`Reserved`], [`Queued`] and [`Running`] alone.
pub trait Phase: sealed::Sealed {}

/// The slot waits for its event.
#[derive(Debug)]
pub struct Reserved(());
/// The event is there and waits for a cell.
#[derive(Debug)]
pub struct Queued(());
/// The activation has a cell.
#[derive(Debug)]
pub struct Running(());

mod sealed {
    use super::Account;

    pub trait Sealed {
        fn count(account: &mut Account) -> &mut u32;
        fn token() -> Self;
    }

    impl Sealed for super::Reserved {
        fn count(account: &mut Account) -> &mut u32 {
            &mut account.reserved
        }
        fn token() -> Self {
            Self(())
        }
    }

    impl Sealed for super::Queued {
        fn count(account: &mut Account) -> &mut u32 {
            &mut account.queued
        }
        fn token() -> Self {
            Self(())
        }
    }

    impl Sealed for super::Running {
        fn count(account: &mut Account) -> &mut u32 {
            &mut account.running
        }
        fn token() -> Self {
            Self(())
        }
    }
}

impl Phase for Reserved {}
impl Phase for Queued {}
impl Phase for Running {}

/// The right to one activation. Must end in [`Admission::release`], or its charge stays for ever.
#[derive(Debug)]
#[must_use = "a slot that is not released stays charged"]
pub struct Slot<P: Phase> {
    tenant: TenantId,
    input_bytes: u64,
    _phase: P,
}

impl<P: Phase> Slot<P> {
    /// Whose slot it is.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Input memory it holds.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    fn into_phase<Q: Phase>(self) -> Slot<Q> {
        Slot { tenant: self.tenant, input_bytes: self.input_bytes, _phase: Q::token() }
    }
}

/// What one tenant, or the node as a whole, holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Slots that wait for their event.
    pub reserved: u32,
    /// Slots whose event waits for a cell.
    pub queued: u32,
    /// Slots in a cell.
    pub running: u32,
    /// Input memory of all of them.
    pub input_bytes: u64,
}

impl Account {
    /// Slots in all phases.
    pub const fn held(&self) -> u32 {
        self.reserved + self.queued + self.running
    }

    fn take<P: Phase>(&mut self, input_bytes: u64) {
        *P::count(self) += 1;
        self.input_bytes += input_bytes;
    }

    /// Saturating, so that even a slot that belongs to another machine cannot wrap a count.
    fn give_back<P: Phase>(&mut self, input_bytes: u64) {
        let count = P::count(self);
        *count = count.saturating_sub(1);
        self.input_bytes = self.input_bytes.saturating_sub(input_bytes);
    }
}

/// The bound that refused a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdmissionLimit {
    /// `admission_slots`: the node is full.
    NodeSlots,
    /// The tenant holds at least as many slots as are free: what is left is for others.
    FairShare,
    /// `tenant_queued`.
    TenantQueued,
    /// `tenant_input_bytes`.
    TenantInputBytes,
}

impl AdmissionLimit {
    /// The name used in status, metrics and documentation.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::NodeSlots => "admission_slots",
            Self::FairShare => "fair_share",
            Self::TenantQueued => "tenant_queued",
            Self::TenantInputBytes => "tenant_input_bytes",
        }
    }
}

impl fmt::Display for AdmissionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// A refused reservation: `resource-exhausted`. Nothing was charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("resource-exhausted: {limit} refuses {tenant}: {in_use} in use, {asked} asked, {max} allowed")]
pub struct Refusal {
    /// Which bound.
    pub limit: AdmissionLimit,
    /// Whose reservation.
    pub tenant: TenantId,
    /// What is in use of it.
    pub in_use: u64,
    /// What was asked for.
    pub asked: u64,
    /// What it allows at most.
    pub max: u64,
}

impl Refusal {
    /// True when no release can ever make room, because more was asked for than the bound allows to anybody.
    pub const fn is_final(&self) -> bool {
        self.asked > self.max
    }
}

/// The accounts of a node at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdmissionSnapshot {
    /// Sum of all tenants.
    pub node: Account,
    /// Cells in use or free.
    pub cells: u32,
    /// Slots in use or free.
    pub slots: u32,
    /// Every tenant that holds something.
    pub tenants: BTreeMap<TenantId, Account>,
}

/// The accounts.
#[derive(Debug)]
pub struct Admission {
    limits: NodeLimits,
    node: Account,
    tenants: BTreeMap<TenantId, Account>,
}

impl Admission {
    /// Empty accounts under limits that were checked.
    pub fn new(limits: NodeLimits) -> Self {
        Self { limits, node: Account::default(), tenants: BTreeMap::new() }
    }

    /// Takes one slot and `input_bytes` of input memory, or nothing at all.
    ///
    /// # Errors
    /// [`Refusal`] naming the first bound in the way: node before tenant, slots before bytes.
    pub fn reserve(&mut self, tenant: &TenantId, input_bytes: u64) -> Result<Slot<Reserved>, Refusal> {
        let account = self.account(tenant);
        let free = self.limits.admission_slots.saturating_sub(self.node.held());
        let waiting = account.reserved + account.queued;
        let bounds = [
            (AdmissionLimit::NodeSlots, u64::from(self.node.held()), 1, u64::from(self.limits.admission_slots)),
            (AdmissionLimit::FairShare, u64::from(account.held()), 1, u64::from(free)),
            (AdmissionLimit::TenantQueued, u64::from(waiting), 1, u64::from(self.limits.tenant_queued)),
            (AdmissionLimit::TenantInputBytes, account.input_bytes, input_bytes, self.limits.tenant_input_bytes),
        ];
        for (limit, in_use, asked, max) in bounds {
            if in_use.saturating_add(asked) > max {
                return Err(Refusal { limit, tenant: tenant.clone(), in_use, asked, max });
            }
        }
        let slot = Slot { tenant: tenant.clone(), input_bytes, _phase: Reserved(()) };
        self.take(&slot);
        Ok(slot)
    }

    /// The slot's event is there. Cannot be refused: the place was part of the reservation.
    pub fn queue(&mut self, slot: Slot<Reserved>) -> Slot<Queued> {
        self.advance(slot)
    }

    /// True when a queued slot of `tenant` may start: a cell is free and the tenant runs fewer than it may.
    pub fn can_start(&self, tenant: &TenantId) -> bool {
        self.node.running < self.limits.cells && self.account(tenant).running < self.limits.tenant_running
    }

    /// Takes a cell for the slot.
    ///
    /// # Errors
    /// The slot itself, still queued, when [`Admission::can_start`] is false.
    pub fn start(&mut self, slot: Slot<Queued>) -> Result<Slot<Running>, Slot<Queued>> {
        if self.can_start(&slot.tenant) { Ok(self.advance(slot)) } else { Err(slot) }
    }

    /// Returns everything the slot holds.
    pub fn release<P: Phase>(&mut self, slot: Slot<P>) {
        self.give_back(&slot);
    }

    /// What the whole node holds.
    pub fn node(&self) -> Account {
        self.node
    }

    /// A copy of all accounts.
    pub fn snapshot(&self) -> AdmissionSnapshot {
        AdmissionSnapshot { node: self.node, cells: self.limits.cells, slots: self.limits.admission_slots, tenants: self.tenants.clone() }
    }

    fn account(&self, tenant: &TenantId) -> Account {
        self.tenants.get(tenant).copied().unwrap_or_default()
    }

    fn advance<P: Phase, Q: Phase>(&mut self, slot: Slot<P>) -> Slot<Q> {
        self.give_back(&slot);
        let slot = slot.into_phase();
        self.take(&slot);
        slot
    }

    fn take<P: Phase>(&mut self, slot: &Slot<P>) {
        self.node.take::<P>(slot.input_bytes);
        self.tenants.entry(slot.tenant.clone()).or_default().take::<P>(slot.input_bytes);
    }

    fn give_back<P: Phase>(&mut self, slot: &Slot<P>) {
        self.node.give_back::<P>(slot.input_bytes);
        if let Some(account) = self.tenants.get_mut(&slot.tenant) {
            account.give_back::<P>(slot.input_bytes);
            if account.held() == 0 {
                self.tenants.remove(&slot.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests;
