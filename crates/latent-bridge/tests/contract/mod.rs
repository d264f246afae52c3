//! The contract of a bus, for any engine: an engine implements [`Engine`] and names itself in [`contract_tests`]. Every engine runs the same
//! cases out of the same source.
//!
//! Cases see `dyn EventBus` alone and assume of offsets only what [`Engine::NUMBERING`] says.

mod embedded;
mod in_order;
#[cfg(feature = "nats")]
mod nats;
mod ordering;
mod outcomes;
mod payloads;
mod reading;
mod stored;
mod uids;
mod values;
mod volume;
mod watching;

use latent_bridge::{BridgeManifest, EventBus, InOrder};
use latent_testkit::Missing;

/// How an engine numbers the records of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// From 0, without gaps.
    Dense,
    /// Ascending from 1 or later, with gaps where records of other partitions lie.
    #[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "only the engine on a broker has streams that partitions share"))]
    OfSharedStream,
}

/// An engine under test. It keeps whatever must live as long as its bus.
pub(crate) trait Engine: Sync + Sized {
    const NUMBERING: Numbering;

    /// What this engine cannot be tested without and is not there.
    fn missing() -> Option<Missing> {
        None
    }

    /// A new bus with the topics of `manifest`: empty, and no other test's.
    fn provision(manifest: &BridgeManifest) -> Self;

    fn bus(&self) -> &dyn EventBus {
        self.in_order()
    }

    /// The same bus, to publish to strictly in order.
    fn in_order(&self) -> &dyn InOrder;

    /// Closes the bus and opens what it left behind.
    fn reopen(self) -> Self;
}

/// One test for each case of the contract.
macro_rules! contract_tests {
    ($engine:ty) => {
        crate::contract::contract_tests!(@ $engine;
            values: five_events_of_one_key_come_back_in_order,
            values: what_is_not_declared_is_unknown_and_nothing_is_created,
            values: keys_choose_their_pinned_partitions,
            values: bytes_attributes_and_media_type_come_back_as_published,
            values: the_uid_comes_from_metadata_or_is_minted,
            values: the_uid_of_the_call_and_of_the_value_must_agree,
            values: unfit_uids_and_payloads_are_refused_and_later_calls_work,
            values: the_same_uid_with_other_content_is_a_conflict_in_any_partition,
            values: ranges_are_bounded_and_partitions_checked,
            values: uids_are_found_among_fifteen_hundred_records,
            values: a_batch_gives_one_result_for_each_record_in_order,
            uids: the_same_uid_again_is_the_first_acknowledgement_also_after_a_restart,
            uids: every_part_of_the_content_counts,
            uids: a_uid_belongs_to_every_partition_of_its_topic_and_to_no_other_topic,
            uids: what_was_refused_leaves_its_uid_free,
            payloads: a_payload_may_have_up_to_512_kibibytes,
            payloads: a_key_is_any_text_up_to_1024_bytes,
            payloads: json_is_shown_as_a_value_and_kept_as_it_was_written,
            payloads: what_is_not_json_is_shown_as_base64_and_kept_byte_for_byte,
            payloads: values_come_back_with_every_integer_of_64_bits,
            payloads: the_json_form_has_every_part_of_the_record,
            outcomes: each_refusal_says_whether_the_same_call_can_ever_succeed,
            outcomes: a_batch_answers_each_record_whatever_becomes_of_the_others,
            outcomes: a_batch_of_more_bytes_than_may_be_in_flight_is_stored_whole,
            outcomes: maintenance_with_a_time_in_the_past_expires_nothing,
            reading: offsets_outside_of_what_is_stored_are_no_error,
            reading: nothing_below_the_asked_offset_is_read_while_others_publish,
            reading: pages_and_heads_follow_each_other_without_a_gap,
            reading: what_was_stored_is_read_the_same_after_a_restart,
            volume: three_thousand_records_are_fetched_whole_while_others_publish,
            in_order: records_are_stored_one_behind_the_other_and_only_where_nothing_came_between,
            in_order: nothing_is_stored_behind_one_that_is_not_new,
            in_order: of_two_who_publish_behind_the_same_end_one_stores_a_beginning_and_the_other_nothing,
            in_order: thousands_in_one_call_are_stored_in_their_order,
            ordering: thirty_two_threads_with_one_uid_store_one_record,
            ordering: four_writers_and_four_readers_see_whole_ascending_records,
            ordering: every_seventh_shared_uid_is_stored_once,
            ordering: order_of_a_key_survives_interleaved_publishers,
            watching: a_watcher_is_told_after_the_record_is_readable,
            watching: a_watcher_replaces_the_earlier_one,
        );
    };
    (@ $engine:ty; $($group:ident: $case:ident,)*) => {
        $(#[test]
        fn $case() {
            if let Some(missing) = <$engine as crate::contract::Engine>::missing() {
                latent_testkit::skip!(missing);
            }
            crate::contract::$group::$case::<$engine>();
        })*
    };
}
pub(crate) use contract_tests;
