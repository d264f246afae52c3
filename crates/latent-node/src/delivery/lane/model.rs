//! Every interleaving of two nodes before one broker, at a size where all of them can be gone through: real lanes under real cycles, and
//! everything that may happen in between at every point (T-104, T-111).
//!
//! The explorer is our own few lines: lanes and cycles are values that can be compared, so it needs nothing else.

mod broker;
mod node;
mod walks;
mod world;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::command::{Inspected, LaneOptions};
use super::{Confirmation, Lane};
use crate::delivery::{CycleOptions, DeliveryPolicy, Intake, Termination};
use world::{Faults, Step, World};

/// A fault that a lane, or the cycle above it, is told to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Planted {
    /// The gate opens once the leases of others must be over, whatever is unsettled.
    OpenOnLease,
    /// The gate opens on any answer.
    IgnoreUnsettled,
    /// The gate takes the numbers for the messages.
    TrustNumbers,
    /// What failed is acknowledged.
    AcknowledgeFailures,
    /// A key goes on after an uncertain settlement.
    GoOnAfterUncertain,
    /// A pull asks for one more than is reserved.
    PullAbove,
    /// A lease counts from when the message arrived here.
    LeaseFromArrival,
}

/// Everything about a world that does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Setting {
    keys: &'static [u64],
    nodes: usize,
    cells: u32,
    lane: LaneOptions,
    cycle: CycleOptions,
    faults: Faults,
    tick_millis: u64,
    /// Whether what the broker sends takes time, and renewals do; settlements always do.
    slow_answers: bool,
    /// Whether a run counts although somebody else has settled its message since.
    strict: bool,
}

impl Setting {
    fn new(keys: &'static [u64], cells: u32, in_flight_max: u32, faults: Faults) -> Self {
        let lane = LaneOptions { ack_wait_millis: 100, ..LaneOptions::of_ack_wait(100) };
        let policy = DeliveryPolicy {
            in_flight_max,
            deliveries_max: 9,
            retry_delay_millis: 10,
            retry_delay_max_millis: 10,
            ..DeliveryPolicy::default()
        };
        let cycle = CycleOptions { policy, intake: Intake::HandedOut, window_max: 64, termination: Termination::Plain };
        Self { keys, nodes: 2, cells, lane, cycle, faults, tick_millis: 45, slow_answers: false, strict: true }
    }
}

impl Lane {
    pub(super) fn open_if_planted(&mut self, seen: &Inspected) {
        match self.planted {
            Some(Planted::IgnoreUnsettled) => self.gate.open_by_mistake(),
            Some(Planted::TrustNumbers) => self.gate.trust_everybody(seen, &self.held),
            _ => {}
        }
    }

    pub(super) fn open_on_lease_if_planted(&mut self, now: latent_core::MonoTime) {
        let waited = self.pinned_at.is_some_and(|at| at.plus_millis(self.options.ack_wait_millis) <= now);
        if self.planted == Some(Planted::OpenOnLease) && waited {
            self.gate.open_by_mistake();
        }
    }

    pub(super) fn batch_if_planted(&self, batch_max: u32) -> u32 {
        batch_max + u32::from(self.planted == Some(Planted::PullAbove))
    }

    pub(super) fn confirmation_if_planted(&self, confirmation: Confirmation) -> Confirmation {
        let goes_on = self.planted == Some(Planted::GoOnAfterUncertain) && confirmation == Confirmation::Uncertain;
        if goes_on { Confirmation::Confirmed } else { confirmation }
    }
}

/// More than any setting has: one that grows beyond is to be made smaller.
const STATES_MAX: u64 = 200_000;

/// What an exploration met.
#[derive(Debug, Clone, Copy, Default)]
struct Explored {
    states: u64,
    steps: u64,
    /// Most deliveries of one world beyond the first of each message.
    redelivered: u64,
    runs: u64,
    ends: u64,
}

/// A promise that was broken, and how to get there.
#[derive(Debug)]
struct Broken {
    what: String,
    path: Vec<Step>,
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Goes through every world that can be reached, each once.
fn explore(setting: Setting, planted: Option<Planted>) -> Result<Explored, Broken> {
    let first = World::new(setting, planted);
    let mut seen = HashSet::from([fingerprint(&first)]);
    let mut explored = Explored::default();
    let mut path: Vec<(World, Vec<Step>, Option<Step>)> = vec![(first.clone(), first.steps(), None)];
    while let Some((world, open, _)) = path.last_mut() {
        let Some(step) = open.pop() else {
            path.pop();
            continue;
        };
        let mut next = world.clone();
        next.take(step);
        explored.steps += 1;
        if let Some(what) = next.violation.take() {
            let path = path.iter().filter_map(|(_, _, step)| *step).chain([step]).collect();
            return Err(Broken { what, path });
        }
        if !seen.insert(fingerprint(&next)) {
            continue;
        }
        explored.states += 1;
        assert!(explored.states < STATES_MAX, "too many states: {explored:?}");
        explored.redelivered = explored.redelivered.max(next.redelivered());
        explored.runs = explored.runs.max(next.runs());
        let steps = next.steps();
        explored.ends += u64::from(steps.is_empty());
        path.push((next, steps, Some(step)));
    }
    Ok(explored)
}

const NONE: Faults = Faults { ticks: 0, unpins: 0, disconnects: 0, deaths: 0, lost_answers: 0, failures: 0, rejections: 0 };
const MOVES_TWICE: Faults = Faults { ticks: 4, unpins: 2, ..NONE };
const KEYS: &[u64] = &[0, 1, 0];

/// The worlds that are gone through. In each, settlements may be late, also after their connection, and time may pass, at every point; what
/// else may go wrong is named.
fn settings() -> Vec<(&'static str, Setting)> {
    let setting = |faults| Setting::new(KEYS, 2, 2, faults);
    let slow = |keys, faults| Setting { slow_answers: true, ..Setting::new(keys, 2, 2, faults) };
    vec![
        ("a failure", setting(Faults { ticks: 1, failures: 1, ..NONE })),
        ("the pin moves", setting(Faults { ticks: 3, unpins: 1, ..NONE })),
        ("a node dies", setting(Faults { ticks: 3, deaths: 1, ..NONE })),
        ("a connection is lost", Setting::new(&[0, 0], 2, 2, Faults { ticks: 3, disconnects: 1, ..NONE })),
        ("an answer is lost", setting(Faults { ticks: 3, lost_answers: 1, ..NONE })),
        ("one reservation", Setting::new(KEYS, 1, 2, Faults { ticks: 4, unpins: 1, ..NONE })),
        ("the pin moves twice", Setting { strict: false, ..Setting::new(&[0, 0], 2, 2, MOVES_TWICE) }),
        ("everything takes time", slow(&[0, 0], Faults { ticks: 1, unpins: 1, ..NONE })),
        ("everything takes long", slow(&[0], Faults { ticks: 3, unpins: 1, ..NONE })),
    ]
}

#[test]
fn no_interleaving_of_two_nodes_breaks_what_is_promised() {
    for (name, setting) in settings() {
        let explored = explore(setting, None).unwrap_or_else(|broken| panic!("{name}: {}\n{:#?}", broken.what, broken.path));
        println!("{name}: {explored:?}");
        assert!(explored.states > 300 && explored.runs >= setting.keys.len() as u64, "{name}: {explored:?}");
    }
}

#[test]
fn the_explorer_finds_each_planted_fault() {
    let all = [
        (Planted::OpenOnLease, "the pin moves"),
        (Planted::IgnoreUnsettled, "the pin moves"),
        (Planted::TrustNumbers, "the pin moves"),
        (Planted::AcknowledgeFailures, "a failure"),
        (Planted::GoOnAfterUncertain, "a connection is lost"),
        (Planted::PullAbove, "a failure"),
        (Planted::LeaseFromArrival, "everything takes long"),
    ];
    for (planted, name) in all {
        let (_, setting) = settings().into_iter().find(|(other, _)| *other == name).expect("a setting of that name");
        let broken = explore(setting, Some(planted)).err().unwrap_or_else(|| panic!("{planted:?} was not found"));
        println!("{planted:?}: {}, after {} steps", broken.what, broken.path.len());
    }
}

/// What is not promised, so that nobody believes it is: see `docs/design/triggers-v2.md`.
#[test]
fn only_an_acknowledgement_after_its_lease_and_two_lost_pins_let_a_run_outlive_its_message() {
    let setting = Setting::new(&[0, 0], 2, 2, MOVES_TWICE);
    let broken = explore(setting, None).expect_err("the broker offers nothing against it");
    let unpins = broken.path.iter().filter(|step| matches!(step, Step::Unpin)).count();
    let last_unpin = broken.path.iter().rposition(|step| matches!(step, Step::Unpin)).unwrap_or_default();
    let late = broken.path.iter().skip(last_unpin).any(|step| matches!(step, Step::Arrive(_)));
    assert!(unpins == 2 && late, "{broken:?}");
}
