//! The delivery of every event through a storage that fails, and a process that ends there: at every write and every sync of the delivery
//! state, and of any file. Then a process with a sound storage goes on. What came out must be what comes out without any trouble.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod bench;
#[allow(dead_code, reason = "not every fault is needed here")]
#[path = "../../../latent-bridge/tests/support/storage.rs"]
mod storage;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bench::{Node, Told, prepare, records};
use latent_core::{BindingId, DeadLetter, Partition, TopicName};
use latent_topics::UnitKey;
use storage::{Failing, Fault, Op, TestStorage};

const EVENTS: &[(&str, &str)] = &[
    ("a", "ok"),
    ("b", "reject"),
    ("a", "ok"),
    ("c", "fail"),
    ("a", "reject"),
    ("c", "ok"),
    ("d", "ok"),
    ("a", "ok"),
    ("b", "ok"),
    ("e", "fail"),
];

/// Results of each key: uid and payload, in order.
type Results = BTreeMap<String, Vec<(String, String)>>;

fn results(node: &Node, topic: &str) -> Results {
    let mut results = Results::new();
    for stored in records(&node.bus, topic) {
        let (uid, payload) = (stored.record.uid.to_string(), String::from_utf8(stored.record.payload.to_vec()).unwrap());
        results.entry(stored.record.key).or_default().push((uid, payload));
    }
    results
}

/// What came out, and which events were parked for which reason.
#[derive(Debug, PartialEq, Eq)]
struct End {
    out: Results,
    dead: Results,
    reasons: BTreeMap<String, &'static str>,
}

fn end_of(node: &Node) -> End {
    let letters = records(&node.bus, "dead");
    let letter = |stored: &latent_core::StoredRecord| DeadLetter::read(&stored.record.attributes).unwrap();
    let reasons = letters.iter().map(letter).map(|letter| (letter.uid.unwrap().to_string(), letter.verdict.reason.kind()));
    End { out: results(node, "out"), dead: results(node, "dead"), reasons: reasons.collect() }
}

fn undisturbed() -> End {
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path(), EVENTS);
    let node = Node::start(directory.path(), &TestStorage::without_syncs(), &Told::default()).unwrap();
    assert!(node.run(|| false));
    let end = end_of(&node);
    assert_eq!((end.out.values().map(Vec::len).sum::<usize>(), end.reasons.len()), (6, 4));
    end
}

/// What was told to be settled is settled.
fn check_told(node: &Node, told: &Told, context: &str) {
    for (partition, offset) in told.lock().unwrap().iter() {
        let key =
            UnitKey { binding: BindingId::parse("b").unwrap(), topic: TopicName::parse("in").unwrap(), partition: Partition(*partition) };
        let unit = node.store.unit_of(&key).unwrap();
        let settled = node.store.remembered(unit, &latent_core::SystemClock::start(), 10).settled;
        assert!(settled.contains(latent_core::Offset(*offset)), "{context}: {partition}/{offset} was settled and is not any more");
    }
}

/// A run with faults, a kill, and a run without. True when the faults were met.
fn disturbed(directory: &Path, faults: &[Fault], expected: &End, context: &str) -> bool {
    let (storage, told) = (TestStorage::without_syncs(), Told::default());
    storage.inject(faults);
    let first = Node::start(directory, &storage, &told);
    if let Some(node) = first {
        let failed = || storage.failed() > 0;
        node.run(failed);
        node.kill();
    }
    let met = storage.failed() > 0;
    storage.inject(&[]);
    let node = again(directory, &storage, &told);
    check_told(&node, &told, context);
    assert!(node.run(|| false), "{context}");
    assert_eq!(&end_of(&node), expected, "{context}");
    node.kill();
    met
}

/// The next process may start a moment before the last one's files are closed.
fn again(directory: &Path, storage: &Arc<TestStorage>, told: &Told) -> Node {
    let mut started = None;
    latent_testkit::wait_until("the directory to be free", || {
        started = Node::start(directory, storage, told);
        started.is_some()
    });
    started.unwrap()
}

/// Each call of a kind, on files whose names end so, until there are no more.
fn each_call(op: Op, ending: &'static str, fault: impl Fn(u64) -> Fault) -> u64 {
    let expected = undisturbed();
    for number in 0.. {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path(), EVENTS);
        let context = format!("{op:?} {number} of {ending:?}");
        if !disturbed(directory.path(), &[fault(number)], &expected, &context) {
            return number;
        }
    }
    0
}

const STATE: &str = "deliveries.log";

#[test]
fn each_write_of_the_delivery_state_may_fail() {
    let writes = each_call(Op::Write, STATE, |number| Fault::once(Op::Write, STATE, number));
    assert!(writes > 10, "{writes}");
}

#[test]
fn the_disk_may_be_full_from_each_write_of_the_delivery_state_on() {
    let writes = each_call(Op::Write, STATE, |number| Fault::full_from(Op::Write, STATE, number));
    assert!(writes > 10, "{writes}");
}

#[test]
fn each_sync_of_the_delivery_state_may_fail() {
    let syncs = each_call(Op::Sync, STATE, |number| Fault::once(Op::Sync, STATE, number));
    assert!(syncs > 5, "{syncs}");
}

#[test]
fn everything_may_end_at_each_write_of_any_file() {
    // As a kill: from there on nothing is written any more, half of the first write apart.
    let writes = each_call(Op::Write, "", |number| Fault { which: Failing::From(number), ..Fault::full_from(Op::Write, "", number) });
    assert!(writes > 20, "{writes}");
}

#[test]
fn everything_may_end_at_each_sync_of_any_file() {
    let syncs = each_call(Op::Sync, "", |number| Fault { which: Failing::From(number), ..Fault::once(Op::Sync, "", number) });
    assert!(syncs > 10, "{syncs}");
}
