//! A simulator of deliveries: seeded schedules of appends, answers in any order, faults, kills and time, driving real cycles over a
//! fake log and fake activations, and checking from outside what must hold.
//!
//! A schedule is a pure function of its seed: a failure names the seed, and [`run`] with that seed shows it again.

mod log;
mod world;

pub(super) use world::{Chance, PlantedBug};
use world::{Schedule, Violation, World};

/// Runs one schedule to its end.
fn run(seed: u64, planted: Option<PlantedBug>) -> Result<Schedule, Violation> {
    let mut world = World::new(seed, planted);
    world.run_freely()?;
    world.run_to_the_end()?;
    world.finish()
}

/// Runs the seeds `from..to` on two threads and adds up what they saw.
fn run_all(from: u64, to: u64, planted: Option<PlantedBug>) -> Result<Schedule, Violation> {
    let middle = from + (to - from) / 2;
    let half = move |from: u64, to: u64| (from..to).try_fold(Schedule::default(), |sum, seed| Ok(sum.plus(run(seed, planted)?)));
    std::thread::scope(|scope| {
        let first = scope.spawn(move || half(from, middle));
        let second = half(middle, to)?;
        Ok(first.join().expect("a schedule must not panic")?.plus(second))
    })
}

/// The number of schedules; `LATENT_SIM_SCHEDULES` asks for more in a campaign.
fn schedules() -> u64 {
    std::env::var("LATENT_SIM_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

#[test]
fn every_schedule_keeps_the_promises_of_delivery() {
    let seen = run_all(0, schedules(), None).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{} schedules: {seen:?}", schedules());
    // The schedules must have met what they are there for.
    assert!(seen.kills > 10_000 && seen.faults > 10_000 && seen.retries > 10_000 && seen.exhausted > 1_000, "{seen:?}");
    assert!(seen.reordered > 10_000 && seen.saturated > 100 && seen.lost_answers > 1_000 && seen.not_started > 1_000, "{seen:?}");
    assert!(seen.expired_unlisted > 10_000 && seen.expired_listed > 10_000, "{seen:?}");
    assert!(seen.parked > 10_000 && seen.parks_refused > 10_000 && seen.condemned_remembered > 1_000, "{seen:?}");
}

#[test]
fn each_planted_bug_is_found() {
    let all = [
        PlantedBug::IgnoreKeys,
        PlantedBug::AcknowledgeFailures,
        PlantedBug::KeepPermits,
        PlantedBug::KeepExpired,
        PlantedBug::SettleUnparked,
        PlantedBug::ForgetVerdicts,
    ];
    for planted in all {
        let found = run_all(0, 2_000, Some(planted));
        let violation = found.err().unwrap_or_else(|| panic!("{planted:?} was not found"));
        println!("{planted:?}: {violation}");
        // The seed alone shows it again.
        assert_eq!(run(violation.seed, Some(planted)).err().map(|again| again.what), Some(violation.what));
    }
}
