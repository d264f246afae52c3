//! Sizes, as a ratchet: what is too large already is listed with its size and may only shrink.

use std::collections::BTreeMap;

use crate::rust_source::RustFile;
use crate::tree::{Finding, Tree};

const RATCHET: &str = "xtask/ratchet.txt";
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 900;

pub(super) fn check(tree: &Tree, files: &[RustFile]) -> Vec<Finding> {
    let mut findings = long_files(tree);
    let long = long_functions(files);
    let listed = match ratchet(tree) {
        Ok(listed) => listed,
        Err(finding) => return vec![finding],
    };
    for (function, lines) in &long {
        let problem = match listed.get(function) {
            None => format!("has {lines} lines; split it (at most {FUNCTION_LINES_MAX})"),
            Some(listed) if lines > listed => format!("grew from {listed} to {lines} lines; split it"),
            Some(listed) if lines < listed => format!("shrank to {lines} lines; say so in {RATCHET}"),
            Some(_) => continue,
        };
        findings.push(Finding::new(function, problem));
    }
    let stale = listed.keys().filter(|function| !long.contains_key(*function));
    findings.extend(stale.map(|function| Finding::new(RATCHET, format!("{function} is not too long any more; take it out"))));
    findings
}

fn long_files(tree: &Tree) -> Vec<Finding> {
    let long = tree.texts_ending(".rs").map(|(path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > FILE_LINES_MAX);
    long.map(|(path, lines)| Finding::new(path, format!("has {lines} lines; split it by topic (at most {FILE_LINES_MAX})"))).collect()
}

/// Functions outside tests that are too long, as `path function`. Where a name repeats, the longest stands for all.
fn long_functions(files: &[RustFile]) -> BTreeMap<String, usize> {
    let mut long = BTreeMap::new();
    for file in files {
        for function in file.functions().into_iter().filter(|function| !function.in_test && function.lines > FUNCTION_LINES_MAX) {
            let lines = long.entry(format!("{} {}", file.path, function.name)).or_insert(0);
            *lines = function.lines.max(*lines);
        }
    }
    long
}

fn ratchet(tree: &Tree) -> Result<BTreeMap<String, usize>, Finding> {
    let text = tree.texts.get(RATCHET).ok_or_else(|| Finding::new(RATCHET, "is missing"))?;
    let entries = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let entry = |line: &str| {
        let (function, lines) = line.rsplit_once(' ')?;
        Some((function.to_owned(), lines.parse().ok()?))
    };
    entries.map(|line| entry(line).ok_or_else(|| Finding::new(RATCHET, format!("{line:?} is not `path function lines`")))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "f();\n".repeat(lines - 2))
    }

    fn problems(source: &str, ratchet: &str) -> Vec<String> {
        let tree = Tree::of(&[("a.rs", source), (RATCHET, ratchet)]);
        let file = RustFile::parse("a.rs", source).unwrap();
        check(&tree, &[file]).into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn a_function_may_have_seventy_lines_and_not_one_more() {
        assert_eq!(problems(&function_of(70), ""), Vec::<String>::new());
        assert_eq!(problems(&function_of(71), ""), ["has 71 lines; split it (at most 70)"]);
    }

    #[test]
    fn a_long_function_of_a_test_is_its_own_affair() {
        assert_eq!(problems(&format!("#[cfg(test)]\nmod tests {{ {} }}", function_of(90)), ""), Vec::<String>::new());
    }

    #[test]
    fn what_is_listed_may_only_shrink_and_leaves_the_list_when_it_is_short() {
        let listed = "# comment\na.rs long 80\n";
        assert_eq!(problems(&function_of(80), listed), Vec::<String>::new());
        assert_eq!(problems(&function_of(81), listed), ["grew from 80 to 81 lines; split it"]);
        assert_eq!(problems(&function_of(79), listed), ["shrank to 79 lines; say so in xtask/ratchet.txt"]);
        assert_eq!(problems(&function_of(70), listed), ["a.rs long is not too long any more; take it out"]);
    }

    #[test]
    fn an_unreadable_list_is_found() {
        assert_eq!(problems("", "a.rs long many"), ["\"a.rs long many\" is not `path function lines`"]);
    }

    #[test]
    fn a_file_may_have_nine_hundred_lines_and_not_one_more() {
        assert_eq!(problems(&"\n".repeat(900), "").len(), 0);
        assert_eq!(problems(&"\n".repeat(901), "").len(), 1);
    }
}
