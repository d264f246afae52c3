//! The pools as a provider uses them, with time and wakers driven by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use latent_core::{Clock, Epoch, MonoTime, ProviderId, TenantId, UnixMillis};

use super::*;
use crate::limits;

/// A clock at a set time. `ManualClock` of the test kit would be a cycle of crates.
struct At(std::sync::atomic::AtomicU64);

impl Clock for At {
    fn mono(&self) -> MonoTime {
        MonoTime::from_millis(self.0.load(Ordering::Relaxed))
    }
    fn unix(&self) -> UnixMillis {
        UnixMillis(0)
    }
}

/// A connection that says what the accounts hold at the moment it is dropped.
struct Socket {
    pools: ProviderPools<Socket>,
    seen: Arc<AtomicUsize>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let connections = self.pools.snapshot().connections;
        self.seen.store(usize::try_from(connections).unwrap(), Ordering::Relaxed);
    }
}

struct Woken(AtomicUsize);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bench {
    pools: ProviderPools<Socket>,
    clock: Arc<At>,
    seen: Arc<AtomicUsize>,
    woken: Arc<Woken>,
}

const A: usize = 0;
const B: usize = 1;

fn bench(set: &[(&latent_core::Limit, u64)]) -> Bench {
    let settings = set.iter().fold(PoolSettings::default(), |settings, (limit, value)| settings.set(limit, *value).unwrap());
    let clock = Arc::new(At(std::sync::atomic::AtomicU64::new(1_000)));
    let pools = ProviderPools::new(settings, Arc::clone(&clock) as Arc<dyn Clock>);
    Bench { pools, clock, seen: Arc::default(), woken: Arc::new(Woken(AtomicUsize::new(0))) }
}

impl Bench {
    fn register(&self, provider: &str, epoch: u64) -> Result<Registration<Socket>, RegistrationRefused> {
        let tenants = ["a", "b"].map(|tenant| TenantId::parse(tenant).unwrap());
        self.pools.register(&ProviderId::parse(provider).unwrap(), Epoch(epoch), &tenants, 100, 1_024)
    }

    fn poll(&self, call: &mut PendingCall<Socket>) -> Poll<Result<Lease<Socket>, PoolRefusal>> {
        let waker = Waker::from(Arc::clone(&self.woken));
        std::pin::Pin::new(call).poll(&mut Context::from_waker(&waker))
    }

    fn lease(&self, call: Result<PendingCall<Socket>, PoolRefusal>) -> Lease<Socket> {
        match self.poll(&mut call.unwrap()) {
            Poll::Ready(Ok(lease)) => lease,
            Poll::Ready(Err(refusal)) => panic!("refused: {refusal}"),
            Poll::Pending => panic!("it waits"),
        }
    }

    fn refusal(&self, mut call: PendingCall<Socket>) -> Option<PoolRefusal> {
        match self.poll(&mut call) {
            Poll::Ready(Err(refusal)) => Some(refusal),
            _ => None,
        }
    }

    fn socket(&self) -> Socket {
        Socket { pools: self.pools.clone(), seen: Arc::clone(&self.seen) }
    }

    fn at(&self, millis: u64) {
        self.clock.0.store(millis, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        let PoolSnapshot { running, queued, connections, parked, bytes, .. } = self.pools.snapshot();
        (running, queued, connections, parked, bytes) == (0, 0, 0, 0, 0)
    }
}

#[test]
fn a_registration_holds_no_connection_and_no_call_and_its_charges_end_with_it() {
    let bench = bench(&[]);
    let registration = bench.register("n", 1).unwrap();
    assert!(bench.is_empty());
    assert_eq!((bench.pools.snapshot().clients, bench.pools.snapshot().metadata_bytes), (2, 100));
    drop(registration);
    assert_eq!(bench.pools.snapshot(), PoolSnapshot::default());
}

#[test]
fn a_connection_is_charged_from_the_dial_until_its_socket_is_gone() {
    let bench = bench(&[]);
    let registration = bench.register("n", 1).unwrap();
    let mut lease = bench.lease(registration.call(A, 500));
    assert!(lease.connection().is_none());
    let charged = limits::CONNECTION_BYTES.default + limits::CALL_SCRATCH_BYTES.default + 500;
    assert_eq!((bench.pools.snapshot().connections, bench.pools.snapshot().bytes), (1, charged));
    lease.fill(bench.socket());
    drop(lease);
    assert_eq!(bench.seen.load(Ordering::Relaxed), 1, "the socket went while it was still charged");
    assert!(bench.is_empty());
}

#[test]
fn a_parked_connection_is_used_by_the_next_call_of_its_client_only() {
    let bench = bench(&[]);
    let registration = bench.register("n", 1).unwrap();
    let mut lease = bench.lease(registration.call(A, 0));
    lease.fill(bench.socket());
    lease.park();
    assert_eq!((bench.pools.snapshot().parked, bench.pools.snapshot().running), (1, 0));
    assert_eq!(bench.pools.snapshot().bytes, limits::CONNECTION_BYTES.default);
    assert!(!bench.lease(registration.call(B, 0)).is_connected());
    assert!(bench.lease(registration.call(A, 0)).is_connected());
    assert_eq!(bench.pools.snapshot().totals.dials, 2);
}

#[test]
fn a_parked_connection_ends_with_its_age() {
    let bench = bench(&[(&limits::POOL_IDLE_MILLIS, 1_000)]);
    let registration = bench.register("n", 1).unwrap();
    let mut lease = bench.lease(registration.call(A, 0));
    lease.fill(bench.socket());
    lease.park();
    bench.at(1_999);
    bench.pools.close_idle();
    assert_eq!(bench.pools.snapshot().parked, 1);
    bench.at(2_000);
    bench.pools.close_idle();
    assert!(bench.is_empty());
    assert_eq!((bench.seen.load(Ordering::Relaxed), bench.pools.snapshot().totals.connections_aged), (1, 1));
}

#[test]
fn each_ceiling_makes_the_next_call_wait_and_the_other_tenant_keeps_its_share() {
    for limit in [&limits::POOL_CONNECTIONS_PER_TENANT, &limits::POOL_CONNECTIONS_PER_PROVIDER, &limits::POOL_CONNECTIONS] {
        let bench = bench(&[(limit, 2)]);
        let registration = bench.register("n", 1).unwrap();
        let mut leases = [0; 2].map(|_| bench.lease(registration.call(A, 0)));
        let mut third = registration.call(A, 0).unwrap();
        assert!(bench.poll(&mut third).is_pending(), "{}", limit.name);
        let mut other = registration.call(B, 0).unwrap();
        let others_turn = bench.poll(&mut other).is_ready();
        assert_eq!(others_turn, *limit == limits::POOL_CONNECTIONS_PER_TENANT, "{}", limit.name);
        leases[0].fill(bench.socket());
        let [first, second] = leases;
        first.park();
        // The parked connection is the waiting call's, not the one's that needs another tenant's.
        assert!(bench.lease(Ok(third)).is_connected(), "{}", limit.name);
        drop(second);
        if !others_turn {
            assert!(!bench.lease(Ok(other)).is_connected(), "{}", limit.name);
        }
    }
}

#[test]
fn an_idle_connection_of_another_tenant_makes_room() {
    let bench = bench(&[(&limits::POOL_CONNECTIONS_PER_PROVIDER, 1)]);
    let registration = bench.register("n", 1).unwrap();
    let mut lease = bench.lease(registration.call(A, 0));
    lease.fill(bench.socket());
    lease.park();
    let other = bench.lease(registration.call(B, 0));
    assert!(!other.is_connected());
    let snapshot = bench.pools.snapshot();
    assert_eq!((snapshot.connections, snapshot.totals.connections_evicted), (1, 1));
}

#[test]
fn an_idle_connection_of_the_tenant_and_one_of_the_provider_make_room_together() {
    let bench = bench(&[(&limits::POOL_CONNECTIONS_PER_PROVIDER, 1), (&limits::POOL_CONNECTIONS_PER_TENANT, 1)]);
    let [n, m] = ["n", "m"].map(|provider| bench.register(provider, 1).unwrap());
    for (registration, tenant) in [(&n, A), (&m, B)] {
        let mut lease = bench.lease(registration.call(tenant, 0));
        lease.fill(bench.socket());
        lease.park();
    }
    // The tenant's one connection is at the other provider, and the provider's one is another tenant's. Nothing runs that could end.
    let lease = bench.lease(m.call(A, 0));
    let snapshot = bench.pools.snapshot();
    assert_eq!((lease.is_connected(), snapshot.connections, snapshot.totals.connections_evicted), (false, 1, 2));
}

#[test]
fn no_idle_connection_is_closed_where_it_alone_does_not_help() {
    let bench = bench(&[(&limits::POOL_CONNECTIONS_PER_PROVIDER, 1), (&limits::POOL_CONNECTIONS_PER_TENANT, 1)]);
    let [n, m] = ["n", "m"].map(|provider| bench.register(provider, 1).unwrap());
    let mut parked = bench.lease(n.call(A, 0));
    parked.fill(bench.socket());
    parked.park();
    let running = bench.lease(m.call(B, 0));
    let mut waiting = m.call(A, 0).unwrap();
    assert!(bench.poll(&mut waiting).is_pending());
    assert_eq!(bench.pools.snapshot().parked, 1);
    drop(running);
    assert!(!bench.lease(Ok(waiting)).is_connected());
}

#[test]
fn waiting_tenants_take_turns() {
    let bench = bench(&[(&limits::POOL_CALLS_RUNNING, 1)]);
    let registration = bench.register("n", 1).unwrap();
    let running = bench.lease(registration.call(A, 0));
    let mut calls: Vec<_> = [A, A, A, B].into_iter().map(|tenant| registration.call(tenant, 0).unwrap()).collect();
    drop(running);
    let mut order = Vec::new();
    while !calls.is_empty() {
        let ready = calls.iter_mut().position(|call| matches!(bench.poll(call), Poll::Ready(Ok(_)))).unwrap();
        order.push(ready + order.len());
        drop(calls.remove(ready));
    }
    assert_eq!(order.len(), 4);
    // The one call of the second tenant is the second to run.
    assert_eq!(order.iter().position(|place| *place == 3), Some(1));
}

#[test]
fn a_full_queue_refuses_the_next_call_and_takes_one_again_after_a_call_left() {
    for (limit, tenant) in [(&limits::POOL_CALLS_QUEUED, B), (&limits::POOL_CALLS_QUEUED_PER_TENANT, A)] {
        let bench = bench(&[(&limits::POOL_CALLS_RUNNING, 1), (limit, 1)]);
        let registration = bench.register("n", 1).unwrap();
        let running = bench.lease(registration.call(A, 0));
        let waiting = registration.call(A, 0).unwrap();
        assert_eq!(registration.call(tenant, 0).err(), Some(PoolRefusal::Limit { limit: limit.name }));
        drop(waiting);
        let waiting = registration.call(tenant, 0).unwrap();
        drop((running, waiting));
        assert!(bench.is_empty());
        assert_eq!(bench.pools.snapshot().totals.refused_limit, 1);
    }
}

#[test]
fn input_is_charged_and_refused_when_the_account_is_full() {
    let bytes = limits::POOL_BYTES.min;
    let bench = bench(&[(&limits::POOL_BYTES, bytes)]);
    let registration = bench.register("n", 1).unwrap();
    let left = bytes - limits::CALL_SCRATCH_BYTES.default;
    assert_eq!(registration.call(A, left + 1).err(), Some(PoolRefusal::Limit { limit: limits::POOL_BYTES.name }));
    // At the bound the call is taken, and refused because no connection could ever be paid beside it.
    assert_eq!(bench.refusal(registration.call(A, left).unwrap()), Some(PoolRefusal::Limit { limit: limits::POOL_BYTES.name }));
    assert_eq!(registration.call(A, u64::MAX).err(), Some(PoolRefusal::Limit { limit: limits::POOL_BYTES.name }));
    let fits = left - limits::CONNECTION_BYTES.default;
    drop(bench.lease(registration.call(A, fits)));
    assert!(bench.is_empty() && bench.pools.snapshot().totals.dials == 1);
}

#[test]
fn a_failed_dial_refuses_at_once_until_its_backoff_is_over() {
    let bench = bench(&[]);
    let registration = bench.register("n", 1).unwrap();
    let lease = bench.lease(registration.call(A, 0));
    lease.dial_failed(u16::MAX);
    drop(lease);
    assert_eq!(bench.refusal(registration.call(A, 0).unwrap()), Some(PoolRefusal::Backoff { millis: 100 }));
    assert!(bench.poll(&mut registration.call(B, 0).unwrap()).is_ready(), "another tenant dials");
    bench.at(1_100);
    let mut lease = bench.lease(registration.call(A, 0));
    lease.fill(bench.socket());
    drop(lease);
    drop(bench.lease(registration.call(A, 0)));
    assert_eq!(bench.pools.snapshot().totals.refused_backoff, 1);
}

#[test]
fn dials_that_fail_together_are_one_failure_and_the_next_attempt_doubles() {
    let bench = bench(&[]);
    let registration = bench.register("n", 1).unwrap();
    let left = || match bench.refusal(registration.call(A, 0).unwrap()) {
        Some(PoolRefusal::Backoff { millis }) => millis,
        other => panic!("{other:?}"),
    };
    let leases = [0; 8].map(|_| bench.lease(registration.call(A, 0)));
    for (at, lease) in (1_010..).step_by(150).zip(leases) {
        bench.at(at);
        lease.dial_failed(u16::MAX);
    }
    // The last one failed at 2,060; the backoff of the first ended at 1,110.
    drop(bench.lease(registration.call(A, 0)));
    bench.at(3_000);
    let lease = bench.lease(registration.call(A, 0));
    bench.at(3_001);
    lease.dial_failed(u16::MAX);
    drop(lease);
    assert_eq!(left(), 200);
    assert_eq!(bench.pools.snapshot().totals.dials_failed, 9);
}

#[test]
fn calls_that_wait_when_the_dials_fail_are_refused_and_woken() {
    let bench = bench(&[(&limits::POOL_CONNECTIONS_PER_TENANT, 1)]);
    let registration = bench.register("n", 1).unwrap();
    let lease = bench.lease(registration.call(A, 0));
    let mut waiting = registration.call(A, 0).unwrap();
    assert!(bench.poll(&mut waiting).is_pending());
    lease.dial_failed(0);
    drop(lease);
    assert_eq!(bench.woken.0.load(Ordering::Relaxed), 1);
    assert!(matches!(bench.poll(&mut waiting), Poll::Ready(Err(PoolRefusal::Backoff { .. }))));
}

#[test]
fn a_replaced_epoch_takes_nothing_new_and_finishes_what_runs() {
    let bench = bench(&[(&limits::POOL_CONNECTIONS_PER_TENANT, 2)]);
    let old = bench.register("n", 1).unwrap();
    let mut leases = [0; 2].map(|_| bench.lease(old.call(A, 0)));
    leases.iter_mut().for_each(|lease| lease.fill(bench.socket()));
    let [parked, running] = leases;
    parked.park();
    let waiting = old.call(B, 0).unwrap();
    assert!(matches!(bench.register("n", 1), Err(RegistrationRefused::Epoch { .. })));
    let new = bench.register("n", 2).unwrap();
    // A call that was answered before keeps its answer.
    old.retire();
    drop(waiting);
    assert_eq!(old.call(A, 0).err(), Some(PoolRefusal::Retired));
    let snapshot = bench.pools.snapshot();
    assert_eq!((snapshot.parked, snapshot.connections, snapshot.totals.connections_retired), (0, 1, 1));
    assert!(!bench.lease(new.call(A, 0)).is_connected(), "the new epoch dials its own");
    running.park();
    assert_eq!(bench.pools.snapshot().connections, 0, "also what comes back late is closed");
    drop(old);
    assert_eq!(bench.pools.snapshot().clients, 2);
    // The places of the old clients are free; the old registration is gone and cannot reach who has them next.
    let third = bench.register("m", 1).unwrap();
    assert!(bench.poll(&mut third.call(A, 0).unwrap()).is_ready() && bench.poll(&mut new.call(B, 0).unwrap()).is_ready());
}

#[test]
fn a_retired_provider_refuses_its_waiting_calls() {
    let bench = bench(&[(&limits::POOL_CALLS_RUNNING, 1)]);
    let registration = bench.register("n", 1).unwrap();
    let running = bench.lease(registration.call(A, 0));
    let mut waiting = registration.call(A, 0).unwrap();
    assert!(bench.poll(&mut waiting).is_pending());
    bench.pools.shut_down();
    assert!(matches!(bench.poll(&mut waiting), Poll::Ready(Err(PoolRefusal::Retired))));
    drop((running, waiting, registration));
    assert!(bench.is_empty() && bench.pools.snapshot().clients == 0);
}

#[test]
fn registrations_are_bounded() {
    let tight = bench(&[(&limits::POOL_CLIENTS, 3)]);
    let _kept = tight.register("n", 1).unwrap();
    assert!(matches!(tight.register("m", 1), Err(RegistrationRefused::Limit { left: 1, .. })));
    let tenants = [TenantId::parse("a").unwrap()];
    let chunk = limits::POOL_CHUNK_BYTES.default;
    let register = |metadata_bytes, chunk_bytes| {
        tight.pools.register(&ProviderId::parse("m").unwrap(), Epoch(1), &tenants, metadata_bytes, chunk_bytes).map(|_| ())
    };
    assert!(matches!(register(0, chunk + 1), Err(RegistrationRefused::Chunk { .. })));
    assert!(matches!(register(limits::POOL_METADATA_BYTES.default - 99, chunk), Err(RegistrationRefused::Limit { .. })));
    assert_eq!(register(limits::POOL_METADATA_BYTES.default - 100, chunk), Ok(()));
}
