//! Who may use a data directory, and what may change in it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Barrier;

use latent_bridge::manifest::ColdFormat;
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus};

use crate::support::fixtures::{count, fates, filled, manifest, publish};

fn config(result: Result<EmbeddedBroker, BusError>) -> String {
    match result.map(|_| ()) {
        Err(error @ BusError::Config { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Every file with its content, to see that nothing was touched.
pub(crate) fn snapshot(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push((path.to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
            }
        }
    }
    files.sort();
    files
}

#[test]
fn a_directory_holds_everything_needed_to_open_it_again() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("of-another.txt"), "mine").unwrap();
    let wanted = manifest(&[("b", 2), ("a.b", 3)]);
    let broker = EmbeddedBroker::provision(directory.path(), &wanted).unwrap();
    let published = publish(&broker, "b", "x", 5);
    drop(broker);
    let broker = EmbeddedBroker::open(directory.path()).unwrap();
    assert_eq!((broker.manifest(), broker.topics()), (&wanted, vec!["a.b".to_owned(), "b".to_owned()]));
    assert_eq!((count(&fates(&broker, &published)), broker.recovered_torn_records()), ((5, 0, 0), 0));
    assert_eq!(std::fs::read_to_string(directory.path().join("of-another.txt")).unwrap(), "mine");
}

#[test]
fn a_second_opener_is_refused_at_once_and_told_who_has_it() {
    let (directory, _) = filled(1, 3, crate::support::fixtures::small_limits());
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    symlink(directory.path(), &link).unwrap();
    let broker = EmbeddedBroker::open(directory.path()).unwrap();
    let before = snapshot(directory.path());
    for path in [directory.path(), &link] {
        let refused = EmbeddedBroker::open(path).map(|_| ()).unwrap_err();
        assert!(matches!(refused, BusError::InUse { .. }) && !refused.is_permanent());
        assert!(refused.to_string().contains(&format!("in use by process {}", std::process::id())), "{refused}");
    }
    assert_eq!(snapshot(directory.path()), before);
    drop(broker);
    assert!(EmbeddedBroker::open(&link).is_ok());
}

#[test]
fn a_lock_file_of_any_size_names_its_holder_by_its_first_bytes() {
    let (directory, _) = filled(1, 1, crate::support::fixtures::small_limits());
    let held = EmbeddedBroker::open(directory.path()).unwrap();
    let lock = directory.path().join("lock");
    // 1 TiB would not fit into memory: what answers at all has not read it whole.
    for bytes in [1_048_575, 1_048_576, 1_048_577, 1 << 40] {
        for (first, holder) in [("process 7 (it)\n", "process 7 (it)"), ("", "another process")] {
            std::fs::write(&lock, first).and_then(|()| std::fs::OpenOptions::new().write(true).open(&lock)?.set_len(bytes)).unwrap();
            match EmbeddedBroker::open(directory.path()).map(drop) {
                Err(BusError::InUse { holder: told, .. }) => assert_eq!(told, holder, "{bytes} bytes"),
                other => panic!("{bytes} bytes: {other:?}"),
            }
        }
    }
    drop(held);
    std::fs::OpenOptions::new().write(true).open(&lock).unwrap().set_len(1 << 40).unwrap();
    drop(EmbeddedBroker::open(directory.path()).unwrap());
    assert_eq!(std::fs::metadata(&lock).unwrap().len(), 0, "the next holder writes it anew");
}

#[test]
fn a_lock_file_left_behind_does_not_matter() {
    let (directory, _) = filled(1, 1, crate::support::fixtures::small_limits());
    std::fs::write(directory.path().join("lock"), "process 999999999 (dead)\n").unwrap();
    assert!(EmbeddedBroker::open(directory.path()).is_ok());
}

#[test]
fn of_eight_concurrent_provisions_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let (path, start) = (directory.path().join("data"), Barrier::new(8));
    let results: Vec<_> = std::thread::scope(|scope| {
        let provision = || {
            start.wait();
            EmbeddedBroker::provision(&path, &manifest(&[("t", 1)]))
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(provision)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for result in results {
        if let Err(error) = result {
            assert!(error.to_string().contains("already provisioned"), "{error}");
        }
    }
    assert!(config(EmbeddedBroker::provision(&path, &manifest(&[("t", 1)]))).contains("already provisioned"));
    assert!(snapshot(&path).iter().all(|(name, _)| !name.ends_with(".tmp")));
}

#[test]
fn a_refused_manifest_leaves_no_trace_and_a_corrected_one_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let sound = manifest(&[("t", 1)]);
    type Broken = (&'static str, fn(&mut BridgeManifest));
    let broken: [Broken; 4] = [
        ("name", |manifest| manifest.name.clear()),
        ("partitions", |manifest| manifest.topics[0].partitions = 0),
        ("schema_ref \"absent.json\" names no file", |manifest| manifest.topics[0].schema_ref = Some("absent.json".to_owned())),
        ("stores of this kind are not known", |manifest| manifest.topics[0].retention.cold_uri = Some("gs://bucket/x".to_owned())),
    ];
    for (problem, break_it) in broken {
        let mut manifest = sound.clone();
        break_it(&mut manifest);
        for refused in [EmbeddedBroker::provision(&path, &manifest), EmbeddedBroker::open_or_apply(&path, &manifest)] {
            let text = config(refused);
            assert!(text.contains(problem), "{text}");
        }
        assert!(!path.exists());
    }
    assert!(EmbeddedBroker::open_or_apply(&path, &sound).is_ok());
}

#[test]
fn what_is_not_provisioned_is_not_opened_or_created() {
    let directory = tempfile::tempdir().unwrap();
    assert!(config(EmbeddedBroker::open(directory.path())).contains("not provisioned"));
    assert!(config(EmbeddedBroker::open(&directory.path().join("absent"))).contains("not provisioned"));
    assert!(snapshot(directory.path()).is_empty() && !directory.path().join("absent").exists());
}

#[test]
fn an_unknown_format_is_refused_untouched() {
    let (directory, _) = filled(1, 1, crate::support::fixtures::small_limits());
    let format = directory.path().join("format");
    let sound = std::fs::read_to_string(&format).unwrap();
    for content in [sound.replace(" 2\n", " 1\n"), String::new(), "garbage".to_owned()] {
        std::fs::write(&format, content).unwrap();
        let before = snapshot(directory.path());
        let text = config(EmbeddedBroker::open(directory.path()));
        assert!(text.contains("format") && text.contains("version 2"), "{text}");
        assert_eq!(snapshot(directory.path()), before);
    }
    std::fs::remove_file(&format).unwrap();
    assert!(config(EmbeddedBroker::open(directory.path())).contains("format is missing"));
    std::fs::write(&format, sound).unwrap();
    assert!(EmbeddedBroker::open(directory.path()).is_ok());
}

#[test]
fn control_files_are_small_regular_files() {
    for name in ["manifest.yaml", "format", "lock"] {
        let (directory, _) = filled(1, 1, crate::support::fixtures::small_limits());
        let path = directory.path().join(name);
        let sound = std::fs::read(&path).unwrap();
        let elsewhere = directory.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(config(EmbeddedBroker::open(directory.path())).contains(name), "a link");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(config(EmbeddedBroker::open(directory.path())).contains(name), "a folder");
        std::fs::remove_dir(&path).unwrap();
        if name != "lock" {
            for (bytes, too_large) in [(1_048_575, false), (1_048_576, false), (1_048_577, true), (1 << 40, true)] {
                // A file with a hole: what is read whole would take its size in memory.
                std::fs::write(&path, "#").and_then(|()| std::fs::OpenOptions::new().write(true).open(&path)?.set_len(bytes)).unwrap();
                let text = config(EmbeddedBroker::open(directory.path()));
                let says_both = text.contains("at most 1048576") && text.contains(&bytes.to_string());
                assert!(text.contains(name) && says_both == too_large, "{name} of {bytes} bytes: {text}");
            }
        }
        std::fs::write(&path, sound).unwrap();
        assert!(EmbeddedBroker::open(directory.path()).is_ok());
    }
}

#[test]
fn a_missing_topic_folder_or_an_odd_segment_is_not_taken_for_an_empty_log() {
    let (directory, _) = filled(1, 1, crate::support::fixtures::small_limits());
    let (topic, aside) = (directory.path().join("topics/t"), directory.path().join("aside"));
    std::fs::rename(&topic, &aside).unwrap();
    assert!(config(EmbeddedBroker::open(directory.path())).contains("topics/t is missing"));
    std::fs::rename(&aside, &topic).unwrap();
    std::fs::create_dir(topic.join("00000000000000000009.seg")).unwrap();
    assert!(config(EmbeddedBroker::open(directory.path())).contains("00000000000000000009.seg is not a regular file"));
}

#[test]
fn added_topics_and_changed_hours_are_applied_durably() {
    let directory = tempfile::tempdir().unwrap();
    let mut wanted = manifest(&[("t", 2)]);
    let broker = EmbeddedBroker::open_or_apply(directory.path(), &wanted).unwrap();
    let published = publish(&broker, "t", "x", 5);
    drop(broker);
    wanted.topics.insert(0, manifest(&[("new", 3)]).topics.remove(0));
    wanted.topics[1].retention.hot_hours = 24;
    wanted.topics[1].retention.cold_format = Some(ColdFormat::Objects);
    wanted.replication_factor = 3;
    drop(EmbeddedBroker::open_or_apply(directory.path(), &wanted).unwrap());
    let broker = EmbeddedBroker::open(directory.path()).unwrap();
    assert_eq!((broker.manifest(), broker.partitions("new")), (&wanted, Ok(3)));
    assert_eq!(count(&fates(&broker, &published)), (5, 0, 0));
    assert_eq!(publish(&broker, "new", "x", 5).len(), 5);
    drop(broker);
    assert!(EmbeddedBroker::open_or_apply(directory.path(), &wanted).is_ok(), "the same again changes nothing");
}

#[test]
fn what_would_lose_or_move_events_is_refused_with_both_values_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let sound = manifest(&[("t", 2), ("u", 4)]);
    drop(EmbeddedBroker::provision(directory.path(), &sound).unwrap());
    let before = snapshot(directory.path());
    type Change = (fn(&mut BridgeManifest), [&'static str; 2]);
    let changes: [Change; 4] = [
        (|manifest| manifest.topics[0].partitions = 3, ["2 partitions", "says 3"]),
        (|manifest| manifest.topics[1].partitions = 1, ["4 partitions", "says 1"]),
        (|manifest| drop(manifest.topics.pop()), ["\"u\"", "not in the manifest"]),
        (|manifest| manifest.name = "other".to_owned(), ["\"test\"", "\"other\""]),
    ];
    for (change, expected) in changes {
        let mut wanted = sound.clone();
        wanted.topics.push(manifest(&[("extra", 1)]).topics.remove(0));
        change(&mut wanted);
        // The last topic is the extra one, so the third change leaves out nothing of the directory unless `u` goes too.
        wanted.topics.retain(|topic| expected[1] != "not in the manifest" || topic.name != "u");
        let text = config(EmbeddedBroker::open_or_apply(directory.path(), &wanted));
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(snapshot(directory.path()), before);
    }
}

#[test]
fn errors_name_files_by_their_base_name_only() {
    let (directory, _) = filled(1, 1, crate::support::fixtures::small_limits());
    let held = EmbeddedBroker::open(directory.path()).unwrap();
    let mut texts = vec![EmbeddedBroker::open(directory.path()).map(|_| ()).unwrap_err().to_string()];
    texts.push(EmbeddedBroker::provision(directory.path(), &manifest(&[("t", 1)])).map(|_| ()).unwrap_err().to_string());
    drop(held);
    let segment = crate::support::fixtures::segments(directory.path(), "t").remove(0);
    std::fs::write(directory.path().join("file"), "").unwrap();
    texts.push(EmbeddedBroker::provision(&directory.path().join("file/data"), &manifest(&[("t", 1)])).map(|_| ()).unwrap_err().to_string());
    std::fs::remove_file(&segment).unwrap();
    std::fs::create_dir(&segment).unwrap();
    texts.push(config(EmbeddedBroker::open(directory.path())));
    let base = directory.path().file_name().unwrap().to_str().unwrap();
    let parent = directory.path().parent().unwrap().to_str().unwrap();
    for text in texts {
        assert!(!text.contains(&format!("{parent}/{base}")), "{text}");
    }
}
