//! What a maintenance says in words of what it could not archive.

use super::*;
use crate::MaintenanceReport;

fn told(archive: &Archive, pass: &Pass) -> Vec<String> {
    let mut report = MaintenanceReport::default();
    archive.tell(pass, &mut report);
    report.archive_problems
}

#[test]
fn an_export_in_quarantine_is_named_with_event_place_reason_and_step_until_it_is_mended() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), Arc::clone(&store) as _);
    store.plant("t/p1/00000000000000000007.json", "another one");
    stage(&archive, intent("order-1", 0, Some(7)));
    let pass = drain(&archive, 0, &answers(at(0)));
    let problems = told(&archive, &pass);
    assert_eq!(problems.len(), 1, "{problems:?}");
    for part in ["uid order-1 of topic \"t\"", "on its way to x", "t/p1/00000000000000000007.json", "different content", "move one away"] {
        assert!(problems[0].contains(part), "{part}: {problems:?}");
    }
    // It rests for an hour, and whoever asks meanwhile is told the same.
    assert_eq!(told(&archive, &drain(&archive, 1, &answers(at(0)))), problems);
    store.lose("t/p1/00000000000000000007.json");
    let mended = drain(&archive, limits::COLD_QUARANTINE_MILLIS.default, &answers(at(0)));
    assert_eq!((mended.completed(), told(&archive, &mended)), (1, vec![]));
}

#[test]
fn a_store_that_fails_is_named_with_its_reason_and_no_more_than_so_many_problems_are_told() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), Arc::clone(&store) as _);
    let max = limits::ARCHIVE_PROBLEMS.default;
    let intents: Vec<_> = (0..=max).map(|n| intent(&format!("u{n}"), 0, Some(n))).collect();
    assert!(archive.outbox.stage(&intents).iter().all(Result::is_ok));
    store.set_down(true);
    let problems = told(&archive, &drain(&archive, 0, &answers(at(0))));
    assert!(!problems.is_empty() && problems.iter().all(|problem| problem.contains("failed: planned")), "{problems:?}");
    store.set_down(false);
    (0..=max).for_each(|n| store.plant(&format!("t/p1/{n:020}.json"), "another one"));
    let problems = told(&archive, &drain(&archive, limits::COLD_RETRY_MILLIS_MAX.default, &answers(at(0))));
    assert_eq!(problems.len() as u64, max, "{problems:?}");
    let foreign = directory.path().join("0.json");
    std::fs::write(&foreign, "{}").unwrap();
    for problem in told(&archive, &drain(&archive, limits::COLD_RETRY_MILLIS_MAX.default + 1, &answers(at(0)))) {
        assert!(problem.contains("different content"), "the first ones stay: {problem}");
    }
}
