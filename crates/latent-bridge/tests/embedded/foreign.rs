//! Files that are not what this directory wrote: nothing of it is taken for ours, nothing of ours is taken away.

use std::collections::BTreeSet;

use latent_bridge::embedded::Durability;
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus};

use crate::support::fixtures::{count, fates, publish, segments};

const MANIFEST: &str = "manifest_version: 1\nname: n\ntopics: [{ name: t, partitions: 3 }]\n";

/// A directory with six records, and their places.
fn filled() -> (tempfile::TempDir, BTreeSet<(u32, u64)>) {
    let directory = tempfile::tempdir().unwrap();
    let manifest = BridgeManifest::from_yaml(MANIFEST).unwrap();
    let published = publish(&EmbeddedBroker::provision(directory.path(), &manifest).unwrap(), "t", "e", 6);
    (directory, published.iter().map(|published| (published.ack.partition, published.ack.offset)).collect())
}

fn provisioned() -> tempfile::TempDir {
    filled().0
}

#[test]
fn a_flipped_bit_in_format_or_manifest_is_refused_and_touches_nothing() {
    let directory = provisioned();
    let segment = segments(directory.path(), "t").remove(0);
    let before = std::fs::read(&segment).unwrap();
    for name in ["format", "manifest.yaml"] {
        let path = directory.path().join(name);
        let content = std::fs::read(&path).unwrap();
        for bit in 0..content.len() * 8 {
            let mut flipped = content.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, flipped).unwrap();
            let refused = EmbeddedBroker::open(directory.path()).map(drop);
            assert!(matches!(refused, Err(BusError::Config { .. })), "{name}, bit {bit}: {refused:?}");
        }
        std::fs::write(&path, content).unwrap();
    }
    assert_eq!(std::fs::read(&segment).unwrap(), before);
    EmbeddedBroker::open(directory.path()).unwrap();
}

#[test]
fn a_segment_from_elsewhere_is_set_aside_as_it_is() {
    let ((ours, taken), theirs) = (filled(), provisioned());
    let (segment, foreign) = (segments(ours.path(), "t").remove(0), segments(theirs.path(), "t").remove(0));
    let content = std::fs::read(&foreign).unwrap();
    std::fs::write(&segment, &content).unwrap();
    let log = EmbeddedBroker::open(ours.path()).unwrap();
    assert_eq!(log.recovered_torn_records(), 1);
    let new = publish(&log, "t", "new", 3);
    // The watermark still knows the six that are gone.
    assert!(new.iter().all(|new| !taken.contains(&(new.ack.partition, new.ack.offset))), "{new:?}");
    drop(log);
    let mut aside = segment.clone().into_os_string();
    aside.push(".damaged-1");
    assert_eq!(std::fs::read(aside).unwrap(), content);
    let log = EmbeddedBroker::open(ours.path()).unwrap();
    assert_eq!(count(&fates(&log, &new)), (3, 0, 0));
}

#[test]
fn removing_the_lock_file_lets_nobody_else_in() {
    let directory = provisioned();
    let holder = EmbeddedBroker::open(directory.path()).unwrap();
    std::fs::remove_file(directory.path().join("lock")).unwrap();
    let refused = EmbeddedBroker::open(directory.path()).map(drop);
    assert!(matches!(refused, Err(BusError::InUse { .. })), "{refused:?}");
    drop(holder);
    EmbeddedBroker::open(directory.path()).unwrap();
}

#[test]
fn an_empty_segment_with_an_unbelievable_name_is_set_aside() {
    let directory = provisioned();
    let stray = directory.path().join(format!("topics/t/{}.seg", u64::MAX));
    std::fs::write(&stray, b"").unwrap();
    let log = EmbeddedBroker::open(directory.path()).unwrap();
    log.publish("t", "k", &serde_json::json!({})).unwrap();
    assert_eq!(log.statistics()[0].partitions.iter().map(|partition| partition.damaged).sum::<u64>(), 0);
    assert!(!stray.exists() && stray.with_extension("seg.damaged-1").exists());
}

#[test]
fn a_directory_with_data_and_no_manifest_is_not_taken_for_a_new_one() {
    let directory = provisioned();
    let manifest = directory.path().join("manifest.yaml");
    let kept = std::fs::read(&manifest).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    let wanted = BridgeManifest::from_yaml(MANIFEST).unwrap();
    for refused in [EmbeddedBroker::provision(directory.path(), &wanted), EmbeddedBroker::open_or_apply(directory.path(), &wanted)] {
        assert!(matches!(refused, Err(BusError::Config { .. })));
    }
    std::fs::write(&manifest, kept).unwrap();
    let log = EmbeddedBroker::open(directory.path()).unwrap();
    assert_eq!((0..3).map(|partition| log.fetch("t", partition, 0, 10).unwrap().len()).sum::<usize>(), 6);
}

#[test]
fn a_state_log_from_elsewhere_is_set_aside_as_it_is() {
    let (ours, theirs) = (provisioned(), provisioned());
    let write = |directory: &tempfile::TempDir| {
        let log = EmbeddedBroker::open(directory.path()).unwrap();
        log.state_log("notes").unwrap().append(bytes::Bytes::from_static(b"note"), Durability::Synced).wait().unwrap();
    };
    write(&ours);
    write(&theirs);
    let content = std::fs::read(theirs.path().join("state/notes.log")).unwrap();
    std::fs::write(ours.path().join("state/notes.log"), &content).unwrap();
    let log = EmbeddedBroker::open(ours.path()).unwrap();
    let report = log.state_log("notes").unwrap().replay(|_| panic!("not our note")).unwrap();
    assert_eq!((report.entries, report.torn), (0, 1));
    assert_eq!(std::fs::read(ours.path().join("state/notes.log.damaged-1")).unwrap(), content);
}

#[test]
fn a_format_file_of_another_directory_is_refused_by_name_and_nothing_is_touched() {
    let (ours, theirs) = (provisioned(), provisioned());
    let format = ours.path().join("format");
    let own = std::fs::read(&format).unwrap();
    std::fs::copy(theirs.path().join("format"), &format).unwrap();
    let files = || {
        let mut names: Vec<_> = std::fs::read_dir(ours.path().join("topics/t")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = files();
    let wanted = BridgeManifest::from_yaml(MANIFEST).unwrap();
    for refused in [EmbeddedBroker::open(ours.path()).map(drop), EmbeddedBroker::open_or_apply(ours.path(), &wanted).map(drop)] {
        assert!(matches!(&refused, Err(BusError::Config { problem }) if problem.contains("not of one directory")), "{refused:?}");
    }
    assert_eq!(files(), before);
    std::fs::write(&format, own).unwrap();
    let log = EmbeddedBroker::open(ours.path()).unwrap();
    assert_eq!((0..3).map(|partition| log.fetch("t", partition, 0, 10).unwrap().len()).sum::<usize>(), 6);
}
