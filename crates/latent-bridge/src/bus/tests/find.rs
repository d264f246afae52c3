//! The lookup of an engine without an index: it ends, and its `None` is certain.

use super::{Scripted, disordered, unreadable};
use crate::{BusError, EventBus as _, PublishAck};

fn found(bus: &Scripted, uid: &str) -> Result<Option<u64>, BusError> {
    let found = bus.find_event_by_uid("t", "k", uid)?;
    Ok(found.map(|ack| {
        let expected = PublishAck { topic: "t".to_owned(), partition: 0, offset: ack.offset, uid: uid.to_owned(), duplicate: false };
        assert_eq!(ack, expected);
        ack.offset
    }))
}

#[test]
fn it_reads_pages_of_1024_from_the_beginning_up_to_the_match_or_the_end() {
    let bus = || Scripted::holding(0..1_500, &[], 5_000);
    for (offset, pages) in [(0, 1), (1_023, 1), (1_024, 2), (1_400, 2), (1_499, 2)] {
        let bus = bus();
        assert_eq!(found(&bus, &format!("u{offset}")), Ok(Some(offset)));
        assert_eq!(bus.asked(), [(0, 1_024), (1_024, 1_024)][..pages], "{offset}");
    }
    let bus = bus();
    assert_eq!(found(&bus, "u1500"), Ok(None));
    assert_eq!(bus.asked(), [(0, 1_024), (1_024, 1_024)]);
}

#[test]
fn an_empty_page_or_partition_means_absent() {
    assert_eq!(found(&Scripted::holding([], &[], 10), "u0"), Ok(None));
    assert_eq!(found(&Scripted::paged((0, 10), |from, _| Ok(if from == 0 { vec![0] } else { Vec::new() })), "u5"), Ok(None));
}

#[test]
fn gaps_and_short_pages_are_no_end() {
    let bus = Scripted::holding([50, 53, 1_000_000], &[], 1);
    assert_eq!(found(&bus, "u1000000"), Ok(Some(1_000_000)));
    assert_eq!(found(&bus, "u51"), Ok(None));
}

#[test]
fn a_damaged_record_is_passed_over_and_leaves_absence_open() {
    let bus = Scripted::holding(0..10, &[2, 3, 9], 4);
    assert_eq!(found(&bus, "u8"), Ok(Some(8)), "reading went on after it");
    assert_eq!(found(&bus, "u1"), Ok(Some(1)));
    for uid in ["u2", "u9", "elsewhere"] {
        assert_eq!(found(&bus, uid), Err(unreadable(2)), "{uid} may have been one of the damaged");
    }
    assert_eq!(found(&Scripted::paged((0, 3), |_, _| Err(unreadable(3))), "u"), Ok(None), "damage that came after the call");
}

#[test]
fn what_is_appended_meanwhile_is_not_chased() {
    let bus = Scripted::paged((0, 3), |from, _| Ok(vec![from]));
    assert_eq!(found(&bus, "elsewhere"), Ok(None));
    assert_eq!(bus.asked().len(), 3);
}

#[test]
fn a_page_that_does_not_advance_is_an_error() {
    type Page = fn(u64, usize) -> Result<Vec<u64>, BusError>;
    let cases: [(Page, BusError); 4] = [
        (|_, _| Ok(vec![0, 1]), disordered(2, 0)),
        (|from, _| Ok(vec![10_u64.saturating_sub(from)]), disordered(11, 0)),
        (|_, _| Err(unreadable(5)), disordered(6, 5)),
        (|from, _| if from == 0 { Ok(vec![0, 1]) } else { Err(unreadable(1)) }, disordered(2, 1)),
    ];
    for (page, expected) in cases {
        assert_eq!(found(&Scripted::paged((0, u64::MAX), page), "elsewhere"), Err(expected));
    }
}

#[test]
fn the_end_of_the_offsets_is_an_error_and_no_way_back_to_the_beginning() {
    let bus = Scripted::paged((0, u64::MAX), |_, _| Ok(vec![u64::MAX - 1, u64::MAX]));
    let refused = found(&bus, "elsewhere").unwrap_err();
    assert!(matches!(refused, BusError::OutOfRange { .. }), "{refused:?}");
    assert!(refused.to_string().contains(&format!("offset after {}", u64::MAX)), "{refused}");
    let last = Scripted::paged((0, u64::MAX), |from, _| Ok(if from == 0 { vec![u64::MAX - 1] } else { Vec::new() }));
    assert_eq!(found(&last, "elsewhere"), Ok(None));
    assert_eq!(last.asked().len(), 1, "there is nothing after it");
}

#[test]
fn other_failures_are_handed_on() {
    let late = || BusError::Timeout { operation: "fetch".to_owned() };
    let bus = Scripted::paged((0, 10), move |from, _| if from == 0 { Ok(vec![0]) } else { Err(late()) });
    assert_eq!(found(&bus, "u5"), Err(late()));
    assert_eq!(bus.find_event_by_uid("nope", "k", "u"), Err(BusError::UnknownTopic { topic: "nope".to_owned() }));
    assert!(matches!(bus.find_event_by_uid("t", "k", ""), Err(BusError::Rejected { permanent: true, .. })));
}
