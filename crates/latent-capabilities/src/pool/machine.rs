//! The pools as a machine: who may wait, who may dial, who gets a parked connection, what must be closed. No I/O, no clock, no waiting.
//!
//! ```text
//! enter ──▶ waiting ── step ──▶ granted ── collect ──▶ running ── park or end ──▶ gone
//!              └── leave / refused ────────────────────────────────────────────────▲
//! ```
//! [`Machine::step`] does one thing at a time, so that its caller can drop a connection, and wake a task, outside of the lock.
//!
//! Invariants: each account is the sum of what exists. A connection is charged from the grant to dial until [`Machine::closed`]. A
//! parked connection belongs to no call. What is retired gets nothing new.

use std::collections::VecDeque;
use std::task::Waker;

use latent_core::{Epoch, MonoTime, ProviderId, TenantId};

use super::accounts::{Accounts, Shares};
use super::backoff::Backoff;
use super::settings::Bounds;
use super::{PoolRefusal, RegistrationRefused};
use crate::limits;

/// A client's place: one pair of installed provider and tenant. The number tells it from whoever had the place before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientIndex {
    at: usize,
    number: u64,
}
/// A call's place.
pub(super) type CallIndex = usize;

pub(super) struct Machine<C> {
    bounds: Bounds,
    clients: Vec<Option<Client<C>>>,
    clients_made: u64,
    tenants: Shares<TenantId>,
    providers: Shares<ProviderId>,
    calls: Vec<Call<C>>,
    free_calls: Vec<CallIndex>,
    /// Clients with waiting calls, the next one first: a turn each.
    rotation: VecDeque<ClientIndex>,
    pub(super) accounts: Accounts,
    /// No parked connection was parked before this.
    parked_since: MonoTime,
    /// Clients that are retired and still have something.
    retired: u64,
    shut: bool,
}

struct Client<C> {
    number: u64,
    tenant: usize,
    provider: usize,
    epoch: Epoch,
    metadata_bytes: u64,
    retired: bool,
    /// The longest parked first; the last one is taken first, so that the others can age.
    parked: VecDeque<(MonoTime, C)>,
    /// Connections in any state: parked, with a call, being dialled, being closed.
    connections: u64,
    /// With a call, dialling included.
    leased: u64,
    waiting: VecDeque<CallIndex>,
    backoff: Backoff,
}

struct Call<C> {
    client: ClientIndex,
    staged_bytes: u64,
    state: CallState<C>,
}

enum CallState<C> {
    Free,
    Waiting(Option<Waker>),
    Granted(Grant<C>),
    Refused(PoolRefusal),
    Running,
}

/// What a call may use.
#[derive(Debug)]
pub(super) enum Grant<C> {
    /// A connection that is to be checked first.
    Parked(C),
    /// The right to dial one.
    Dial,
}

/// One thing to do.
#[derive(Debug)]
pub(super) enum Step<C> {
    /// Nothing more.
    Rest,
    /// Somebody's call has an answer.
    Wake(Option<Waker>),
    /// This connection is to be dropped, then reported with [`Machine::closed`].
    Close(ClientIndex, C),
}

/// How a call stands.
#[derive(Debug)]
pub(super) enum Answer<C> {
    Waiting,
    Granted(Grant<C>),
    Refused(PoolRefusal),
}

/// What stops a client's next call.
enum Obstacle {
    /// Only something of its own that ends, or another call.
    Wait,
    Refuse(PoolRefusal),
    /// A parked connection of this client must be closed first.
    Close(ClientIndex),
}

impl<C> Machine<C> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            clients: Vec::new(),
            clients_made: 0,
            tenants: Shares::default(),
            providers: Shares::default(),
            calls: Vec::new(),
            free_calls: Vec::new(),
            rotation: VecDeque::new(),
            accounts: Accounts::default(),
            parked_since: MonoTime::ZERO,
            retired: 0,
            shut: false,
        }
    }

    /// Takes places for the clients of a provider, all or none.
    pub(super) fn register(
        &mut self,
        provider: &ProviderId,
        epoch: Epoch,
        tenants: &[TenantId],
        metadata_bytes: u64,
        chunk_bytes: u64,
    ) -> Result<Vec<ClientIndex>, RegistrationRefused> {
        let refuse = |limit, needed, left| RegistrationRefused::Limit { provider: provider.clone(), limit, needed, left };
        if chunk_bytes > self.bounds.chunk_bytes {
            let (limit, bound) = (limits::POOL_CHUNK_BYTES.name, self.bounds.chunk_bytes);
            return Err(RegistrationRefused::Chunk { provider: provider.clone(), limit, needed: chunk_bytes, bound });
        }
        let of_provider = |client: &&Client<C>| self.providers.name(client.provider) == Some(provider);
        let in_force = self.clients.iter().flatten().filter(of_provider).filter(|client| !client.retired);
        if let Some(current) = in_force.map(|client| client.epoch).max().filter(|current| *current >= epoch) {
            return Err(RegistrationRefused::Epoch { provider: provider.clone(), epoch, current });
        }
        let needed = tenants.len() as u64;
        let left = self.bounds.clients.saturating_sub(self.accounts.clients);
        if needed > left {
            return Err(refuse(limits::POOL_CLIENTS.name, needed, left));
        }
        let left = self.bounds.metadata_bytes.saturating_sub(self.accounts.metadata_bytes);
        if metadata_bytes > left {
            return Err(refuse(limits::POOL_METADATA_BYTES.name, metadata_bytes, left));
        }
        let mut left_to_charge = metadata_bytes;
        Ok(tenants.iter().map(|tenant| self.add_client(provider, tenant, epoch, std::mem::take(&mut left_to_charge))).collect())
    }

    fn add_client(&mut self, provider: &ProviderId, tenant: &TenantId, epoch: Epoch, metadata_bytes: u64) -> ClientIndex {
        self.clients_made += 1;
        let number = self.clients_made;
        let client = Client {
            number,
            tenant: self.tenants.enter(tenant),
            provider: self.providers.enter(provider),
            epoch,
            metadata_bytes,
            retired: false,
            parked: VecDeque::new(),
            connections: 0,
            leased: 0,
            waiting: VecDeque::new(),
            backoff: Backoff::default(),
        };
        self.accounts.clients += 1;
        self.accounts.metadata_bytes += metadata_bytes;
        if let Some(at) = self.clients.iter().position(Option::is_none) {
            self.clients[at] = Some(client);
            return ClientIndex { at, number };
        }
        self.clients.push(Some(client));
        ClientIndex { at: self.clients.len() - 1, number }
    }

    /// A new call, or why there can be none. It waits until a [`Machine::step`] answers it.
    pub(super) fn enter(&mut self, client: ClientIndex, staged_bytes: u64) -> Result<CallIndex, PoolRefusal> {
        let Some(tenant) = self.client(client).filter(|entry| !entry.retired && !self.shut).map(|entry| entry.tenant) else {
            return Err(PoolRefusal::Retired);
        };
        let refused = |limit: &latent_core::Limit| PoolRefusal::Limit { limit: limit.name };
        if self.accounts.queued >= self.bounds.queued {
            return Err(self.accounts.refused(refused(&limits::POOL_CALLS_QUEUED)));
        }
        if self.tenants.get(tenant).queued >= self.bounds.queued_per_tenant {
            return Err(self.accounts.refused(refused(&limits::POOL_CALLS_QUEUED_PER_TENANT)));
        }
        let bytes = staged_bytes.saturating_add(limits::CALL_SCRATCH_BYTES.default);
        if bytes > self.bounds.bytes.saturating_sub(self.accounts.bytes) {
            return Err(self.accounts.refused(refused(&limits::POOL_BYTES)));
        }
        self.accounts.bytes += bytes;
        self.accounts.queued += 1;
        self.tenants.of(tenant).queued += 1;
        let call = Call { client, staged_bytes: bytes, state: CallState::Waiting(None) };
        let index = match self.free_calls.pop() {
            Some(index) => {
                self.calls[index] = call;
                index
            }
            None => {
                self.calls.push(call);
                self.calls.len() - 1
            }
        };
        if let Some(entry) = self.client_mut(client) {
            entry.waiting.push_back(index);
            if entry.waiting.len() == 1 {
                self.rotation.push_back(client);
            }
        }
        Ok(index)
    }

    /// How a call stands; what was granted is handed out once, and the call runs from then on. `waker` is kept while it waits.
    pub(super) fn collect(&mut self, call: CallIndex, waker: &Waker) -> Answer<C> {
        let Some(entry) = self.calls.get_mut(call) else { return Answer::Refused(PoolRefusal::Retired) };
        match &mut entry.state {
            CallState::Waiting(kept) => {
                if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                    *kept = Some(waker.clone());
                }
                Answer::Waiting
            }
            CallState::Granted(_) => match std::mem::replace(&mut entry.state, CallState::Running) {
                CallState::Granted(grant) => Answer::Granted(grant),
                _ => Answer::Refused(PoolRefusal::Retired),
            },
            CallState::Refused(refusal) => Answer::Refused(*refusal),
            CallState::Free | CallState::Running => Answer::Refused(PoolRefusal::Retired),
        }
    }

    /// A call that is not waited for any more and was not collected, or was refused. A granted connection goes back.
    pub(super) fn leave(&mut self, call: CallIndex, now: MonoTime) {
        let Some(entry) = self.calls.get_mut(call) else { return };
        let client = entry.client;
        match std::mem::replace(&mut entry.state, CallState::Free) {
            CallState::Waiting(_) => {
                if let Some(entry) = self.client_mut(client) {
                    entry.waiting.retain(|waiting| *waiting != call);
                    if entry.waiting.is_empty() {
                        self.rotation.retain(|waiting| *waiting != client);
                    }
                }
                self.dequeued(client);
            }
            CallState::Granted(grant) => {
                self.accounts.running -= 1;
                match grant {
                    Grant::Parked(connection) => self.put_back(client, connection, now),
                    Grant::Dial => self.closed_leased(client),
                }
            }
            CallState::Refused(_) => {}
            state @ (CallState::Free | CallState::Running) => {
                if let Some(entry) = self.calls.get_mut(call) {
                    entry.state = state;
                }
                return;
            }
        }
        self.free(call);
    }

    /// The end of a running call whose connection, if it had one, has been dropped.
    pub(super) fn end(&mut self, call: CallIndex) {
        if let Some(client) = self.end_run(call) {
            self.closed_leased(client);
        }
    }

    /// The end of a running call whose connection may be used again.
    pub(super) fn park(&mut self, call: CallIndex, connection: C, now: MonoTime) {
        if let Some(client) = self.end_run(call) {
            self.put_back(client, connection, now);
        }
    }

    fn end_run(&mut self, call: CallIndex) -> Option<ClientIndex> {
        let entry = self.calls.get(call)?;
        if !matches!(entry.state, CallState::Running) {
            return None;
        }
        let client = entry.client;
        self.accounts.running -= 1;
        self.free(call);
        Some(client)
    }

    fn put_back(&mut self, client: ClientIndex, connection: C, now: MonoTime) {
        if let Some(entry) = self.client_mut(client) {
            // Also of a retired client: the next step takes it out to be closed.
            entry.parked.push_back((now, connection));
            entry.leased -= 1;
            if self.accounts.parked == 0 {
                self.parked_since = now;
            }
            self.accounts.parked += 1;
        }
    }

    /// The socket of a connection of `client` is gone.
    pub(super) fn closed(&mut self, client: ClientIndex) {
        let Some(entry) = self.client_mut(client) else { return };
        entry.connections -= 1;
        let (tenant, provider) = (entry.tenant, entry.provider);
        self.tenants.of(tenant).connections -= 1;
        self.providers.of(provider).connections -= 1;
        self.accounts.connections -= 1;
        self.accounts.bytes -= limits::CONNECTION_BYTES.default;
        self.forget_if_over(client);
    }

    /// The same for one that a call held.
    fn closed_leased(&mut self, client: ClientIndex) {
        if let Some(entry) = self.client_mut(client) {
            entry.leased -= 1;
        }
        self.closed(client);
    }

    fn dequeued(&mut self, client: ClientIndex) {
        self.accounts.queued -= 1;
        if let Some(tenant) = self.client(client).map(|entry| entry.tenant) {
            self.tenants.of(tenant).queued -= 1;
        }
    }

    fn free(&mut self, call: CallIndex) {
        if let Some(entry) = self.calls.get_mut(call) {
            entry.state = CallState::Free;
            self.accounts.bytes -= std::mem::take(&mut entry.staged_bytes);
            self.free_calls.push(call);
            let client = entry.client;
            self.forget_if_over(client);
        }
    }

    /// A dial of `client` failed that had begun at `begun`. `jitter` is any random number.
    pub(super) fn dial_failed(&mut self, client: ClientIndex, begun: MonoTime, now: MonoTime, jitter: u16) {
        self.accounts.count(|totals| &mut totals.dials_failed);
        let (min, max) = (self.bounds.backoff_min_millis, self.bounds.backoff_max_millis);
        if let Some(entry) = self.client_mut(client) {
            entry.backoff.failed(begun, now, jitter, min, max);
        }
    }

    /// A dial of `client` led to a usable connection.
    pub(super) fn dialled(&mut self, client: ClientIndex) {
        if let Some(entry) = self.client_mut(client) {
            entry.backoff.succeeded();
        }
    }

    /// Closes admission for these clients: nothing waits any more, what is parked is closed, what runs ends as it would have.
    pub(super) fn retire(&mut self, clients: &[ClientIndex]) {
        for index in clients {
            if let Some(client) = self.client_mut(*index).filter(|client| !client.retired) {
                client.retired = true;
                self.retired += 1;
            }
            self.forget_if_over(*index);
        }
    }

    /// Takes out one parked connection of these clients, to be closed.
    pub(super) fn take_parked_of(&mut self, clients: &[ClientIndex]) -> Option<Step<C>> {
        clients.iter().find_map(|index| self.take_parked(*index, |totals| &mut totals.connections_aged))
    }

    /// [`Machine::retire`] for all, and for whatever would be registered later.
    pub(super) fn shut_down(&mut self) {
        self.shut = true;
        let indexed = self.clients.iter().enumerate();
        let all = indexed.filter_map(|(at, client)| client.as_ref().map(|client| ClientIndex { at, number: client.number }));
        self.retire(&all.collect::<Vec<_>>());
    }

    /// The one thing that can be done now.
    pub(super) fn step(&mut self, now: MonoTime) -> Step<C> {
        if let Some(step) = self.close_one(now) {
            return step;
        }
        for turn in 0..self.rotation.len() {
            let Some(&index) = self.rotation.get(turn) else { break };
            let answer = match self.obstacle(index, now) {
                None => self.grant(index),
                Some(Obstacle::Refuse(refusal)) => CallState::Refused(self.accounts.refused(refusal)),
                Some(Obstacle::Close(other)) => {
                    if let Some(step) = self.take_parked(other, |totals| &mut totals.connections_evicted) {
                        return step;
                    }
                    continue;
                }
                Some(Obstacle::Wait) => continue,
            };
            self.rotation.remove(turn);
            return self.answer_first(index, answer);
        }
        Step::Rest
    }

    fn answer_first(&mut self, index: ClientIndex, answer: CallState<C>) -> Step<C> {
        let Some(client) = self.client_mut(index) else { return Step::Wake(None) };
        let call = client.waiting.pop_front();
        if !client.waiting.is_empty() {
            self.rotation.push_back(index);
        }
        self.dequeued(index);
        let Some(call) = call.and_then(|call| self.calls.get_mut(call)) else { return Step::Wake(None) };
        match std::mem::replace(&mut call.state, answer) {
            CallState::Waiting(waker) => Step::Wake(waker),
            _ => Step::Wake(None),
        }
    }

    fn grant(&mut self, index: ClientIndex) -> CallState<C> {
        let Some(client) = self.client_mut(index) else { return CallState::Refused(PoolRefusal::Retired) };
        client.leased += 1;
        let parked = client.parked.pop_back();
        if parked.is_none() {
            client.connections += 1;
            let (tenant, provider) = (client.tenant, client.provider);
            self.tenants.of(tenant).connections += 1;
            self.providers.of(provider).connections += 1;
        }
        self.accounts.running += 1;
        if let Some((_, connection)) = parked {
            self.accounts.parked -= 1;
            self.accounts.count(|totals| &mut totals.connections_reused);
            return CallState::Granted(Grant::Parked(connection));
        }
        self.accounts.connections += 1;
        self.accounts.bytes += limits::CONNECTION_BYTES.default;
        self.accounts.count(|totals| &mut totals.dials);
        CallState::Granted(Grant::Dial)
    }

    /// What stops the first waiting call of a client, if anything does.
    fn obstacle(&self, index: ClientIndex, now: MonoTime) -> Option<Obstacle> {
        let client = self.client(index)?;
        if client.retired {
            return Some(Obstacle::Refuse(PoolRefusal::Retired));
        }
        if self.accounts.running >= self.bounds.running {
            return Some(Obstacle::Wait);
        }
        if !client.parked.is_empty() {
            return None;
        }
        let backoff_left = client.backoff.left_millis(now);
        if backoff_left > 0 {
            // A connection that works may come back; without one nothing would wake this call.
            let refuse = Obstacle::Refuse(PoolRefusal::Backoff { millis: backoff_left });
            return Some(if client.leased > 0 { Obstacle::Wait } else { refuse });
        }
        let full_tenant = self.tenants.get(client.tenant).connections >= self.bounds.connections_per_tenant;
        let full_provider = self.providers.get(client.provider).connections >= self.bounds.connections_per_provider;
        let full_node = self.accounts.connections >= self.bounds.connections;
        let no_memory = limits::CONNECTION_BYTES.default > self.bounds.bytes.saturating_sub(self.accounts.bytes);
        if !(full_tenant || full_provider || full_node || no_memory) {
            return None;
        }
        let oldest = |helps: &dyn Fn(&Client<C>) -> bool| {
            let parked = self.clients.iter().enumerate().filter_map(|(at, other)| {
                let other = other.as_ref().filter(|other| helps(other))?;
                other.parked.front().map(|(since, _)| (*since, at, other.number))
            });
            parked.min()
        };
        let of_tenant = |other: &Client<C>| other.tenant == client.tenant;
        let of_provider = |other: &Client<C>| other.provider == client.provider;
        // Closing one idle connection may help, if it counts against what is full; or two, where none counts against both.
        let one = oldest(&|other| (!full_tenant || of_tenant(other)) && (!full_provider || of_provider(other)));
        let helps = one.or_else(|| oldest(&of_provider).and_then(|_| oldest(&of_tenant)));
        match helps {
            Some((_, at, number)) => Some(Obstacle::Close(ClientIndex { at, number })),
            None if no_memory && self.accounts.running == 0 && self.accounts.connections == 0 => {
                // Waiting calls hold what is missing: each would wait for the other.
                Some(Obstacle::Refuse(PoolRefusal::Limit { limit: limits::POOL_BYTES.name }))
            }
            None => Some(Obstacle::Wait),
        }
    }

    /// A parked connection that is too old, or whose client is retired.
    fn close_one(&mut self, now: MonoTime) -> Option<Step<C>> {
        let too_old = |since: MonoTime| now.since(since).as_millis() >= u128::from(self.bounds.idle_millis);
        if self.accounts.parked == 0 || (self.retired == 0 && !too_old(self.parked_since)) {
            return None;
        }
        let mut since_min = now;
        let mut found = None;
        for (at, client) in self.clients.iter().enumerate() {
            let Some((client, since)) = client.as_ref().and_then(|client| Some((client, client.parked.front()?.0))) else { continue };
            since_min = since_min.min(since);
            if client.retired || too_old(since) {
                found = Some((ClientIndex { at, number: client.number }, client.retired));
                break;
            }
        }
        let Some((index, retired)) = found else {
            self.parked_since = since_min;
            return None;
        };
        self.take_parked(index, |totals| if retired { &mut totals.connections_retired } else { &mut totals.connections_aged })
    }

    fn take_parked(&mut self, index: ClientIndex, count: impl FnOnce(&mut super::PoolTotals) -> &mut u64) -> Option<Step<C>> {
        let client = self.client_mut(index)?;
        let (_, connection) = client.parked.pop_front()?;
        self.accounts.parked -= 1;
        self.accounts.count(count);
        Some(Step::Close(index, connection))
    }

    fn forget_if_over(&mut self, index: ClientIndex) {
        let over = |client: &Client<C>| client.retired && client.connections == 0 && client.waiting.is_empty();
        if !self.client(index).is_some_and(over) {
            return;
        }
        if let Some(client) = self.clients.get_mut(index.at).and_then(Option::take) {
            self.accounts.clients -= 1;
            self.accounts.metadata_bytes -= client.metadata_bytes;
            self.tenants.of(client.tenant).clients -= 1;
            self.providers.of(client.provider).clients -= 1;
            self.retired -= 1;
        }
    }

    fn client(&self, index: ClientIndex) -> Option<&Client<C>> {
        self.clients.get(index.at)?.as_ref().filter(|client| client.number == index.number)
    }

    fn client_mut(&mut self, index: ClientIndex) -> Option<&mut Client<C>> {
        self.clients.get_mut(index.at)?.as_mut().filter(|client| client.number == index.number)
    }

    /// Calls and connections of these clients: running and waiting calls, connections of any state.
    pub(super) fn use_of(&self, clients: &[ClientIndex]) -> (u64, u64, u64) {
        let of = clients.iter().filter_map(|index| self.client(*index));
        of.fold((0, 0, 0), |(running, waiting, connections), client| {
            (running + client.leased, waiting + client.waiting.len() as u64, connections + client.connections)
        })
    }
}

#[cfg(test)]
mod tests;
