//! What an engine without more gets for nothing.

use latent_core::UnixMillis;

use super::Scripted;
use crate::{EventBus, MaintenanceReport};

#[test]
fn maintenance_counts_what_expired_and_what_was_completed() {
    let report = |expired_records, intents_completed| MaintenanceReport { expired_records, intents_completed, ..Default::default() };
    let unfinished = MaintenanceReport { expired_segments: 3, unremoved_files: 4, intents_pending: 5, ..report(0, 0) };
    for (report, counted) in [(report(7, 5), 12), (report(0, 0), 0), (unfinished, 0), (report(u64::MAX, 1), u64::MAX)] {
        let bus = Scripted {
            maintained: Box::new(move |now| {
                assert_eq!(now, UnixMillis(1_234), "the time is the caller's");
                report.clone()
            }),
            ..Scripted::holding([], &[], 1)
        };
        assert_eq!(bus.maintenance(1_234), Ok(counted));
    }
}

#[test]
fn a_bus_without_an_archive_takes_any_control_key() {
    let bus: &dyn EventBus = &Scripted::holding([], &[], 1);
    assert_eq!((bus.set_control_key([0; 32]), bus.set_control_key([7; 32])), (Ok(()), Ok(())));
}
