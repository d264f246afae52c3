use proptest::prelude::*;

use super::*;

fn tenant(number: usize) -> TenantId {
    TenantId::parse(&format!("t{number}")).unwrap()
}

/// Small numbers, so that every bound is met often.
fn small() -> NodeLimits {
    NodeLimits { cells: 2, admission_slots: 8, tenant_running: 1, tenant_queued: 3, tenant_input_bytes: 100, ..NodeLimits::for_cores(1) }
}

/// Room for everything, so that a test can make one bound tight.
fn roomy() -> NodeLimits {
    let cells = 100;
    NodeLimits {
        cells,
        admission_slots: 1_000,
        tenant_running: 100,
        tenant_queued: 100,
        tenant_input_bytes: 10_000,
        ..NodeLimits::for_cores(1)
    }
}

fn reserve_many(admission: &mut Admission, of: usize, count: usize) -> Vec<Slot<Reserved>> {
    (0..count).map(|_| admission.reserve(&tenant(of), 1).unwrap()).collect()
}

#[test]
fn the_waiting_bound_counts_reserved_and_queued_but_not_running() {
    let mut admission = Admission::new(NodeLimits { tenant_queued: 3, ..roomy() });
    let mut slots = reserve_many(&mut admission, 1, 2);
    let queued = admission.queue(slots.pop().unwrap());
    let third = admission.reserve(&tenant(1), 1).unwrap();
    let refused = admission.reserve(&tenant(1), 1).unwrap_err();
    assert_eq!(refused, Refusal { limit: AdmissionLimit::TenantQueued, tenant: tenant(1), in_use: 3, asked: 1, max: 3 });
    // A start frees a waiting place.
    let running = admission.start(queued).unwrap();
    let fourth = admission.reserve(&tenant(1), 1).unwrap();
    assert!(admission.reserve(&tenant(1), 1).is_err());
    let reserved = slots.into_iter().chain([third, fourth]);
    reserved.for_each(|slot| admission.release(slot));
    admission.release(running);
    assert_eq!(admission.snapshot().tenants, BTreeMap::new());
}

#[test]
fn input_bytes_are_taken_exactly_up_to_the_bound() {
    for (second, fits) in [(59, true), (60, true), (61, false), (u64::MAX, false)] {
        let mut admission = Admission::new(NodeLimits { tenant_input_bytes: 100, ..roomy() });
        let first = admission.reserve(&tenant(1), 40).unwrap();
        let result = admission.reserve(&tenant(1), second);
        match &result {
            Ok(_) => assert!(fits, "{second}"),
            Err(refused) => {
                assert!(!fits, "{second}");
                assert_eq!((refused.limit, refused.in_use, refused.asked), (AdmissionLimit::TenantInputBytes, 40, second));
                assert_eq!(refused.is_final(), second > 100, "{second}");
                assert_eq!(admission.node(), Account { reserved: 1, input_bytes: 40, ..Account::default() });
            }
        }
        // Another tenant has bytes of its own.
        let other = admission.reserve(&tenant(2), 100).unwrap();
        result.into_iter().chain([first, other]).for_each(|slot| admission.release(slot));
        assert_eq!(admission.node(), Account::default());
    }
}

#[test]
fn no_more_run_than_there_are_cells() {
    let mut admission = Admission::new(NodeLimits { cells: 2, ..roomy() });
    let mut start = |number| {
        let reserved = admission.reserve(&tenant(number), 1).unwrap();
        let queued = admission.queue(reserved);
        admission.start(queued)
    };
    let first = start(1).unwrap();
    let second = start(2).unwrap();
    let waiting = start(3).unwrap_err();
    assert!(!admission.can_start(&tenant(3)));
    admission.release(first);
    let third = admission.start(waiting).unwrap();
    admission.release(second);
    admission.release(third);
    assert_eq!(admission.node(), Account::default());
}

#[test]
fn a_tenant_at_its_running_bound_leaves_the_other_cells_alone() {
    let mut admission = Admission::new(NodeLimits { tenant_running: 2, ..roomy() });
    let running: Vec<_> = reserve_many(&mut admission, 1, 2)
        .into_iter()
        .map(|slot| {
            let queued = admission.queue(slot);
            admission.start(queued).unwrap()
        })
        .collect();
    assert!(!admission.can_start(&tenant(1)) && admission.can_start(&tenant(2)));
    running.into_iter().for_each(|slot| admission.release(slot));
    assert!(admission.can_start(&tenant(1)));
}

#[test]
fn one_tenant_can_fill_every_cell_and_never_takes_the_last_slots() {
    for cells in [1, 2, 7] {
        let limits = NodeLimits { cells, admission_slots: cells * 2, ..roomy() };
        let mut admission = Admission::new(limits);
        let flood: Vec<_> = std::iter::from_fn(|| admission.reserve(&tenant(1), 1).ok()).collect();
        assert_eq!(flood.len(), cells as usize);
        let refused = admission.reserve(&tenant(1), 1).unwrap_err();
        assert_eq!((refused.limit, refused.is_final()), (AdmissionLimit::FairShare, false));
        let other = admission.reserve(&tenant(2), 1);
        assert!(other.is_ok(), "{cells} cells");
        flood.into_iter().chain(other).for_each(|slot| admission.release(slot));
    }
}

#[test]
fn a_full_node_refuses_by_its_slots_and_serves_who_holds_least_next() {
    let mut admission = Admission::new(NodeLimits { cells: 2, admission_slots: 4, ..roomy() });
    // 2 of 4, then 1 of the remaining 2, then 1 of the last 1.
    let mut flood = reserve_many(&mut admission, 1, 2);
    let rest: Vec<_> = [2, 3].map(|number| admission.reserve(&tenant(number), 1).unwrap()).into();
    assert_eq!(admission.reserve(&tenant(4), 1).unwrap_err().limit, AdmissionLimit::NodeSlots);
    admission.release(flood.pop().unwrap());
    // The flooding tenant does not get its slot back before somebody who has nothing.
    assert_eq!(admission.reserve(&tenant(1), 1).unwrap_err().limit, AdmissionLimit::FairShare);
    let last = admission.reserve(&tenant(4), 1).unwrap();
    flood.into_iter().chain(rest).chain([last]).for_each(|slot| admission.release(slot));
    assert_eq!(admission.node(), Account::default());
}

#[test]
fn a_refusal_says_who_and_which_limit() {
    let mut admission = Admission::new(NodeLimits { tenant_input_bytes: 5, ..roomy() });
    let text = admission.reserve(&tenant(1), 6).unwrap_err().to_string();
    assert_eq!(text, "resource-exhausted: tenant_input_bytes refuses t1: 0 in use, 6 asked, 5 allowed");
}

/// What the machine is compared with: a plain list of what is held, counted anew for each question.
#[derive(Default)]
struct Model {
    held: Vec<(usize, u64, &'static str)>,
}

impl Model {
    fn count(&self, wanted: impl Fn(usize, &str) -> bool) -> u32 {
        self.held.iter().filter(|(tenant, _, phase)| wanted(*tenant, phase)).count().try_into().unwrap()
    }

    fn bytes(&self, of: usize) -> u64 {
        self.held.iter().filter(|(tenant, ..)| *tenant == of).map(|(_, bytes, _)| bytes).sum()
    }

    fn admits(&self, of: usize, bytes: u64, limits: &NodeLimits) -> bool {
        let held = self.count(|_, _| true);
        held < limits.admission_slots
            && self.count(|tenant, _| tenant == of) < limits.admission_slots - held
            && self.count(|tenant, phase| tenant == of && phase != "running") < limits.tenant_queued
            && self.bytes(of) + bytes <= limits.tenant_input_bytes
    }

    fn starts(&self, of: usize, limits: &NodeLimits) -> bool {
        self.count(|_, phase| phase == "running") < limits.cells
            && self.count(|tenant, phase| tenant == of && phase == "running") < limits.tenant_running
    }

    fn account(&self, wanted: impl Fn(usize) -> bool) -> Account {
        let count = |name: &str| self.count(|tenant, phase| wanted(tenant) && phase == name);
        let bytes = self.held.iter().filter(|(tenant, ..)| wanted(*tenant)).map(|(_, bytes, _)| bytes).sum();
        Account { reserved: count("reserved"), queued: count("queued"), running: count("running"), input_bytes: bytes }
    }
}

enum AnySlot {
    Reserved(Slot<Reserved>),
    Queued(Slot<Queued>),
    Running(Slot<Running>),
}

/// Carries one operation out on both and compares. `pick` chooses among what is held.
fn step(admission: &mut Admission, slots: &mut Vec<AnySlot>, model: &mut Model, operation: (u8, usize, u64, usize)) {
    let (kind, of, bytes, pick) = operation;
    let limits = admission.limits;
    if kind == 0 || slots.is_empty() {
        let expected = model.admits(of, bytes, &limits);
        let result = admission.reserve(&tenant(of), bytes);
        assert_eq!(result.is_ok(), expected, "{result:?}");
        if let Ok(slot) = result {
            slots.push(AnySlot::Reserved(slot));
            model.held.push((of, bytes, "reserved"));
        }
        return;
    }
    let at = pick % slots.len();
    let (slot, held) = (slots.swap_remove(at), model.held.swap_remove(at));
    let mut keep = |slot, phase| {
        slots.push(slot);
        model.held.push((held.0, held.1, phase));
    };
    match (slot, kind) {
        (AnySlot::Reserved(slot), 1) => keep(AnySlot::Queued(admission.queue(slot)), "queued"),
        (AnySlot::Queued(slot), 1) => {
            let expected = model.starts(held.0, &limits);
            match admission.start(slot) {
                Ok(slot) => {
                    assert!(expected);
                    slots.push(AnySlot::Running(slot));
                    model.held.push((held.0, held.1, "running"));
                }
                Err(slot) => {
                    assert!(!expected);
                    slots.push(AnySlot::Queued(slot));
                    model.held.push(held);
                }
            }
        }
        (slot, _) => release(admission, slot),
    }
}

fn release(admission: &mut Admission, slot: AnySlot) {
    match slot {
        AnySlot::Reserved(slot) => admission.release(slot),
        AnySlot::Queued(slot) => admission.release(slot),
        AnySlot::Running(slot) => admission.release(slot),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn every_sequence_of_operations_agrees_with_a_naive_count_and_ends_at_zero(
        operations in prop::collection::vec((0u8..3, 0usize..4, 0u64..60, any::<usize>()), 1..120),
    ) {
        let mut admission = Admission::new(small());
        let (mut slots, mut model) = (Vec::new(), Model::default());
        for operation in operations {
            step(&mut admission, &mut slots, &mut model, operation);
            let snapshot = admission.snapshot();
            prop_assert_eq!(snapshot.node, model.account(|_| true));
            for number in 0..4 {
                let account = snapshot.tenants.get(&tenant(number)).copied();
                let expected = Some(model.account(|of| of == number)).filter(|account| account.held() > 0);
                prop_assert_eq!(account, expected);
            }
        }
        slots.into_iter().for_each(|slot| release(&mut admission, slot));
        prop_assert_eq!(admission.snapshot().node, Account::default());
        prop_assert_eq!(admission.snapshot().tenants, BTreeMap::new());
    }
}
