//! A restoration that is killed ten times on its way. A child is this test binary run again with an environment variable.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use latent_bridge::cold::open_archive;
use latent_bridge::cold::restore::{Progress, Restoration, Step};
use latent_bridge::cold::verify::{Known, Verification};
use latent_bridge::embedded::EngineOptions;

use super::*;
use crate::support::fixtures::Seeded;

/// Set in a child to the folder of everything.
const CHILD: &str = "LATENT_BRIDGE_TEST_RESTORE_DIRECTORY";
/// How many events; `LATENT_RESTORE_RECORDS` says another number.
const RECORDS: usize = 3_000;
const KILLS: usize = 10;
const WORDS: &str = "the archive into t";

fn archive_of<'v>(store: &'v dyn latent_bridge::cold::ColdStore, keys: &'v Keys) -> Verification<'v> {
    Verification { store, topic: None, partition: None, keys: Some(keys), heads: &[], log: None, dense: true, known: Known::default() }
}

/// Restores what is not there yet, and tells of each step.
fn restore(folder: &Path) {
    let broker = EmbeddedBroker::open_with(&folder.join("log"), EngineOptions::default()).unwrap();
    let store = open_archive(folder.join("archive").to_str().unwrap()).unwrap();
    let (keys, file) = (Keys::one(), folder.join("progress"));
    let progress = std::fs::read_to_string(&file).map_or_else(|_| Progress::of(WORDS), |text| Progress::from_json(&text, WORDS).unwrap());
    let restoration = Restoration { archive: archive_of(&*store, &keys), bus: &broker, key_by_key: false, into: None };
    let mut keep = |progress: &Progress| {
        std::fs::write(folder.join("progress.tmp"), progress.to_json()).unwrap();
        std::fs::rename(folder.join("progress.tmp"), &file).unwrap();
        println!("\nstep");
        Ok(())
    };
    let tell = &mut |step: Step<'_>| {
        if matches!(step, Step::Comparing(_)) {
            println!("\nstep");
        }
    };
    let report = restoration.run(progress, &mut keep, tell).unwrap();
    println!("\ndone {}", report.partitions.iter().map(|one| one.compared).sum::<u64>());
}

/// Not a test of its own: without the variable it has nothing to do.
#[test]
fn child_restores_until_it_is_killed() {
    if let Some(folder) = std::env::var_os(CHILD) {
        restore(Path::new(&folder));
    }
}

/// Kills a child after so many steps; true when it was done before.
fn run_and_kill(folder: &Path, steps: usize) -> bool {
    let arguments = ["cold::kill::child_restores_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"];
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.args(arguments).env(CHILD, folder).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.filter(|line| line == "step" || line.starts_with("done ")).take(steps);
    let is_done = told.last().is_some_and(|line| line.starts_with("done "));
    child.kill().unwrap();
    child.wait().unwrap();
    is_done
}

#[test]
fn a_restoration_that_is_killed_ten_times_ends_with_every_event_once_and_in_order() {
    let records = std::env::var("LATENT_RESTORE_RECORDS").ok().map_or(RECORDS, |text| text.parse().unwrap());
    let folder = scratch();
    let manifest = manifest(&[("t", 2)]);
    let from = EmbeddedBroker::provision_with(&folder.path().join("from"), &manifest, EngineOptions::default()).unwrap();
    for (batch, first) in (0..records).step_by(1_000).enumerate() {
        publish(&from, &format!("batch-{batch}"), 1_000.min(records - first));
    }
    std::fs::create_dir(folder.path().join("archive")).unwrap();
    let store = open_archive(folder.path().join("archive").to_str().unwrap()).unwrap();
    let exporter = exporter(&TestStorage::without_syncs(), folder.path(), SegmentSizes { items: 200, ..SegmentSizes::default() });
    let keys = Keys::one();
    for partition in [Partition(0), Partition(1)] {
        let items = BusItems { bus: &from, topic: "t".to_owned(), partition };
        exporter.export("t", partition, ExportTo { store: &*store, keys: &keys }, &items, all()).unwrap();
    }
    drop(EmbeddedBroker::provision_with(&folder.path().join("log"), &manifest, EngineOptions::default()).unwrap());

    let mut seeded = Seeded(7);
    // So few that all of the kills come before the end.
    let steps = records / 700;
    let early = (0..KILLS).filter(|_| run_and_kill(folder.path(), 1 + seeded.below(steps))).count();
    assert_eq!(early, 0, "children that were done before they were killed");
    restore(folder.path());

    let to = EmbeddedBroker::open_with(&folder.path().join("log"), EngineOptions::default()).unwrap();
    for partition in 0..2 {
        let (one, other) = (from.bounds("t", Partition(partition)).unwrap(), to.bounds("t", Partition(partition)).unwrap());
        assert_eq!(one, other);
        let mut offset = Offset(0);
        loop {
            let pages = [&from, &to].map(|bus| bus.submit_fetch("t", Partition(partition), offset, 500).wait().unwrap());
            let [expected, found] = pages.map(|page| page.into_iter().map(|stored| (stored.offset, stored.record)).collect::<Vec<_>>());
            assert_eq!(expected.len(), found.len());
            for ((at, expected), (found_at, found)) in expected.iter().zip(&found) {
                assert!(at == found_at && expected.same_event(found) && expected.attributes == found.attributes, "p{partition}/{at}");
            }
            let Some((last, _)) = expected.last() else { break };
            offset = Offset(last.0 + 1);
        }
    }
    println!("{records} records restored through {KILLS} kills on the way: each there once, in order, as it was");
}
