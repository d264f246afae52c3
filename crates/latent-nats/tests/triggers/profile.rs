//! The consumer as the broker has it: every setting that is not as the profile needs it, consumers and streams that go away, and pulls that
//! bring nothing (T-011, T-037 to T-041).

use latent_nats::triggers::{StepEnd, StepFault, StepOutcome, TriggerState};
use latent_nats_proto::Evidence;
use latent_nats_proto::triggers::{ProfileField, PullStatus};
use latent_node::delivery::{Confirmation, VisitSettlement};
use latent_testkit::broker::{BrokerUser, StreamSpec};
use latent_testkit::proxy::Direction;
use latent_testkit::require_broker;
use serde_json::{Value, json};

use crate::bench::{ACKNOWLEDGED, Bench, STREAM, Setup, consumer_settings, password, soon_again};

const MISSING_CONSUMER: StepEnd = StepEnd::Failed(StepFault::ConsumerMissing);

/// T-037 to T-039, BUG-41: one consumer for each setting, wrong in that alone.
#[tokio::test]
async fn each_setting_that_is_not_as_it_must_be_is_told_with_both_values_and_nothing_is_pulled() {
    require_broker!();
    let table: Vec<(&str, Value, ProfileField, &str, &str)> = vec![
        ("filter_subject", json!("in.other"), ProfileField::FilterSubject, "in.b0", "in.other"),
        ("filter_subject", json!("in.>"), ProfileField::FilterSubject, "in.b1", "in.>"),
        ("filter_subject", Value::Null, ProfileField::FilterSubject, "in.b2", "absent"),
        ("ack_policy", json!("all"), ProfileField::AckPolicy, "explicit", "all"),
        ("ack_policy", json!("none"), ProfileField::AckPolicy, "explicit", "none"),
        ("replay_policy", json!("original"), ProfileField::ReplayPolicy, "instant", "original"),
        ("deliver_policy", json!("new"), ProfileField::DeliverPolicy, "all", "new"),
        ("max_waiting", json!(512), ProfileField::MaxWaiting, "1", "512"),
        ("max_ack_pending", json!(2), ProfileField::MaxAckPending, "1", "2"),
        ("max_batch", json!(2), ProfileField::MaxBatch, "1", "2"),
        ("max_batch", json!(0), ProfileField::MaxBatch, "1", "absent"),
        ("max_expires", json!(100_000_001), ProfileField::MaxExpires, "100000000", "100000001"),
        ("max_bytes", json!(10_241), ProfileField::MaxBytes, "10240", "10241"),
        ("ack_wait", json!(6_001_000_000_u64), ProfileField::AckWait, "6000000000", "6001000000"),
        ("max_deliver", json!(2), ProfileField::MaxDeliver, "3", "2"),
        ("max_deliver", json!(4), ProfileField::MaxDeliver, "3", "4"),
        ("max_deliver", json!(-1), ProfileField::MaxDeliver, "3", "-1"),
        ("headers_only", json!(true), ProfileField::HeadersOnly, "absent", "true"),
        ("backoff", json!([1_000_000_000_u64, 6_000_000_000_u64]), ProfileField::Backoff, "absent", "a list"),
        ("inactive_threshold", json!(60_000_000_000_u64), ProfileField::InactiveThreshold, "absent", "60000000000"),
        ("priority_groups", json!(["a"]), ProfileField::PriorityGroups, "absent", "a list"),
        ("filter_subjects", json!(["in.b21", "in.other"]), ProfileField::FilterSubjects, "absent", "a list"),
        ("deliver_subject", json!("somewhere"), ProfileField::DeliverSubject, "absent", "somewhere"),
        ("flow_control", json!(true), ProfileField::FlowControl, "absent", "true"),
    ];
    let names: Vec<String> = (0..table.len()).map(|number| format!("b{number}")).collect();
    let bindings: Vec<(&'static str, &str)> = names.iter().map(|name| ("shop", name.as_str())).collect();
    let mut bench = Bench::start(Setup::of(&bindings)).await;
    let drafts = bench.draft.bindings.clone().unwrap();
    for ((name, draft), (setting, value, ..)) in names.iter().zip(&drafts).zip(&table) {
        bench.admin.delete_consumer(STREAM, name).await;
        bench.publish(name, r#"["ok"]"#).await;
        let mut settings = consumer_settings(draft);
        let object = settings.as_object_mut().unwrap();
        object.insert((*setting).to_owned(), value.clone());
        // What the broker itself wants beside it.
        match *setting {
            "filter_subjects" => drop(object.remove("filter_subject")),
            "ack_policy" if *value == json!("none") => {
                object.retain(|name, _| !matches!(name.as_str(), "max_deliver" | "ack_wait" | "max_ack_pending"))
            }
            "priority_groups" => drop(object.insert("priority_policy".to_owned(), json!("overflow"))),
            "deliver_subject" | "flow_control" => {
                object.retain(|name, _| !name.starts_with("max_") || name == "max_deliver" || name == "max_ack_pending");
                object.insert("deliver_subject".to_owned(), json!("somewhere"));
                if *setting == "flow_control" {
                    object.insert("idle_heartbeat".to_owned(), json!(5_000_000_000_u64));
                }
            }
            "backoff" => drop(object.remove("ack_wait")),
            _ => (),
        }
        bench.admin.add_consumer(STREAM, &settings).await;
    }
    for (binding, (setting, _, field, required, found)) in table.iter().enumerate() {
        assert_eq!(bench.fault().await, StepFault::Mismatch(*field), "{setting}");
        let report = &bench.monitor.bindings()[binding];
        let (_, why) = report.problem.clone().unwrap();
        assert!(why.contains(&format!("{} is {found} and must be {required}", field.name())), "{setting}: {why}");
        assert_eq!(report.state, TriggerState::Stalled);
    }
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.pulls, snapshot.delivered, snapshot.connected), (0, 0, 1));
    assert!(bench.half.scripted.runs().is_empty());
}

/// BUG-41: settings that the profile does not name are tolerated; an edit is seen by the next visit.
#[tokio::test]
async fn an_edit_is_seen_by_the_next_visit_and_what_the_profile_does_not_name_is_tolerated() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    let settings = consumer_settings(&bench.draft.bindings.as_ref().unwrap()[0]);
    let edited = |change: &[(&str, Value)]| {
        let mut settings = settings.clone();
        change.iter().for_each(|(name, value)| drop(settings.as_object_mut().unwrap().insert((*name).to_owned(), value.clone())));
        settings
    };
    let handled = async |bench: &mut Bench| {
        bench.publish("one", r#"["ok"]"#).await;
        bench.step_until_reported().await.end
    };
    assert_eq!(handled(&mut bench).await, ACKNOWLEDGED);
    bench.admin.add_consumer(STREAM, &edited(&[("max_deliver", json!(9))])).await;
    assert_eq!(handled(&mut bench).await, StepEnd::Failed(StepFault::Mismatch(ProfileField::MaxDeliver)));
    bench.admin.add_consumer(STREAM, &settings).await;
    assert_eq!(bench.step_until_reported().await.end, ACKNOWLEDGED);
    bench.admin.add_consumer(STREAM, &edited(&[("description", json!("of the shop")), ("metadata", json!({"owner": "shop"}))])).await;
    assert_eq!(handled(&mut bench).await, ACKNOWLEDGED);
    // Paused: nothing comes, and nothing is wrong.
    let until = json!({"pause_until": "2100-01-01T00:00:00Z"});
    let pause = bench.admin.client().request(format!("$JS.API.CONSUMER.PAUSE.{STREAM}.one"), until.to_string().into()).await.unwrap();
    assert!(!String::from_utf8_lossy(&pause.payload).contains("error"));
    bench.publish("one", r#"["ok"]"#).await;
    bench.until_backlog("one", (1, 0)).await;
    assert_eq!(bench.step().await, StepOutcome::Empty { binding: 0 });
    let go_on = bench.admin.client().request(format!("$JS.API.CONSUMER.PAUSE.{STREAM}.one"), "{}".into()).await.unwrap();
    assert!(!String::from_utf8_lossy(&go_on.payload).contains("error"));
    assert_eq!(bench.step_until_reported().await.end, ACKNOWLEDGED);
    assert_eq!(bench.monitor.snapshot().connected, 1);
}

/// BUG-31: deleted before the first visit, between two, between inspection and pull, while the pull waits, while the function runs; with
/// its stream; and made again, rightly and wrongly. The healthy binding beside it flows on.
#[tokio::test]
async fn a_consumer_that_goes_away_is_told_at_every_stage_and_found_again() {
    require_broker!();
    let (mut bench, proxy) = Bench::behind_proxy(Setup::of(&[("shop", "one"), ("bank", "two")])).await;
    let settings = consumer_settings(&bench.draft.bindings.as_ref().unwrap()[0]);
    // (a), (b)
    for _ in 0..2 {
        bench.admin.delete_consumer(STREAM, "one").await;
        assert_eq!(bench.step_until_reported().await.end, MISSING_CONSUMER);
        beside(&mut bench).await;
        assert_eq!(bench.admin.consumers(), 1, "nothing is made");
        bench.admin.add_consumer(STREAM, &settings).await;
        assert_eq!(bench.step().await, StepOutcome::Idle { binding: 0 });
        beside(&mut bench).await;
    }
    // (c)
    bench.publish("one", r#"["ok"]"#).await;
    bench.until_backlog("one", (1, 0)).await;
    let pull = proxy.withhold_from(Direction::ToBroker, b"PUB $JS.API.CONSUMER.MSG.NEXT.IN.one");
    let (step, ()) = {
        let manager = std::sync::Arc::clone(&bench.half.manager);
        let (triggers, admin) = bench.parts();
        tokio::join!(triggers.step(&manager), async {
            pull.reached().await;
            admin.delete_consumer(STREAM, "one").await;
            proxy.release();
        })
    };
    assert!(
        matches!(step, StepOutcome::Reported(step) if step.end == StepEnd::Failed(StepFault::Status(PullStatus::NoResponders))),
        "{step:?}"
    );
    beside(&mut bench).await;
    // (e)
    bench.admin.add_consumer(STREAM, &settings).await;
    bench.admin.purge_stream(STREAM).await;
    bench.publish("one", r#"["hang"]"#).await;
    bench.until_backlog("one", (1, 0)).await;
    let scripted = std::sync::Arc::clone(&bench.half.scripted);
    let runs = scripted.runs().len();
    let (step, ()) = {
        let manager = std::sync::Arc::clone(&bench.half.manager);
        let (triggers, admin) = bench.parts();
        tokio::join!(triggers.step(&manager), async {
            scripted.until_runs(runs + 1).await;
            admin.delete_consumer(STREAM, "one").await;
            scripted.go_on();
        })
    };
    let uncertain = StepEnd::Settled { settlement: VisitSettlement::Acknowledge, confirmation: Confirmation::Uncertain };
    assert!(matches!(step, StepOutcome::Reported(step) if step.end == uncertain), "{step:?}");
    beside(&mut bench).await;
    // (g), wrongly and rightly.
    let mut wrong = settings.clone();
    wrong["max_batch"] = json!(7);
    bench.admin.add_consumer(STREAM, &wrong).await;
    assert_eq!(bench.fault().await, StepFault::Mismatch(ProfileField::MaxBatch));
    beside(&mut bench).await;
    bench.admin.delete_consumer(STREAM, "one").await;
    bench.admin.add_consumer(STREAM, &settings).await;
    bench.half.scripted.go_on();
    assert_eq!(bench.step_until_handed().await.end, ACKNOWLEDGED, "its position was the consumer's");
    // (f)
    bench.admin.delete_stream(STREAM).await;
    let faults = [bench.step_until_reported().await, bench.step_until_reported().await];
    assert!(faults.iter().all(|step| step.end == StepEnd::Failed(StepFault::StreamMissing)), "{faults:?}");
    bench.admin.add_stream(&StreamSpec::new(STREAM, ["in.>"])).await;
    crate::bench::add_consumers(&bench.admin, &bench.draft).await;
    bench.publish("one", r#"["ok"]"#).await;
    assert_eq!(bench.step_until_handed().await.end, ACKNOWLEDGED);
}

/// The binding beside it handles a message of its own, whoever's turn it is.
async fn beside(bench: &mut Bench) {
    bench.publish("two", r#"["ok"]"#).await;
    let step = bench.step_until_handed().await;
    assert_eq!((step.binding, step.end), (1, ACKNOWLEDGED));
}

/// A message that somebody else holds: a node that ended while its function ran.
async fn held_by_another(bench: &mut Bench) {
    bench.publish("one", r#"["hang"]"#).await;
    let driver = bench.drive();
    bench.half.scripted.until_runs(1).await;
    driver.kill().await;
    bench.begin_anew(&Setup::default());
    assert_eq!(bench.backlog("one").await, (0, 1));
}

/// BUG-31 (d): a pull that waits at the broker, whose consumer is deleted.
#[tokio::test]
async fn a_consumer_deleted_while_a_pull_waits_is_told() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    // It is the only message that may be unacknowledged, so that a pull waits for its whole time.
    held_by_another(&mut bench).await;
    let manager = std::sync::Arc::clone(&bench.half.manager);
    let (triggers, admin) = bench.parts();
    let (step, ()) = tokio::join!(triggers.step(&manager), async {
        let waits = async || (admin.consumer(STREAM, "one").await["num_waiting"] == 1).then_some(());
        latent_testkit::until_some("a pull that waits", waits).await;
        admin.delete_consumer(STREAM, "one").await;
    });
    let StepOutcome::Reported(step) = step else { panic!("{step:?}") };
    assert_eq!(step.end, StepEnd::Failed(StepFault::Status(PullStatus::ConsumerDeleted)));
    assert_eq!(bench.fault().await, StepFault::ConsumerMissing);
}

/// BUG-33, T-040, D-10: a message that no pull may bring stays where it is, is told, costs one pull a poll, and keeps nobody else out.
#[tokio::test]
async fn a_message_above_the_pull_s_bytes_is_told_and_stays_until_an_operator_acts() {
    require_broker!();
    let mut bench = Bench::start(Setup::of(&[("shop", "one"), ("bank", "two")])).await;
    bench.publish("one", &format!(r#"["{}"]"#, "x".repeat(11_000))).await;
    bench.publish("one", r#"["ok"]"#).await;
    let driver = bench.drive();
    bench.until(|snapshot| snapshot.failed >= 10).await;
    for number in 1..=3 {
        bench.publish("two", r#"["ok"]"#).await;
        bench.until(|snapshot| snapshot.acknowledged == number).await;
    }
    let step = bench.until_step(|step| step.binding == 0).await;
    assert_eq!((step.end, step.handed), (StepEnd::Failed(StepFault::Status(PullStatus::MessageTooLarge)), None));
    let snapshot = bench.monitor.snapshot();
    assert_eq!((snapshot.delivered, snapshot.connected), (3, 2));
    assert_eq!((bench.backlog("one").await, bench.monitor.bindings()[0].state), ((2, 0), TriggerState::Stalled));
    // The operator removes it.
    let request = json!({"seq": 1}).to_string();
    bench.admin.client().request(format!("$JS.API.STREAM.MSG.DELETE.{STREAM}"), request.into()).await.unwrap();
    bench.until(|snapshot| snapshot.acknowledged == 4).await;
    bench.stop(driver).await;
}

/// T-040, BUG-33: a message above the ceiling that the pull brings all the same closes the connection and stays unacknowledged.
#[tokio::test]
async fn a_message_between_ceiling_and_pull_runs_nothing_and_is_not_acknowledged() {
    require_broker!();
    let mut bench = Bench::start(Setup::default()).await;
    bench.publish("one", &format!(r#"["ok","{}"]"#, "x".repeat(1_024))).await;
    assert_eq!(bench.fault().await, StepFault::Protocol(Evidence::OversizedReply));
    assert_eq!((bench.backlog("one").await, bench.half.pools.pools.snapshot().connections), ((0, 1), 0));
    assert_eq!(bench.step().await, StepOutcome::Empty { binding: 0 });
    assert_eq!(bench.monitor.bindings()[0].state, TriggerState::Stalled, "what is wrong stays told while it is there");
    assert!(bench.half.scripted.runs().is_empty());
    // At the ceiling it is handled.
    bench.admin.purge_stream(STREAM).await;
    let filler = 1_024 - r#"["ok",""]"#.len();
    bench.publish("one", &format!(r#"["ok","{}"]"#, "x".repeat(filler))).await;
    let step = bench.step_until_handed().await;
    assert_eq!((step.end, step.handed.unwrap().sequence), (ACKNOWLEDGED, 2));
}

/// BUG-34, T-041: somebody else's pulls take every place; pulls of ours that were given up leave nothing behind.
#[tokio::test]
async fn at_capacity_is_quiet_and_pulls_that_were_given_up_leave_nothing() {
    require_broker!();
    let mut bench = Bench::start(Setup { change: soon_again, ..Setup::default() }).await;
    held_by_another(&mut bench).await;
    // A pull of somebody else waits as long as the consumer lets it; ours meets it.
    let waiting = json!({"batch": 1, "expires": 100_000_000});
    let mut others = Vec::new();
    for _ in 0..8 {
        let manager = std::sync::Arc::clone(&bench.half.manager);
        let (triggers, admin) = bench.parts();
        let (step, other) = tokio::join!(triggers.step(&manager), admin.pull_in_vain(STREAM, "one", &waiting));
        assert_eq!(step, StepOutcome::Empty { binding: 0 });
        others.push(other);
    }
    assert!(others.iter().all(|status| matches!(status, 408 | 409)), "{others:?}");
    assert_eq!(bench.half.manager.snapshot().node.held(), 0, "an empty poll drops its reservation (T-041)");
    assert_eq!(bench.monitor.last_step(), None, "quiet");
    // Given up in the middle, again and again.
    for _ in 0..20 {
        let manager = std::sync::Arc::clone(&bench.half.manager);
        let pulls = bench.monitor.snapshot().pulls;
        let (monitor, (triggers, _)) = (bench.monitor.clone(), bench.parts());
        tokio::select! {
            _ = triggers.step(&manager) => {}
            () = latent_testkit::until_some("a pull", || std::future::ready((monitor.snapshot().pulls > pulls).then_some(()))) => {}
        }
    }
    let (admin, draft) = (&bench.admin, &bench.draft);
    let none_waits = async || (admin.consumer(STREAM, "one").await["num_waiting"] == 0).then_some(());
    latent_testkit::until_some("no pull waits", none_waits).await;
    assert_eq!(draft.bindings.as_ref().unwrap().len(), 1);
    bench.publish("one", r#"["ok",2]"#).await;
    bench.half.scripted.go_on();
    // The first one comes again when its holder's time is over, and both are handled; one that met a pull that nobody waits for any more
    // comes again, too.
    while bench.monitor.snapshot().acknowledged < 2 {
        bench.step_until_handed().await;
        bench.half.scripted.go_on();
    }
    assert_eq!(bench.backlog("one").await, (0, 0));
}

/// BUG-42, T-042: a broker that sends the longer form of the subject.
#[tokio::test]
async fn the_longer_form_of_the_acknowledgement_subject_is_settled_on() {
    require_broker!();
    let mut setup = Setup::default();
    setup.spec.extra = "feature_flags: { js_ack_fc_v2: true }\n".to_owned();
    let (mut bench, proxy) = Bench::behind_proxy(setup).await;
    for payload in [r#"["ok"]"#, r#"["fail"]"#, r#"["trap"]"#] {
        bench.publish("one", payload).await;
        let step = bench.step_until_reported().await;
        assert!(matches!(step.end, StepEnd::Settled { confirmation: Confirmation::Confirmed, .. }), "{payload}: {step:?}");
    }
    let said = String::from_utf8_lossy(&proxy.transcript(Direction::ToBroker)).into_owned();
    assert_eq!(said.matches("PUB $JS.ACK._.").count(), 3, "{said}");
    assert!(!bench.broker.log().contains("Violation"));
}

/// A user without the right to pull: told as that, and seen in the broker's log, which shows that the log would tell.
#[tokio::test]
async fn what_the_user_may_not_do_is_told_as_that() {
    require_broker!();
    let mut setup = Setup::default();
    let info = format!("$JS.API.CONSUMER.INFO.{STREAM}.one");
    let mut user = BrokerUser::trigger("shop", &password("shop"), [(STREAM, "one")]);
    user.publish.retain(|subject| *subject == info);
    setup.spec.auth = latent_testkit::broker::BrokerAuth::Users(vec![user]);
    let mut bench = Bench::start(setup).await;
    bench.publish("one", r#"["ok"]"#).await;
    assert_eq!(bench.fault().await, StepFault::PermissionRefused);
    assert!(bench.broker.log().contains("Violation"));
    assert_eq!(bench.backlog("one").await, (1, 0));
}

/// A user without the right to settle: the function succeeds and the message comes again, which is told for as long as it is there.
#[tokio::test]
async fn a_user_who_may_not_settle_is_told_as_that() {
    require_broker!();
    let mut setup = Setup::default();
    let mut user = BrokerUser::trigger("shop", &password("shop"), [(STREAM, "one")]);
    user.publish.retain(|subject| !subject.starts_with("$JS.ACK."));
    assert_eq!(user.publish.len(), 2);
    setup.spec.auth = latent_testkit::broker::BrokerAuth::Users(vec![user]);
    let mut bench = Bench::start(setup).await;
    bench.publish("one", r#"["ok"]"#).await;
    let step = bench.step_until_reported().await;
    assert!(matches!(step.end, StepEnd::Settled { confirmation: Confirmation::Uncertain, .. }), "{step:?}");
    let (fault, why) = bench.monitor.bindings()[0].problem.clone().unwrap();
    assert_eq!(fault, StepFault::SettlementRefused);
    assert!(why.contains("latent broker permissions"), "{why}");
    assert_eq!(bench.backlog("one").await, (0, 1), "the broker has not settled it");
}
