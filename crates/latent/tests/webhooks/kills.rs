//! A node that is killed while it works, at random moments, until nothing is left to do: and what lies on its disk after each kill.
//!
//! The moments are random, the checks are not: they hold whatever the moment was.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::bench::Application;
use crate::remains::{End, Settled};

/// So that kills alone exhaust nothing: an event may be running at every one of them.
const DELIVERIES_MAX: u32 = 100;
/// Kills that a run without any would have room for, about.
const KILLS_PER_RUN: u32 = 8;
/// Of so many kills, one strikes while the node starts.
const STARTING_ONE_IN: u64 = 6;

/// SplitMix64: small, seeded, the same everywhere.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn moment_in(&mut self, window: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(window.as_micros()).unwrap()))
    }
}

/// What a file of webhooks becomes without any trouble, and how long that takes here.
pub(crate) struct Undisturbed {
    pub(crate) end: End,
    starting: Duration,
    working: Duration,
}

impl Undisturbed {
    pub(crate) fn run(file: &Path) -> Self {
        let application = Application::with_deliveries(DELIVERIES_MAX);
        application.start().kill();
        let begun = Instant::now();
        let node = application.start();
        let (starting, begun) = (begun.elapsed(), Instant::now());
        application.publish(file);
        application.wait_until_handled();
        let working = begun.elapsed();
        node.stop();
        Self { end: End::of(&application.data()), starting, working }
    }
}

/// Kills nodes at work on `file`, one fresh directory after another, until so many kills have found work undone. Every directory must
/// end like the undisturbed one. Says what happened in one line.
pub(crate) fn kill_often(file: &Path, kills: u64, chance: &mut Chance) -> (End, String) {
    let undisturbed = Undisturbed::run(file);
    let (mut struck, mut idle, mut directories) = (0, 0, 0_u64);
    while struck < kills {
        let (found_work, found_none) = kill_in_one_directory(file, &undisturbed, kills - struck, chance);
        (struck, idle, directories) = (struck + found_work, idle + found_none, directories + 1);
    }
    let Undisturbed { end, working, .. } = undisturbed;
    let events = end.events;
    let line = format!(
        "{struck} kills at work (and {idle} of idle nodes) in {directories} directories of {events} events, handled in {} ms without \
         a kill: {} results and {} dead letters, every time the same",
        working.as_millis(),
        end.results.values().map(Vec::len).sum::<usize>(),
        end.letters.values().map(Vec::len).sum::<usize>(),
    );
    (end, line)
}

/// What a node said before it was killed.
#[derive(Default)]
struct Told {
    /// Events settled since it started.
    settled: u64,
    /// Everything was published.
    published: bool,
}

/// Kills until the work is done or `kills_max` kills have found some undone, then lets a node finish. Gives the kills that found work,
/// and those that found none.
fn kill_in_one_directory(file: &Path, undisturbed: &Undisturbed, kills_max: u64, chance: &mut Chance) -> (u64, u64) {
    let application = Application::with_deliveries(DELIVERIES_MAX);
    let (mut settled, mut published, mut struck) = (Settled::default(), false, 0);
    while struck < kills_max {
        let told = if struck > 0 && chance.below(STARTING_ONE_IN) == 0 {
            kill_while_starting(&application, chance.moment_in(undisturbed.starting))
        } else {
            kill_at_work(&application, file, chance.moment_in(undisturbed.working / KILLS_PER_RUN))
        };
        let after = Settled::of(&application.data());
        after.must_contain(&settled);
        let kept = after.count() - settled.count();
        assert!(kept >= told.settled, "a node told of {} settled events, and {kept} were kept", told.settled);
        (settled, published) = (after, published || told.published);
        if published && settled.is_everything() {
            break;
        }
        struck += 1;
    }
    let node = application.start();
    application.publish(file);
    application.wait_until_handled();
    assert_eq!(application.status()["exhausted"], 0);
    node.stop();
    let end = Settled::of(&application.data());
    end.must_contain(&settled);
    assert!(end.is_everything(), "{end:?}");
    undisturbed.end.must_equal(&End::of(&application.data()));
    (struck, u64::from(struck < kills_max))
}

fn kill_while_starting(application: &Application, moment: Duration) -> Told {
    let mut node = application.spawn();
    node.must_run_for(moment);
    node.kill();
    Told::default()
}

fn kill_at_work(application: &Application, file: &Path, moment: Duration) -> Told {
    let mut node = application.start();
    let mut publishing = application.publish_in_background(file);
    node.must_run_for(moment);
    let settled = application.status()["settled"].as_u64().unwrap();
    let published = publishing.try_wait().unwrap().is_some_and(|status| status.success());
    node.kill();
    Told { settled, published }
}
