use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::NodeLimits;
use crate::admission::Account;

fn tenant(number: usize) -> TenantId {
    TenantId::parse(&format!("t{number}")).unwrap()
}

fn limits(cells: u32, tenant_running: u32) -> NodeLimits {
    NodeLimits { cells, tenant_running, admission_slots: 10_000, tenant_queued: 4_096, ..NodeLimits::for_cores(1) }
}

/// A scheduler with its accounts, and a count that gives every entry a name.
struct Bench {
    admission: Admission,
    scheduler: Scheduler<usize>,
    running: Vec<Started<usize>>,
    enqueued: u8,
}

impl Bench {
    fn new(cells: u32, tenant_running: u32) -> Self {
        Self { admission: Admission::new(limits(cells, tenant_running)), scheduler: Scheduler::new(100), running: Vec::new(), enqueued: 0 }
    }

    /// Queues one entry, due at `deadline_millis`, and gives its id.
    fn enqueue(&mut self, of: usize, deadline_millis: u64) -> ActivationId {
        self.enqueued += 1;
        let activation = ActivationId::from_random([self.enqueued; 16]);
        let reserved = self.admission.reserve(&tenant(of), 1).unwrap();
        let slot = self.admission.queue(reserved);
        let deadline = Deadline::after(MonoTime::ZERO, deadline_millis);
        self.scheduler.enqueue(Entry { activation, deadline, slot, work: of });
        activation
    }

    /// Starts what can start; gives whose entries they were, in order.
    fn start(&mut self) -> Vec<usize> {
        let mut started = Vec::new();
        while let Some(start) = self.scheduler.next(&mut self.admission) {
            started.push(start.work);
            self.running.push(start);
        }
        started
    }

    /// Ends the longest running entry of `of`.
    fn finish(&mut self, of: usize) {
        let at = self.running.iter().position(|started| started.work == of).unwrap();
        self.admission.release(self.running.remove(at).slot);
    }

    fn release(&mut self, entry: Option<Entry<usize>>) -> Option<ActivationId> {
        let entry = entry?;
        self.admission.release(entry.slot);
        Some(entry.activation)
    }
}

#[test]
fn a_tenant_is_served_first_in_first_out() {
    let mut bench = Bench::new(1, 16);
    let ids: Vec<_> = (0..5).map(|_| bench.enqueue(1, 1_000)).collect();
    for id in ids {
        bench.start();
        assert_eq!(bench.running[0].activation, id);
        bench.finish(1);
    }
    assert!(bench.start().is_empty() && bench.scheduler.is_empty());
}

#[test]
fn while_one_tenant_floods_the_others_event_starts_in_the_first_cell_that_becomes_free() {
    for cells in 1..=8 {
        let mut bench = Bench::new(cells, 16);
        for _ in 0..40 {
            bench.enqueue(1, 1_000);
        }
        assert_eq!(bench.start(), vec![1; cells as usize]);
        bench.enqueue(2, 1_000);
        assert!(bench.start().is_empty());
        bench.finish(1);
        assert_eq!(bench.start(), [2], "{cells} cells");
        // Nor does it have to wait longer for its next event, whether that comes before or after the end of the first.
        bench.finish(2);
        assert_eq!(bench.start(), [1]);
        bench.enqueue(2, 1_000);
        bench.finish(1);
        assert_eq!(bench.start(), [2], "{cells} cells");
    }
}

#[test]
fn busy_tenants_take_turns() {
    let mut bench = Bench::new(1, 16);
    for of in [1, 1, 1, 2, 2, 3] {
        bench.enqueue(of, 1_000);
    }
    let mut order = Vec::new();
    while let [of] = bench.start()[..] {
        order.push(of);
        bench.finish(of);
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 1]);
}

#[test]
fn a_tenant_at_its_running_bound_is_passed_over_and_does_not_lose_its_turn() {
    let mut bench = Bench::new(4, 1);
    for of in [1, 1, 2, 2] {
        bench.enqueue(of, 1_000);
    }
    assert_eq!(bench.start(), [1, 2]);
    bench.enqueue(3, 1_000);
    assert_eq!(bench.start(), [3]);
    bench.finish(1);
    assert_eq!(bench.start(), [1]);
}

#[test]
fn newcomers_without_end_do_not_starve_a_tenant_that_waits() {
    let mut bench = Bench { scheduler: Scheduler::new(3), ..Bench::new(1, 16) };
    bench.enqueue(0, 1_000);
    bench.enqueue(0, 1_000);
    assert_eq!(bench.start(), [0]);
    // Each round brings a tenant never seen before. Four tenants are more than are remembered.
    let waited = (1..20).position(|newcomer| {
        bench.enqueue(newcomer, 1_000);
        let running = bench.running[0].work;
        bench.finish(running);
        bench.start() == [0]
    });
    assert_eq!(waited, Some(3));
}

#[test]
fn a_cancelled_entry_leaves_the_line_and_a_started_one_cannot_be_cancelled_here() {
    let mut bench = Bench::new(1, 16);
    let ids: Vec<_> = (0..3).map(|_| bench.enqueue(1, 1_000)).collect();
    bench.start();
    assert!(bench.scheduler.cancel(ids[0]).is_none());
    let cancelled = bench.scheduler.cancel(ids[1]);
    assert_eq!(bench.release(cancelled), Some(ids[1]));
    assert!(bench.scheduler.cancel(ids[1]).is_none());
    bench.finish(1);
    bench.start();
    assert_eq!(bench.running[0].activation, ids[2]);
}

#[test]
fn entries_expire_at_their_deadline_and_not_before() {
    let mut bench = Bench::new(1, 16);
    bench.enqueue(1, 1_000);
    bench.start();
    let [late, early] = [200, 100].map(|millis| bench.enqueue(1, millis));
    assert_eq!(bench.scheduler.next_deadline(), Some(Deadline::after(MonoTime::ZERO, 100)));
    for (micros, expected) in [(99_999, None), (100_000, Some(early)), (199_999, None), (200_000, Some(late)), (u64::MAX, None)] {
        let expired = bench.scheduler.expire(MonoTime::from_micros(micros));
        assert_eq!(bench.release(expired), expected, "{micros}");
    }
    assert_eq!(bench.scheduler.next_deadline(), None);
}

/// What waits, as the property test sees it from outside.
#[derive(Default)]
struct Observed {
    waiting: Vec<(usize, ActivationId)>,
    /// For each tenant, who has started since its last start.
    since_last: BTreeMap<usize, BTreeSet<usize>>,
}

impl Observed {
    fn check_start(&mut self, started: &Started<usize>, startable: &BTreeSet<usize>) {
        let of = started.work;
        let at = self.waiting.iter().position(|(tenant, _)| *tenant == of).expect("only what waits can start");
        assert_eq!(self.waiting.remove(at).1, started.activation, "first in, first out");
        if let Some(since) = self.since_last.get(&of) {
            let passed_over: Vec<_> = startable.iter().filter(|other| **other != of && !since.contains(other)).collect();
            assert!(passed_over.is_empty(), "{of} started twice while {passed_over:?} could have");
        }
        for since in self.since_last.values_mut() {
            since.insert(of);
        }
        self.since_last.insert(of, BTreeSet::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn every_schedule_is_fair_in_order_and_leaves_no_cell_idle(
        cells in 1u32..4,
        tenant_running in 1u32..4,
        operations in prop::collection::vec((0u8..4, 0usize..4, any::<usize>()), 1..150),
    ) {
        let mut bench = Bench::new(cells, tenant_running);
        let mut observed = Observed::default();
        for (kind, of, pick) in operations {
            match kind {
                0 | 1 => {
                    let activation = bench.enqueue(of, 1_000);
                    observed.waiting.push((of, activation));
                }
                2 if !bench.running.is_empty() => {
                    let started = bench.running.swap_remove(pick % bench.running.len());
                    bench.admission.release(started.slot);
                }
                3 if !observed.waiting.is_empty() => {
                    let (_, activation) = observed.waiting.remove(pick % observed.waiting.len());
                    let cancelled = bench.scheduler.cancel(activation);
                    prop_assert_eq!(bench.release(cancelled), Some(activation));
                }
                _ => {}
            }
            loop {
                let waiting = observed.waiting.iter().map(|(tenant, _)| *tenant);
                let startable: BTreeSet<_> = waiting.filter(|number| bench.admission.can_start(&tenant(*number))).collect();
                let Some(started) = bench.scheduler.next(&mut bench.admission) else {
                    prop_assert!(startable.is_empty(), "{:?} wait beside a free cell", startable);
                    break;
                };
                observed.check_start(&started, &startable);
                bench.running.push(started);
            }
            prop_assert_eq!(bench.admission.node().queued as usize, observed.waiting.len());
        }
        while let Some(entry) = bench.scheduler.cancel_any() {
            bench.release(Some(entry));
        }
        bench.running.drain(..).for_each(|started| bench.admission.release(started.slot));
        prop_assert_eq!(bench.admission.node(), Account::default());
    }
}
