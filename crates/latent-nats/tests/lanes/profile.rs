//! The consumer as the broker has it: every setting that is not as the profile needs it, and consumers that go away.

use latent_nats::triggers::StepFault;
use latent_nats_proto::triggers::ProfileField;
use latent_testkit::proxy::{Direction, FaultProxy};
use latent_testkit::{require_broker, until_some};
use serde_json::{Value, json};

use crate::world::{STREAM, Setup, World};

/// T-101: one consumer for each setting, wrong in that alone; none is pulled from, and both values are told.
#[tokio::test]
async fn each_setting_that_is_not_as_it_must_be_is_told_with_both_values_and_nothing_is_pulled() {
    require_broker!();
    let table: Vec<(&str, Value, ProfileField, &str, &str)> = vec![
        ("filter_subject", json!("orders.other"), ProfileField::FilterSubject, "orders.p0", "orders.other"),
        ("ack_policy", json!("all"), ProfileField::AckPolicy, "explicit", "all"),
        ("replay_policy", json!("original"), ProfileField::ReplayPolicy, "instant", "original"),
        ("deliver_policy", json!("last"), ProfileField::DeliverPolicy, "all or new or by_start_sequence or by_start_time", "last"),
        ("max_ack_pending", json!(7), ProfileField::MaxAckPending, "8", "7"),
        ("max_ack_pending", json!(9), ProfileField::MaxAckPending, "8", "9"),
        ("ack_wait", json!(6_001_000_000_u64), ProfileField::AckWait, "6000000000", "6001000000"),
        ("max_deliver", json!(10), ProfileField::MaxDeliver, "at least 11", "10"),
        ("max_waiting", json!(7), ProfileField::MaxWaiting, "at least 8", "7"),
        ("headers_only", json!(true), ProfileField::HeadersOnly, "absent", "true"),
        ("priority_groups", json!(["other"]), ProfileField::PriorityGroups, "a list of latent", "a list"),
        ("priority_policy", json!("overflow"), ProfileField::PriorityPolicy, "pinned_client", "overflow"),
        ("inactive_threshold", json!(60_000_000_000_u64), ProfileField::InactiveThreshold, "absent", "60000000000"),
        ("max_batch", json!(1), ProfileField::MaxBatch, "at least 8", "1"),
    ];
    let partitions = u32::try_from(table.len()).unwrap();
    let mut world = World::start_with(Setup { partitions, ..Setup::default() }, |partition, settings| {
        let (setting, value, ..) = &table[partition as usize];
        settings.insert((*setting).to_owned(), value.clone());
        if *setting == "priority_policy" {
            settings.remove("priority_timeout");
        }
    })
    .await;
    let proxy = FaultProxy::start(&world.broker);
    world.setup.address = Some(proxy.address());
    for partition in 0..partitions {
        world.publish(partition, "a", "ok").await;
    }
    let node = world.node("one");
    let all_told = || {
        let reports = node.monitor.lanes();
        std::future::ready(reports.iter().all(|lane| lane.trouble.is_some()).then_some(reports))
    };
    let reports = until_some("every lane has its trouble", all_told).await;
    for (report, (setting, _, field, required, found)) in reports.iter().zip(&table) {
        let (fault, why, _) = report.trouble.clone().unwrap();
        assert_eq!(fault, StepFault::Mismatch(*field), "{setting}: {why}");
        assert!(why.contains(found) && why.contains(required), "{setting}: {why}");
    }
    assert!(node.monitor.failures().len() >= table.len());
    node.stop().await;
    let said = String::from_utf8_lossy(&proxy.transcript_of(0, Direction::ToBroker)).into_owned();
    assert!(said.contains("CONSUMER.INFO") && !said.contains("MSG.NEXT"));
    assert!(world.handler.runs().is_empty());
}

/// T-054 of v2: a consumer that goes away stalls its own lane alone, and is used again when it is there again.
#[tokio::test]
async fn a_consumer_that_goes_away_keeps_nobody_else_waiting_and_is_used_again() {
    require_broker!();
    let world = World::start(Setup { partitions: 2, ..Setup::default() }).await;
    let node = world.node("one");
    world.publish(0, "a", "ok-0").await;
    world.handler.until_runs(1).await;
    world.until_settled(0).await;
    world.admin.delete_consumer(STREAM, "latent_work_p0").await;
    let missing = || {
        let trouble = node.monitor.lanes()[0].trouble.clone();
        std::future::ready(trouble.filter(|(fault, ..)| *fault == StepFault::ConsumerMissing))
    };
    until_some("it is told", missing).await;
    for number in 0..10 {
        world.publish(1, "b", &format!("ok-{number}")).await;
    }
    world.handler.until_runs(11).await;
    world.add_consumer(0).await;
    // A consumer that was made anew begins with the first message.
    world.handler.until_runs(12).await;
    world.until_settled(0).await;
    until_some("nothing is in its way", || std::future::ready(node.monitor.lanes()[0].trouble.is_none().then_some(()))).await;
    node.stop().await;
}
