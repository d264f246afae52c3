//! Messages that come again: after their delay, after their last run, after a node that stopped or died, and those that come no more
//! (T-046 to T-048, T-052, BUG-35, BUG-37, BUG-43).

use std::sync::Arc;

use latent_nats::triggers::{LastStep, StepEnd, TriggerState};
use latent_node::delivery::{Confirmation, Handed, TerminationReason, Unsettled, VisitSettlement};
use latent_testkit::broker::Broker;
use latent_testkit::proxy::{At, Direction, Fault};
use latent_testkit::require_broker;
use serde_json::json;

use crate::bench::{ACKNOWLEDGED, Bench, Half, STREAM, Setup, binding_draft, consumer_settings, handed, soon_again, spec};

/// When the broker delivered last, in nanoseconds of its day.
async fn delivered_at(bench: &Bench, name: &str) -> u64 {
    let info = bench.admin.consumer(STREAM, name).await;
    let text = info["delivered"]["last_active"].as_str().unwrap().to_owned();
    let time = text.split_once('T').unwrap().1.trim_end_matches('Z');
    let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
    let seconds = whole.split(':').fold(0, |seconds, part| seconds * 60 + part.parse::<u64>().unwrap());
    seconds * 1_000_000_000 + format!("{fraction:0<9}").parse::<u64>().unwrap()
}

/// T-046, BUG-35: by the broker's own clock no delivery comes before its delay, and each is one more.
#[tokio::test]
async fn a_failed_message_comes_again_after_its_delay_and_not_before() {
    require_broker!();
    let delays = [100_u64, 101, 1_500];
    let bindings = [("shop", "d100"), ("shop", "d101"), ("bank", "d1500")];
    let mut setup = Setup::of(&bindings);
    setup.change = |binding| {
        binding.nak_delay_millis = Some(binding.id.as_ref().unwrap()[1..].parse().unwrap());
        // Beyond every delay, so that what comes again comes for that.
        binding.ack_wait_millis = Some(20_000);
    };
    let (mut bench, proxy) = Bench::behind_proxy(setup).await;
    for (_, name) in bindings {
        bench.publish(name, r#"["trap"]"#).await;
    }
    let mut last: [Option<(u64, u64)>; 3] = [None; 3];
    for _ in 0..9 {
        let step = bench.step_until_handed().await;
        let (binding, handed) = (step.binding, step.handed.unwrap());
        let at = delivered_at(&bench, bindings[binding].1).await;
        let settlement = match handed.delivery {
            3 => VisitSettlement::Terminate(TerminationReason::Exhausted),
            _ => VisitSettlement::RetryAfter { millis: delays[binding] },
        };
        assert_eq!(step.end, StepEnd::Settled { settlement, confirmation: Confirmation::Confirmed });
        if let Some((before, delivery)) = last[binding].replace((at, handed.delivery)) {
            assert_eq!(handed.delivery, delivery + 1);
            // Over midnight it begins anew.
            assert!(at < before || at - before >= delays[binding] * 1_000_000, "{binding}: {before} {at}");
        }
    }
    let said: Vec<u8> = (0..2).flat_map(|connection| proxy.transcript_of(connection, Direction::ToBroker)).collect();
    let said = String::from_utf8_lossy(&said).into_owned();
    for delay in delays {
        assert_eq!(said.matches(&format!("-NAK {{\"delay\":{delay}000000}}\r\n")).count(), 2, "{delay}");
    }
}

/// T-047, BUG-37 (a), (d): as many runs as deliveries, then no more.
#[tokio::test]
async fn a_message_that_fails_to_its_last_delivery_is_terminated_as_exhausted() {
    require_broker!();
    let mut setup = Setup::of(&[("shop", "m1"), ("shop", "m3")]);
    setup.change = |binding| binding.max_deliver = Some(binding.id.as_ref().unwrap()[1..].parse().unwrap());
    let mut bench = Bench::start(setup).await;
    for name in ["m1", "m3"] {
        bench.publish(name, r#"["trap"]"#).await;
        bench.publish(name, r#"["ok"]"#).await;
    }
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.acknowledged == 2).await;
    bench.stop(driver).await;
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.exhausted, snapshot.delayed, snapshot.delivered), (2, 2, 6));
    let traps = bench.half.scripted.runs().iter().filter(|run| run.contains("trap")).count();
    assert_eq!(traps, 1 + 3);
    for name in ["m1", "m3"] {
        let info = bench.admin.consumer(STREAM, name).await;
        assert_eq!((&info["num_ack_pending"], &info["num_redelivered"], &info["num_pending"]), (&json!(0), &json!(0), &json!(0)));
    }
    assert_eq!(snapshot.stranded, 0);
}

/// T-052, BUG-37 (b), (e): the node ends within the last delivery. Nothing is claimed; the broker and the binding show it, and the next
/// message is handled.
#[tokio::test]
async fn a_message_whose_last_delivery_nobody_settled_is_told_as_stranded() {
    require_broker!();
    let setup = || Setup {
        change: |binding| {
            binding.max_deliver = Some(1);
            soon_again(binding);
        },
        ..Setup::default()
    };
    let mut bench = Bench::start(setup()).await;
    bench.publish("one", r#"["hang"]"#).await;
    let driver = bench.drive();
    bench.half.scripted.until_runs(1).await;
    driver.kill().await;
    bench.begin_anew(&setup());
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.stranded == 1).await;
    let reported = || std::future::ready((bench.monitor.bindings()[0].state == TriggerState::Stranded).then_some(()));
    latent_testkit::until_some("its state", reported).await;
    let info = bench.admin.consumer(STREAM, "one").await;
    assert_eq!(
        (&info["num_ack_pending"], &info["ack_floor"]["stream_seq"], &info["delivered"]["stream_seq"]),
        (&json!(0), &json!(0), &json!(1))
    );
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.delivered, snapshot.exhausted, bench.monitor.last_step()), (0, 0, None), "nothing is claimed");
    bench.publish("one", r#"["ok"]"#).await;
    bench.until(|snapshot| snapshot.acknowledged == 1).await;
    bench.stop(driver).await;
    assert_eq!(bench.half.scripted.runs(), [r#"["ok"]"#]);
    assert_eq!(bench.admin.count(STREAM).await, 2, "it is still in the stream");
    assert_eq!(bench.monitor.snapshot().stranded, 1, "told once");
}

/// BUG-37 (c): the broker never gets the last termination.
#[tokio::test]
async fn a_last_termination_that_is_swallowed_is_uncertain_and_not_repeated() {
    require_broker!();
    let setup = Setup {
        change: |binding| {
            binding.max_deliver = Some(1);
            soon_again(binding);
        },
        ..Setup::default()
    };
    let (mut bench, proxy) = Bench::behind_proxy(setup).await;
    proxy.inject(None, Direction::ToBroker, At::Before(b"PUB $JS.ACK.".to_vec()), Fault::Cut);
    bench.publish("one", r#"["trap"]"#).await;
    let step = bench.step_until_handed().await;
    let settlement = VisitSettlement::Terminate(TerminationReason::Exhausted);
    assert_eq!(step.end, StepEnd::Settled { settlement, confirmation: Confirmation::Uncertain });
    bench.publish("one", r#"["ok"]"#).await;
    let step = bench.step_until_handed().await;
    assert_eq!((step.end, step.handed), (ACKNOWLEDGED, Some(Handed { sequence: 2, delivery: 1 })));
    assert_eq!(bench.half.scripted.runs().len(), 2, "its last delivery was its last run");
}

/// T-048, T-060: an operator stops while a message is executed and while one is pending; both come again, and neither was settled.
#[tokio::test]
async fn what_runs_when_an_operator_stops_comes_again() {
    require_broker!();
    let mut bench = Bench::start(Setup { change: soon_again, ..Setup::default() }).await;
    bench.publish("one", r#"["hang"]"#).await;
    bench.publish("one", r#"["ok"]"#).await;
    let driver = bench.drive();
    bench.half.scripted.until_runs(1).await;
    bench.stop(driver).await;
    assert_eq!(bench.monitor.last_step().unwrap().end, StepEnd::Unsettled(Unsettled::Stopped));
    assert_eq!(bench.backlog("one").await, (1, 1));
    let entry = bench.half.manager.journal_newest(1)[0].clone();
    assert_eq!(entry.ended.kind, "cancelled");
    bench.half.scripted.go_on();
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.acknowledged == 2).await;
    bench.stop(driver).await;
    assert_eq!(bench.half.scripted.runs(), [r#"["hang"]"#, r#"["hang"]"#, r#"["ok"]"#]);
    assert_eq!(bench.backlog("one").await, (0, 0));
}

/// T-048, T-060: the broker has handed a message out and the node has not read it yet when it stops. Nothing ran, nothing is settled or held,
/// and the message comes again.
#[tokio::test]
async fn a_message_under_way_when_an_operator_stops_comes_again() {
    require_broker!();
    let (mut bench, proxy) = Bench::behind_proxy(Setup { change: soon_again, ..Setup::default() }).await;
    bench.publish("one", r#"["ok"]"#).await;
    let held = proxy.withhold_from(Direction::ToClient, b" $JS.ACK.IN.one.");
    let driver = bench.drive();
    held.reached().await;
    bench.until_backlog("one", (0, 1)).await;
    bench.stop(driver).await;
    assert_eq!((bench.half.scripted.runs().len(), bench.monitor.last_step()), (0, None));
    assert!(!String::from_utf8_lossy(&proxy.transcript(Direction::ToBroker)).contains("PUB $JS.ACK."), "nothing is settled");
    proxy.release();
    let step = bench.step_until_handed().await;
    assert_eq!((step.end, step.handed), (ACKNOWLEDGED, Some(Handed { sequence: 1, delivery: 2 })));
}

/// BUG-43, T-051: nodes that die within a run, again and again: nothing leaves its stream before its function returned, nothing is lost.
#[tokio::test]
async fn nodes_that_die_within_a_run_lose_nothing() {
    require_broker!();
    const NODES: usize = 8;
    const KILLS: usize = 2;
    let names: Vec<String> = (0..NODES).map(|node| format!("n{node}")).collect();
    let bindings: Vec<(&'static str, &str)> = names.iter().map(|name| ("shop", name.as_str())).collect();
    let broker = Arc::new(Broker::start(spec(&bindings)));
    let admin = Arc::new(broker.admin().await);
    let nodes = names.iter().cloned().map(|name| {
        let (broker, admin) = (Arc::clone(&broker), Arc::clone(&admin));
        async move {
            let mut binding = binding_draft("shop", &name);
            soon_again(&mut binding);
            binding.max_deliver = Some(16);
            admin.add_consumer(STREAM, &consumer_settings(&binding)).await;
            let draft = crate::bench::draft_of(&broker, broker.address(), vec![binding]);
            admin.store(&crate::bench::subject(&name), br#"["hang"]"#).await;
            let mut runs = 0;
            for life in 0..=KILLS {
                let setup = Setup::default();
                let half = Half::new(setup.settings, setup.limits);
                let (mut triggers, _monitor) = half.install(&draft, 1, None);
                if life < KILLS {
                    let scripted = Arc::clone(&half.scripted);
                    tokio::select! {
                        () = async { loop { let _ = triggers.step(&half.manager).await; } } => {}
                        () = scripted.until_runs(1) => {}
                    }
                    runs += half.scripted.runs().len();
                    assert_eq!(admin.consumer(STREAM, &name).await["num_ack_pending"], 1, "{name}");
                } else {
                    half.scripted.go_on();
                    let LastStep { end, handed, .. } = handed(&mut triggers, &half.manager).await;
                    assert!(end == ACKNOWLEDGED && handed.unwrap().delivery > KILLS as u64, "{end:?} {handed:?}");
                    runs += half.scripted.runs().len();
                }
            }
            assert!(runs > KILLS, "{name} ran {runs} times");
            assert_eq!(admin.consumer(STREAM, &name).await["num_ack_pending"], 0, "{name}");
        }
    });
    let nodes: Vec<_> = nodes.map(tokio::spawn).collect();
    for node in nodes {
        node.await.unwrap();
    }
}

/// BUG-37 (b): with another message behind it, the broker passes the one over in the very pull that brings the next, and forgets it with the
/// next acknowledgement. It is told all the same.
#[tokio::test]
async fn a_message_that_the_broker_passes_over_is_told_with_its_sequence() {
    require_broker!();
    let setup = || Setup {
        change: |binding| {
            binding.max_deliver = Some(1);
            soon_again(binding);
        },
        ..Setup::default()
    };
    let mut bench = Bench::start(setup()).await;
    for payload in [r#"["hang"]"#, r#"["ok"]"#, r#"["ok"]"#] {
        bench.publish("one", payload).await;
    }
    let driver = bench.drive();
    bench.half.scripted.until_runs(1).await;
    driver.kill().await;
    bench.begin_anew(&setup());
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.acknowledged == 2).await;
    bench.stop(driver).await;
    let info = bench.admin.consumer(STREAM, "one").await;
    assert_eq!(info["ack_floor"]["stream_seq"], 3, "the broker tells nothing of it any more");
    assert_eq!((bench.monitor.snapshot().stranded, bench.monitor.bindings()[0].stranded_at), (1, Some(1)));
    assert_eq!(bench.admin.count(STREAM).await, 3, "it is still in the stream");
}
