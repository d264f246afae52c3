//! `docs/errors.md` has a line for every `kind` of an error or outcome, which machines read, and for nothing else.

use std::collections::BTreeSet;

use crate::markdown;
use crate::rust_source::{RustFile, string_value};
use crate::tree::{Finding, Tree};

const PAGE: &str = "docs/errors.md";

pub(super) fn check(tree: &Tree, files: &[RustFile]) -> Vec<Finding> {
    let Some(text) = tree.texts.get(PAGE) else { return vec![Finding::new(PAGE, "is missing")] };
    let rows = markdown::prose_lines(text).filter_map(|(number, line)| Some((number, markdown::code(markdown::cells(line)?.first()?)?)));
    let rows: Vec<(usize, &str)> = rows.collect();
    let kinds: Vec<(String, String)> = files.iter().flat_map(kinds_of).collect();
    let listed: BTreeSet<&str> = rows.iter().map(|(_, kind)| *kind).collect();
    let known: BTreeSet<&str> = kinds.iter().map(|(_, kind)| kind.as_str()).collect();
    let unlisted = kinds.iter().filter(|(_, kind)| !listed.contains(kind.as_str()));
    let unlisted = unlisted.map(|(place, kind)| Finding::new(place, format!("{PAGE} has no line for the kind `{kind}`")));
    let stale = rows.iter().filter(|(_, kind)| !known.contains(kind));
    let stale = stale.map(|(number, kind)| Finding::new(format!("{PAGE}:{number}"), format!("`{kind}` is no kind of the sources")));
    unlisted.chain(stale).collect()
}

/// The string literals in the bodies of functions named `kind`.
fn kinds_of(file: &RustFile) -> Vec<(String, String)> {
    let functions = file.functions().into_iter().filter(|function| function.name == "kind" && !function.in_test);
    let tokens = functions.flat_map(|function| file.tokens.get(function.body).unwrap_or_default());
    tokens.filter_map(|token| Some((file.place(token), string_value(token)?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "impl E { fn kind(&self) -> &str { match self { A => \"listed\", B => \"other\" } } fn f() -> &str { \"x\" } }";

    fn findings(page: &str) -> Vec<Finding> {
        check(&Tree::of(&[(PAGE, page)]), &[RustFile::parse("crates/a/src/e.rs", SOURCE).unwrap()])
    }

    #[test]
    fn a_kind_without_a_line_is_found_where_it_is_named() {
        let expected = Finding::new("crates/a/src/e.rs:1", "docs/errors.md has no line for the kind `other`");
        assert_eq!(findings("| `listed` | means |\n\n`other` stands in no table\n"), [expected]);
    }

    #[test]
    fn a_line_that_no_kind_has_is_found() {
        let page = "| `listed` | means |\n| `other` | means |\n| `gone` | means |\n";
        assert_eq!(findings(page), [Finding::new("docs/errors.md:3", "`gone` is no kind of the sources")]);
    }
}
