//! `cargo xtask rows`: every requirement row has its test or its document, and what the page names exists.
//!
//! The grammar of `docs/conformance.md`: a fenced block `ids` holds the ranges of ids; a table row whose first cell is such an id
//! is that row's line; its last cell is a list, separated by `; `, of
//!
//! - `` `path/of/file.rs::function` ``: a test, or a case of a suite that runs on several engines,
//! - `[text](page.md#heading)`: a document,
//! - `open: <issue>`: not built yet, or not wholly,
//! - `by construction: <reason>`: cannot occur; the reason ends the cell.

use std::collections::{BTreeMap, BTreeSet};

use crate::failure::Failure;
use crate::markdown;
use crate::rust_source::{self, RustFile};
use crate::tree::{Finding, Tree, report};

const PAGE: &str = "docs/conformance.md";

/// Whether rows may still be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Issues are still being built.
    Underway,
    /// Everything is built.
    Final,
}

/// Checks the page and says how many rows are shown.
///
/// # Errors
/// [`Failure::Findings`].
pub(crate) fn run(tree: &Tree, stage: Stage) -> Result<(), Failure> {
    report("rows", &check(tree, stage))?;
    let text = tree.texts.get(PAGE).map_or("", String::as_str);
    let (ids, _) = declared_ids(text);
    let open = lines(text).filter(|line| line.items.iter().any(|item| matches!(item, Ok(Item::Open)))).count();
    eprintln!("rows: {} of {} shown, {open} open", ids.len() - open, ids.len());
    Ok(())
}

/// One line of the page.
struct Line<'a> {
    number: usize,
    id: &'a str,
    items: Vec<Result<Item<'a>, &'a str>>,
}

/// One thing that a row is shown by.
enum Item<'a> {
    Test { file: &'a str, function: &'a str },
    Document { target: &'a str },
    Open,
    ByConstruction,
}

fn check(tree: &Tree, stage: Stage) -> Vec<Finding> {
    let Some(text) = tree.texts.get(PAGE) else { return vec![Finding::new(PAGE, "is missing")] };
    let files = match rust_source::parse_all(tree) {
        Ok(files) => files,
        Err(findings) => return findings,
    };
    let tests = tests_by_file(&files);
    let (ids, mut findings) = declared_ids(text);
    let mut seen = BTreeSet::new();
    for line in lines(text) {
        let place = format!("{PAGE}:{}", line.number);
        if !ids.contains(line.id) {
            findings.push(Finding::new(&place, format!("{} is in none of the declared ranges", line.id)));
        }
        if !seen.insert(line.id) {
            findings.push(Finding::new(&place, format!("{} stands twice", line.id)));
        }
        let problems = line.items.iter().filter_map(|item| problem(item, tree, &tests, stage));
        findings.extend(problems.map(|problem| Finding::new(&place, format!("{}: {problem}", line.id))));
    }
    let missing = ids.iter().filter(|id| !seen.contains(id.as_str()));
    findings.extend(missing.map(|id| Finding::new(PAGE, format!("{id} has no line"))));
    findings
}

/// Tests by file. A case of a suite that runs on several engines counts too: a function in test code that a `…_tests!` macro is given.
fn tests_by_file(files: &[RustFile]) -> BTreeMap<&str, BTreeSet<String>> {
    let cases: BTreeSet<&str> = files.iter().flat_map(RustFile::listed_cases).collect();
    let tests = |file: &RustFile| {
        let tests = file.functions().into_iter().filter(|f| f.is_test || f.in_test && cases.contains(f.name.as_str()));
        tests.map(|function| function.name).collect()
    };
    files.iter().map(|file| (file.path.as_str(), tests(file))).collect()
}

/// What is wrong with one item, if anything.
fn problem(item: &Result<Item<'_>, &str>, tree: &Tree, tests: &BTreeMap<&str, BTreeSet<String>>, stage: Stage) -> Option<String> {
    match item {
        Ok(Item::Test { file, function }) => match tests.get(file) {
            None => Some(format!("there is no {file}")),
            Some(names) => (!names.contains(*function)).then(|| format!("{file} has no test {function}")),
        },
        Ok(Item::Document { target }) => match markdown::resolve(PAGE, target) {
            Some((page, Some(anchor))) => match tree.texts.get(&page) {
                None => Some(format!("there is no {page}")),
                Some(text) => (!markdown::anchors(text).contains(&anchor)).then(|| format!("{page} has no heading #{anchor}")),
            },
            _ => Some(format!("{target} names no page and heading of this project")),
        },
        Ok(Item::Open) => (stage == Stage::Final).then(|| "is still open".to_owned()),
        Ok(Item::ByConstruction) => None,
        Err(text) => Some(format!(
            "cannot read {text:?}; write `file.rs::test`, [text](page.md#heading), open: <issue> or by construction: <reason>"
        )),
    }
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    markdown::prose_lines(text).filter_map(|(number, line)| {
        let cells = markdown::cells(line)?;
        let (id, shown_by) = (*cells.first()?, *cells.last()?);
        let is_header = id == "id";
        (!is_header && cells.len() == 3).then(|| Line { number, id, items: items(shown_by) })
    })
}

fn items(cell: &str) -> Vec<Result<Item<'_>, &str>> {
    let (list, by_construction) = match cell.split_once("by construction:") {
        Some((list, reason)) => (list, Some(if reason.trim().is_empty() { Err(cell) } else { Ok(Item::ByConstruction) })),
        None => (cell, None),
    };
    let list = list.trim().trim_end_matches(';');
    let parts = if list.is_empty() && by_construction.is_some() { Vec::new() } else { list.split("; ").map(item).collect() };
    parts.into_iter().chain(by_construction).collect()
}

fn item(text: &str) -> Result<Item<'_>, &str> {
    let text = text.trim();
    if let Some(issue) = text.strip_prefix("open: ") {
        return issue.parse::<u32>().map(|_| Item::Open).map_err(|_| text);
    }
    if let Some((file, function)) = markdown::code(text).and_then(|inner| inner.split_once("::")) {
        return Ok(Item::Test { file, function });
    }
    match *markdown::link_targets(text) {
        [target] if text.starts_with('[') => Ok(Item::Document { target }),
        _ => Err(text),
    }
}

/// The ids that the page's head declares, and what is wrong with the head.
fn declared_ids(text: &str) -> (BTreeSet<String>, Vec<Finding>) {
    let mut ids = BTreeSet::new();
    let mut findings = Vec::new();
    let Some(ranges) = markdown::fenced(text, "ids") else {
        return (ids, vec![Finding::new(PAGE, "has no fenced block `ids` with the ranges of ids")]);
    };
    for range in ranges {
        match expand(range) {
            Some(expanded) => ids.extend(expanded),
            None => findings.push(Finding::new(PAGE, format!("{range:?} is no range; write first..last, for instance A-01..A-09"))),
        }
    }
    (ids, findings)
}

/// `A-01..A-03` or `H/Audit/1..H/Audit/3`, or a single id.
fn expand(range: &str) -> Option<Vec<String>> {
    let (first, last) = range.trim().split_once("..").unwrap_or((range.trim(), range.trim()));
    let split = |id: &str| -> Option<(String, String)> {
        let at = id.rfind(['-', '/'])? + 1;
        Some((id.get(..at)?.to_owned(), id.get(at..)?.to_owned()))
    };
    let ((prefix, from), (last_prefix, to)) = (split(first)?, split(last)?);
    let width = from.len();
    let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
    // Slashed ids are counted in prose and written without leading zeros.
    let width = if prefix.ends_with('/') { 1 } else { width };
    (prefix == last_prefix && from <= to).then(|| (from..=to).map(|number| format!("{prefix}{number:0width$}")).collect())
}

#[cfg(test)]
mod tests;
