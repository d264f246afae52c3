//! Settlements that do not get through, credentials and connections that change while a function runs, and two nodes on one consumer
//! (T-049 to T-051, X-012, BUG-28, BUG-38, BUG-39).

use std::sync::Arc;
use std::time::Duration;

use latent_core::Clock as _;
use latent_nats::triggers::{StepEnd, StepFault, StepOutcome};
use latent_node::delivery::{Confirmation, TerminationReason, Unsettled, VisitSettlement};
use latent_secrets::SecretName;
use latent_testkit::broker::BrokerAuth;
use latent_testkit::proxy::{At, Direction, Fault};
use latent_testkit::require_broker;

use crate::bench::{ACKNOWLEDGED, Bench, Half, STREAM, Setup, handed, soon_again};

const VERBS: [(&str, &str, VisitSettlement); 3] = [
    (r#"["ok"]"#, "+ACK\r\n", VisitSettlement::Acknowledge),
    (r#"["trap"]"#, "-NAK {\"delay\":100000000}\r\n", VisitSettlement::RetryAfter { millis: 100 }),
    (r#"["fail"]"#, "+TERM\r\n", VisitSettlement::Terminate(TerminationReason::Rejected)),
];

fn uncertain(settlement: VisitSettlement) -> StepEnd {
    StepEnd::Settled { settlement, confirmation: Confirmation::Uncertain }
}

/// T-050, BUG-39: the command never arrives (a), or its receipt does not (b). Either way it is uncertain and written once; the broker alone
/// decides whether the message comes again.
#[tokio::test]
async fn a_lost_command_and_a_lost_receipt_are_uncertain_and_only_the_first_brings_the_message_again() {
    require_broker!();
    let names: Vec<String> = (0..VERBS.len()).map(|verb| format!("v{verb}")).collect();
    let bindings: Vec<(&'static str, &str)> = names.iter().map(|name| ("shop", name.as_str())).collect();
    for is_command_lost in [true, false] {
        let (mut bench, proxy) = Bench::behind_proxy(Setup { change: soon_again, ..Setup::of(&bindings) }).await;
        for (name, (payload, command, settlement)) in names.iter().zip(VERBS) {
            if is_command_lost {
                proxy.inject(None, Direction::ToBroker, At::Before(format!("PUB $JS.ACK.{STREAM}.{name}.").into()), Fault::Cut);
            } else {
                proxy.inject(None, Direction::ToBroker, At::After(command.into()), Fault::CutClientSide);
            }
            bench.publish(name, payload).await;
            let step = bench.step_until_handed().await;
            assert_eq!(step.end, uncertain(settlement), "{name} {is_command_lost}");
            if !is_command_lost {
                let expected = if settlement == VERBS[1].2 { (0, 1) } else { (0, 0) };
                bench.until_backlog(name, expected).await;
            }
        }
        assert_eq!(bench.monitor.snapshot().uncertain, 3);
        let said: Vec<u8> = (0..proxy.connections()).flat_map(|number| proxy.transcript_of(number, Direction::ToBroker)).collect();
        let commands = String::from_utf8_lossy(&said).matches("PUB $JS.ACK.").count();
        assert_eq!(commands, if is_command_lost { 0 } else { 3 }, "no replay");
        // (a): all three come again and run again. (b): only what was put off.
        let again = if is_command_lost { vec![0, 1, 2] } else { vec![1] };
        let driver = bench.drive();
        let ran = |payload: &str| bench.half.scripted.runs().iter().filter(|run| *run == payload).count();
        let all_ran = || std::future::ready(again.iter().all(|verb| ran(VERBS[*verb].0) >= 2).then_some(()));
        latent_testkit::until_some("what comes again runs again", all_ran).await;
        for (verb, (payload, ..)) in VERBS.into_iter().enumerate() {
            assert!(again.contains(&verb) || ran(payload) == 1, "{payload} ran {} times: {is_command_lost}", ran(payload));
        }
        bench.stop(driver).await;
    }
}

/// T-063, T-046: a function that runs to the end of its time leaves the time to say so.
#[tokio::test]
async fn a_function_that_runs_out_of_time_is_put_off_within_the_margin() {
    require_broker!();
    let change = |binding: &mut latent_nats::triggers::BindingDraft| {
        binding.operation_timeout_millis = Some(1_000);
        binding.budget.as_mut().unwrap().wall_time_millis = Some(1_000);
    };
    let mut bench = Bench::start(Setup { change, ..Setup::default() }).await;
    bench.publish("one", r#"["hang"]"#).await;
    let step = bench.step_until_reported().await;
    let settlement = VisitSettlement::RetryAfter { millis: 100 };
    assert_eq!(step.end, StepEnd::Settled { settlement, confirmation: Confirmation::Confirmed });
    let run = &bench.half.scripted.seen()[0];
    assert!(run.left.as_millis() <= 900, "a tenth is kept: {:?}", run.left);
    assert_eq!(bench.half.manager.journal_entry(run.activation).unwrap().ended.kind, "timeout");
    bench.half.scripted.go_on();
    let step = bench.step_until_reported().await;
    assert_eq!((step.end, step.handed.unwrap().delivery), (ACKNOWLEDGED, 2));
}

/// X-012, T-051: the credential changes while the function runs, at the broker as well. The delivery is left, comes again on a connection with the
/// new one, and nothing is lost.
#[tokio::test]
async fn a_credential_rotated_while_the_function_runs_leaves_the_delivery_and_loses_nothing() {
    require_broker!();
    let mut bench = Bench::start(Setup { change: soon_again, ..Setup::default() }).await;
    bench.publish("one", r#"["hang"]"#).await;
    let driver = bench.drive();
    bench.half.scripted.until_runs(1).await;
    let name = SecretName::parse("shop").unwrap();
    bench.half.secrets.rotate(&name, b"another", None, bench.half.clock.unix()).unwrap();
    bench.broker.reload(|spec| {
        let BrokerAuth::Users(users) = &mut spec.auth else { panic!("users") };
        users.iter_mut().filter(|user| user.name == "shop").for_each(|user| user.password = "another".to_owned());
    });
    bench.half.scripted.go_on();
    let left = bench.until_step(|step| step.handed.is_some()).await;
    assert_eq!(left.end, StepEnd::Unsettled(Unsettled::CredentialChanged));
    bench.half.scripted.go_on();
    bench.until(|snapshot| snapshot.acknowledged == 1).await;
    bench.stop(driver).await;
    assert_eq!(bench.half.scripted.runs().len(), 2, "at least once");
    assert_eq!((bench.monitor.snapshot().connected, bench.backlog("one").await), (2, (0, 0)));
}

/// A credential that is revoked, here and at the broker, is a state that can be read; with another one it goes on by itself.
#[tokio::test]
async fn a_revoked_credential_is_told_and_another_one_goes_on_by_itself() {
    require_broker!();
    let mut setup = Setup::of(&[("shop", "one"), ("bank", "two")]);
    setup.settings = setup.settings.set(&latent_capabilities::limits::DIAL_BACKOFF_MAX_MILLIS, 100).unwrap();
    let mut bench = Bench::start(setup).await;
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.connected == 2).await;
    let password = |bench: &Bench, to: &str| {
        bench.broker.reload(|spec| {
            let BrokerAuth::Users(users) = &mut spec.auth else { panic!("users") };
            users.iter_mut().filter(|user| user.name == "shop").for_each(|user| user.password = to.to_owned());
        });
    };
    // Only the broker knows another one.
    password(&bench, "another");
    bench.publish("one", r#"["ok"]"#).await;
    bench.until_step(|step| step.end == StepEnd::Failed(StepFault::AuthenticationRefused)).await;
    // Nobody does any more.
    let name = SecretName::parse("shop").unwrap();
    bench.half.secrets.rotate(&name, b"another", None, bench.half.clock.unix()).unwrap();
    bench.until(|snapshot| snapshot.acknowledged == 1).await;
    bench.half.secrets.revoke(&name, bench.half.clock.unix()).unwrap();
    bench.publish("one", r#"["ok"]"#).await;
    bench.until_step(|step| step.end == StepEnd::Failed(StepFault::Credential)).await;
    for number in 2..5 {
        bench.publish("two", r#"["ok"]"#).await;
        bench.until(|snapshot| snapshot.acknowledged == number).await;
    }
    bench.stop(driver).await;
    assert_eq!(bench.backlog("one").await, (1, 0), "the message stays");
}

/// BUG-28, T-049: a broker that pings every second and gives up after two, and a function that runs nine. What is reported is what the broker
/// knows.
#[tokio::test]
async fn a_connection_that_died_while_the_function_ran_acknowledges_nothing() {
    require_broker!();
    for (ping_max, answers) in [(1, false), (20, true)] {
        let mut setup = Setup::default();
        setup.spec.ping_interval = Some(Duration::from_secs(1));
        setup.spec.ping_max = Some(ping_max);
        setup.change = |binding| {
            (binding.operation_timeout_millis, binding.ack_wait_millis) = (Some(10_000), Some(11_000));
            binding.budget.as_mut().unwrap().wall_time_millis = Some(9_000);
        };
        let mut bench = Bench::start(setup).await;
        bench.publish("one", r#"["hang"]"#).await;
        let driver = bench.drive();
        bench.half.scripted.until_runs(1).await;
        if answers {
            // At least two pings wait when it is settled.
            let pinged = || std::future::ready((bench.half.clock.mono().as_micros() > 2_500_000).then_some(()));
            latent_testkit::until_some("pings", pinged).await;
        } else {
            latent_testkit::wait_until("the broker gives the connection up", || bench.admin.connections_of("shop") == 0);
        }
        bench.half.scripted.go_on();
        let step = bench.until_step(|step| step.handed.is_some()).await;
        if answers {
            assert_eq!(step.end, ACKNOWLEDGED);
            assert_eq!(bench.backlog("one").await, (0, 0));
        } else {
            assert!(
                matches!(step.end, StepEnd::Settled { confirmation: Confirmation::Uncertain, .. } | StepEnd::Unsettled(Unsettled::NotSent)),
                "{step:?}"
            );
            assert_eq!((bench.backlog("one").await, bench.monitor.snapshot().acknowledged), ((0, 1), 0));
        }
        bench.stop(driver).await;
    }
}

/// BUG-38: a node that stood still for longer than the broker waits says nothing any more; what the other one settled stands.
#[tokio::test]
async fn a_node_that_stood_still_settles_nothing_behind_the_other_s_back() {
    require_broker!();
    let mut bench = Bench::start(Setup { change: soon_again, ..Setup::default() }).await;
    bench.publish("one", r#"["hang"]"#).await;
    // It stands still from the first moment of its run: its deadline passes, and its timers notice late or not at all.
    let clock = Arc::clone(&bench.half.clock);
    bench.half.scripted.at_begin(move || clock.skip(60_000));
    let (scripted, first) = (Arc::clone(&bench.half.scripted), bench.monitor.clone());
    let other = Half::new(Setup::default().settings, Setup::default().limits);
    let (mut triggers, monitor) = other.install(&bench.draft, 1, None);
    let goes_on_late = async {
        other.scripted.until_runs(1).await;
        // While it still runs there, the first one goes on.
        scripted.go_on();
        latent_testkit::until_some("the first one's end", || std::future::ready(first.last_step())).await;
        other.scripted.go_on();
    };
    let other_s = async {
        scripted.until_runs(1).await;
        handed(&mut triggers, &other.manager).await
    };
    let (step, _, ()) = tokio::join!(bench.step(), other_s, goes_on_late);
    assert!(matches!(step, StepOutcome::Reported(step) if step.end == StepEnd::Unsettled(Unsettled::TimeSpent)), "{step:?}");
    assert_eq!((first.snapshot().acknowledged, first.snapshot().uncertain), (0, 0));
    let step = monitor.last_step().unwrap();
    assert_eq!((step.end, step.handed.unwrap().delivery), (ACKNOWLEDGED, 2));
    assert_eq!(bench.backlog("one").await, (0, 0));
}

/// T-050: a broker that stands still while it is told: uncertain when the one deadline is over, and the loop goes on with the next.
#[tokio::test]
async fn a_broker_that_stands_still_leaves_it_uncertain_and_goes_on_afterwards() {
    require_broker!();
    let (mut bench, proxy) = Bench::behind_proxy(Setup { change: soon_again, ..Setup::of(&[("shop", "one"), ("bank", "two")]) }).await;
    let stalled = proxy.withhold_from(Direction::ToBroker, b"+ACK");
    bench.publish("one", r#"["ok"]"#).await;
    bench.publish("two", r#"["ok"]"#).await;
    let driver = bench.drive();
    stalled.reached().await;
    bench.until(|snapshot| snapshot.uncertain == 1).await;
    proxy.release();
    bench.until(|snapshot| snapshot.acknowledged >= 1).await;
    bench.stop(driver).await;
    assert!(!bench.broker.log().contains("Violation"));
}
