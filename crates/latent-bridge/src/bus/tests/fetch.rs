//! `fetch` gives what is there at the call, whole, or an error.

use latent_core::{Offset, Partition};

use super::super::pages::{self, Wanted};
use super::{Scripted, disordered, unreadable};
use crate::{BusError, EventBus as _};

fn offsets(bus: &Scripted, offset: u64, max: usize) -> Result<Vec<u64>, BusError> {
    let events = bus.fetch("t", 0, offset, max)?;
    assert!(events.iter().all(|event| event.value == event.offset && event.uid == format!("u{}", event.offset)));
    Ok(events.iter().map(|event| event.offset).collect())
}

#[test]
fn pages_are_joined_however_small_they_are_and_however_much_is_asked_for() {
    for max in [1, 999, 1_000, 1_001, 1_024, 3_000, 3_001, 1_000_000, usize::MAX] {
        for page_max in [37, 1_000, 5_000] {
            let bus = Scripted::holding(0..3_000, &[], page_max);
            assert!(offsets(&bus, 0, max).unwrap().into_iter().eq(0..3_000.min(max as u64)), "{max} by {page_max}");
        }
    }
}

#[test]
fn a_start_anywhere_gives_what_lies_there_and_after_it() {
    let cases: [(u64, &[u64]); 8] = [
        (0, &[50, 53, 54, 60]),
        (49, &[50, 53, 54, 60]),
        (50, &[50, 53, 54, 60]),
        (51, &[53, 54, 60]),
        (60, &[60]),
        (61, &[]),
        (1 << 63, &[]),
        (u64::MAX, &[]),
    ];
    for (from, expected) in cases {
        let bus = Scripted::holding([50, 53, 54, 60], &[], 2);
        assert_eq!(offsets(&bus, from, usize::MAX).unwrap(), expected, "{from}");
        assert!(bus.asked().iter().all(|(offset, _)| (50..=60).contains(offset)), "{from}: {:?}", bus.asked());
    }
}

#[test]
fn what_is_appended_after_the_call_is_not_chased() {
    let bus = Scripted::paged((0, 10), |from, max| Ok((from..u64::MAX).take(max.min(4)).collect()));
    assert!(offsets(&bus, 0, 1_000).unwrap().into_iter().eq(0..10));
    assert_eq!(bus.asked().iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 4, 8]);
    assert!(offsets(&bus, 10, 1_000).unwrap().is_empty());
}

#[test]
fn records_that_expire_under_a_fetch_end_it_or_leave_a_gap() {
    let bus = Scripted::paged((0, 10), |from, _| Ok(if from < 3 { vec![0, 1, 2] } else { Vec::new() }));
    assert_eq!(offsets(&bus, 0, 100).unwrap(), [0, 1, 2]);
    let bus = Scripted::paged((0, 10), |from, _| Ok(if from < 3 { vec![0, 1, 2] } else { vec![9] }));
    assert_eq!(offsets(&bus, 0, 100).unwrap(), [0, 1, 2, 9]);
}

#[test]
fn a_damaged_record_among_those_asked_for_is_an_error_and_one_beyond_them_is_not() {
    let bus = || Scripted::holding(0..10, &[6, 8], 4);
    assert_eq!(offsets(&bus(), 0, 7), Err(unreadable(6)));
    assert_eq!(offsets(&bus(), 0, usize::MAX), Err(unreadable(6)));
    assert_eq!(offsets(&bus(), 0, 6).unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(offsets(&bus(), 7, 1).unwrap(), [7]);
    assert_eq!(offsets(&bus(), 7, 2), Err(unreadable(8)));
    assert_eq!(offsets(&bus(), 9, 2).unwrap(), [9]);
    let damaged_later = Scripted::paged((0, 3), |from, _| if from < 2 { Ok(vec![0, 1]) } else { Err(unreadable(7)) });
    assert_eq!(offsets(&damaged_later, 0, 100).unwrap(), [0, 1], "it came after the call");
}

#[test]
fn answers_that_were_not_asked_for_are_an_error() {
    type Page = fn(u64, usize) -> Result<Vec<u64>, BusError>;
    let cases: [(Page, BusError); 4] = [
        (|_, _| Ok(vec![0, 1]), disordered(2, 0)),
        (|from, _| Ok(vec![from, from]), disordered(1, 0)),
        (|from, _| Ok(vec![from + 1, from]), disordered(2, 0)),
        (|from, _| Ok(vec![4_u64.saturating_sub(from)]), disordered(5, 0)),
    ];
    for (page, expected) in cases {
        assert_eq!(offsets(&Scripted::paged((0, 100), page), 0, usize::MAX), Err(expected));
    }
}

#[test]
fn more_records_than_asked_for_are_not_handed_on() {
    assert_eq!(offsets(&Scripted::paged((0, 100), |_, _| Ok((0..50).collect())), 0, 7).unwrap().len(), 7);
}

#[test]
fn nothing_is_read_where_nothing_is_asked_for() {
    let bus = Scripted::holding(0..10, &[], 4);
    assert_eq!(offsets(&bus, 0, 0), Ok(Vec::new()));
    assert_eq!(bus.fetch("nope", 0, 0, 0), Err(BusError::UnknownTopic { topic: "nope".to_owned() }));
    for partition in [1, u32::MAX] {
        let refused = bus.fetch("t", partition, 0, 0).unwrap_err();
        assert!(refused.to_string().contains(&format!("partition {partition} out of range")) && refused.is_permanent(), "{refused}");
    }
    assert!(bus.asked().is_empty());
}

#[test]
fn what_is_collected_is_bounded_to_the_byte() {
    // Payload `3`, uid `u3`, key `k`, media type, and what each event counts besides.
    let each = 1 + 2 + 1 + "application/json".len() as u64 + 256;
    for (bytes_max, fitting) in [(10 * each, None), (10 * each + 1, None), (10 * each - 1, Some(9)), (3 * each, Some(3)), (0, Some(0))] {
        let bus = Scripted::holding(0..10, &[], 4);
        let wanted = Wanted { topic: "t", partition: Partition(0), offset: Offset(0), count_max: usize::MAX, bytes_max };
        let fetched = pages::fetch(&bus, wanted);
        let Some(fitting) = fitting else {
            assert_eq!(fetched.unwrap().len(), 10);
            continue;
        };
        let refused = fetched.unwrap_err();
        assert!(matches!(refused, BusError::OutOfRange { .. }), "{refused:?}");
        assert!(refused.to_string().contains(&format!("fetch_total_bytes is {bytes_max}")), "{refused}");
        assert!(refused.to_string().contains(&format!("ask for {fitting} at most")), "{refused}");
        assert_eq!(pages::fetch(&bus, Wanted { count_max: fitting, ..wanted }).unwrap().len(), fitting, "what it advises works");
    }
}
