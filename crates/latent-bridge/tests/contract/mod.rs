//! The contract of a bus, written against `dyn EventBus`: an engine runs it by naming itself in [`contract_tests`].

mod ordering;
mod values;

use latent_bridge::{BridgeManifest, EventBus};

/// An engine under test: makes a bus for a manifest and keeps whatever must live as long as the bus.
pub(crate) trait Engine {
    /// The bus.
    fn bus(&self) -> &dyn EventBus;
}

/// Makes an engine.
pub(crate) type Make = fn(&BridgeManifest) -> Box<dyn Engine>;

/// One test for each case of the contract.
macro_rules! contract_tests {
    ($make:expr) => {
        crate::contract::contract_tests!(@ $make;
            values: five_events_of_one_key_come_back_in_order,
            values: what_is_not_declared_is_unknown_and_nothing_is_created,
            values: bytes_attributes_and_media_type_come_back_as_published,
            values: the_uid_comes_from_metadata_or_is_minted,
            values: the_uid_of_the_call_and_of_the_value_must_agree,
            values: unfit_uids_and_payloads_are_refused_and_later_calls_work,
            values: the_same_uid_with_other_content_is_a_conflict_in_any_partition,
            values: ranges_are_bounded_and_partitions_checked,
            values: uids_are_found_among_fifteen_hundred_records,
            values: a_batch_gives_one_result_for_each_record_in_order,
            ordering: thirty_two_threads_with_one_uid_store_one_record,
            ordering: four_writers_and_four_readers_see_whole_ascending_records,
            ordering: every_seventh_shared_uid_is_stored_once,
            ordering: order_of_a_key_survives_interleaved_publishers,
            ordering: a_watcher_is_told_after_the_record_is_readable,
        );
    };
    (@ $make:expr; $($group:ident: $case:ident,)*) => {
        $(#[test]
        fn $case() {
            crate::contract::$group::$case($make);
        })*
    };
}
pub(crate) use contract_tests;

pub(crate) mod embedded {
    //! The contract on the embedded engine.

    use latent_bridge::EmbeddedBroker;

    use super::{BridgeManifest, Engine, EventBus};
    use crate::support::fixtures::{quick, small_limits};

    struct Embedded {
        broker: EmbeddedBroker,
        _directory: tempfile::TempDir,
    }

    impl Engine for Embedded {
        fn bus(&self) -> &dyn EventBus {
            &self.broker
        }
    }

    fn make(manifest: &BridgeManifest) -> Box<dyn Engine> {
        let directory = tempfile::tempdir().unwrap();
        let broker = EmbeddedBroker::provision_with(directory.path(), manifest, quick(small_limits())).unwrap();
        Box::new(Embedded { broker, _directory: directory })
    }

    super::contract_tests!(make);
}
