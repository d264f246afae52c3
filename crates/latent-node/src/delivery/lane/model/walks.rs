//! Seeded walks through larger worlds than can be gone through: more messages, nodes and faults, and at the end everything must be settled.

use super::world::{Faults, World};
use super::{Planted, Setting};
use crate::delivery::Termination;
use crate::delivery::sim::Chance;

const KEYS: &[u64] = &[0, 1, 0, 2, 0, 1, 1, 3, 2, 0, 0, 4];

#[derive(Debug, Default)]
struct Walked {
    redelivered: u64,
    runs: u64,
    messages: u64,
}

fn number(chance: &mut Chance, end: usize) -> u32 {
    u32::try_from(chance.below(end)).unwrap_or_default()
}

fn setting(chance: &mut Chance) -> Setting {
    let keys = &KEYS[..2 + chance.below(KEYS.len() - 1)];
    let faults = Faults {
        ticks: 10 + number(chance, 40),
        unpins: number(chance, 4),
        disconnects: number(chance, 4),
        deaths: number(chance, 3),
        lost_answers: number(chance, 4),
        failures: number(chance, 6),
        rejections: number(chance, 3),
    };
    let (cells, in_flight_max) = (1 + number(chance, 4), 1 + number(chance, 5));
    let mut setting = Setting::new(keys, cells, in_flight_max, faults);
    setting.nodes = 2 + chance.below(2);
    setting.tick_millis = 3 + chance.below(43) as u64;
    setting.slow_answers = chance.one_in(2);
    setting.strict = false;
    setting.cycle.policy.deliveries_max = 2 + number(chance, 8);
    setting.cycle.termination = if chance.one_in(2) { Termination::Parked } else { Termination::Plain };
    setting
}

fn walk(seed: u64, planted: Option<Planted>) -> Result<Walked, String> {
    let mut chance = Chance(seed);
    let setting = setting(&mut chance);
    let mut world = World::new(setting, planted);
    for _ in 0..40 + chance.below(200) {
        let steps = world.steps();
        let Some(step) = steps.get(chance.below(steps.len())) else { break };
        world.take(*step);
        if world.violation.is_some() {
            break;
        }
    }
    world.run_to_the_end();
    match world.violation.take() {
        Some(what) => Err(format!("walk {seed}: {what}\n{setting:?}")),
        None => Ok(Walked { redelivered: world.redelivered(), runs: world.runs(), messages: setting.keys.len() as u64 }),
    }
}

/// The number of walks; `LATENT_SIM_SCHEDULES` asks for more in a campaign.
fn walks() -> u64 {
    std::env::var("LATENT_SIM_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

#[test]
fn every_walk_of_nodes_before_a_broker_keeps_the_promises_and_comes_to_its_end() {
    let mut sum = Walked::default();
    for seed in 0..walks() {
        let walked = walk(seed, None).unwrap_or_else(|violation| panic!("{violation}"));
        sum.redelivered += walked.redelivered;
        sum.runs += walked.runs;
        sum.messages += walked.messages;
    }
    println!("{} walks: {sum:?}", walks());
    assert!(sum.redelivered > walks() / 2 && sum.runs > sum.messages, "{sum:?}");
}

#[test]
fn walks_find_planted_faults_too() {
    use Planted::{AcknowledgeFailures, GoOnAfterUncertain, IgnoreUnsettled, OpenOnLease, PullAbove};
    // What the explorer alone finds needs more to go wrong at once than a walk meets by chance.
    for planted in [AcknowledgeFailures, GoOnAfterUncertain, IgnoreUnsettled, OpenOnLease, PullAbove] {
        let found = (0..walks()).find_map(|seed| walk(seed, Some(planted)).err());
        println!("{planted:?}: {}", found.unwrap_or_else(|| panic!("{planted:?} was not found")));
    }
}
