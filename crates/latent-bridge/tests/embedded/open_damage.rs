//! Files that change under an open log: reads heal or say what is wrong; never another record, and never "absent" for what is there.

use std::path::{Path, PathBuf};

use latent_bridge::{BusError, EmbeddedBroker, EventBus};

use crate::support::fixtures::{Fate, Published, copy_directory, fates, quick};
use crate::support::history::{Kept, check_complete, check_directory, files, healed, keep, past, records, tiny};

type Change = fn(&Path);

fn overwrite(path: &Path, content: &[u8]) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(path).unwrap();
    file.write_all(content).unwrap();
}

/// The same file, so that handles that are open see the change.
const CHANGES: [(&str, Change); 5] = [
    ("emptied", |path| overwrite(path, b"")),
    ("garbage", |path| overwrite(path, &[0xa5; 20_000])),
    ("zeros", |path| overwrite(path, &[0; 20_000])),
    ("last page flipped", |path| {
        let mut content = std::fs::read(path).unwrap();
        let from = content.len().saturating_sub(4_096);
        content[from..].iter_mut().for_each(|byte| *byte ^= 0x55);
        overwrite(path, &content);
    }),
    ("removed", |path| std::fs::remove_file(path).unwrap()),
];

fn open(directory: &Path) -> EmbeddedBroker {
    EmbeddedBroker::open_with(directory, quick(tiny())).unwrap()
}

/// Opens a copy, lets `change` happen to it, and checks everything; with the files already in use, and not yet.
fn under_an_open_log(directory: &Path, kept: &[Kept], what: &str, change: impl Fn(&Path)) {
    for used in [false, true] {
        let copy = copy_directory(directory);
        let broker = open(copy.path());
        if used {
            check_complete(&broker, kept, "before");
        }
        change(copy.path());
        let context = format!("{what}, files in use: {used}");
        check_complete(&broker, kept, &context);
        let new = keep(&broker, "a", records("more", 20));
        let all = [kept, &new].concat();
        check_complete(&broker, &all, &context);
        drop(broker);
        check_directory(copy.path(), &all, &context);
    }
}

fn in_copy(copy: &Path, original: &Path, file: &Path) -> PathBuf {
    copy.join(file.strip_prefix(original).unwrap())
}

#[test]
fn a_derived_file_that_changes_while_it_is_used_is_made_again() {
    let (directory, kept) = past(50);
    for file in files(directory.path(), "a", &[".idx", ".uids", "watermark"]) {
        for (change, apply) in CHANGES {
            let what = format!("{} {change}", file.display());
            under_an_open_log(directory.path(), &kept, &what, |copy| apply(&in_copy(copy, directory.path(), &file)));
        }
    }
    for ending in [".idx", ".uids"] {
        for (change, apply) in CHANGES {
            under_an_open_log(directory.path(), &kept, &format!("every {ending} {change}"), |copy| {
                files(copy, "a", &[ending]).iter().for_each(|path| apply(path));
            });
        }
    }
}

#[test]
fn several_readers_that_meet_a_missing_index_at_once_all_get_their_records() {
    let (directory, kept) = past(50);
    let all = published(&kept);
    for _ in 0..20 {
        let copy = copy_directory(directory.path());
        let broker = open(copy.path());
        files(copy.path(), "a", &[".idx"]).iter().for_each(|path| std::fs::remove_file(path).unwrap());
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| fates(&broker, &all))).collect();
            for reader in readers {
                assert!(reader.join().unwrap().iter().all(|fate| *fate == Fate::Intact));
            }
        });
        drop(broker);
        check_directory(copy.path(), &kept, "healed by several");
    }
}

#[test]
fn a_publisher_alone_has_damaged_runs_made_again() {
    let (directory, kept) = past(50);
    let broker = open(directory.path());
    files(directory.path(), "a", &[".uids"]).iter().for_each(|path| overwrite(path, &[0xa5; 20_000]));
    for Kept { record, ack } in &kept {
        let again = healed(&ack.uid, || broker.publish_record(&ack.topic, record)).unwrap();
        assert!(again.duplicate && again.offset == ack.offset, "{again:?}");
    }
}

#[test]
fn derived_files_that_change_places_are_made_again() {
    let (directory, kept) = past(50);
    for ending in [".idx", ".uids"] {
        under_an_open_log(directory.path(), &kept, &format!("{ending} swapped"), |copy| {
            let all = files(copy, "a", &[ending]);
            let contents: Vec<_> = all.iter().map(|path| std::fs::read(path).unwrap()).collect();
            all.iter().zip(contents.iter().cycle().skip(1)).for_each(|(path, content)| overwrite(path, content));
        });
    }
}

#[test]
fn zeros_prepared_for_the_next_segment_may_become_anything() {
    let (directory, kept) = past(50);
    for content in [&b""[..], b"x", &[0xa5; 2_000], &[0x5a; 100_000]] {
        under_an_open_log(directory.path(), &kept, "next.zeros", |copy| {
            std::fs::write(copy.join("topics/a/next.zeros"), content).unwrap();
        });
    }
    let copy = copy_directory(directory.path());
    let broker = open(copy.path());
    std::fs::create_dir(copy.path().join("topics/a/next.zeros")).unwrap();
    let new = keep(&broker, "a", records("more", 40));
    check_complete(&broker, &[kept, new].concat(), "a folder in its place");
}

fn published(kept: &[Kept]) -> Vec<Published> {
    kept.iter().map(|kept| Published { ack: kept.ack.clone(), payload: kept.record.payload().clone() }).collect()
}

#[test]
fn a_record_damaged_under_an_open_log_is_named_and_no_other_suffers_even_when_its_index_is_gone() {
    let (directory, kept) = past(50);
    let (all, in_a) = (published(&kept), kept.iter().filter(|kept| kept.ack.topic == "a"));
    for victim in in_a.step_by(3) {
        for (index, damaged) in [("kept", "body"), ("removed", "body"), ("kept", "header"), ("removed", "header")] {
            let copy = copy_directory(directory.path());
            let broker = open(copy.path());
            let holds = |path: &PathBuf| position(path, victim).is_some();
            let segment = files(copy.path(), "a", &[".seg"]).into_iter().find(holds).unwrap();
            let mut content = std::fs::read(&segment).unwrap();
            let body = position(&segment, victim).unwrap();
            let header = content[..body].windows(4).rposition(|bytes| bytes == b"LTR1").unwrap();
            content[if damaged == "body" { body } else { header + 20 }] ^= 1;
            overwrite(&segment, &content);
            if index == "removed" {
                drop(std::fs::remove_file(segment.with_extension("idx")));
            }
            let context = format!("{damaged} of {} with its index {index}", victim.ack.uid);
            for (published, fate) in all.iter().zip(fates(&broker, &all)) {
                let expected = if published.ack == victim.ack { Fate::Damaged } else { Fate::Intact };
                assert_eq!(fate, expected, "{context}: {}", published.ack.uid);
            }
            // Its uid is neither found nor absent: published again it must not become a second record.
            let again = healed(&context, || broker.publish_record("a", &victim.record));
            match again {
                Err(BusError::Unreadable { offset, .. }) if damaged == "body" => assert_eq!(offset, victim.ack.offset, "{context}"),
                // Who it was cannot be read either; where it is can be said.
                Err(BusError::Io { file, reason, .. }) if damaged == "header" => {
                    assert!(file.ends_with(".seg") && reason.contains("damaged"), "{context}: {file} {reason}");
                }
                other => panic!("{context}: {other:?}"),
            }
        }
    }
}

/// Where the record's payload lies in a segment file.
fn position(segment: &Path, kept: &Kept) -> Option<usize> {
    let content = std::fs::read(segment).unwrap();
    let payload = kept.record.payload();
    content.windows(payload.len()).position(|bytes| bytes == payload)
}
