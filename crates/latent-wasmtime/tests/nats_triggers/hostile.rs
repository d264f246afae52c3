//! BUG-44: guests that do not end by themselves. Each ends at its deadline, its message is delayed and not given up as a declared failure,
//! and the next message of the binding runs in a fresh store.

use latent_capabilities::ProviderOutcome;
use latent_testkit::proxy::Direction;
use latent_testkit::require_broker;

use crate::world::{ACKNOWLEDGED, DELAYED, EXHAUSTED, Proxied, Setup, World};

/// For each delivery, of which a tenth is kept for its settlement.
const MILLIS: u64 = 1_000;

/// What kind of end a guest comes to that acts like this, twice, and then well.
async fn survived(how: &str, kind: &'static str) {
    let mut world = World::start(Setup::calling("act").within(MILLIS).each(|binding| binding.max_deliver = Some(2))).await;
    world.send("one", &format!("[\"{how}\"]")).await;
    world.send("one", r#"["well"]"#).await;
    for end in [DELAYED, EXHAUSTED, ACKNOWLEDGED] {
        assert_eq!(world.step_until_reported().await.end, end);
    }
    assert_eq!(world.ends(), [kind, kind, "success"]);
    let running = world.node.manager.snapshot().node;
    assert_eq!((running.held(), running.input_bytes), (0, 0), "cells and memory are back");
}

#[tokio::test]
async fn a_guest_that_loops_for_ever_ends_at_its_deadline() {
    require_broker!();
    survived("loop", "timeout").await;
}

#[tokio::test]
async fn a_guest_that_sleeps_in_the_host_ends_at_its_deadline() {
    require_broker!();
    survived("sleep", "timeout").await;
}

#[tokio::test]
async fn a_guest_that_traps_is_tried_again_in_a_fresh_store() {
    require_broker!();
    survived("trap", "trap").await;
}

#[tokio::test]
async fn a_guest_that_takes_all_memory_is_ended_and_tried_again() {
    require_broker!();
    survived("grow", "memory-exhausted").await;
}

/// P-056, X-032: whatever the guest would have said when its time was over, its message comes again and the audit knows what is not known.
#[tokio::test]
async fn a_guest_whose_publication_is_not_answered_ends_at_its_deadline_and_the_audit_says_uncertain() {
    require_broker!();
    let mut world = World::start(Setup::calling("act").within(MILLIS).behind_proxy(Proxied::Publisher)).await;
    let proxy = world.proxy.as_ref().unwrap();
    let withheld = proxy.withhold_from(Direction::ToClient, b"MSG _INBOX.LSF.");
    world.send("one", r#"["m-1"]"#).await;
    world.send("one", r#"["well"]"#).await;
    assert_eq!(world.step_until_reported().await.end, DELAYED);
    assert!(withheld.is_reached());
    let observed = world.node.audit.records()[0].observed;
    assert!(matches!(observed, ProviderOutcome::Unknown { .. }), "{observed:?}");
    world.proxy.as_ref().unwrap().release();
    assert_eq!([world.step_until_reported().await.end, world.step_until_reported().await.end], [ACKNOWLEDGED; 2]);
    assert_eq!(world.ends(), ["timeout", "success", "success"]);
    assert_eq!(world.results().await, ["m-1"], "stored once, by the run that was not told of it");
    assert_eq!(world.node.audit.records()[1].observed, ProviderOutcome::Acknowledged { duplicate: true });
}
