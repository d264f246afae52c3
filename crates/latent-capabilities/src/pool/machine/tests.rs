//! Any order of calls, ends, failures and time keeps the accounts, and what waits is answered as soon as it can be.

use std::task::Waker;

use proptest::prelude::*;

use super::*;
use crate::PoolSettings;

#[derive(Debug, Clone)]
enum Act {
    Enter(usize, u64),
    Collect(usize),
    Leave(usize),
    End(usize),
    Park(usize),
    DialFailed(usize),
    Pass(u64),
    Retire(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_usize..4, 0_u64..400_000).prop_map(|(client, bytes)| Act::Enter(client, bytes)),
        6 => any::<usize>().prop_map(Act::Collect),
        1 => any::<usize>().prop_map(Act::Leave),
        2 => any::<usize>().prop_map(Act::End),
        3 => any::<usize>().prop_map(Act::Park),
        1 => (0_usize..4).prop_map(Act::DialFailed),
        2 => (1_u64..40_000).prop_map(Act::Pass),
        1 => (0_usize..16).prop_map(Act::Retire),
    ]
}

/// What the machine holds, counted by its user: calls that wait or were answered, calls that run.
#[derive(Default)]
struct Model {
    open: Vec<(CallIndex, u64)>,
    running: Vec<(CallIndex, u64)>,
    closing: Vec<ClientIndex>,
}

fn settings() -> PoolSettings {
    let small = [
        (&limits::POOL_CALLS_RUNNING, 3),
        (&limits::POOL_CALLS_QUEUED, 6),
        (&limits::POOL_CALLS_QUEUED_PER_TENANT, 4),
        (&limits::POOL_CONNECTIONS, 4),
        (&limits::POOL_CONNECTIONS_PER_TENANT, 2),
        (&limits::POOL_CONNECTIONS_PER_PROVIDER, 3),
        (&limits::POOL_BYTES, 1_500_000),
    ];
    small.into_iter().fold(PoolSettings::default(), |settings, (limit, value)| settings.set(limit, value).unwrap())
}

fn run(acts: Vec<Act>) {
    let bounds = Bounds::of(&settings());
    let mut machine = Machine::<u32>::new(bounds);
    let tenants = ["a", "b"].map(|tenant| TenantId::parse(tenant).unwrap());
    let providers = ["n", "m"].map(|provider| ProviderId::parse(provider).unwrap());
    let mut clients: Vec<ClientIndex> =
        providers.iter().flat_map(|provider| machine.register(provider, Epoch(1), &tenants, 10, 1).unwrap()).collect();
    let (mut now, mut model) = (MonoTime::ZERO, Model::default());
    for act in acts {
        let pick = |list: &Vec<(CallIndex, u64)>, at: usize| (!list.is_empty()).then(|| at % list.len());
        match act {
            Act::Enter(client, bytes) => {
                if let Ok(call) = machine.enter(clients[client], bytes) {
                    model.open.push((call, bytes + limits::CALL_SCRATCH_BYTES.default));
                }
            }
            Act::Collect(at) => {
                if let Some(at) = pick(&model.open, at) {
                    match machine.collect(model.open[at].0, Waker::noop()) {
                        Answer::Waiting => {}
                        Answer::Granted(_) => model.running.push(model.open.swap_remove(at)),
                        Answer::Refused(_) => machine.leave(model.open.swap_remove(at).0, now),
                    }
                }
            }
            Act::Leave(at) => {
                if let Some(at) = pick(&model.open, at) {
                    machine.leave(model.open.swap_remove(at).0, now);
                }
            }
            Act::End(at) => {
                if let Some(at) = pick(&model.running, at) {
                    machine.end(model.running.swap_remove(at).0);
                }
            }
            Act::Park(at) => {
                if let Some(at) = pick(&model.running, at) {
                    machine.park(model.running.swap_remove(at).0, 7, now);
                }
            }
            Act::DialFailed(client) => machine.dial_failed(clients[client], now, now, 0),
            Act::Pass(millis) => now = now.plus_millis(millis),
            Act::Retire(client) => {
                if let Some(index) = clients.get(client).copied() {
                    let provider = &providers[client / 2];
                    let epoch = machine.client(index).map_or(Epoch(1_000), |client| Epoch(client.epoch.0 + 1));
                    machine.retire(&clients[client / 2 * 2..][..2]);
                    if let Ok(fresh) = machine.register(provider, epoch, &tenants, 10, 1) {
                        clients[client / 2 * 2..][..2].copy_from_slice(&fresh);
                    }
                }
            }
        }
        settle(&mut machine, &mut model, now);
        check(&machine, &model, bounds);
    }
    for (call, _) in model.open.drain(..) {
        machine.leave(call, now);
    }
    for (call, _) in model.running.drain(..) {
        machine.end(call);
    }
    machine.shut_down();
    settle(&mut machine, &mut model, now);
    let Accounts { running, queued, clients, connections, parked, bytes, metadata_bytes, .. } = machine.accounts;
    assert_eq!((running, queued, clients, connections, parked, bytes, metadata_bytes), (0, 0, 0, 0, 0, 0, 0));
    assert_eq!(machine.retired, 0);
}

fn settle(machine: &mut Machine<u32>, model: &mut Model, now: MonoTime) {
    for _ in 0..1_000 {
        match machine.step(now) {
            Step::Rest => return,
            Step::Wake(_) => {}
            Step::Close(client, _) => {
                model.closing.push(client);
                machine.closed(client);
            }
        }
    }
    panic!("the machine never rests");
}

fn check(machine: &Machine<u32>, model: &Model, bounds: Bounds) {
    let accounts = &machine.accounts;
    let staged: u64 = model.open.iter().chain(&model.running).map(|(_, bytes)| bytes).sum();
    assert_eq!(accounts.bytes, staged + accounts.connections * limits::CONNECTION_BYTES.default);
    let clients = || machine.clients.iter().flatten();
    assert_eq!(accounts.connections, clients().map(|client| client.connections).sum::<u64>());
    assert_eq!(accounts.parked, clients().map(|client| client.parked.len() as u64).sum::<u64>());
    assert_eq!(accounts.queued, clients().map(|client| client.waiting.len() as u64).sum::<u64>());
    assert_eq!(accounts.clients, clients().count() as u64);
    assert!(clients().all(|client| client.connections == client.leased + client.parked.len() as u64));
    let of_tenant = |tenant| clients().filter(move |client| client.tenant == tenant).map(|client| client.connections).sum::<u64>();
    let of_provider = |provider| clients().filter(move |client| client.provider == provider).map(|client| client.connections).sum::<u64>();
    for client in clients() {
        assert!(of_tenant(client.tenant) <= bounds.connections_per_tenant);
        assert!(of_provider(client.provider) <= bounds.connections_per_provider);
        assert!(!client.retired || (client.waiting.is_empty() && client.parked.is_empty()));
        assert_eq!(machine.tenants.get(client.tenant).connections, of_tenant(client.tenant));
    }
    assert!(accounts.running <= bounds.running && accounts.queued <= bounds.queued && accounts.bytes <= bounds.bytes);
    assert!(accounts.connections <= bounds.connections);
    // Whoever waits does so because of something that will end.
    assert!(accounts.queued == 0 || accounts.running > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn accounts_are_the_sum_of_what_exists_whatever_happens(acts in prop::collection::vec(act(), 1..60)) {
        run(acts);
    }
}
