//! What is made again is named in a warning, an untouched log warns of nothing, and no text says where the directory lies (B-035, B-044).

use std::path::Path;

use latent_bridge::{BusError, EmbeddedBroker, EventBus};
use latent_core::{Offset, Partition, UnixMillis};
use tracing::Level;

use super::retention::{Aging, HOT_HOURS, HOUR, START};
use crate::support::fixtures::{Published, copy_directory, manifest, options, quick, scratch, segments};
use crate::support::history::{TOPICS, eventually, files, keep, past, records, tiny, wait_for_merges};
use crate::support::logs::{Said, caught, forbid, said_by};
use crate::support::storage::{Failing, TestStorage};

const DERIVED: [&str; 3] = [".idx", ".uids", "watermark"];

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// What opening says, after a check that none of it names the directory.
fn said_at_opening(directory: &Path) -> Vec<Said> {
    let (broker, said) = said_by(|| EmbeddedBroker::open_with(directory, quick(tiny())));
    broker.unwrap();
    let path = directory.to_str().unwrap();
    assert!(said.iter().all(|said| !said.text.contains(path)), "{said:?}");
    said
}

fn warned(said: &[Said]) -> Vec<&str> {
    said.iter().filter(|said| said.level <= Level::WARN).map(|said| said.text.as_str()).collect()
}

#[test]
fn each_derived_file_that_is_lost_damaged_or_foreign_is_named_in_a_warning() {
    let (directory, _) = past(50);
    let (other, _) = past(50);
    type Change<'c> = (&'c str, &'c dyn Fn(&Path));
    let flip = |path: &Path| {
        let mut content = std::fs::read(path).unwrap();
        content[20] ^= 1;
        std::fs::write(path, content).unwrap();
    };
    let resize = |path: &Path, bytes| std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
    let changes: [Change<'_>; 5] = [
        ("lost", &|path| std::fs::remove_file(path).unwrap()),
        ("damaged", &flip),
        ("of another store", &|path| assert!(std::fs::copy(other.path().join("topics/a").join(name(path)), path).is_ok())),
        ("of the largest size that is read", &|path| resize(path, 1_048_576)),
        ("larger", &|path| resize(path, 1_048_577)),
    ];
    for file in files(directory.path(), "a", &DERIVED) {
        for (what, change) in changes {
            // What follows an index's last page is nobody's, as long as it is not looked at.
            if what.contains("larg") && file.extension().is_some_and(|ending| ending == "idx") {
                continue;
            }
            let copy = copy_directory(directory.path());
            change(&copy.path().join(file.strip_prefix(directory.path()).unwrap()));
            let said = said_at_opening(copy.path());
            assert!(warned(&said).iter().any(|text| text.contains(&name(&file))), "{what}: {}: {said:?}", name(&file));
            assert_eq!(warned(&said_at_opening(copy.path())), [""; 0], "{what}: it was made again");
        }
    }
}

#[test]
fn without_any_derived_file_each_kind_is_named() {
    let (directory, _) = past(50);
    files(directory.path(), "a", &DERIVED).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let said = said_at_opening(directory.path());
    for kind in DERIVED {
        assert!(warned(&said).iter().any(|text| text.contains(kind)), "{kind}: {said:?}");
    }
}

#[test]
fn an_index_that_is_lost_while_the_log_is_open_is_named_when_it_is_needed() {
    let (directory, _) = past(50);
    let broker = EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap();
    let index = files(directory.path(), "a", &[".idx"]).remove(0);
    std::fs::remove_file(&index).unwrap();
    let (read, said) = said_by(|| broker.submit_fetch("a", Partition(0), Offset(0), 100).wait());
    assert!(!read.unwrap().is_empty());
    assert!(warned(&said).iter().any(|text| text.contains(&name(&index))), "{said:?}");
}

#[test]
fn a_new_a_closed_and_a_killed_log_are_opened_without_a_warning() {
    let directory = scratch();
    let (broker, said) = said_by(|| EmbeddedBroker::provision_with(directory.path(), &manifest(&TOPICS), quick(tiny())).unwrap());
    assert_eq!(warned(&said), [""; 0], "new");
    drop(broker);
    assert_eq!(warned(&said_at_opening(directory.path())), [""; 0], "closed empty");
    let broker = EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap();
    keep(&broker, "a", records("old", 20));
    wait_for_merges(&broker);
    drop(broker);
    assert_eq!(warned(&said_at_opening(directory.path())), [""; 0], "closed");

    // Killed while the newest full segment's index and run were still to be written.
    let watermark = directory.path().join("topics/a/watermark");
    let before = std::fs::read(&watermark).unwrap();
    let newest_alone = |round: u32| {
        let broker = EmbeddedBroker::open_with(directory.path(), quick(tiny())).unwrap();
        keep(&broker, "a", records(&format!("more-{round}"), 7));
        wait_for_merges(&broker);
        drop(broker);
        let full = segments(directory.path(), "a").into_iter().rev().nth(1).unwrap();
        let runs = files(directory.path(), "a", &[".uids"]);
        let run = runs.into_iter().find(|run| name(run).starts_with(&name(&full)[..20]))?;
        Some((full.with_extension("idx"), run))
    };
    let (index, run) = (0..4).find_map(newest_alone).unwrap();
    [&index, &run].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    std::fs::write(&watermark, before).unwrap();
    let said = said_at_opening(directory.path());
    assert_eq!(warned(&said), [""; 0], "killed");
    for file in [&index, &run] {
        assert!(said.iter().any(|said| said.text.contains(&name(file))), "{said:?}");
    }
}

/// Maintenance ends a segment that has become old, so that it can go as a whole. When nothing is published behind it, it is filled again after
/// an opening, and the files that were made of it are of no use: nothing is wrong with the log.
#[test]
fn a_segment_that_was_ended_for_its_age_and_is_filled_again_is_no_warning() {
    let aging = Aging::new(&[("t", 1)]);
    let mut published = aging.publish_at(START, "old", 1);
    published.extend(aging.publish_at(START + HOUR, "young", 1));
    let report = aging.broker.maintain(UnixMillis(START + HOT_HOURS * HOUR + 1)).unwrap();
    assert_eq!(report.expired_records, 0);
    eventually("the run of the ended segment is written", || (files(aging.directory.path(), "t", &[".uids"]).len() == 1).then_some(()));
    let (aging, said) = said_by(|| aging.reopened());
    assert_eq!(warned(&said), [""; 0]);
    published.extend(aging.publish_at(START + 2 * HOUR, "younger", 1));
    for Published { ack, .. } in published {
        let found = aging.broker.find_event_by_uid("t", "", &ack.uid).unwrap();
        assert_eq!(found.map(|found| found.offset), Some(ack.offset));
    }
}

#[test]
fn what_fails_and_what_is_logged_meanwhile_never_says_where_the_directory_lies() {
    let (directory, _) = past(20);
    let (mut texts, mut failed) = (Vec::new(), 0);
    for number in 0..60 {
        let copy = copy_directory(directory.path());
        let path = copy.path().to_str().unwrap().to_owned();
        forbid(&path);
        files(copy.path(), "a", &[".idx"]).iter().for_each(|path| std::fs::remove_file(path).unwrap());
        let storage = TestStorage::without_syncs();
        storage.fail(Failing::From(number));
        let mut errors: Vec<BusError> = Vec::new();
        match EmbeddedBroker::open_with(copy.path(), options(&storage, tiny())) {
            Err(error) => errors.push(error),
            Ok(broker) => {
                errors.extend(broker.publish_batch("a", &records("new", 20)).into_iter().filter_map(Result::err));
                errors.extend(broker.maintenance(u64::MAX).err());
                errors.extend(broker.state_log("fresh").err());
            }
        }
        failed += errors.len();
        texts.extend(errors.iter().flat_map(|error| [error.to_string(), format!("{error:?}")]).map(|text| (path.clone(), text)));
        assert_eq!(caught(&path), [], "logged");
    }
    assert!(failed > 60, "{failed}");
    for (path, text) in texts {
        assert!(!text.contains(&path), "{text}");
    }
}

#[test]
fn a_path_in_a_log_of_any_thread_would_be_caught() {
    forbid("/planted/path");
    std::thread::spawn(|| tracing::info!(file = "/planted/path/x", "planted")).join().unwrap();
    assert_eq!(caught("/planted/path").len(), 1);
}
