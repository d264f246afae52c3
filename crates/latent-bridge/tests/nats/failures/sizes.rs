//! Events that are larger than the broker takes.

use latent_bridge::limits::CONNECTOR_OPERATION_MILLIS;
use latent_bridge::{BusError, EventBus};
use latent_core::{Attributes, MediaType, NewRecord, Partition, Uid};
use latent_testkit::broker::{BrokerSpec, StoredMessage};
use latent_testkit::{require_broker, wait_until};

use crate::live::{STREAM, acknowledged, beside, spec, stored, with_clock, with_topic};

const MAX_PAYLOAD: u32 = 65_536;

/// A JSON string of this many bytes, which stands in the message as it is.
fn event(uid: &str, bytes: usize) -> NewRecord {
    let payload = format!("\"{}\"", "x".repeat(bytes - 2));
    NewRecord::new(Some(Uid::parse(uid).unwrap()), "k", MediaType::json(), Attributes::default(), payload.into()).unwrap()
}

/// What the broker's limit counts.
fn counted_bytes(message: &StoredMessage) -> usize {
    let lines: usize = message.headers.iter().map(|(name, value)| name.len() + value.len() + ": \r\n".len()).sum();
    "NATS/1.0\r\n\r\n".len() + lines + message.payload.len()
}

/// BUG-16, the half about the bus: an event above the limit that the broker announced is refused before anything is sent, so that the
/// connection stays and later events work. Headers and body count together; the edge is exact.
#[test]
fn bug_16_an_event_above_the_brokers_limit_is_refused_and_the_connection_stays() {
    require_broker!();
    let (broker, bus) = with_topic(BrokerSpec { max_payload: Some(MAX_PAYLOAD), ..spec() }, 1);
    let connections = || beside(&broker, async |admin| admin.connections().iter().map(|connection| connection.id).collect::<Vec<_>>());
    let seen = connections();
    let (mut fits, mut too_large) = (60_000, 65_536);
    bus.publish_record("t", &event("fits", fits)).unwrap();
    // The uid is as long every time.
    while too_large - fits > 1 {
        let middle = fits.midpoint(too_large);
        match bus.publish_record("t", &event(&format!("u{middle}"), middle)) {
            Ok(_) => fits = middle,
            Err(BusError::Rejected { rule, .. }) => {
                assert!(rule.contains(&MAX_PAYLOAD.to_string()), "{rule}");
                too_large = middle;
            }
            Err(error) => panic!("{middle}: {error}"),
        }
    }
    // Some hundred more, below and above: nothing of what is too large is tried again and again.
    for n in 0..100 {
        assert!(matches!(bus.publish_record("t", &event(&format!("l{n:04}"), 100_000)), Err(BusError::Rejected { .. })));
    }
    bus.publish_record("t", &event("after", 10)).unwrap();
    let (largest, messages) = beside(&broker, async |admin| {
        let messages = admin.messages(STREAM).await;
        (messages.iter().map(counted_bytes).max(), messages.len())
    });
    assert_eq!(largest, Some(MAX_PAYLOAD as usize), "exactly as much as the broker takes");
    assert_eq!((stored(&bus).len(), connections()), (messages, seen));
}

/// BUG-16, a limit that is lowered while the bus is connected. Whether the broker says so or ends the connection when it meets an event above
/// it: nothing is stored of that, what is said is true, and the next event works.
#[test]
fn bug_16_a_limit_that_is_lowered_meanwhile_loses_nothing() {
    require_broker!();
    let (broker, bus, clock) = with_clock(BrokerSpec { max_payload: Some(MAX_PAYLOAD), ..spec() }, 1);
    bus.publish_record("t", &event("before", 60_000)).unwrap();
    broker.reload(|spec| spec.max_payload = Some(4_096));
    for uid in ["above-0", "above-1", "above-2"] {
        let publication = bus.submit_record("t", event(uid, 60_000));
        // One that was sent before the bus knew is answered by the end of the connection.
        wait_until("the connection is there", || bus.is_connected());
        bus.bounds("t", Partition(0)).unwrap();
        clock.advance_millis(CONNECTOR_OPERATION_MILLIS.default);
        match publication.wait().unwrap_err() {
            BusError::Rejected { rule, permanent: true } => assert!(rule.contains("4096"), "{rule}"),
            BusError::Uncertain { uid: uncertain, .. } => assert_eq!(uncertain.as_str(), uid),
            BusError::NotSent { .. } => {}
            error => panic!("{error}"),
        }
    }
    acknowledged(&bus, &event("after", 1_000));
    let uids: Vec<_> = stored(&bus).into_iter().map(|stored| stored.record.uid.as_str().to_owned()).collect();
    assert_eq!(uids, ["before", "after"]);
    let refused = bus.publish_record("t", &event("known", 60_000)).unwrap_err();
    assert!(matches!(&refused, BusError::Rejected { rule, permanent: true } if rule.contains("4096")), "{refused:?}");
}
