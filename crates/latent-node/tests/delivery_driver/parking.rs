//! What never runs again goes to the dead-letter topic first, however long that is away.

use latent_core::{Offset, Partition};
use latent_node::delivery::{CycleState, DeliveryPolicy, EventState, Settlement, TerminationReason};

use crate::bench::Bench;
use crate::source;

fn policy() -> DeliveryPolicy {
    DeliveryPolicy { deliveries_max: 2, retry_delay_millis: 100, ..DeliveryPolicy::default() }
}

#[tokio::test(start_paused = true)]
async fn a_refused_and_an_exhausted_event_are_parked_with_why_and_then_terminated() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[("a", "reject"), ("b", "trap"), ("c", "ok")]);
    let driving = bench.drive(vec![bench.parking("t", "acme", policy(), &source)]);
    let status = bench.until(&driving, |status| status.terminated == 2).await;
    assert_eq!((status.dead_lettered, status.exhausted, status.acknowledged, status.state), (2, 1, 1, CycleState::Idle));
    let parked = source.log().parked.clone();
    let told: Vec<_> =
        parked.iter().map(|(offset, verdict)| (*offset, verdict.reason, verdict.attempts, verdict.detail().to_owned())).collect();
    let rejected = (0, TerminationReason::Rejected, 1, "no".to_owned());
    let exhausted = (1, TerminationReason::Exhausted, 2, "trap: unreachable: ".trim_end().to_owned());
    assert_eq!(told, [rejected, exhausted]);
    // Each names the run that decided it.
    assert!(parked.iter().all(|(_, verdict)| verdict.activation.is_some() && verdict.component.is_some()));
    assert_eq!(source.log().settled[&0], Settlement::Terminated(TerminationReason::Rejected));
    driving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_dead_letter_topic_is_away_for_days_nothing_is_terminated_lost_or_run_again_and_then_everything_is_parked_once() {
    let bench = Bench::new(2, &["acme"]);
    let source = source(&[("a", "reject"), ("a", "ok"), ("b", "trap"), ("c", "ok"), ("d", "reject")]);
    source.log().no_parking = true;
    let driving = bench.drive(vec![bench.parking("t", "acme", policy(), &source)]);
    let status = bench.until(&driving, |status| status.acknowledged == 1 && status.unacknowledged == 3).await;
    assert_eq!(status.state, CycleState::Stalled);
    assert_eq!(status.obstacle.as_deref(), Some("dead-letter topic dead: it is full"));
    let mut told = Vec::new();
    for offset in [0, 1, 3, 9] {
        let event = driving.handle.event(status.topic.clone(), Partition(0), Offset(offset)).await.remove(0);
        told.push((event.state, event.attempts, event.attempts_max));
    }
    let condemned = EventState::Condemned(TerminationReason::Rejected);
    assert_eq!(told, [(condemned, 1, 2), (EventState::BehindItsKey, 0, 2), (EventState::Settled, 0, 2), (EventState::Unseen, 0, 2)]);
    assert!(driving.handle.event(status.topic.clone(), Partition(1), Offset(0)).await.is_empty());
    let started = bench.backend.started();
    for _ in 0..3 * 24 {
        // An hour of virtual time.
        let nothing = tokio::time::timeout(std::time::Duration::from_secs(3_600), std::future::pending::<()>()).await;
        assert!(nothing.is_err());
    }
    let status = driving.handle.statuses().await.remove(0);
    assert_eq!((status.terminated, status.dead_lettered, status.pending, status.acknowledged), (0, 0, 4, 1));
    // Once a minute in the long run, by one event.
    let refused = source.log().parkings_refused;
    assert!((3 * 24 * 60 - 10..3 * 24 * 60 + 20).contains(&refused), "{refused}");
    // A process that is killed meanwhile changes nothing.
    driving.stop().await;
    let driving = bench.drive(vec![bench.parking("t", "acme", policy(), &source)]);
    bench.until(&driving, |status| status.state == CycleState::Stalled).await;
    assert_eq!(bench.backend.started(), started, "nothing ran again");
    source.log().no_parking = false;
    let status = bench.until(&driving, |status| status.terminated == 3).await;
    assert_eq!(bench.until(&driving, |status| status.pending == 0).await.acknowledged, 1, "the event behind the parked one ran");
    assert_eq!((status.dead_lettered, status.obstacle.clone()), (3, None));
    let mut parked: Vec<_> = source.log().parked.iter().map(|(offset, _)| *offset).collect();
    parked.sort_unstable();
    assert_eq!(parked, [0, 2, 4]);
    driving.stop().await;
}
