//! Random worlds: whatever is lost, late, killed or forgotten, the destination ends as the source, record by record, or nothing is said to
//! be well.

use proptest::prelude::*;

use super::super::*;
use super::world::*;
use crate::{BusError, Fence};

/// A small generator: one seed is one schedule.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn chance(&mut self, in_hundred: u64) -> bool {
        self.roll(100) < in_hundred
    }

    fn up_to(&mut self, max: usize) -> usize {
        usize::try_from(self.roll(max as u64 + 1)).unwrap()
    }
}

/// A source of some records with gaps and places that cannot be read.
fn any_source(dice: &mut Dice) -> Vec<Place> {
    let mut offset = dice.roll(3);
    let mut places = Vec::new();
    for number in 0..dice.roll(40) {
        if dice.chance(10) {
            places.push(Place::Unreadable(Offset(offset)));
            offset += 1;
        }
        places.push(Place::Readable(stored(offset, &format!("u{number}"), &number.to_string())));
        offset += 1 + dice.roll(3);
    }
    places
}

fn broken() -> BusError {
    BusError::Timeout { operation: "x".to_owned() }
}

/// One run, which may be killed. True when it came to its end.
fn run(dice: &mut Dice, copying: &mut Copying, source: &[Place], destination: &mut Destination, saved: &mut Option<Position>) -> bool {
    loop {
        while dice.chance(30) {
            destination.arrive();
        }
        if dice.chance(3) {
            destination.take_elsewhere();
        }
        let step = copying.step();
        if step != Step::Done && dice.chance(4) {
            return false;
        }
        match step {
            Step::Fence | Step::ReadDestination(_) if dice.chance(5) => copying.failed(Side::Destination, broken()),
            Step::ReadSource(_) if dice.chance(5) => copying.failed(Side::Source, broken()),
            Step::Fence => copying.fenced(Fence(destination.sequence)),
            Step::ReadSource(from) => copying.read(Side::Source, page(source, from, 1 + dice.up_to(9))),
            Step::ReadDestination(from) => copying.read(Side::Destination, page(&destination.places, from, 1 + dice.up_to(9))),
            Step::Publish { fence, records } => {
                let count = records.len();
                let stored = if dice.chance(50) { count } else { dice.up_to(count) };
                let answered = if dice.chance(70) { stored } else { dice.up_to(stored) };
                let mut late = Dice(dice.roll(u64::MAX));
                let results = destination.take_some((fence, records), (answered, stored), || late.chance(40));
                if dice.chance(3) {
                    // Killed while it waits.
                    return false;
                }
                copying.published(results);
                if dice.chance(50) {
                    *saved = copying.position();
                }
            }
            Step::Pause { .. } => {}
            Step::Done => return true,
        }
    }
}

/// A whole migration with all its runs. What the last one found, and what a comparison afterwards says.
fn migrate(seed: u64, is_fenced: bool) -> (Option<Finding>, Compared, Vec<String>, Vec<String>) {
    let mut dice = Dice(seed);
    let source = any_source(&mut dice);
    let mut destination = Destination { is_fenced, ..Destination::new(dice.up_to(12)) };
    let mut saved = None;
    let finding = loop {
        let known = if dice.chance(80) { saved } else { None };
        let mut copying = Copying::new(end(&source), UnreadableRecords::PassOver, known);
        if run(&mut dice, &mut copying, &source, &mut destination, &mut saved) {
            // A fault that lasts longer than its patience ends a run; the next one goes on.
            match copying.finding() {
                Some(finding) if finding.is_of_a_side() => {}
                finding => break finding.cloned(),
            }
        }
    };
    while !destination.late.is_empty() {
        destination.arrive();
    }
    let compared = compare(Comparing::new(end(&source), UnreadableRecords::PassOver, saved), &source, &destination.places);
    (finding, compared, uids(&source), destination.uids())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn whatever_fails_is_late_or_is_killed_both_sides_end_the_same(seed in any::<u64>()) {
        let (finding, compared, source, destination) = migrate(seed, true);
        prop_assert_eq!(finding, None);
        prop_assert_eq!(&source, &destination);
        prop_assert_eq!((&compared.finding, compared.source.digest), (&None, compared.destination.digest));
        prop_assert_eq!(compared.source.records, source.len() as u64);
    }
}

/// The same worlds with an engine that stores what comes in any order: that is noticed, and never said to be well.
#[test]
fn a_destination_that_does_not_keep_the_order_is_found_out() {
    let mut spoiled = 0;
    for seed in 0..500 {
        let (finding, compared, source, destination) = migrate(seed, false);
        let is_said_to_be_well = finding.is_none() && compared.finding.is_none();
        assert_eq!(is_said_to_be_well, source == destination && finding.is_none(), "{seed}: {finding:?} {compared:?}");
        spoiled += u32::from(source != destination);
    }
    assert!(spoiled > 50, "worlds without fences do lose their order: {spoiled}");
}
