//! The end of a bus: nothing is left in doubt without saying so, and nothing hangs (B-082, B-083).

use latent_bridge::{BusError, EventBus as _};
use latent_core::UncertainCause;
use latent_testkit::require_broker;

use crate::live::{record, spec, with_topic};

#[test]
fn what_is_in_flight_when_a_bus_is_dropped_is_uncertain_and_says_why() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    broker.pause();
    let tickets: Vec<_> = (0..3).map(|n| bus.submit_record("t", record(&format!("u{n}"), "k", "x"))).collect();
    drop(bus);
    for (n, ticket) in tickets.into_iter().enumerate() {
        let ended = ticket.wait().unwrap_err();
        assert!(ended.to_string().contains("connector runtime is closed"), "{ended}");
        let BusError::Uncertain { uid, cause: UncertainCause::Closed } = ended else { panic!("{ended:?}") };
        assert_eq!(uid.as_str(), format!("u{n}"));
    }
    broker.resume();
}

#[test]
fn a_publication_without_an_answer_is_uncertain_after_its_time_and_a_read_has_timed_out() {
    require_broker!();
    let (broker, bus) = with_topic(spec(), 1);
    broker.pause();
    let publication = bus.submit_record("t", record("u", "k", "x"));
    let read = bus.fetch("t", 0, 0, 1).unwrap_err();
    assert!(matches!(read, BusError::Timeout { .. }), "{read:?}");
    let ended = publication.wait().unwrap_err();
    assert!(matches!(&ended, BusError::Uncertain { uid, cause: UncertainCause::Deadline } if uid.as_str() == "u"), "{ended:?}");
    assert!(ended.to_string().contains("connector operation timed out"), "{ended}");
    broker.resume();
    let again = bus.publish_record("t", &record("u", "k", "x")).unwrap();
    assert_eq!((again.offset, bus.fetch("t", 0, 0, 10).unwrap().len()), (1, 1), "whether it was stored before or not, it is there once");
}

#[test]
fn a_bus_is_used_and_dropped_inside_a_runtime() {
    require_broker!();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (_broker, bus) = with_topic(spec(), 1);
        let ack = bus.submit_record("t", record("u", "k", "x")).await.unwrap();
        assert_eq!(bus.publish_record("t", &record("u", "k", "x")).map(|ack| (ack.offset, ack.duplicate)), Ok((ack.offset, true)));
        drop(bus);
    });
}
