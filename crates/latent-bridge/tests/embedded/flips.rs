//! One bit flipped anywhere in a data directory: named, or without any effect.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use latent_bridge::{BusError, EmbeddedBroker, EventBus};

use crate::support::fixtures::{Fate, Published, Seeded, copy_directory, count, fates, quick};
use crate::support::history::{Kept, NOTES, check_complete, healed, past, tiny};

/// Flips over all tests of this file together.
const FLIPS: usize = 10_000;

/// What a flip did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// The directory was refused, and the file named.
    Refused,
    /// One record is damaged, and its offset named.
    RecordNamed,
    /// One entry of a state log is damaged, or its end torn, and counted.
    NoteCounted,
    /// Everything is as it was.
    None,
}

fn all_files(directory: &Path) -> Vec<PathBuf> {
    let mut folders = vec![directory.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.retain(|path| std::fs::metadata(path).unwrap().len() > 0);
    files.sort();
    files
}

fn open(directory: &Path, context: &str) -> EmbeddedBroker {
    EmbeddedBroker::open_with(directory, quick(tiny())).unwrap_or_else(|error| panic!("{context}: {error}"))
}

/// Notes that can still be read, and places that are counted as damaged.
fn notes(broker: &EmbeddedBroker, context: &str) -> (usize, u64) {
    let mut notes = Vec::new();
    let report = broker.state_log("notes").unwrap().replay(|note| notes.push(String::from_utf8_lossy(note).into_owned())).unwrap();
    let mut known = NOTES.iter();
    assert!(notes.iter().all(|note| known.any(|known| known == note)), "{context}: {notes:?}");
    (notes.len(), report.damaged + report.torn)
}

/// Opens a directory in which a bit was flipped and says what came of it, having checked that nothing else did.
fn effect(directory: &Path, kept: &[Kept], name: &str, context: &str) -> Effect {
    let broker = match EmbeddedBroker::open_with(directory, quick(tiny())) {
        Ok(broker) => broker,
        Err(BusError::Config { problem }) => {
            assert!(problem.contains(name), "{context}: {problem}");
            return Effect::Refused;
        }
        Err(error) => panic!("{context}: {error}"),
    };
    let all: Vec<_> = kept.iter().map(|kept| Published { ack: kept.ack.clone(), payload: kept.record.payload().clone() }).collect();
    let (readable_notes, damaged_notes) = notes(&broker, context);
    let before = fates(&broker, &all);
    let (intact, damaged, _) = count(&before);
    assert!(intact + damaged == all.len() && damaged <= 1, "{context}: {before:?}");
    let whole: Vec<_> = kept.iter().zip(&before).filter(|(_, fate)| **fate == Fate::Intact).map(|(kept, _)| kept.clone()).collect();
    check_complete(&broker, &whole, context);
    let taken: BTreeSet<_> = kept.iter().map(|kept| (&kept.ack.topic, kept.ack.partition, kept.ack.offset)).collect();
    for (Kept { record, ack }, _) in kept.iter().zip(&before).filter(|(_, fate)| **fate == Fate::Damaged) {
        match healed(context, || broker.publish_record(&ack.topic, record)) {
            // Its uid is known to have been there, or nothing says so any more: then it is a new record.
            Err(BusError::Unreadable { offset, .. }) => assert_eq!(offset, ack.offset, "{context}"),
            Ok(again) => {
                assert!(!again.duplicate && !taken.contains(&(&again.topic, again.partition, again.offset)), "{context}: {again:?}")
            }
            // Not even its header can be read.
            Err(BusError::Io { kind: std::io::ErrorKind::InvalidData, file, .. }) => assert!(file == name, "{context}: {file}"),
            Err(error) => panic!("{context}: {error}"),
        }
    }
    drop(broker);
    let broker = open(directory, context);
    assert_eq!(fates(&broker, &all), before, "{context}, opened again");
    check_complete(&broker, &whole, &format!("{context}, opened again"));
    match (damaged, readable_notes, damaged_notes) {
        (1, 3, 0) => Effect::RecordNamed,
        // The latter is one in the zeros behind the last note, which is a torn end.
        (0, 2 | 3, 1) => Effect::NoteCounted,
        (0, 3, 0) => Effect::None,
        other => panic!("{context}: {other:?}"),
    }
}

/// Flips `count` seeded bits in the files that `chosen` takes, one after the other, and checks that each effect is one that such a file
/// may have. Returns how often each was met.
fn flip(seed: u64, count: usize, chosen: impl Fn(&str) -> bool) -> Vec<(Effect, usize)> {
    let (directory, kept) = past(26);
    let files: Vec<_> = all_files(directory.path()).into_iter().filter(|path| chosen(&path.to_string_lossy())).collect();
    let mut seeded = Seeded(seed);
    let mut met = std::collections::BTreeMap::new();
    for _ in 0..count {
        let file = &files[seeded.below(files.len())];
        let mut content = std::fs::read(file).unwrap();
        // Half of them where a file begins, which is where its header is.
        let reach = if seeded.below(2) == 0 { content.len() } else { content.len().min(128) };
        let (at, bit) = (seeded.below(reach), seeded.below(8));
        content[at] ^= 1 << bit;
        let copy = copy_directory(directory.path());
        let flipped = copy.path().join(file.strip_prefix(directory.path()).unwrap());
        std::fs::write(&flipped, content).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        let context = format!("{name}, byte {at}, bit {bit}, seed {seed}");
        let effect = effect(copy.path(), &kept, name, &context);
        let may = match file.extension().and_then(|extension| extension.to_str()) {
            Some("seg") => &[Effect::RecordNamed, Effect::None][..],
            Some("log") => &[Effect::NoteCounted],
            Some("yaml") => &[Effect::Refused],
            None if name == "format" => &[Effect::Refused],
            // Derived files, and the lock, whose text is only for people.
            _ => &[Effect::None],
        };
        assert!(may.contains(&effect), "{context}: {effect:?}");
        *met.entry(effect).or_insert(0) += 1;
    }
    met.into_iter().collect()
}

fn is_derived(name: &str) -> bool {
    [".idx", ".uids", "watermark"].iter().any(|ending| name.ends_with(ending))
}

#[test]
fn a_flipped_bit_in_a_derived_file_has_no_effect() {
    let met = flip(1, FLIPS * 4 / 10, is_derived);
    assert_eq!(met, [(Effect::None, FLIPS * 4 / 10)]);
}

#[test]
fn a_flipped_bit_in_a_segment_is_named_or_has_no_effect() {
    let met = flip(2, FLIPS * 4 / 10, |name| name.ends_with(".seg"));
    // Without effect are footers, which repeat what headers say, and starts, which repeat what was before.
    let named = met.iter().find(|(effect, _)| *effect == Effect::RecordNamed).map_or(0, |(_, count)| *count);
    assert!(named > FLIPS / 10, "{met:?}");
}

#[test]
fn a_flipped_bit_in_any_other_file_is_named() {
    let met = flip(3, FLIPS * 2 / 10, |name| !is_derived(name) && !name.ends_with(".seg"));
    let refused = met.iter().find(|(effect, _)| *effect == Effect::Refused).map_or(0, |(_, count)| *count);
    assert!(refused > FLIPS / 20, "{met:?}");
}
