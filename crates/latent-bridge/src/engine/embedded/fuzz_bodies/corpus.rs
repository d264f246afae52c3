//! Makes the corpus of the log's files with the code that writes them.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use latent_core::{Attributes, MediaType, NewRecord, Uid};

use super::*;
use crate::engine::embedded::body;
use crate::engine::embedded::frame::{FOOTER_BYTES, HEADER_BYTES, Header};
use crate::engine::embedded::segment_start;
use crate::engine::embedded::uid_runs::RunToWrite;
use crate::engine::embedded::watermark::Watermark;

/// Inputs by target and name.
pub(crate) fn corpus() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let sound = frames(&Numbers::zero(PARTITIONS), 7);
    let later = frames(&Numbers { sequence: 9, offsets: vec![3, 4, 2] }, 2);
    let mut damaged = sound.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 60].fill(0xff);
    let torn = [&sound[..], &later[..later.len() - 20], &[0; 64]].concat();
    let mut inputs = vec![
        ("segment_index", "of-seven-records", index_of(&sound)),
        ("uid_run", "of-seven-records", run_of(&sound)),
        ("watermark", "of-three-partitions", watermark_file()),
        ("state_log", "three-entries", entries(&[b"one", b"", b"three"])),
        ("state_log", "damaged-and-torn", [&entries(&[b"one"]), &b"garbage"[..], &entries(&[b"two"]), b"LTS1"].concat()),
    ];
    inputs.extend([
        ("segment", "seven-records", sound),
        ("segment", "later", later),
        ("segment", "damaged", damaged),
        ("segment", "torn", torn),
    ]);
    inputs
}

fn frames(start: &Numbers, count: u8) -> Vec<u8> {
    let (mut numbers, mut out) = (start.clone(), Vec::new());
    segment_start::encode(salt(), start, &mut out);
    for n in 0..count {
        let uid = Uid::parse(&format!("uid-{n}")).unwrap();
        let attributes = Attributes::parse(vec![("Source".to_owned(), "corpus".to_owned())]).unwrap();
        let record =
            NewRecord::new(Some(uid.clone()), "key", MediaType::json(), attributes, Bytes::from(format!("{{\"n\":{n}}}"))).unwrap();
        let identity = numbers.assign(u16::from(n) % 3).unwrap();
        let mut frame = vec![0; HEADER_BYTES];
        let mut content = Vec::new();
        let body::BodySummary { body_len, body_crc, head_crc } = body::encode(&uid, &record, &mut content).unwrap();
        frame.extend_from_slice(&content);
        frame.extend_from_slice(&[0; FOOTER_BYTES]);
        let header = Header { identity, group_index: u16::from(n) % 2, stored_at: 1_000 + u64::from(n), body_len, body_crc, head_crc };
        header.seal(salt(), &mut frame);
        out.extend_from_slice(&frame);
    }
    out
}

fn scanned(segment: &[u8]) -> ScannedSegment {
    let file: Arc<dyn StorageFile> = Arc::new(MemoryFile::of(segment));
    read_segment(&file, salt(), &UidHasher::of(STORE), Numbers::zero(PARTITIONS)).unwrap()
}

fn index_of(segment: &[u8]) -> Vec<u8> {
    let (storage, scanned) = (MemoryStorage::default(), scanned(segment));
    segment_index::write(&storage, Path::new("topic/0.idx"), salt(), (&scanned.summary(), &scanned.rebuilt.positions)).unwrap();
    storage.content()
}

fn run_of(segment: &[u8]) -> Vec<u8> {
    let (storage, scanned) = (Arc::new(MemoryStorage::default()), scanned(segment));
    let range = SequenceRange { first: 0, next: scanned.rebuilt.end.sequence };
    let wanted = RunToWrite { range, level: 0, witness: scanned.witness, entries: scanned.rebuilt.uids.sorted() };
    run_store(Arc::clone(&storage) as _).write(wanted).unwrap();
    storage.content()
}

fn watermark_file() -> Vec<u8> {
    let numbers = |sequence, offsets: [u64; 3]| Numbers { sequence, offsets: offsets.to_vec() };
    let storage = MemoryStorage::default();
    let watermark = Watermark { first: numbers(2, [1, 1, 0]), next: numbers(7, [3, 2, 2]) };
    watermark::write(&storage, Path::new("topic/watermark"), salt(), &watermark).unwrap();
    storage.content()
}

fn entries(entries: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    entries.iter().for_each(|entry| encode_entry(salt(), entry, &mut out));
    out
}

/// Whether a file counts, of each kind.
fn counts(target: &str, content: &[u8]) -> bool {
    match target {
        "segment" => scanned(content).rebuilt.positions.count() == 7,
        "segment_index" => {
            let path = Path::new("topic/0.idx");
            let opened = IndexFile::open(&MemoryStorage::with(path, content), path, salt(), PARTITIONS);
            let asked = PartitionEntries { start: 0, entries: 0..3 };
            opened.is_ok_and(|(index, _)| index.from(asked, 0, PAGE_RECORDS).is_ok())
        }
        "uid_run" => {
            let path = Path::new("topic").join(run_name(SequenceRange { first: 0, next: 7 }));
            let runs = run_store(Arc::new(MemoryStorage::with(&path, content))).open().unwrap();
            let first = UidHash(u64_at(content, 4_096 + 16).unwrap());
            runs.iter().count() == 1 && runs.candidates(first, 0, &mut |_| ControlFlow::Continue(())).is_ok()
        }
        "watermark" => {
            let path = Path::new("topic/watermark");
            matches!(watermark::read(&MemoryStorage::with(path, content), path, salt(), PARTITIONS), Ok(Kept::Found(_)))
        }
        _ => scan(content, &mut Vec::new()).entries == 3,
    }
}

#[test]
fn a_changed_file_counts_again_when_its_checksums_are_made_right() {
    type Case = (&'static str, fn(Salt, &mut [u8]), &'static [usize]);
    let cases: [Case; 5] = [
        // A header's time, a byte of a body.
        ("segment", seals::segment, &[44 + 32, 44 + HEADER_BYTES + 20]),
        // A header's time, a position.
        ("segment_index", seals::segment_index, &[32, 4_096 + 13]),
        // The level, an entry's sequence.
        ("uid_run", seals::uid_run, &[12, 4_096 + 16 + 8]),
        ("watermark", seals::after_checksum, &[8]),
        ("state_log", seals::state_log, &[17]),
    ];
    for (target, seal, places) in cases {
        let (_, _, sound) = corpus().into_iter().find(|(of, name, _)| *of == target && !name.contains("later")).unwrap();
        assert!(counts(target, &sound), "{target}");
        for at in places {
            let mut changed = sound.clone();
            changed[*at] ^= 1;
            assert!(!counts(target, &changed), "{target} changed at {at}");
            seal(salt(), &mut changed);
            assert!(counts(target, &changed), "{target} changed at {at} and sealed");
        }
    }
}
