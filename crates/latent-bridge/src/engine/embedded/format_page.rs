//! Compares the byte tables of `docs/formats/embedded-log.md` with the constants.

use super::directory::{FORMAT_VERSION, StoreId, render_format};
use super::{body, frame, state_scan, watermark};

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
    let header = fields!(frame::header_at: MAGIC, HEADER_CRC, BODY_LEN, BODY_CRC, SEQUENCE, OFFSET, STORED_AT, PARTITION, HEAD_CRC);
    check("### Frame header, 48 bytes", &header, frame::HEADER_BYTES);
    let footer = fields!(frame::footer_at: MAGIC, FOOTER_CRC, SEQUENCE, OFFSET, PARTITION);
    check("### Frame footer, 28 bytes", &footer, frame::FOOTER_BYTES);
    let lengths = fields!(body::lengths_at: UID, KEY, MEDIA_TYPE, ATTRIBUTE_COUNT, ATTRIBUTES, PAYLOAD);
    check("### Body\n", &lengths, body::LENGTHS_BYTES);
    let watermark = fields!(watermark::watermark_at: MAGIC, CRC, SEQUENCE, PARTITIONS);
    check("## watermark\n", &watermark, watermark::WATERMARK_FIXED_BYTES);
    let entry = fields!(state_scan::entry_at: MAGIC, HEADER_CRC, LENGTH, BODY_CRC);
    check("## State logs\n", &entry, state_scan::ENTRY_HEADER_BYTES);
}

#[test]
fn the_magics_and_the_format_line_are_those_of_the_page() {
    let magics = [frame::HEADER_MAGIC, frame::FOOTER_MAGIC, watermark::WATERMARK_MAGIC, state_scan::ENTRY_MAGIC];
    for magic in magics.map(u32::to_le_bytes) {
        assert!(PAGE.contains(&format!("| MAGIC | `{}` |", String::from_utf8_lossy(&magic))));
    }
    let format = render_format(StoreId([0; 16]));
    assert!(PAGE.contains(&format!("`{}`", format.lines().next().unwrap())));
    assert!(PAGE.starts_with(&format!("# The embedded engine's files, format version {FORMAT_VERSION}\n")));
}
