//! What a recovery has to read, by the names and lengths of a topic's files. Pure. `docs/formats/embedded-log.md` has the names.
//!
//! The last segment whole. Of a full one its index's header and its own last 4 KiB, or all of it where it has no index or where no uid run
//! covers it, since both are then made again from it. Of a uid run its header page and its filter.

use std::ops::Range;

/// Bytes of a page of an index or a run, and of the end of a segment that stands for all of it.
pub(super) const PAGE_BYTES: u64 = 4_096;
/// Where a run's header says how many pages of entries follow it.
const ENTRY_PAGES_AT: usize = 56;
/// Bytes before the first frame of a segment, and for each partition besides.
const SEGMENT_START_BYTES: u64 = 20;
const SEGMENT_START_PARTITION_BYTES: u64 = 8;
/// Bytes of an index's header, and for each partition besides.
const INDEX_HEADER_BYTES: u64 = 68;
const INDEX_PARTITION_BYTES: u64 = 28;

/// A piece that must be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// Frames from this byte on, up to the file's end.
    Frames { file: String, from: u64 },
    /// Some bytes, with one checksum for each page.
    Bytes { file: String, range: Range<u64> },
    /// A uid run: its header page and what [`filter_start`] says of it.
    Run { file: String },
}

/// The parts, of files given as name and length.
pub(super) fn parts(files: &[(String, u64)], partitions: u64) -> Vec<Part> {
    let mut segments: Vec<_> = files.iter().filter_map(|(name, bytes)| Some((number_before(name, ".seg")?, name, *bytes))).collect();
    segments.sort();
    let runs: Vec<_> = files.iter().filter_map(|(name, _)| Some((run_range(name)?, name))).collect();
    let has = |wanted: &str| files.iter().any(|(name, _)| name == wanted);
    let frames =
        |name: &str| Part::Frames { file: name.to_owned(), from: SEGMENT_START_BYTES + SEGMENT_START_PARTITION_BYTES * partitions };
    let index_bytes = (INDEX_HEADER_BYTES + INDEX_PARTITION_BYTES * partitions).next_multiple_of(PAGE_BYTES);
    let mut parts = Vec::new();
    for (at, (first, name, bytes)) in segments.iter().enumerate() {
        let Some((next, _, _)) = segments.get(at + 1) else {
            parts.push(frames(name));
            continue;
        };
        let index = format!("{}.idx", name.trim_end_matches(".seg"));
        let is_covered = covers(runs.iter().map(|(range, _)| range), *first..*next);
        if has(&index) {
            parts.push(Part::Bytes { file: index.clone(), range: 0..index_bytes });
            parts.push(Part::Bytes { file: (*name).clone(), range: bytes.saturating_sub(PAGE_BYTES)..*bytes });
        }
        if !has(&index) || !is_covered {
            parts.push(frames(name));
        }
    }
    parts.extend(runs.iter().map(|(_, name)| Part::Run { file: (*name).clone() }));
    parts
}

/// The byte where a run's filter begins, by its header page.
pub(super) fn filter_start(header: &[u8]) -> Option<u64> {
    let pages = header.get(ENTRY_PAGES_AT..ENTRY_PAGES_AT + 8)?.try_into().ok().map(u64::from_le_bytes)?;
    pages.checked_add(1)?.checked_mul(PAGE_BYTES)
}

fn number_before(name: &str, ending: &str) -> Option<u64> {
    name.strip_suffix(ending)?.parse().ok()
}

fn run_range(name: &str) -> Option<Range<u64>> {
    let (first, next) = name.strip_suffix(".uids")?.split_once('-')?;
    Some(first.parse().ok()?..next.parse().ok()?)
}

/// Whether the ranges together hold every number of `wanted`.
fn covers<'r>(ranges: impl Iterator<Item = &'r Range<u64>>, wanted: Range<u64>) -> bool {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|range| range.start);
    let reached = ranges.iter().fold(wanted.start, |reached, range| if range.start <= reached { reached.max(range.end) } else { reached });
    reached >= wanted.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: u64) -> (String, u64) {
        (name.to_owned(), bytes)
    }

    fn frames(file: &str) -> Part {
        Part::Frames { file: file.to_owned(), from: 20 + 8 * 8 }
    }

    fn bytes(file: &str, range: Range<u64>) -> Part {
        Part::Bytes { file: file.to_owned(), range }
    }

    #[test]
    fn one_segment_is_read_whole() {
        assert_eq!(parts(&[file("watermark", 9), file("0000.seg", 50)], 8), [frames("0000.seg")]);
        assert_eq!(parts(&[], 8), []);
    }

    #[test]
    fn of_a_full_segment_its_index_and_its_end_are_read() {
        let files = [file("0010.seg", 70), file("0000.seg", 9_000), file("0000.idx", 12_288), file("0000-0010.uids", 16_384)];
        let run = Part::Run { file: "0000-0010.uids".to_owned() };
        assert_eq!(parts(&files, 8), [bytes("0000.idx", 0..4_096), bytes("0000.seg", 4_904..9_000), frames("0010.seg"), run]);
        // 200 partitions do not fit the first page.
        assert!(parts(&files, 200).contains(&bytes("0000.idx", 0..8_192)));
    }

    #[test]
    fn a_segment_without_index_or_run_is_read_whole() {
        let run = file("0000-0009.uids", 16_384);
        for files in [vec![file("0000.idx", 4_096)], vec![file("0000.idx", 4_096), run], vec![file("0000-0010.uids", 16_384)]] {
            let files: Vec<_> = files.into_iter().chain([file("0000.seg", 9_000), file("0010.seg", 70)]).collect();
            assert!(parts(&files, 8).contains(&frames("0000.seg")), "{files:?}");
        }
    }

    #[test]
    fn neighbouring_runs_cover_together_and_a_gap_does_not() {
        let cases: [(&[(u64, u64)], bool); 6] = [
            (&[(0, 5), (5, 10)], true),
            (&[(5, 10), (0, 5)], true),
            (&[(0, 20)], true),
            (&[(0, 4), (5, 10)], false),
            (&[(1, 10)], false),
            (&[], false),
        ];
        for (ranges, covered) in cases {
            let ranges: Vec<_> = ranges.iter().map(|(first, next)| *first..*next).collect();
            assert_eq!(covers(ranges.iter(), 0..10), covered, "{ranges:?}");
        }
    }

    #[test]
    fn a_filter_begins_behind_the_header_and_the_entries() {
        let mut header = vec![0; 4_096];
        header[ENTRY_PAGES_AT] = 3;
        assert_eq!(filter_start(&header), Some(4 * 4_096));
        assert_eq!((filter_start(&[0; 63]), filter_start(&[255; 64])), (None, None));
    }
}
