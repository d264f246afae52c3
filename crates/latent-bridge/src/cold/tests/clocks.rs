//! A wall clock that is a day off when a process starts on an outbox in which intents wait. A node holds maintenance by such a clock; these are
//! the ends when it was believed all the same: confirmed by an operator, or before anybody could tell.

use super::*;

const DAY: u64 = 86_400_000;
const T: u64 = 1_800_000_000_000;

/// Of an intent staged at `stored_at`: how often the log is asked, and what is archived, by a new process for each of the times.
fn resolved_at(stored_at: u64, times: &[u64]) -> Vec<(u64, usize)> {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    stage(&open(directory.path(), Arc::clone(&store) as _), intent("u", stored_at, None));
    let resolver = answers(at(5));
    let after = |now: &u64| {
        let archive = open(directory.path(), Arc::clone(&store) as _);
        drain(&archive, *now, &resolver);
        (resolver.1.load(Ordering::SeqCst), objects(&store).len())
    };
    times.iter().map(after).collect()
}

#[test]
fn behind_by_a_day_an_intent_waits_and_ahead_by_a_day_the_log_is_asked_and_either_way_it_is_finished_once() {
    let (waits, done) = ((0, 0), (1, 1));
    assert_eq!(resolved_at(T, &[T - DAY, T, T + GRACE - 1, T + GRACE, T + DAY]), [waits, waits, waits, done, done]);
    assert_eq!(resolved_at(T, &[T + DAY, T, T + 2 * DAY]), [done, done, done]);
    // Staged by a clock that was ahead, and looked at when it is right.
    assert_eq!(resolved_at(T + DAY, &[T, T + GRACE, T + DAY + GRACE, T + 2 * DAY]), [waits, waits, done, done]);
}

/// What failed by a clock that was ahead is tried by the right one at once, and not a day later.
#[test]
fn a_pause_that_began_by_a_clock_that_was_ahead_ends_when_it_is_set_right() {
    let (directory, store) = (scratch(), Arc::new(MemoryStore::new()));
    let archive = open(directory.path(), Arc::clone(&store) as _);
    stage(&archive, intent("u", T, Some(5)));
    store.plant("t/p1/00000000000000000005.json", &b"something else"[..]);
    assert_eq!((drain(&archive, T + DAY, &answers(at(5))).failed(), archive.outbox.counts()), (1, (1, 1)));
    store.lose("t/p1/00000000000000000005.json");
    assert_eq!(drain(&archive, T + DAY + 1, &answers(at(5))).completed(), 0, "by the same clock it rests");
    assert_eq!(drain(&archive, T, &answers(at(5))).completed(), 1);
}
