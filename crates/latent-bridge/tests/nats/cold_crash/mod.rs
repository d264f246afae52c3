//! The crash matrix of the archive on a real broker. The process ends at every change of a file of its outbox, at every call of the store, and at
//! every message to or from the broker, while an event is published, maintained, or put into a segment. After another process has maintained
//! the archive with the clock past the grace, what was staged is on the broker once and in the archive once, and what was not is nowhere.
//!
//! Each place costs a bus or two, so tests take a few of each row, spread evenly over it; `LATENT_ARCHIVE_CRASH` says how many at most.

mod doubles;
mod kills;
pub(crate) mod scenes;

use std::sync::Arc;

use latent_bridge::NatsBus;
use latent_bridge::cold::ColdStore as _;
use latent_testkit::{require_broker, wait_until};

use crate::cold::{One, Site};
use crate::doubles::MemoryStore;
use doubles::{EndingFiles, EndingStore, Left};
use scenes::Scene;

/// Places of a row that are taken.
fn places_max() -> u64 {
    std::env::var("LATENT_ARCHIVE_CRASH").ok().map_or(12, |text| text.parse().unwrap())
}

/// At most so many of `0..count`, spread evenly, with the first and the last one.
fn spread(count: u64, max: u64) -> Vec<u64> {
    let (last, steps) = (count.saturating_sub(1), max.min(count).saturating_sub(1).max(1));
    let mut places: Vec<_> = (0..=steps).map(|step| last * step / steps).collect();
    places.dedup();
    places
}

/// What ends with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Files,
    /// The last call of the store was not done.
    Store,
    /// It was done, and nobody heard.
    StoreDone,
}

impl Row {
    const ALL: [Self; 3] = [Self::Files, Self::Store, Self::StoreDone];

    const fn word(self) -> &'static str {
        match self {
            Self::Files => "changes of files",
            Self::Store => "calls of the store",
            Self::StoreDone => "calls of the store that were done",
        }
    }
}

/// Plays a scene that ends after so many calls. How many it made.
fn end_after(site: &Site, scene: Scene, row: Row, calls: u64) -> u64 {
    let (files, store) = (Left::forever(), Left::forever());
    let left = if row == Row::Files { &files } else { &store };
    let tag = scene.tag();
    scene.prepare(site, "place", &tag);
    let ending = EndingStore { store: Arc::clone(&site.store), left: store.clone(), last_is_done: row == Row::StoreDone };
    let mut options = scene.options(site.options());
    let archive = options.archive.as_mut().unwrap();
    archive.storage = Arc::new(EndingFiles(files.clone()));
    archive.stores = Some(Arc::new(One(Arc::new(ending))));
    let bus = NatsBus::open_with(options, &scene.manifest("place")).unwrap();
    left.set(calls);
    let published = scene.play(&bus, &tag);
    if published.as_ref().is_some_and(Result::is_ok) {
        // What follows an acknowledgement ends there, too, or comes to its end.
        wait_until("the upload ends", || site.intents() == 0 || left.get() == 0);
    }
    drop(bus);
    let made = calls - left.get();
    let is_there = scene != Scene::Publishing || site.intents() > 0 || published.as_ref().is_some_and(Result::is_ok);
    let context = format!("{tag}: {row:?}, {calls} calls, {published:?}");
    scene.settle(site, "place", &*site.store, (&tag, is_there), &context);
    made
}

#[test]
fn the_process_ends_at_a_change_of_a_file_or_a_call_of_the_store_and_each_event_is_there_once_or_not_at_all() {
    require_broker!();
    for scene in Scene::ALL {
        let site = Site::start();
        drop(NatsBus::provision_with(scene.options(site.options()), &scene.manifest("place")).unwrap());
        let mut rows = Vec::new();
        // The first time some folders and heads are made.
        end_after(&site, scene, Row::Files, u64::MAX);
        for row in Row::ALL {
            // The whole of it says how many places there are.
            let whole = end_after(&site, scene, row, u64::MAX);
            assert!(whole > 0, "{scene:?} {row:?}");
            let places = spread(whole, places_max());
            for place in &places {
                // The last call of a store is made and not answered; the last change of a file is done.
                let calls = if row == Row::Files { *place } else { place + 1 };
                assert_eq!(end_after(&site, scene, row, calls), calls, "it ended there");
            }
            rows.push(format!("{} of {whole} {}", places.len(), row.word()));
        }
        println!("{}: ended at {}; each event is on the broker once and in the archive once, or nowhere", scene.word(), rows.join(", "));
    }
}

#[test]
fn places_are_spread_over_a_row() {
    assert_eq!(spread(10, 100), (0..10).collect::<Vec<_>>());
    assert_eq!((spread(10, 4), spread(1, 4), spread(7, 1)), (vec![0, 3, 6, 9], vec![0], vec![0, 6]));
    assert!(MemoryStore::new().list_after("", "", 1).unwrap().is_empty());
}
