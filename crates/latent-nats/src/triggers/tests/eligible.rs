//! What is looked at again, and when: the publication ahead of everything and ahead of the pull (T-012), the credential ahead of the pull and
//! ahead of the settlement (X-012); and that nothing is asked for that there is no room for (T-034, T-035).

use latent_capabilities::{PoolSettings, ProviderPools, limits};
use latent_core::{Clock as _, Epoch, ProviderId, TenantId};
use latent_node::delivery::Unsettled;
use latent_node::{NodeLimits, RevocationScope};
use latent_secrets::SecretName;
use latent_testkit::broker::SERVER_NAME;
use latent_testkit::fake_peer::{FakePeer, INFO, Step};

use super::bench::{Bench, Half, INSPECTION, at, binding, ca, draft, info, inspected, message, open_then, pulled, settled, small_node};
use crate::triggers::{BindingDraft, StepEnd, StepFault, StepOutcome, TriggerDraft, TriggerState};

fn waiting() -> Vec<Step> {
    open_then([Step::ServeUntil(INSPECTION.to_vec()), Step::Gate, Step::reply_message(info(1, 0)), Step::Hold])
}

/// T-012: revoked ahead of the reservation, nobody is asked anything; revoked behind the inspection, nothing is pulled.
#[tokio::test]
async fn what_was_revoked_is_not_asked_for() {
    let mut bench = Bench::start(vec![waiting()]);
    let revoked = async {
        bench.peer.until_received(0, INSPECTION).await;
        let scope = RevocationScope::Tenant(TenantId::parse("shop").unwrap());
        bench.half.catalog.revoke(bench.half.publication, scope).unwrap();
        bench.peer.open_gate();
    };
    let (step, ()) = tokio::join!(bench.triggers.step(&bench.half.manager), revoked);
    assert!(matches!(step, StepOutcome::Reported(step) if step.end == StepEnd::Failed(StepFault::Ineligible) && step.generation.is_some()));
    assert_eq!(bench.count(b"MSG.NEXT"), 0);
    let received = bench.peer.report(0).received_bytes;
    assert_eq!(bench.fault().await, StepFault::Ineligible);
    assert_eq!(bench.monitor.last_step().unwrap().generation, None, "not even a route");
    assert_eq!((bench.peer.accepted(), bench.peer.report(0).received_bytes), (1, received), "no broker contact");
    assert_eq!(bench.monitor.bindings()[0].state, TriggerState::Stalled);
    bench.triggers.close_idle();
    bench.half.assert_nothing_is_held();
}

/// X-012: a credential that is another one by now pulls nothing; the next visit has the new one, on a connection of its own.
#[tokio::test]
async fn a_credential_that_changed_ahead_of_the_pull_pulls_nothing() {
    let second = [inspected(1), pulled(&message(r#"["ok"]"#)), settled("+ACK")].into_iter().flatten().chain([Step::Hold]);
    let mut bench = Bench::start(vec![waiting(), open_then(second)]);
    let rotated = async {
        bench.peer.until_received(0, INSPECTION).await;
        let name = SecretName::parse("s-0").unwrap();
        bench.half.secrets.rotate(&name, b"another", None, bench.half.clock.unix()).unwrap();
        bench.peer.open_gate();
    };
    let (step, ()) = tokio::join!(bench.triggers.step(&bench.half.manager), rotated);
    assert!(matches!(step, StepOutcome::Reported(step) if step.end == StepEnd::Failed(StepFault::Credential)));
    bench.peer.until_client_ended(0).await;
    assert_eq!(bench.count(b"MSG.NEXT"), 0);
    assert!(matches!(bench.reported().await.end, StepEnd::Settled { .. }));
    let text = String::from_utf8_lossy(&bench.peer.report(1).received).into_owned();
    assert!(text.contains("\"pass\":\"another\""), "{text}");
}

/// X-012: one that changed, expired or was revoked while the function ran settles nothing.
#[tokio::test]
async fn a_credential_that_changed_while_the_function_ran_settles_nothing() {
    type Change = fn(&Half);
    // Every case begins with a credential that expires in ten seconds.
    let expires = latent_core::UnixMillis(1_700_000_010_000);
    let changes: [(&str, Change); 3] = [
        ("expired", |half| half.clock.set_wall(1_700_000_010_000)),
        ("rotated", |half| drop(half.secrets.rotate(&SecretName::parse("s-0").unwrap(), b"another", None, half.clock.unix()).unwrap())),
        ("revoked", |half| drop(half.secrets.revoke(&SecretName::parse("s-0").unwrap(), half.clock.unix()).unwrap())),
    ];
    for (told, change) in changes {
        let script = inspected(1).into_iter().chain(pulled(&message(r#"["hang"]"#))).chain([Step::Hold]);
        let mut bench = Bench::start(vec![open_then(script)]);
        let name = SecretName::parse("s-0").unwrap();
        bench.half.secrets.rotate(&name, b"the first", Some(expires), bench.half.clock.unix()).unwrap();
        let changed = async {
            bench.half.scripted.begun().await;
            change(&bench.half);
            bench.half.scripted.go_on.notify_one();
        };
        let (step, ()) = tokio::join!(bench.triggers.step(&bench.half.manager), changed);
        let left = StepEnd::Unsettled(Unsettled::CredentialChanged);
        assert!(matches!(step, StepOutcome::Reported(step) if step.end == left && step.handed.is_some()), "{told}: {step:?}");
        bench.peer.until_client_ended(0).await;
        assert_eq!((bench.count(b"PUB $JS.ACK."), bench.monitor.snapshot().unsettled), (0, 1), "{told}");
        bench.half.assert_nothing_is_held();
    }
}

/// A place of the pools, the node or both that is full.
struct Full {
    settings: PoolSettings,
    limits: NodeLimits,
}

impl Full {
    fn bench(self) -> (Half, FakePeer) {
        (Half::new(self.settings, self.limits), FakePeer::start_cleartext(INFO))
    }
}

/// T-034: exactly what the formula says is charged for the visit, and the connection apart from it.
#[tokio::test]
async fn a_visit_is_charged_exactly_and_without_room_for_it_nothing_is_asked() {
    let bytes_max = limits::POOL_BYTES.min;
    let ceiling = 1_024;
    let visit = 65_536 + 2 * ceiling;
    let connection = limits::CONNECTION_BYTES.default;
    // What somebody else leaves: a byte too few for the visit, enough for it and a byte too few for its connection, enough.
    for (left, dials) in [(visit - 1, false), (visit + connection - 1, false), (visit + connection, true)] {
        let full = Full { settings: PoolSettings::default().set(&limits::POOL_BYTES, bytes_max).unwrap(), limits: small_node() };
        let (half, _) = full.bench();
        let peer = FakePeer::start(&ca().issue(SERVER_NAME), vec![open_then(inspected(0).into_iter().chain([Step::Hold]))]);
        let other = taken(&half.pools.pools, bytes_max - left).await;
        let bindings = Some(vec![BindingDraft { payload_ceiling_bytes: Some(ceiling), ..binding("shop", "a") }]);
        let (mut triggers, monitor) = half.install_all(at(TriggerDraft { bindings, ..draft() }, peer.address()));
        let step = triggers.step(&half.manager).await;
        if dials {
            assert_eq!(step, StepOutcome::Idle { binding: 0 });
        } else {
            assert!(matches!(step, StepOutcome::Reported(step) if step.end == StepEnd::Failed(StepFault::PoolFull)), "{left}: {step:?}");
            assert_eq!(monitor.bindings()[0].state, TriggerState::Saturated);
        }
        assert_eq!(peer.accepted(), usize::from(dials), "{left}");
        triggers.close_idle();
        drop(other);
        half.assert_nothing_is_held();
    }
}

/// Calls of somebody else that hold so many bytes.
async fn taken(pools: &ProviderPools<crate::Connection>, bytes: u64) -> impl Sized {
    let of = ProviderId::parse("other").unwrap();
    let registration = pools.register(&of, Epoch(1), &[TenantId::parse("t0").unwrap()], 0, 1).unwrap();
    let overhead = limits::CALL_SCRATCH_BYTES.default + limits::CONNECTION_BYTES.default;
    let lease = registration.call(0, bytes - overhead).unwrap().await.unwrap();
    assert_eq!(pools.snapshot().bytes, bytes);
    (lease, registration)
}

/// T-035, T-056: each quota by itself. Nobody is dialled, what was taken already is back, and with room again the message is handled.
#[tokio::test]
async fn without_room_nothing_is_asked_and_with_room_again_it_goes_on() {
    let handled = || open_then([inspected(1), pulled(&message(r#"["ok"]"#)), settled("+ACK")].into_iter().flatten().chain([Step::Hold]));
    // The node's slots are all reserved.
    let mut bench = Bench::start(vec![handled()]);
    let target = bench.triggers.config().bindings()[0].target().clone();
    let mut held = Vec::new();
    while let Ok(reservation) = bench.half.manager.reserve_inbound(&target) {
        held.push(reservation);
    }
    assert_eq!(bench.fault().await, StepFault::Overloaded);
    assert_eq!((bench.peer.accepted(), bench.half.pools.pools.snapshot().bytes), (0, 0));
    assert_eq!((bench.monitor.snapshot().refused, bench.monitor.snapshot().failed), (1, 0));
    drop(held);
    assert!(matches!(bench.reported().await.end, StepEnd::Settled { .. }));

    // Every connection of the tenant is in use: the reservation goes back while the turn passes on.
    let settings = [(&limits::POOL_CONNECTIONS_PER_TENANT, 1), (&limits::POOL_CALLS_RUNNING, 1), (&limits::POOL_CALLS_QUEUED, 1)];
    for (limit, value) in settings {
        let half = Half::new(PoolSettings::default().set(limit, value).unwrap(), small_node());
        let peer = FakePeer::start(&ca().issue(SERVER_NAME), vec![handled()]);
        let bindings = Some(vec![binding("shop", "a")]);
        let (mut triggers, _monitor) = half.install_all(at(TriggerDraft { bindings, ..draft() }, peer.address()));
        let other =
            half.pools.pools.register(&ProviderId::parse("other").unwrap(), Epoch(1), &[TenantId::parse("shop").unwrap()], 0, 1).unwrap();
        let lease = other.call(0, 0).unwrap().await.unwrap();
        // Queued calls wait behind a full pool only.
        let waits = (limit.name == limits::POOL_CALLS_QUEUED.name).then(|| {
            let more: Vec<_> = (0..limits::POOL_CONNECTIONS_PER_TENANT.default - 1).map(|_| other.call(0, 0).unwrap()).collect();
            more
        });
        let mut leases = Vec::new();
        for call in waits.into_iter().flatten() {
            leases.push(call.await.unwrap());
        }
        let waiting = (limit.name == limits::POOL_CALLS_QUEUED.name).then(|| other.call(0, 0).unwrap());
        let step = triggers.step(&half.manager).await;
        assert!(
            matches!(step, StepOutcome::Reported(step) if step.end == StepEnd::Failed(StepFault::PoolFull)),
            "{}: {step:?}",
            limit.name
        );
        assert_eq!(half.manager.snapshot().node.held(), 0, "{}", limit.name);
        assert_eq!(peer.accepted(), 0, "{}", limit.name);
        drop((lease, leases, waiting));
        let step = triggers.step(&half.manager).await;
        assert!(matches!(step, StepOutcome::Reported(step) if matches!(step.end, StepEnd::Settled { .. })), "{}: {step:?}", limit.name);
    }
}
