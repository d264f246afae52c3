//! `damage`: flips one bit of a store that was not closed, opens it, and looks what it says. A store may refuse, and it may be unharmed;
//! it may not return fewer events, or other ones, as if that were all.

use std::path::{Path, PathBuf};

use crate::crash::mixed;
use crate::engine::Name;
use crate::event::{Batch, Event, PAYLOAD_BYTES, number_in};
use crate::failure::Failure;
use crate::scratch::Scratch;

/// Events that are stored before anything is damaged.
const EVENTS: u64 = 1_024;
/// Events of one commit.
const BATCH_EVENTS: usize = 8;

/// What the flips of one engine led to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) flips: usize,
    /// Everything is there.
    pub(crate) unharmed: usize,
    /// Opening or reading failed, and said so.
    pub(crate) refused: usize,
    /// Fewer events, without a word.
    pub(crate) lost_silently: usize,
    /// The most that one flip lost.
    pub(crate) lost_most: u64,
    /// An event with other bytes, without a word.
    pub(crate) changed_silently: usize,
}

/// A file of a store as it was when the process would have been killed.
struct FileImage {
    relative: PathBuf,
    /// Up to the last byte that is not zero: what is written ahead is not worth a flip.
    content: Vec<u8>,
    length: u64,
}

/// Flips one bit in each of so many copies of a store of `engine`, at places that `seed` chooses.
pub(crate) fn damage(engine: Name, flips: usize, seed: u64, scratch: &Scratch) -> Result<Outcome, Failure> {
    let folder = scratch.folder()?;
    let opened = engine.open(folder.path())?;
    for first in (0..EVENTS).step_by(BATCH_EVENTS) {
        opened.publish_batch(&Batch::numbered_from(first, BATCH_EVENTS)?)?;
    }
    let images = images(folder.path())?;
    drop(opened);
    let (mut outcome, mut seed) = (Outcome::default(), seed);
    for _ in 0..flips {
        seed = mixed(seed);
        let copy = scratch.folder()?;
        write_copy(&images, seed, copy.path())?;
        outcome.flips += 1;
        outcome.note(read_back(engine, copy.path()));
    }
    Ok(outcome)
}

impl Outcome {
    fn note(&mut self, read: Result<u64, ReadFailure>) {
        match read {
            Err(ReadFailure::Refused) => self.refused += 1,
            Err(ReadFailure::Changed) => self.changed_silently += 1,
            Ok(EVENTS) => self.unharmed += 1,
            Ok(found) => {
                self.lost_silently += 1;
                self.lost_most = self.lost_most.max(EVENTS.saturating_sub(found));
            }
        }
    }
}

enum ReadFailure {
    Refused,
    Changed,
}

/// How many events are there, all of them as they were published.
fn read_back(engine: Name, folder: &Path) -> Result<u64, ReadFailure> {
    let (mut count, mut changed) = (0, false);
    let opened = engine.open(folder).map_err(|_| ReadFailure::Refused)?;
    let read = opened.read(&mut |payload| {
        let original = number_in(payload).and_then(Event::numbered);
        changed |= payload.len() != PAYLOAD_BYTES || original.map_or(true, |event| &**event.record.payload() != payload);
        count += 1;
        Ok(())
    });
    match (read, changed) {
        (_, true) => Err(ReadFailure::Changed),
        (Err(_), false) => Err(ReadFailure::Refused),
        (Ok(()), false) => Ok(count),
    }
}

fn images(folder: &Path) -> Result<Vec<FileImage>, Failure> {
    let (mut images, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(relative) = folders.pop() {
        let entries = std::fs::read_dir(folder.join(&relative)).map_err(Failure::io("list a store"))?;
        for entry in entries {
            let relative = relative.join(entry.map_err(Failure::io("list a store"))?.file_name());
            let path = folder.join(&relative);
            if path.is_dir() {
                folders.push(relative);
                continue;
            }
            let mut content = std::fs::read(&path).map_err(Failure::io("copy a store"))?;
            let length = content.len() as u64;
            content.truncate(content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
            images.push(FileImage { relative, content, length });
        }
    }
    // The order of a listing is not the same everywhere; the places that a seed chooses are to be.
    images.sort_by(|one, other| one.relative.cmp(&other.relative));
    Ok(images)
}

/// Copies the images with one bit changed, in any of their bytes with the same chance.
fn write_copy(images: &[FileImage], seed: u64, into: &Path) -> Result<(), Failure> {
    let total: usize = images.iter().map(|image| image.content.len()).sum();
    let mut flip = usize::try_from(seed % (total.max(1) as u64)).ok();
    for image in images {
        let mut content = image.content.clone();
        if let Some(at) = flip {
            match content.get_mut(at) {
                Some(byte) => {
                    *byte ^= 1 << (seed >> 61);
                    flip = None;
                }
                None => flip = Some(at - content.len()),
            }
        }
        let path = into.join(&image.relative);
        let folder = path.parent().unwrap_or(into);
        std::fs::create_dir_all(folder).map_err(Failure::io("create a copy"))?;
        std::fs::write(&path, content).map_err(Failure::io("write a copy"))?;
        let file = std::fs::File::options().write(true).open(&path).map_err(Failure::io("open a copy"))?;
        file.set_len(image.length).map_err(Failure::io("lengthen a copy"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Job;

    #[test]
    fn every_flip_has_one_outcome_and_some_do_harm() {
        let scratch = Scratch::in_folder(&std::env::temp_dir()).unwrap();
        let found = damage(Name::Sqlite(Job::Log), 40, 1, &scratch).unwrap();
        assert_eq!(found.unharmed + found.refused + found.lost_silently + found.changed_silently, found.flips);
        // A flip of a write-ahead log ends it there, and pages carry no checksum: not everything can be unharmed.
        assert!(found.unharmed < found.flips);
    }
}
