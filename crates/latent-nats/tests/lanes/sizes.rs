//! Messages as large as they may be, larger ones, and many at a time (T-108, T-110).

use latent_nats::triggers::StepFault;
use latent_testkit::require_broker;

use crate::world::{Setup, World};

/// T-108: the largest event passes beside small ones, whatever a pull's bytes allow at once; one above the ceiling is nobody's to run, is told
/// and is parked with its place.
#[tokio::test]
async fn the_largest_events_pass_and_one_that_is_larger_is_parked_without_running() {
    const CEILING: usize = 524_288;
    require_broker!();
    let setup = Setup { payload_ceiling_bytes: 524_288, dead_letter: true, ..Setup::default() };
    let world = World::start(setup).await;
    let wire_bytes_max = (CEILING * 4).div_ceil(3) + 16_384;
    let large = |bytes: usize| format!("ok-{}", "x".repeat(bytes - 2 - 3));
    for number in 0..6 {
        world.publish(0, "a", &large(wire_bytes_max)).await;
        world.publish(0, "b", &format!("ok-{number}")).await;
    }
    world.publish(0, "a", &large(wire_bytes_max + 1)).await;
    world.publish(0, "a", "ok-last").await;
    let node = world.node("one");
    world.until_settled(0).await;
    let runs = world.handler.of_key("a");
    assert_eq!(runs.iter().map(String::len).collect::<Vec<_>>(), [&[wire_bytes_max - 2; 6][..], &[7]].concat());
    assert_eq!(world.handler.of_key("b").len(), 6);
    assert_eq!(*world.parked.0.lock().unwrap(), [(13, String::new(), "undecodable".to_owned())]);
    let failures = node.monitor.failures();
    assert!(
        failures.iter().any(|failure| matches!(failure.fault, StepFault::Protocol(_)) && failure.why.contains("binding takes")),
        "{failures:?}"
    );
    node.stop().await;
}

/// T-102, T-108: a burst is pulled many at a time, and far fewer pulls are sent than messages come.
#[tokio::test]
async fn a_burst_is_pulled_in_batches() {
    const COUNT: usize = 800;
    require_broker!();
    let (world, proxy) = World::behind_proxy(Setup::default()).await;
    for number in 0..COUNT {
        world.publish(0, &format!("k{}", number % 16), &format!("ok-{}", number / 16)).await;
    }
    let node = world.node("one");
    world.until_settled(0).await;
    let keys: Vec<String> = (0..16).map(|key| format!("k{key}")).collect();
    world.assert_order(&keys.iter().map(String::as_str).collect::<Vec<_>>(), COUNT / 16);
    assert_eq!(world.handler.runs().len(), COUNT);
    let said = String::from_utf8_lossy(&proxy.transcript_of(0, latent_testkit::proxy::Direction::ToBroker)).into_owned();
    let (pulls, acks) = (said.matches("MSG.NEXT").count(), said.matches("+ACK\r\n").count());
    // The proxy remembers the beginning alone.
    assert!(acks > 100 && pulls < acks / 3, "{pulls} pulls, {acks} acknowledgements");
    node.stop().await;
}
