//! The page for users says what happens: every example of its table is tried.

use super::types::{TEXT, U8, list, names, option, record, result, variant};
use super::{Wit, read, written};

const PAGE: &str = include_str!("../../../../../docs/values.md");

/// The type that the examples of a row are about, by the first name in it.
fn type_of(row: &str) -> Wit {
    match row {
        "bool" => Wit::Plain("bool"),
        "u8" => U8,
        "u64" => Wit::Plain("s64"),
        "f32" => Wit::Plain("f64"),
        "char" => Wit::Plain("char"),
        "string" => TEXT,
        "list<T>" => list(U8),
        "tuple<T, U>" => Wit::Tuple(vec![U8, TEXT]),
        "record" => record([("a", U8), ("b", U8)]),
        "variant" => variant([("n", Some(U8)), ("m", None)]),
        "enum" => Wit::Enum(names(["contain", "cover"])),
        "flags" => Wit::Flags(names(["read", "write"])),
        "option<T>" => option(U8),
        "result<T, E>" => result(None, Some(U8)),
        other => panic!("the page has a type that this test does not know: {other}"),
    }
}

/// What stands between backticks.
fn codes(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_example_of_its_table_holds() {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("| WIT")).skip(2).take_while(|line| line.starts_with('|'));
    let mut tried = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, wit, _, accepted, refused, out, _] = cells[..] else { panic!("{row}") };
        let wit = type_of(codes(wit)[0]);
        let accepted_values: Vec<_> = codes(accepted).into_iter().map(|json| read(&wit, json).unwrap()).collect();
        let unwritten = codes(out).into_iter().zip(&accepted_values).find(|(json, value)| written(&wit, value) != *json);
        assert!(unwritten.is_none(), "{unwritten:?} in {row}");
        let read_after_all = codes(refused).into_iter().find(|json| read(&wit, json).is_ok());
        assert!(read_after_all.is_none(), "{read_after_all:?} in {row}");
        tried += 1;
    }
    assert_eq!(tried, 14);
}
