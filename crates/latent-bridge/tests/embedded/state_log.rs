//! State logs: what is appended is replayed, whatever happens in between.

use std::path::Path;

use bytes::Bytes;
use latent_bridge::embedded::{Durability, EngineLimits, ReplayReport, StateLog};
use latent_bridge::{BusError, EmbeddedBroker};

use crate::support::fixtures::{copy_directory, manifest, options, quick, scratch};
use crate::support::storage::{Failing, TestStorage};

fn limits() -> EngineLimits {
    EngineLimits { preallocation_bytes: 64, ..EngineLimits::default() }
}

fn provisioned(limits: EngineLimits) -> (tempfile::TempDir, EmbeddedBroker) {
    let directory = scratch();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), quick(limits)).unwrap();
    (directory, broker)
}

fn append(log: &StateLog, entries: &[&str]) {
    for entry in entries {
        log.append(Bytes::copy_from_slice(entry.as_bytes()), Durability::Synced).wait().unwrap();
    }
}

fn replay(log: &StateLog) -> (Vec<String>, ReplayReport) {
    let mut entries = Vec::new();
    let report = log.replay(|entry| entries.push(String::from_utf8_lossy(entry).into_owned())).unwrap();
    (entries, report)
}

fn reopened(directory: &Path) -> (EmbeddedBroker, StateLog) {
    let broker = EmbeddedBroker::open_with(directory, quick(limits())).unwrap();
    let log = broker.state_log("d").unwrap();
    (broker, log)
}

/// A closed directory whose state log has five entries, and the log's bytes.
fn five() -> (tempfile::TempDir, Vec<u8>) {
    let (directory, broker) = provisioned(limits());
    append(&broker.state_log("d").unwrap(), &["zero", "one", "two", "three", "four"]);
    drop(broker);
    let mut content = std::fs::read(directory.path().join("state/d.log")).unwrap();
    content.truncate(content.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    (directory, content)
}

fn with_content(directory: &Path, content: &[u8]) -> tempfile::TempDir {
    let copy = copy_directory(directory);
    std::fs::write(copy.path().join("state/d.log"), content).unwrap();
    copy
}

#[test]
fn entries_come_back_in_order_also_after_reopening() {
    let (directory, broker) = provisioned(limits());
    let log = broker.state_log("d").unwrap();
    let large = "x".repeat(65_536);
    append(&log, &["a", "", &large]);
    log.append(Bytes::from_static(b"b"), Durability::Written).wait().unwrap();
    let same = broker.state_log("d").unwrap();
    assert_eq!(replay(&same).0, ["a", "", &large, "b"]);
    assert_eq!((same.len_bytes(), log.len_bytes()), (4 * 16 + 65_538, 4 * 16 + 65_538));
    append(&broker.state_log("other").unwrap(), &["elsewhere"]);
    drop(broker);
    let refused = log.append(Bytes::from_static(b"late"), Durability::Written).wait();
    assert!(matches!(refused, Err(BusError::NotSent { .. })));
    let (_broker, log) = reopened(directory.path());
    assert_eq!(
        replay(&log),
        (vec!["a".to_owned(), String::new(), large, "b".to_owned()], ReplayReport { entries: 4, damaged: 0, torn: 0 })
    );
}

#[test]
fn a_log_cut_at_any_byte_keeps_its_whole_entries_and_goes_on() {
    let (directory, content) = five();
    for cut in 0..=content.len() {
        let copy = with_content(directory.path(), &content[..cut]);
        let (broker, log) = reopened(copy.path());
        let (before, report) = replay(&log);
        assert_eq!(before, ["zero", "one", "two", "three", "four"][..before.len()]);
        let at_an_edge = log.len_bytes() == cut as u64;
        assert_eq!((report.torn, report.damaged), (u64::from(!at_an_edge), 0), "cut at {cut}");
        append(&log, &["new"]);
        drop((broker, log));
        let (_broker, log) = reopened(copy.path());
        let (after, report) = replay(&log);
        assert_eq!((after.len(), after.last().map(String::as_str), report.torn), (before.len() + 1, Some("new"), 0), "cut at {cut}");
    }
}

#[test]
fn one_flipped_bit_costs_one_entry_and_is_reported() {
    let (directory, content) = five();
    let all = ["zero", "one", "two", "three", "four"];
    for bit in 0..content.len() * 8 {
        let mut flipped = content.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let copy = with_content(directory.path(), &flipped);
        let (_broker, log) = reopened(copy.path());
        let (entries, report) = replay(&log);
        assert_eq!((entries.len(), report.damaged + report.torn), (4, 1), "bit {bit}: {entries:?}");
        let mut rest = all.iter();
        assert!(entries.iter().all(|entry| rest.any(|known| known == entry)), "bit {bit}: {entries:?}");
        append(&log, &["new"]);
        assert_eq!(replay(&log).0.last().unwrap(), "new");
    }
}

#[test]
fn a_replaced_log_has_only_the_new_entries_and_goes_on() {
    let (directory, broker) = provisioned(limits());
    let log = broker.state_log("d").unwrap();
    append(&log, &["a", "b", "c"]);
    let before = log.append(Bytes::from_static(b"superseded"), Durability::Written);
    let replaced = log.replace(&[Bytes::from_static(b"abc")]);
    let after = log.append(Bytes::from_static(b"d"), Durability::Synced);
    assert_eq!([before.wait(), replaced.wait(), after.wait()], [Ok(()), Ok(()), Ok(())]);
    assert_eq!((replay(&log).0, log.len_bytes()), (vec!["abc".to_owned(), "d".to_owned()], 2 * 16 + 4));
    drop(broker);
    let (_broker, log) = reopened(directory.path());
    assert_eq!(replay(&log).0, ["abc", "d"]);
    log.replace(&[]).wait().unwrap();
    assert_eq!((replay(&log).0.len(), log.len_bytes()), (0, 0));
}

#[test]
fn a_failing_call_leaves_the_old_log_or_the_new_one() {
    for call in 0.. {
        let directory = scratch();
        let storage = TestStorage::without_syncs();
        let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), options(&storage, limits())).unwrap();
        let log = broker.state_log("d").unwrap();
        append(&log, &["a", "b"]);
        storage.fail(Failing::Only(call));
        let results = [
            log.append(Bytes::from_static(b"c"), Durability::Synced).wait(),
            log.replace(&[Bytes::from_static(b"new")]).wait(),
            log.append(Bytes::from_static(b"d"), Durability::Written).wait(),
        ];
        let missed = storage.failed() == 0;
        drop((broker, log));
        let (_broker, log) = reopened(directory.path());
        let (entries, report) = replay(&log);
        assert_eq!(report.damaged + report.torn, 0, "call {call}");
        let has = |entry: &str| entries.iter().any(|known| known == entry);
        assert_ne!(has("new"), has("a"), "call {call}: {entries:?}");
        assert_eq!(has("a"), has("b"), "call {call}: {entries:?}");
        for (result, entry) in results.iter().zip(["c", "new", "d"]) {
            match result {
                Ok(()) => assert!(has(entry) || (entry == "c" && has("new")), "call {call}: {entry} of {entries:?}"),
                Err(BusError::NotSent { .. } | BusError::Poisoned { .. }) => assert!(!has(entry), "call {call}: {entry} of {entries:?}"),
                Err(BusError::Io { .. }) => {}
                Err(other) => panic!("call {call}: {other}"),
            }
        }
        if missed {
            assert!(results.iter().all(Result::is_ok));
            return;
        }
    }
}

#[test]
fn a_failed_sync_poisons_the_log_until_it_is_opened_again() {
    let directory = scratch();
    let storage = TestStorage::without_syncs();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&[("t", 1)]), options(&storage, limits())).unwrap();
    let log = broker.state_log("d").unwrap();
    append(&log, &["a"]);
    // Calls of one append into space written ahead: the entry, then the sync.
    storage.fail(Failing::Only(1));
    assert!(matches!(log.append(Bytes::from_static(b"b"), Durability::Synced).wait(), Err(BusError::Io { operation: "sync", .. })));
    for refused in [log.append(Bytes::from_static(b"c"), Durability::Written), log.replace(&[])] {
        assert!(matches!(refused.wait(), Err(BusError::Poisoned { .. })));
    }
    append(&broker.state_log("other").unwrap(), &["goes on"]);
    drop((broker, log));
    let (_broker, log) = reopened(directory.path());
    assert_eq!(replay(&log).0, ["a", "b"], "not lost, and never said to be stored");
    append(&log, &["c"]);
}

#[test]
fn entries_and_logs_are_bounded_at_their_edges() {
    let small = EngineLimits { state_entry_bytes: 100, state_log_bytes: 1_024, state_logs: 2, ..limits() };
    let (_directory, broker) = provisioned(small);
    let log = broker.state_log("d").unwrap();
    let append = |bytes: usize| log.append(Bytes::from(vec![1; bytes]), Durability::Written).wait();
    assert!(matches!(append(101), Err(BusError::OutOfRange { .. })));
    (0..8).for_each(|_| append(100).unwrap());
    assert_eq!(log.len_bytes(), 8 * 116);
    assert_eq!(append(81), Err(BusError::Busy { limit: "state_log_bytes" }));
    assert_eq!(append(80), Ok(()), "exactly full");
    assert_eq!(append(0), Err(BusError::Busy { limit: "state_log_bytes" }));
    let entries = |count: usize| vec![Bytes::from(vec![1; 112 - 12]); count];
    assert_eq!(log.replace(&entries(9)).wait(), Err(BusError::Busy { limit: "state_log_bytes" }));
    assert_eq!(log.replace(&entries(8)).wait(), Ok(()));
    assert!(broker.state_log("second").is_ok() && broker.state_log("d").is_ok());
    assert_eq!(broker.state_log("third").map(|_| ()), Err(BusError::Busy { limit: "state_logs" }));
}

#[test]
fn names_are_plain_tokens() {
    let (_directory, broker) = provisioned(limits());
    assert!(broker.state_log(&"x".repeat(64)).is_ok());
    for name in ["", "a.b", "../x", "a/b", "a b", "é", &"x".repeat(65)] {
        assert!(matches!(broker.state_log(name).map(|_| ()), Err(BusError::Config { .. })), "{name:?}");
    }
}

#[test]
fn a_torn_end_is_gone_after_one_opening_so_nothing_later_can_be_mixed_with_it() {
    let (directory, content) = five();
    for cut in 1..12 {
        let mut torn = content[..content.len() - cut].to_vec();
        // What a half-written page can leave behind the cut.
        torn.extend_from_slice(&[0xa5; 40]);
        let copy = with_content(directory.path(), &torn);
        for (opening, expected) in [(1, 1), (2, 0)] {
            let (_broker, log) = reopened(copy.path());
            let (entries, report) = replay(&log);
            assert_eq!((entries.len(), report.torn), (4, expected), "cut {cut}, opening {opening}");
        }
    }
}
