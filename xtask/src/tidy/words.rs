//! Texts of any kind: no marks of unfinished work, no paths of one machine, no dead links, no drifted copies of an interface.

use crate::markdown;
use crate::tree::{Finding, Tree};

/// Put together here, so that this file does not hold what it looks for.
const UNFINISHED: &str = concat!("FIX", "ME");
const LOCAL_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/tm", "p/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];
/// Where the interfaces are at home.
const WIT: &str = "wit/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.texts {
        findings.extend(lines_holding(path, text, UNFINISHED, "finish it or file an issue"));
        let is_test = path.split('/').any(|part| part == "tests" || part == "tests.rs");
        for local in LOCAL_PATHS.iter().filter(|_| !is_test) {
            findings.extend(lines_holding(path, text, local, "a path of one machine; say it relative to the project"));
        }
    }
    findings.extend(tree.texts_ending(".md").flat_map(|(page, text)| dead_links(tree, page, text)));
    findings.extend(drifted_copies(tree));
    findings
}

fn lines_holding(path: &str, text: &str, word: &str, advice: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate().filter(|(_, line)| line.contains(word));
    lines.map(|(index, _)| Finding::new(format!("{path}:{}", index + 1), format!("holds {word:?}: {advice}"))).collect()
}

fn dead_links(tree: &Tree, page: &str, text: &str) -> Vec<Finding> {
    let links =
        markdown::prose_lines(text).flat_map(|(line, prose)| markdown::link_targets(prose).into_iter().map(move |target| (line, target)));
    let problem = |target: &str| {
        let (file, anchor) = markdown::resolve(page, target)?;
        if !tree.paths.contains(&file) {
            return Some(format!("links to {target}, and there is no {file}"));
        }
        let anchors = markdown::anchors(tree.texts.get(&file)?);
        anchor.filter(|anchor| !anchors.contains(anchor)).map(|anchor| format!("links to {target}, and {file} has no heading #{anchor}"))
    };
    links.filter_map(|(line, target)| problem(target).map(|problem| Finding::new(format!("{page}:{line}"), problem))).collect()
}

/// Guests outside the workspace carry copies of the interfaces; a copy must be one.
fn drifted_copies(tree: &Tree) -> Vec<Finding> {
    let (sources, copies): (Vec<_>, Vec<_>) = tree.texts_ending(".wit").partition(|(path, _)| path.starts_with(WIT));
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let drifted =
        copies.into_iter().filter(|(path, text)| sources.iter().any(|(source, original)| name(source) == name(path) && original != text));
    drifted.map(|(path, _)| Finding::new(path, format!("differs from its source below {WIT}; copy it again"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn unfinished_marks_are_found_also_in_comments() {
        assert_eq!(places(&[("a.rs", &format!("fn f() {{}}\n// {UNFINISHED} later"))]), ["a.rs:2"]);
    }

    #[test]
    fn paths_of_one_machine_are_found_outside_tests() {
        for local in LOCAL_PATHS {
            assert_eq!(places(&[("docs/a.md", &format!("see {local}x"))]), ["docs/a.md:1"], "{local}");
            assert_eq!(places(&[("crates/a/tests/main.rs", &format!("// {local}x"))]), Vec::<String>::new(), "{local}");
        }
    }

    #[test]
    fn dead_links_are_found_and_living_ones_are_not() {
        let page = "[a](b.md) [b](b.md#there) [c](https://example.org)\n[d](c.md)\n[e](b.md#not-there)\n```\n[f](d.md)\n```\n";
        assert_eq!(places(&[("docs/a.md", page), ("docs/b.md", "# There")]), ["docs/a.md:2", "docs/a.md:3"]);
    }

    #[test]
    fn a_copied_interface_must_equal_its_source() {
        let source = ("wit/latent-log/log.wit", "interface log {}");
        assert_eq!(places(&[source, ("sdk/rust/wit/deps/log.wit", "interface log {}")]), Vec::<String>::new());
        assert_eq!(places(&[source, ("sdk/rust/wit/deps/log.wit", "interface log { x }")]), ["sdk/rust/wit/deps/log.wit"]);
        assert_eq!(places(&[source, ("examples/a/wit/world.wit", "world own {}")]), Vec::<String>::new());
    }
}
