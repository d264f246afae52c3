//! BUG-71: a put that hangs. Who waits for it has its time; what it does after that is found by the next attempt.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::super::bounded::BoundedStore;
use super::super::doubles::HangingStore;
use super::*;

/// A store whose calls have no time at all while that is wanted: they are over it, as one that hangs is after ten seconds.
struct Timed {
    patient: BoundedStore,
    hasty: BoundedStore,
    is_hasty: AtomicBool,
    puts: AtomicU64,
}

impl Timed {
    fn over(store: &Arc<HangingStore>) -> Self {
        let (patient, hasty) = (BoundedStore::new(Arc::clone(store) as _), BoundedStore::within(Duration::ZERO, Arc::clone(store) as _));
        Self { patient: patient.unwrap(), hasty: hasty.unwrap(), is_hasty: AtomicBool::new(false), puts: AtomicU64::new(0) }
    }
}

impl ColdStore for Timed {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        if self.is_hasty.load(Ordering::SeqCst) { self.hasty.put_new(path, bytes) } else { self.patient.put_new(path, bytes) }
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        self.patient.get(path, bytes_max)
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        self.patient.list_after(prefix, after, count_max)
    }
}

#[test]
fn bug_71_a_put_that_hangs_is_left_at_its_time_told_tried_again_after_pauses_and_makes_one_object() {
    let (directory, hanging) = (scratch(), Arc::new(HangingStore::default()));
    let timed = Arc::new(Timed::over(&hanging));
    let archive = open(directory.path(), Arc::clone(&timed) as _);
    stage(&archive, intent("u", 0, Some(5)));
    hanging.hang(true);
    timed.is_hasty.store(true, Ordering::SeqCst);
    let of_probe = timed.puts.load(Ordering::SeqCst);
    let puts = || timed.puts.load(Ordering::SeqCst) - of_probe;
    let pause = limits::COLD_RETRY_MILLIS.default;
    for (now, expected) in [(0, 1), (pause - 1, 1), (pause, 2), (3 * pause - 1, 2), (3 * pause, 3)] {
        let before = puts();
        let pass = drain(&archive, now, &answers(at(0)));
        let mut report = crate::MaintenanceReport::default();
        archive.tell(&pass, &mut report);
        assert_eq!((puts(), report.intents_pending, report.intents_quarantined), (expected, 1, 0), "at {now}");
        let told = if expected > before { (1, vec!["t".to_owned()]) } else { (0, Vec::new()) };
        assert_eq!((report.intents_failed, report.unreachable_topics), told, "at {now}");
    }
    // What is staged meanwhile waits for none of them.
    assert!(!stage(&archive, intent("v", u64::MAX, None)).existed);
    hanging.hang(false);
    latent_testkit::wait_until("one of them comes to its end", || objects(&hanging.store).len() == 1);
    timed.is_hasty.store(false, Ordering::SeqCst);
    assert_eq!(drain(&archive, 7 * pause, &answers(at(0))).completed(), 1, "found to be ours");
    assert_eq!((objects(&hanging.store), archive.outbox.counts()), (vec!["t/p1/00000000000000000005.json".to_owned()], (1, 0)));
    let object = hanging.store.objects()["t/p1/00000000000000000005.json"].clone();
    assert_eq!(super::super::object::decode(&object).unwrap().record.uid.as_str(), "u");
}
