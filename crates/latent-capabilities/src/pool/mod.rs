//! Provider pools: the shared, bounded owner of calls, clients, connections and their memory.
//!
//! A provider [registers](ProviderPools::register) with one client for each tenant. A call [waits](PendingCall) for a connection or for
//! the right to dial one, and then holds a [`Lease`]. What the connection is, is the provider's business: here it is a value that is
//! dropped to close it. There is no task and no timer; whoever ends something moves the next one on.
//!
//! Decisions are in the machine; this file locks it, wakes tasks and drops connections, both outside of the lock.

mod accounts;
mod backoff;
mod lease;
mod machine;
mod refusal;
mod settings;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use latent_core::{Clock, Epoch, ProviderId, TenantId};

use self::machine::{ClientIndex, Machine, Step};
use self::settings::Bounds;

pub use self::accounts::PoolTotals;
pub use self::lease::{Lease, PendingCall};
pub use self::refusal::{PoolRefusal, RegistrationRefused};
pub use self::settings::PoolSettings;

/// The pools of a node, for connections of type `C`. Cheap to clone; clones are the same pools.
pub struct ProviderPools<C>(Arc<Shared<C>>);

struct Shared<C> {
    machine: Mutex<Machine<C>>,
    settings: PoolSettings,
    clock: Arc<dyn Clock>,
}

impl<C> Clone for ProviderPools<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What a node's pools hold now, in numbers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSnapshot {
    /// Calls that hold a connection or dial one.
    pub running: u64,
    /// Calls that wait.
    pub queued: u64,
    /// Pairs of provider and tenant.
    pub clients: u64,
    /// Connections, from dial to closed socket.
    pub connections: u64,
    /// Those of them that no call holds.
    pub parked: u64,
    /// Bytes charged for calls and connections. An accounting figure, not the memory of the process.
    pub bytes: u64,
    /// Bytes charged for configurations.
    pub metadata_bytes: u64,
    /// What has happened so far.
    pub totals: PoolTotals,
}

impl<C> ProviderPools<C> {
    /// Empty pools with these bounds.
    pub fn new(settings: PoolSettings, clock: Arc<dyn Clock>) -> Self {
        let machine = Mutex::new(Machine::new(Bounds::of(&settings)));
        Self(Arc::new(Shared { machine, settings, clock }))
    }

    /// The bounds in force.
    pub fn settings(&self) -> &PoolSettings {
        &self.0.settings
    }

    /// Takes places for a provider's clients, one for each tenant in order. Opens nothing.
    ///
    /// `metadata_bytes` is what its configuration takes; `chunk_bytes` the largest payload that a call of it stages.
    ///
    /// # Errors
    /// [`RegistrationRefused`]; nothing was taken.
    pub fn register(
        &self,
        provider: &ProviderId,
        epoch: Epoch,
        tenants: &[TenantId],
        metadata_bytes: u64,
        chunk_bytes: u64,
    ) -> Result<Registration<C>, RegistrationRefused> {
        let clients = self.0.lock().register(provider, epoch, tenants, metadata_bytes, chunk_bytes)?;
        Ok(Registration { pools: self.clone(), clients })
    }

    /// Closes parked connections that have reached their age. Whoever uses the pools does this in passing; a node calls it now and
    /// then, so that the last connection of a quiet node is closed too.
    pub fn close_idle(&self) {
        self.0.advance();
    }

    /// Refuses everything from now on and closes what is parked. What runs ends as it would have.
    pub fn shut_down(&self) {
        self.0.lock().shut_down();
        self.0.advance();
    }

    /// What they hold.
    pub fn snapshot(&self) -> PoolSnapshot {
        let machine = self.0.lock();
        let accounts = &machine.accounts;
        PoolSnapshot {
            running: accounts.running,
            queued: accounts.queued,
            clients: accounts.clients,
            connections: accounts.connections,
            parked: accounts.parked,
            bytes: accounts.bytes,
            metadata_bytes: accounts.metadata_bytes,
            totals: accounts.totals,
        }
    }
}

impl<C> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, Machine<C>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what can be done, one step at a time: a waker and a connection's drop are foreign code and run without the lock.
    fn advance(&self) {
        loop {
            let step = self.lock().step(self.clock.mono());
            match step {
                Step::Rest => return,
                Step::Wake(waker) => waker.into_iter().for_each(std::task::Waker::wake),
                Step::Close(client, connection) => {
                    drop(connection);
                    self.lock().closed(client);
                }
            }
        }
    }
}

/// A provider's clients. Dropping it retires them.
pub struct Registration<C> {
    pools: ProviderPools<C>,
    clients: Vec<ClientIndex>,
}

/// What a provider's clients hold now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientUse {
    /// Calls that hold a connection or dial one.
    pub running: u64,
    /// Calls that wait.
    pub queued: u64,
    /// Connections, from dial to closed socket.
    pub connections: u64,
}

impl<C> Registration<C> {
    /// A call of the client at `place` of the registered tenants, with `staged_bytes` of input, counted by capacity.
    ///
    /// # Errors
    /// [`PoolRefusal`]; nothing was taken.
    pub fn call(&self, place: usize, staged_bytes: u64) -> Result<PendingCall<C>, PoolRefusal> {
        let client = *self.clients.get(place).ok_or(PoolRefusal::Retired)?;
        let call = self.pools.0.lock().enter(client, staged_bytes)?;
        let pending = PendingCall::new(self.pools.clone(), client, call);
        self.pools.0.advance();
        Ok(pending)
    }

    /// Closes admission: waiting calls are refused, parked connections closed; what runs ends as it would have.
    pub fn retire(&self) {
        self.pools.0.lock().retire(&self.clients);
        self.pools.0.advance();
    }

    /// Closes what is parked, whatever its age; calls go on as before and dial again.
    pub fn close_parked(&self) {
        loop {
            let step = self.pools.0.lock().take_parked_of(&self.clients);
            let Some(Step::Close(client, connection)) = step else { break };
            drop(connection);
            self.pools.0.lock().closed(client);
        }
        self.pools.0.advance();
    }

    /// What its clients hold.
    pub fn in_use(&self) -> ClientUse {
        let (running, queued, connections) = self.pools.0.lock().use_of(&self.clients);
        ClientUse { running, queued, connections }
    }
}

impl<C> Drop for Registration<C> {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests;
