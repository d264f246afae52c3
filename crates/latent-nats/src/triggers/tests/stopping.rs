//! The stop signal, and a driver that is dropped, at every stage of a visit: nothing is settled that had not ended, and everything that was
//! held is back (T-018, T-048, T-060, X-027).

use latent_node::delivery::{Confirmation, Unsettled, VisitSettlement};
use latent_testkit::StandingTime;
use latent_testkit::fake_peer::{INFO, Step};
use tokio::sync::watch;

use super::bench::{Bench, INSPECTION, PULL, advance, inspected, message, open_then, pulled, settled};
use crate::triggers::{RunEnd, StepEnd, TriggerState};

const ACKED: &[u8] = b"\r\n+ACK\r\n";

/// Where a visit stands when somebody stops, and what the peer has got by then.
fn stages() -> Vec<(&'static str, Vec<Step>, &'static [u8])> {
    let waits = |steps: Vec<Step>| open_then(steps.into_iter().chain([Step::Hold]));
    let delivered = || inspected(1).into_iter().chain(pulled(&message(r#"["hang"]"#)));
    vec![
        ("connecting", vec![Step::send(INFO), Step::ExpectUntil(b"PING\r\n".to_vec()), Step::Hold], b"PING\r\n"),
        ("inspecting", waits(vec![Step::ServeUntil(INSPECTION.to_vec())]), INSPECTION),
        ("pulling", waits(inspected(1).into_iter().chain([Step::ServeUntil(PULL.to_vec())]).collect()), PULL),
        ("executing", waits(delivered().collect()), PULL),
    ]
}

/// T-048: pending or executing, the delivery is left; `run` returns when everything is back.
#[tokio::test]
async fn whoever_stops_settles_nothing_and_keeps_nothing() {
    for (stage, script, seen) in stages() {
        let mut bench = Bench::start(vec![script]);
        let (stop, stopped) = watch::channel(false);
        let stopping = async {
            bench.peer.until_received(0, seen).await;
            if stage == "executing" {
                bench.half.scripted.begun().await;
                assert_eq!(bench.monitor.bindings()[0].state, TriggerState::Busy);
            }
            stop.send(true).unwrap();
        };
        let (end, ()) = tokio::join!(bench.triggers.run(&bench.half.manager, stopped), stopping);
        assert_eq!(end, RunEnd::Stopped, "{stage}");
        bench.half.assert_nothing_is_held();
        bench.peer.until_client_ended(0).await;
        assert_eq!(bench.count(b"PUB $JS.ACK."), 0, "{stage}");
        assert_eq!(bench.monitor.bindings()[0].state, TriggerState::Stopped, "{stage}");
        let snapshot = bench.monitor.snapshot();
        assert_eq!((snapshot.running, snapshot.connections), (0, 0), "{stage}");
        let left = bench.monitor.last_step().map(|step| step.end);
        assert_eq!(left, (stage == "executing").then_some(StepEnd::Unsettled(Unsettled::Stopped)), "{stage}");
    }
}

/// T-048: what has ended has ended: its settlement is still sent, and its receipt waited for, for no longer than the settle margin.
#[tokio::test]
async fn a_settlement_under_way_is_finished_by_a_stop_or_uncertain() {
    for answers in [true, false] {
        let answer = if answers { vec![Step::Gate, Step::reply_message("")] } else { Vec::new() };
        let script = inspected(1).into_iter().chain(pulled(&message(r#"["ok"]"#))).chain([Step::ServeUntil(ACKED.to_vec())]);
        let mut bench = Bench::start(vec![open_then(script.chain(answer).chain([Step::Hold]))]);
        let (stop, stopped) = watch::channel(false);
        let stopping = async {
            bench.peer.until_received(0, ACKED).await;
            stop.send(true).unwrap();
            bench.peer.open_gate();
        };
        let (end, ()) = tokio::join!(bench.triggers.run(&bench.half.manager, stopped), stopping);
        assert_eq!(end, RunEnd::Stopped);
        let confirmation = if answers { Confirmation::Confirmed } else { Confirmation::Uncertain };
        let settled = StepEnd::Settled { settlement: VisitSettlement::Acknowledge, confirmation };
        assert_eq!(bench.monitor.last_step().unwrap().end, settled);
        assert_eq!(bench.count(b"PUB $JS.ACK."), 1);
        bench.half.assert_nothing_is_held();
    }
}

/// X-027: a driver that is dropped closes its socket, settles nothing, and leaves nothing that seems to run.
#[tokio::test]
async fn a_driver_that_is_dropped_closes_its_socket_and_gives_back_everything() {
    for (stage, script, seen) in stages() {
        let mut bench = Bench::start(vec![script]);
        let (_stop, stopped) = watch::channel(false);
        {
            let run = bench.triggers.run(&bench.half.manager, stopped);
            tokio::pin!(run);
            let until = async {
                bench.peer.until_received(0, seen).await;
                if stage == "executing" {
                    bench.half.scripted.begun().await;
                }
            };
            tokio::select! {
                end = &mut run => panic!("{stage}: {end:?}"),
                () = until => {}
            }
        }
        bench.peer.until_client_ended(0).await;
        assert_eq!((bench.count(b"PUB $JS.ACK."), bench.monitor.snapshot().connections), (0, 0), "{stage}");
        assert_eq!(bench.monitor.bindings()[0].state, TriggerState::Stopped, "{stage}");
        // An activation that was begun ends by itself.
        bench.half.scripted.go_on.notify_one();
        while bench.half.manager.snapshot().node.held() > 0 {
            tokio::task::yield_now().await;
        }
        bench.half.assert_nothing_is_held();
    }
}

/// T-018: a sender that is gone cannot say go on, and a stop that was given before begins nothing.
#[tokio::test]
async fn a_stop_that_is_there_already_begins_nothing() {
    let mut bench = Bench::start(vec![vec![Step::Hold]]);
    let (stop, stopped) = watch::channel(true);
    assert_eq!(bench.triggers.run(&bench.half.manager, stopped).await, RunEnd::Stopped);
    let gone = stop.subscribe();
    stop.send(false).unwrap();
    drop(stop);
    assert_eq!(bench.triggers.run(&bench.half.manager, gone).await, RunEnd::Stopped);
    assert_eq!((bench.peer.accepted(), bench.monitor.snapshot().visits), (0, 0));
}

/// The pools' shutdown ends the loop, too (D-14), and closes what is parked (T-017).
#[tokio::test]
async fn the_shutdown_of_the_pools_ends_the_loop() {
    let mut bench = Bench::start(vec![open_then((0..1_000).flat_map(|_| inspected(0)).chain([Step::Hold]))]);
    let (_stop, stopped) = watch::channel(false);
    let shut = async {
        bench.peer.until_received(0, INSPECTION).await;
        bench.half.pools.pools.shut_down();
    };
    let (end, ()) = tokio::join!(bench.triggers.run(&bench.half.manager, stopped), shut);
    assert_eq!(end, RunEnd::Retired);
    bench.half.assert_nothing_is_held();
}

/// D-13, T-028: while there is work there is no rest, and after a rotation that found nothing there is one of the interval, of one timer.
#[tokio::test(start_paused = true)]
async fn a_rest_comes_after_a_rotation_that_found_nothing_and_not_before() {
    let _standing = StandingTime::hold();
    let work = (0..3).flat_map(|_| [inspected(1), pulled(&message(r#"["ok"]"#)), settled("+ACK")]);
    let script = work.flatten().chain((0..10).flat_map(|_| inspected(0))).chain([Step::Hold]);
    let mut bench = Bench::start(vec![open_then(script)]);
    let monitor = bench.monitor.clone();
    let (stop, stopped) = watch::channel(false);
    let interval = bench.triggers.config().poll_interval_millis();
    let until = async |visits: u64| {
        while monitor.snapshot().inspections < visits {
            tokio::task::yield_now().await;
        }
    };
    let time = async {
        // Time stands: three messages and the visit that finds nothing.
        until(4).await;
        assert_eq!(monitor.snapshot().acknowledged, 3);
        for visits in 5..8 {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            assert_eq!(monitor.snapshot().visits, visits - 1, "it rests");
            advance(interval).await;
            until(visits).await;
        }
        stop.send(true).unwrap();
    };
    let (end, ()) = tokio::join!(bench.triggers.run(&bench.half.manager, stopped), time);
    assert_eq!(end, RunEnd::Stopped);
}
