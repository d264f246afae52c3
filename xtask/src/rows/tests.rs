use super::*;

const SOURCE: &str = "
#[cfg(test)]
mod tests {
    #[test]
    fn it_holds() {}
    fn a_helper() {}
}";

/// A page of two numbered and two prose rows with these lines.
fn check_lines(rows: &[&str], stage: Stage) -> Vec<String> {
    let head = "# Conformance\n\n```ids\nA-08..A-09\nH/Audit/1..H/Audit/2\n```\n\n| id | says | shown by |\n|---|---|---|\n";
    let page = format!("{head}{}\n", rows.join("\n"));
    let tree = Tree::of(&[(PAGE, &page), ("crates/a/src/lib.rs", SOURCE), ("docs/limits.md", "# Limits\n\n## The table\n")]);
    check(&tree, stage).into_iter().map(|finding| finding.problem).collect()
}

const SOUND: [&str; 4] = [
    "| A-08 | x | `crates/a/src/lib.rs::it_holds`; [limits](limits.md#the-table) |",
    "| A-09 | x | open: 6 |",
    "| H/Audit/1 | x | by construction: the type has no such value; none can be made |",
    "| H/Audit/2 | x | `crates/a/src/lib.rs::it_holds`; open: 6 |",
];

/// The sound page with one line in another one's place.
fn check_with(index: usize, row: &'static str) -> Vec<String> {
    let mut rows = SOUND;
    rows[index] = row;
    check_lines(&rows, Stage::Underway)
}

#[test]
fn a_case_of_a_suite_is_a_test_when_the_suite_lists_it() {
    let page = "```ids\nA-01..A-02\n```\n| A-01 | x | `tests/suite.rs::listed` |\n| A-02 | x | `tests/suite.rs::forgotten` |\n";
    let suite = "pub(crate) fn listed(make: Make) {}\npub(crate) fn forgotten(make: Make) {}";
    let tree = Tree::of(&[(PAGE, page), ("tests/suite.rs", suite), ("tests/mod.rs", "suite_tests!(make; listed);")]);
    let problems: Vec<_> = check(&tree, Stage::Underway).into_iter().map(|finding| finding.problem).collect();
    assert_eq!(problems, ["A-02: tests/suite.rs has no test forgotten"]);
}

#[test]
fn a_sound_page_has_nothing_to_mend() {
    assert_eq!(check_lines(&SOUND, Stage::Underway), Vec::<String>::new());
}

#[test]
fn the_final_stage_allows_no_open_row_not_even_a_half_open_one() {
    assert_eq!(check_lines(&SOUND, Stage::Final), ["A-09: is still open", "H/Audit/2: is still open"]);
}

#[test]
fn each_planted_fault_is_found() {
    let cases = [
        ("| A-08 | x | `crates/a/src/lib.rs::it_held` |", "A-08: crates/a/src/lib.rs has no test it_held"),
        ("| A-08 | x | `crates/a/src/lib.rs::a_helper` |", "A-08: crates/a/src/lib.rs has no test a_helper"),
        ("| A-08 | x | `crates/b/src/lib.rs::it_holds` |", "A-08: there is no crates/b/src/lib.rs"),
        ("| A-08 | x | [limits](limits.md#the-chair) |", "A-08: docs/limits.md has no heading #the-chair"),
        ("| A-08 | x | [limits](limit.md#the-table) |", "A-08: there is no docs/limit.md"),
        ("| A-08 | x | [limits](limits.md) |", "A-08: limits.md names no page and heading of this project"),
    ];
    for (row, expected) in cases {
        assert_eq!(check_with(0, row), [expected], "{row}");
    }
}

#[test]
fn what_is_not_in_the_grammar_is_refused() {
    for cell in ["", "open:", "open: soon", "tested", "by construction:", "`no-function.rs`", "open: 3, open: 4"] {
        let row = format!("| A-08 | x | {cell} |");
        let mut rows = SOUND.map(str::to_owned);
        rows[0] = row;
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let problems = check_lines(&rows, Stage::Underway);
        assert!(matches!(&*problems, [problem] if problem.contains("cannot read")), "{cell:?}: {problems:?}");
    }
}

#[test]
fn a_missing_a_doubled_and_an_unknown_row_are_each_named() {
    assert_eq!(check_with(1, ""), ["A-09 has no line"]);
    assert_eq!(check_with(1, "| A-08 | x | open: 6 |"), ["A-08 stands twice", "A-09 has no line"]);
    assert_eq!(check_with(1, "| A-10 | x | open: 6 |"), ["A-10 is in none of the declared ranges", "A-09 has no line"]);
}

#[test]
fn a_page_without_ranges_or_no_page_at_all_is_found() {
    assert_eq!(check(&Tree::of(&[(PAGE, "# Conformance")]), Stage::Underway).len(), 1);
    assert_eq!(check(&Tree::of(&[]), Stage::Underway).len(), 1);
}

#[test]
fn ranges_keep_the_width_of_numbered_ids_and_count_prose_without_zeros() {
    assert_eq!(expand("D-09..D-11").unwrap(), ["D-09", "D-10", "D-11"]);
    assert_eq!(expand("H/The record/9..H/The record/10").unwrap(), ["H/The record/9", "H/The record/10"]);
    assert_eq!(expand("Q-40").unwrap(), ["Q-40"]);
    for wrong in ["A-2..A-1", "A-1..B-2", "A-x..A-y", "", "A"] {
        assert_eq!(expand(wrong), None, "{wrong:?}");
    }
}
