//! Many bindings at once: whose turn it is, who keeps whom waiting, what idleness costs, and brokers that go away (T-053 to T-058, T-062).

use latent_core::{Clock as _, TenantId};
use latent_nats::triggers::{StepEnd, StepFault, TriggerState};
use latent_node::RevocationScope;
use latent_testkit::broker::StreamSpec;
use latent_testkit::proxy::Direction;
use latent_testkit::{require_broker, until_some};

use crate::bench::{ACKNOWLEDGED, Bench, Half, STREAM, Setup, soon_again, spec};

/// T-053: one message of a tenant waits for at most one of each other tenant.
#[tokio::test]
async fn a_tenant_with_one_message_is_served_beside_a_flood() {
    require_broker!();
    let mut bench = Bench::start(Setup::of(&[("shop", "one"), ("shop", "three"), ("bank", "two")])).await;
    for number in 0..20 {
        bench.publish(["one", "three"][number % 2], r#"["ok","flood"]"#).await;
    }
    bench.publish("two", r#"["ok","single"]"#).await;
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.acknowledged == 21).await;
    bench.stop(driver).await;
    let runs = bench.half.scripted.seen();
    assert_eq!(runs.iter().position(|run| run.tenant == "bank"), Some(1), "within the first rotation");
    // Within the tenant its bindings alternate.
    let filters: Vec<_> =
        runs.iter().filter(|run| run.tenant == "shop").map(|run| bench.half.manager.journal_entry(run.activation)).collect();
    let principals: Vec<_> = filters.into_iter().flatten().map(|entry| entry.principal.to_string()).collect();
    assert!(principals.chunks(2).all(|pair| pair == ["trigger:one", "trigger:three"]), "{principals:?}");
}

/// T-054, BUG-31: a consumer that is not there stalls its own binding, and costs no connection.
#[tokio::test]
async fn a_binding_that_cannot_get_on_keeps_no_other_waiting() {
    require_broker!();
    let mut bench = Bench::start(Setup::of(&[("shop", "one"), ("shop", "two"), ("bank", "three")])).await;
    bench.admin.delete_consumer(STREAM, "one").await;
    let driver = bench.drive();
    for number in 1..=10 {
        bench.publish("two", r#"["ok"]"#).await;
        bench.publish("three", r#"["ok"]"#).await;
        bench.until(|snapshot| snapshot.acknowledged == 2 * number).await;
    }
    bench.until(|snapshot| snapshot.failed >= 5).await;
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.connected, snapshot.connects_failed, snapshot.unsettled), (2, 0, 0), "one connection a tenant");
    let report = &bench.monitor.bindings()[0];
    assert_eq!((report.state, report.problem.as_ref().unwrap().0), (TriggerState::Stalled, StepFault::ConsumerMissing));
    assert!(bench.admin.consumer(STREAM, "one").await["error"]["err_code"] == 10_014, "nobody makes one (T-011)");
    bench.stop(driver).await;
}

/// T-052, BUG-37: nodes that share a consumer share its messages, and what one of them settles between the other's inspection and pull is not
/// told as given up by the other.
#[tokio::test]
async fn nodes_that_share_a_consumer_tell_nothing_of_each_other_s_messages() {
    const MESSAGES: u64 = 200;
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    for _ in 0..MESSAGES {
        bench.publish("one", r#"["ok"]"#).await;
    }
    let setup = Setup::default();
    let other = Half::new(setup.settings, setup.limits);
    let (mut triggers, monitor) = other.install(&bench.draft, 1, None);
    let driver = bench.drive();
    let both = || bench.monitor.snapshot().acknowledged + monitor.snapshot().acknowledged;
    tokio::select! {
        () = async { loop { let _ = triggers.step(&other.manager).await; } } => {}
        () = until_some("every message", || std::future::ready((both() == MESSAGES).then_some(()))) => {}
    }
    let passed_over = [bench.monitor.snapshot().stranded, monitor.snapshot().stranded];
    assert_eq!((passed_over, bench.backlog("one").await), ([0, 0], (0, 0)));
    bench.stop(driver).await;
}

/// T-054: a message that another node holds makes each pull wait at the broker; that costs the others a tenth of the time, not most of it.
#[tokio::test]
async fn a_message_that_another_node_holds_keeps_no_other_waiting() {
    require_broker!();
    let setup = || Setup { change: soon_again, ..Setup::of(&[("shop", "one"), ("bank", "two")]) };
    let mut bench = Bench::start(setup()).await;
    bench.publish("one", r#"["hang"]"#).await;
    let driver = bench.drive();
    bench.half.scripted.until_runs(1).await;
    driver.kill().await;
    bench.begin_anew(&setup());
    bench.half.scripted.go_on();
    let begun = bench.half.clock.mono();
    let driver = bench.drive();
    let mut handled = 0;
    while bench.half.scripted.runs().iter().all(|run| !run.contains("hang")) {
        bench.publish("two", r#"["ok"]"#).await;
        handled += 1;
        bench.until(|snapshot| snapshot.acknowledged >= handled).await;
    }
    let took = bench.half.clock.mono().since(begun);
    bench.until(|snapshot| snapshot.acknowledged == handled + 1).await;
    bench.stop(driver).await;
    let snapshot = bench.monitor.snapshot();
    let in_vain = u128::from(snapshot.pulls - snapshot.delivered);
    assert!(in_vain >= 1 && in_vain <= 1 + took.as_millis() / 1_000, "{in_vain} pulls in {took:?}");
}

/// T-055, T-062, T-023: idleness is inspections on as many connections as there are tenants, and no pull.
#[tokio::test]
async fn two_hundred_and_fifty_six_idle_bindings_cost_two_connections_and_no_pull() {
    require_broker!();
    let names: Vec<String> = (0..256).map(|number| format!("b{number}")).collect();
    let bindings: Vec<(&'static str, &str)> = names.iter().enumerate().map(|(n, name)| (["shop", "bank"][n % 2], name.as_str())).collect();
    let (mut bench, proxy) = Bench::behind_proxy(Setup::of(&bindings)).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.inspections >= 3 * 256).await;
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.pulls, snapshot.connected, snapshot.connections, snapshot.failed, snapshot.refused), (0, 2, 2, 0, 0));
    assert_eq!((proxy.connections(), proxy.open_connections()), (2, 2));
    let said: Vec<u8> = (0..2).flat_map(|connection| proxy.transcript_of(connection, Direction::ToBroker)).collect();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("CONSUMER.INFO") && !said.contains("MSG.NEXT"), "no pull reaches the broker");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), tasks + 1);
    assert!(bench.monitor.bindings().iter().all(|report| report.state == TriggerState::Idle));
    assert_eq!((bench.half.manager.journal_reach().0, bench.half.scripted.stores()), (0, 0), "an empty poll runs nothing");
    // One of them has a message in the next round.
    bench.publish("b200", r#"["ok"]"#).await;
    bench.until(|snapshot| snapshot.acknowledged == 1).await;
    assert_eq!((bench.monitor.snapshot().pulls, bench.monitor.last_step().unwrap().binding), (1, 200));
    bench.stop(driver).await;
}

/// T-056: without room for a run nothing is asked for, and nothing is lost by it.
#[tokio::test]
async fn a_full_node_pulls_nothing_and_goes_on_when_there_is_room() {
    require_broker!();
    let mut bench = Bench::start(Setup::of(&[("shop", "one"), ("bank", "two")])).await;
    let target = bench.triggers().config().bindings()[0].target().clone();
    let mut held = Vec::new();
    while let Ok(reservation) = bench.half.manager.reserve_inbound(&target) {
        held.push(reservation);
    }
    for _ in 0..3 {
        bench.publish("one", r#"["ok"]"#).await;
    }
    bench.publish("two", r#"["ok"]"#).await;
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.refused >= 5 && snapshot.acknowledged == 1).await;
    assert_eq!((bench.backlog("one").await, bench.backlog("two").await), ((3, 0), (0, 0)), "the other tenant has its share");
    assert_eq!(bench.monitor.bindings()[0].state, TriggerState::Saturated);
    drop(held);
    bench.until(|snapshot| snapshot.acknowledged == 4).await;
    bench.stop(driver).await;
    assert_eq!(bench.half.scripted.runs().len(), 4);
}

/// T-058: a revocation for one tenant; the message stays with the broker until the tenant may be served again.
#[tokio::test]
async fn a_revocation_stops_its_own_bindings_only() {
    require_broker!();
    let mut bench = Bench::start(Setup::of(&[("shop", "one"), ("bank", "two")])).await;
    let driver = bench.drive();
    let revoked = RevocationScope::Tenant(TenantId::parse("shop").unwrap());
    bench.half.catalog.revoke(bench.half.publication, revoked).unwrap();
    for name in ["one", "two"] {
        bench.publish(name, r#"["ok"]"#).await;
    }
    bench.until(|snapshot| snapshot.acknowledged == 1).await;
    let step = bench.until_step(|step| step.binding == 0).await;
    assert_eq!(step.end, StepEnd::Failed(StepFault::Ineligible));
    assert_eq!((bench.backlog("one").await, bench.backlog("two").await), ((1, 0), (0, 0)));
    // Another publication for it: the message that waited is handled.
    let next = bench.half.catalog.add(crate::bench::publication(b"two")).unwrap();
    bench.half.catalog.point_route(crate::bench::route("shop"), next).unwrap();
    bench.until(|snapshot| snapshot.acknowledged == 2).await;
    bench.stop(driver).await;
}

/// What a broker keeps over its restarts, and a ping of its own.
fn kept(bindings: &[(&'static str, &str)]) -> Setup {
    let mut setup = Setup::of(bindings);
    setup.spec = spec(bindings).disk(64 << 20);
    setup.spec.streams = vec![StreamSpec::new(STREAM, ["in.>"]).on_disk(16 << 20)];
    setup
}

/// T-057, D-14, BUG-30: five times a lame duck, gone, and back on the same address, without a restart of the node.
#[tokio::test]
async fn a_broker_that_goes_and_comes_back_is_found_again_and_nothing_is_lost() {
    require_broker!();
    let mut setup = kept(&[("shop", "one")]);
    setup.settings = setup.settings.set(&latent_capabilities::limits::DIAL_BACKOFF_MAX_MILLIS, 100).unwrap();
    let mut bench = Bench::start(setup).await;
    let driver = bench.drive();
    for cycle in 1..=5 {
        bench.publish("one", &format!(r#"["ok",{cycle}]"#)).await;
        bench.until(|snapshot| snapshot.acknowledged >= cycle).await;
        let (connected, failures) = (bench.monitor.snapshot().connected, bench.monitor.snapshot().failed);
        if cycle % 2 == 1 {
            // From here on the broker has no JetStream any more; the connection stays. The hint itself is a control frame like any other.
            bench.broker.enter_lame_duck();
            latent_testkit::wait_until("the lame duck", || bench.broker.log().contains("lame duck"));
            bench.broker.kill();
        } else {
            bench.broker.stop();
        }
        bench.until(|snapshot| snapshot.failed > failures).await;
        assert_eq!(bench.monitor.bindings()[0].state, TriggerState::Stalled, "told apart from polling in vain");
        bench.broker.restart();
        bench.admin = bench.broker.admin().await;
        bench.until(|snapshot| snapshot.connected > connected).await;
    }
    bench.publish("one", r#"["ok",6]"#).await;
    bench.half.scripted.until_run(r#"["ok",6]"#).await;
    bench.until_backlog("one", (0, 0)).await;
    bench.stop(driver).await;
    // A broker that is killed may forget an acknowledgement, and then the message comes again (T-051).
    let mut runs = bench.half.scripted.runs();
    runs.sort();
    runs.dedup();
    assert_eq!(runs, (1..=6).map(|cycle| format!(r#"["ok",{cycle}]"#)).collect::<Vec<_>>());
}

/// T-057, D-15: a connection that the broker closed by itself is dialled anew, and messages flow on.
#[tokio::test]
async fn a_connection_that_the_broker_closed_costs_one_dial() {
    require_broker!();
    let mut bench = Bench::start(Setup::of(&[("shop", "one"), ("shop", "two")])).await;
    for name in ["one", "two", "one"] {
        bench.publish(name, r#"["ok"]"#).await;
        bench.step_until_reported().await;
    }
    assert_eq!(bench.monitor.snapshot().connected, 1, "one connection for the tenant's bindings");
    bench.admin.kick("shop").await;
    bench.publish("two", r#"["ok"]"#).await;
    assert_eq!(bench.step_until_reported().await.end, ACKNOWLEDGED);
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.connected, snapshot.parked_lost, snapshot.failed), (2, 1, 0));
}

/// BUG-55: steps of the wall clock, here and there, change nothing of what is waited for.
#[tokio::test]
async fn steps_of_the_wall_clock_change_nothing() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    let driver = bench.drive();
    for (number, moved) in [0, -3_600_000, 3_600_000, -1_900_000_000_000, 0].into_iter().enumerate() {
        bench.publish("one", r#"["hang"]"#).await;
        bench.half.scripted.until_runs(number + 1).await;
        bench.half.clock.move_wall(moved);
        bench.half.scripted.go_on();
        bench.until(|snapshot| snapshot.acknowledged == number as u64 + 1).await;
    }
    bench.stop(driver).await;
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.failed, snapshot.unsettled, snapshot.uncertain, bench.half.scripted.runs().len()), (0, 0, 0, 5));
}
