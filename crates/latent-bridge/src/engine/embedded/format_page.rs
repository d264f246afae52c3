//! Compares the byte tables of `docs/formats/embedded-log.md` with the constants.

use super::directory::{FORMAT_VERSION, StoreId, render_format};
use super::uid_runs::{filter, header, page};
use super::{body, frame, segment_index, segment_start, state_scan, watermark};

const PAGE: &str = include_str!("../../../../../docs/formats/embedded-log.md");

/// Position, width and name of each row of the table in the section with this heading.
fn table(heading: &str) -> Vec<(usize, usize, String)> {
    let section = PAGE.split_once(heading).unwrap().1;
    let end = section.find("\n#").unwrap_or(section.len());
    let rows = section[..end].lines().filter_map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        Some((cells.first()?.parse().ok()?, cells.get(1)?.parse().ok()?, (*cells.get(2)?).to_owned()))
    });
    rows.collect()
}

fn check(heading: &str, fields: &[(usize, &str)], end: usize) {
    let rows = table(heading);
    let documented: Vec<_> = rows.iter().map(|(at, _, name)| (*at, name.as_str())).collect();
    assert_eq!(documented, fields, "{heading}");
    let next = rows.iter().skip(1).map(|row| row.0).chain([end]);
    rows.iter().zip(next).for_each(|((at, bytes, name), next)| assert_eq!(at + bytes, next, "{heading}: {name}"));
}

macro_rules! fields {
    ($module:path: $($name:ident),*) => {{
        use $module as at;
        [$((at::$name, stringify!($name))),*]
    }};
}

#[test]
fn the_tables_agree_with_the_constants() {
    let header =
        fields!(frame::header_at: MAGIC, HEADER_CRC, BODY_LEN, BODY_CRC, SEQUENCE, OFFSET, STORED_AT, PARTITION, GROUP_INDEX, HEAD_CRC);
    check("### Frame header, 48 bytes", &header, frame::HEADER_BYTES);
    let footer = fields!(frame::footer_at: MAGIC, FOOTER_CRC, SEQUENCE, OFFSET, PARTITION);
    check("### Frame footer, 28 bytes", &footer, frame::FOOTER_BYTES);
    let lengths = fields!(body::lengths_at: UID, KEY, MEDIA_TYPE, ATTRIBUTE_COUNT, ATTRIBUTES, PAYLOAD);
    check("### Body\n", &lengths, body::LENGTHS_BYTES);
    let start = fields!(segment_start::start_at: MAGIC, CRC, PARTITIONS, SEQUENCE);
    check("### Segment start\n", &start, segment_start::START_FIXED_BYTES);
    let index =
        fields!(segment_index::index_at: MAGIC, CRC, FIRST_SEQUENCE, NEXT_SEQUENCE, LENGTH, OLDEST, NEWEST, DISPLACED, WITNESS, PARTITIONS);
    check("## Segment index\n", &index, segment_index::INDEX_FIXED_BYTES);
    let partition = fields!(segment_index::index_partition_at: START, NEXT, BYTES, ENTRIES);
    check("### Partition in a segment index\n", &partition, segment_index::INDEX_PARTITION_BYTES);
    let watermark = fields!(watermark::watermark_at: MAGIC, CRC, SEQUENCE, FIRST_SEQUENCE, PARTITIONS);
    check("## watermark\n", &watermark, watermark::WATERMARK_FIXED_BYTES);
    let entry = fields!(state_scan::entry_at: MAGIC, HEADER_CRC, LENGTH, BODY_CRC);
    check("## State logs\n", &entry, state_scan::ENTRY_HEADER_BYTES);
    let run = fields!(header::run_header_at: MAGIC, HEADER_CRC, FORMAT, LEVEL, FIRST, NEXT, WITNESS, ENTRIES, BUCKET_PAGES, ENTRY_PAGES, FILTER_BLOCKS);
    check("### Header page, 72 bytes", &run, header::RUN_HEADER_BYTES);
    let head = fields!(page::page_at: CRC, RUN, PAGE, COUNT, ZERO);
    check("### Page head, 16 bytes", &head, page::PAGE_HEAD_BYTES);
    let entry = fields!(page::entry_at: HASH, SEQUENCE, AT);
    check("### Uid entry, 20 bytes", &entry, page::ENTRY_BYTES);
}

#[test]
fn the_magics_and_the_format_line_are_those_of_the_page() {
    let segment = [frame::HEADER_MAGIC, frame::FOOTER_MAGIC, segment_start::START_MAGIC];
    let derived = [segment_index::INDEX_MAGIC, watermark::WATERMARK_MAGIC, header::RUN_MAGIC];
    let magics = segment.into_iter().chain(derived).chain([state_scan::ENTRY_MAGIC]);
    for magic in magics.map(u32::to_le_bytes) {
        assert!(PAGE.contains(&format!("| MAGIC | `{}` |", String::from_utf8_lossy(&magic))));
    }
    let format = render_format(StoreId([0; 16]));
    assert!(PAGE.contains(&format!("`{}`", format.lines().next().unwrap())));
    assert!(PAGE.starts_with(&format!("# The embedded engine's files, format version {FORMAT_VERSION}\n")));
}

#[test]
fn the_numbers_of_the_uid_runs_are_those_of_the_page() {
    let (page, entries, block, blocks) = (page::PAGE_BYTES, page::PAGE_ENTRIES, filter::BLOCK_BYTES, filter::PAGE_BLOCKS);
    let multipliers = filter::MULTIPLIERS.map(|multiplier| format!("`{multiplier:016x}`")).join(", ");
    for sentence in [
        format!("pages of {page} bytes"),
        format!("FORMAT is {}", header::RUN_FORMAT),
        format!("A page holds {entries} entries"),
        format!("blocks of {block} bytes, {blocks} to a page"),
        multipliers,
    ] {
        assert!(PAGE.replace('\n', " ").contains(&sentence), "{sentence}");
    }
}
