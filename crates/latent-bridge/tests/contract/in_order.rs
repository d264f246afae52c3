//! Publications strictly one behind the other.

use std::sync::Barrier;

use latent_bridge::{BusError, Fence, PublishResult};
use latent_core::NewRecord;

use super::Engine;
use super::stored::stored;
use crate::support::fixtures::{manifest, record};

fn outcomes(results: &[PublishResult]) -> Vec<&str> {
    let outcome = |result: &'_ PublishResult| match result {
        Ok(ack) if ack.duplicate => "again",
        Ok(_) => "new",
        Err(error) if error.is_permanent() => "refused",
        Err(_) => "failed",
    };
    results.iter().map(outcome).collect()
}

fn records(uids: &[&str]) -> Vec<NewRecord> {
    uids.iter().map(|uid| record(uid, "k", (*uid).to_owned())).collect()
}

fn uids<E: Engine>(engine: &E) -> Vec<String> {
    stored(engine, "t").into_iter().map(|stored| stored.record.uid.to_string()).collect()
}

pub(crate) fn records_are_stored_one_behind_the_other_and_only_where_nothing_came_between<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let bus = engine.in_order();
    let empty = bus.fence("t").unwrap();
    assert_eq!(outcomes(&bus.publish_behind("t", empty, &records(&["a", "b", "c"]))), ["new"; 3]);
    assert_eq!(bus.fence("t").unwrap(), empty.after(3), "one further for each");
    // Late ones of an earlier run, under uids that nobody knows.
    for behind in [empty, empty.after(1), empty.after(2), empty.after(4), Fence(u64::MAX)] {
        assert_eq!(outcomes(&bus.publish_behind("t", behind, &records(&["x", "y"]))), ["failed"; 2], "{behind:?}");
    }
    assert_eq!(uids(&engine), ["a", "b", "c"]);
    bus.publish_record("t", &record("d", "k", "d")).unwrap();
    assert_eq!(outcomes(&bus.publish_behind("t", empty.after(3), &records(&["e"]))), ["failed"], "another one came between");
    assert_eq!(outcomes(&bus.publish_behind("t", empty.after(4), &records(&["e"]))), ["new"]);
    assert!(bus.publish_behind("t", empty, &[]).is_empty());
    assert!(matches!(bus.fence("nope"), Err(BusError::UnknownTopic { .. })));
    assert_eq!(outcomes(&bus.publish_behind("nope", empty, &records(&["a"]))), ["refused"]);
    let engine = engine.reopen();
    assert_eq!(engine.in_order().fence("t").unwrap(), empty.after(5));
    assert_eq!(uids(&engine), ["a", "b", "c", "d", "e"]);
}

pub(crate) fn nothing_is_stored_behind_one_that_is_not_new<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 4)]));
    let bus = engine.in_order();
    let empty = bus.fence("t").unwrap();
    assert_eq!(outcomes(&bus.publish_behind("t", empty, &records(&["a"]))), ["new"]);
    let other = record("a", "k", "other");
    for (second, expected) in [(records(&["a"]).remove(0), "again"), (other, "refused")] {
        let fence = bus.fence("t").unwrap();
        let number = fence.0;
        let batch = [record(&format!("new-{number}"), "k", "x"), second, record("behind", "k", "x"), record("last", "other", "x")];
        let results = bus.publish_behind("t", fence, &batch);
        assert_eq!(outcomes(&results), ["new", expected, "failed", "failed"]);
        assert!(!results[2..].iter().any(|result| result.as_ref().is_err_and(BusError::is_uncertain)), "{results:?}");
        assert_eq!(bus.fence("t").unwrap(), fence.after(1));
    }
    assert_eq!(stored(&engine, "t").len(), 3);
}

pub(crate) fn of_two_who_publish_behind_the_same_end_one_stores_a_beginning_and_the_other_nothing<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 1)]));
    let (bus, start) = (engine.in_order(), Barrier::new(2));
    let mut expected = Vec::new();
    for round in 0..10 {
        let fence = bus.fence("t").unwrap();
        let all = std::thread::scope(|scope| {
            let publish = |who: &'static str| {
                let start = &start;
                scope.spawn(move || {
                    let batch: Vec<_> = (0..20).map(|n| record(&format!("{who}-{round}-{n}"), &format!("k{n}"), "x")).collect();
                    start.wait();
                    bus.publish_behind("t", fence, &batch)
                })
            };
            ["one", "two"].map(publish).map(|thread| thread.join().unwrap())
        });
        let of_round: Vec<_> = all.iter().flatten().flatten().map(|ack| ack.uid.clone()).collect();
        let is_beginning_of = |who: &str| of_round.iter().enumerate().all(|(n, uid)| *uid == format!("{who}-{round}-{n}"));
        assert!(is_beginning_of("one") || is_beginning_of("two"), "{of_round:?}");
        expected.extend(of_round);
        // A stream with replicas takes its time to say nothing.
        if all.iter().flatten().any(|result| result.as_ref().is_err_and(BusError::is_uncertain)) {
            break;
        }
    }
    assert_eq!(uids(&engine), expected, "and nothing else");
}

pub(crate) fn thousands_in_one_call_are_stored_in_their_order<E: Engine>() {
    let engine = E::provision(&manifest(&[("t", 3)]));
    let bus = engine.in_order();
    let batch: Vec<_> = (0..3_000).map(|n| record(&format!("u{n}"), &format!("k{}", n % 7), n.to_string())).collect();
    let results = bus.publish_behind("t", bus.fence("t").unwrap(), &batch);
    assert!(outcomes(&results).iter().all(|outcome| *outcome == "new"));
    let stored = stored(&engine, "t");
    assert_eq!(stored.len(), 3_000);
    for partition in 0..3 {
        let numbers: Vec<u32> = stored
            .iter()
            .filter(|stored| stored.partition.0 == partition)
            .map(|stored| std::str::from_utf8(&stored.record.payload).unwrap().parse().unwrap())
            .collect();
        assert!(numbers.is_sorted() && !numbers.is_empty());
    }
}
