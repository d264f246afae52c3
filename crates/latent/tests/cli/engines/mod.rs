//! What deliveries do, as one suite for both engines: each behaviour is one function that is run on a node with its topics in its directory
//! and on one with them on a broker. The two configurations differ in `[engine]` alone, and both have to tell the same (`told.rs` says what
//! is left out of that). Where the engines differ and are right to, the expected document has both sides, as `{"on": {…}}`.

mod operating;
mod order;
mod outcomes;
mod parking;
mod restarts;
mod told;
mod world;

use latent_testkit::require_broker;
use serde_json::json;

use super::*;
use told::Told;
use world::{Engine, World, letters, place_of, publish_text, status, story, wait_until_settled};

/// One test for each behaviour and engine.
macro_rules! engine_tests {
    ($($group:ident: $($behaviour:ident),+);+ $(;)?) => {
        mod embedded {
            $($(#[test]
            fn $behaviour() {
                super::$group::$behaviour(super::Engine::Embedded);
            })+)+
        }

        mod nats {
            $($(#[test]
            fn $behaviour() {
                super::require_broker!();
                super::$group::$behaviour(super::Engine::Nats);
            })+)+
        }
    };
}

engine_tests!(
    outcomes: each_end_of_a_run_is_told_alike, an_event_says_which_delivery_it_is, delays_are_waited_for;
    parking:
        what_never_runs_again_is_terminated_counted_and_named_without_a_dead_letter_topic,
        what_is_no_event_is_parked_and_the_partition_goes_on,
        a_dead_letter_is_replayed_with_its_way_back_and_publishes_nothing_twice,
        other_content_under_the_same_derived_key_is_a_conflict;
    order:
        events_of_a_key_wait_for_a_delayed_one_and_others_go_on,
        so_many_run_at_once_as_may_be_in_flight,
        a_poisoned_key_is_delayed_and_then_the_trigger_is_saturated;
    restarts: a_kill_in_a_run_loses_nothing_and_keeps_the_order, a_stop_in_a_run_loses_nothing_and_keeps_the_order;
    operating: a_revoked_service_leaves_its_events_where_they_are, a_removed_trigger_goes_on_where_it_was_when_it_comes_back;
);
