//! `docs/limits.md` says what the `limits.rs` files say. The table is rewritten by `cargo xtask tidy --bless`.
//!
//! Limits are read from the sources rather than linked in: this tool must not compile the product to check a page. The price is
//! that a limit's numbers are written as literals (or as another limit's), which is how a reader wants them too.

use std::collections::BTreeMap;

use crate::failure::Failure;
use crate::markdown;
use crate::rust_source::{Kind, RustFile, Token, string_value};
use crate::tree::{Finding, Tree};

pub(super) const PAGE: &str = "docs/limits.md";
const BEGIN: &str = "<!-- limits: rewritten by `cargo xtask tidy --bless` -->";
const END: &str = "<!-- end of limits -->";
const HEADER: &str = "| limit | crate | unit | default | smallest | largest | what it bounds |\n|---|---|---|---|---|---|---|\n";

/// One `Limit` of a `limits.rs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    krate: String,
    name: String,
    unit: String,
    default: u64,
    min: u64,
    max: u64,
    bounds: String,
}

impl Entry {
    fn row(&self) -> String {
        let Self { krate, name, unit, default, min, max, bounds } = self;
        let (default, min, max) = (grouped(*default), grouped(*min), grouped(*max));
        format!("| `{name}` | {krate} | {unit} | {default} | {min} | {max} | {bounds} |\n")
    }
}

pub(super) fn check(tree: &Tree, files: &[RustFile]) -> Vec<Finding> {
    let (entries, mut findings) = in_sources(files);
    let Some(text) = tree.texts.get(PAGE) else { return vec![Finding::new(PAGE, "is missing")] };
    let listed: Vec<&str> = between_markers(text).unwrap_or("").lines().filter(|line| is_entry(line)).collect();
    let rows: Vec<String> = entries.iter().map(|entry| entry.row().trim_end().to_owned()).collect();
    let missing = rows.iter().filter(|row| !listed.contains(&row.as_str()));
    findings.extend(missing.map(|row| Finding::new(PAGE, format!("lacks this line; run `cargo xtask tidy --bless`: {row}"))));
    let stale = listed.iter().filter(|line| !rows.iter().any(|row| row == **line));
    findings.extend(stale.map(|line| Finding::new(PAGE, format!("no limits.rs says this; run `cargo xtask tidy --bless`: {line}"))));
    findings
}

/// Every limit of every `limits.rs`, and those that cannot be read.
pub(super) fn in_sources(files: &[RustFile]) -> (Vec<Entry>, Vec<Finding>) {
    let mut entries = Vec::new();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("limits.rs")) {
        let krate = file.path.split('/').nth(1).unwrap_or_default();
        let literals = Literals::of(file);
        for (place, body) in &literals.in_order {
            match literals.entry(krate, body) {
                Ok(entry) => entries.push(entry),
                Err(problem) => findings.push(Finding::new(file.place(place), problem)),
            }
        }
    }
    (entries, findings)
}

/// The page with its table made anew.
pub(super) fn page_with(tree: &Tree, entries: &[Entry]) -> Result<String, Failure> {
    let unexpected = |problem: String| Failure::Unexpected { what: PAGE.to_owned(), problem };
    let text = tree.texts.get(PAGE).ok_or_else(|| unexpected("it is missing".to_owned()))?;
    let old = between_markers(text).ok_or_else(|| unexpected(format!("it must hold the lines {BEGIN} and {END}")))?;
    let rows: String = entries.iter().map(Entry::row).collect();
    Ok(text.replacen(&format!("{BEGIN}{old}{END}"), &format!("{BEGIN}\n{HEADER}{rows}{END}"), 1))
}

fn between_markers(text: &str) -> Option<&str> {
    text.split_once(BEGIN)?.1.split_once(END).map(|(between, _)| between)
}

fn is_entry(line: &str) -> bool {
    markdown::cells(line).is_some_and(|cells| cells.first().is_some_and(|cell| markdown::code(cell).is_some()))
}

/// The `Limit { … }` values of one file.
struct Literals<'a> {
    /// Where each stands and the tokens between its braces.
    in_order: Vec<(&'a Token, &'a [Token])>,
    /// The same tokens by the name of the constant.
    by_name: BTreeMap<&'a str, &'a [Token]>,
}

impl<'a> Literals<'a> {
    fn of(file: &'a RustFile) -> Self {
        let mut literals = Self { in_order: Vec::new(), by_name: BTreeMap::new() };
        for at in (0..file.tokens.len()).filter(|at| file.reads(*at, &["Limit", "{"])) {
            let Some((place, body)) = file.tokens.get(at).zip(value_body(file, at + 1)) else { continue };
            literals.in_order.push((place, body));
            // `const NAME: Limit = Limit {`
            if let Some(name) = at.checked_sub(4).and_then(|at| file.tokens.get(at)) {
                literals.by_name.insert(&name.text, body);
            }
        }
        literals
    }

    fn entry(&self, krate: &str, body: &[Token]) -> Result<Entry, String> {
        let text = |field: &str| match field_value(body, field)? {
            [literal] => string_value(literal).map(str::to_owned).ok_or_else(|| format!("{field} must be a plain string literal")),
            _ => Err(format!("{field} must be a plain string literal")),
        };
        let number = |field: &str| {
            let value = field_value(body, field)?;
            self.number(value).ok_or_else(|| format!("{field} must be a number or another limit's, so that {PAGE} can be checked"))
        };
        Ok(Entry {
            krate: krate.to_owned(),
            name: text("name")?,
            unit: text("unit")?,
            default: number("default")?,
            min: number("min")?,
            max: number("max")?,
            bounds: text("bounds")?,
        })
    }

    /// A literal, the largest value of an unsigned type, or a number of another limit of the file (`OTHER.max`). Constants cannot
    /// refer to each other in a circle: that does not compile.
    fn number(&self, tokens: &[Token]) -> Option<u64> {
        let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        match *texts {
            [literal] => literal.trim_end_matches("u64").replace('_', "").parse().ok(),
            ["u64", ":", ":", "MAX"] => Some(u64::MAX),
            ["u32", ":", ":", "MAX"] => Some(u64::from(u32::MAX)),
            [other, ".", field] => self.number(field_value(self.by_name.get(other)?, field).ok()?),
            _ => None,
        }
    }
}

/// The tokens between the braces at `open`, when they are a value of the type and not its declaration, nor a test's.
fn value_body(file: &RustFile, open: usize) -> Option<&[Token]> {
    let brace = file.tokens.get(open)?;
    let Kind::Open { close } = brace.kind else { return None };
    let is_value = file.reads(open + 2, &[":"]) && file.tokens.get(open + 1)?.kind == Kind::Word;
    (is_value && !brace.in_test).then(|| file.tokens.get(open + 1..close))?
}

fn field_value<'a>(body: &'a [Token], field: &str) -> Result<&'a [Token], String> {
    let start = body.windows(2).position(|pair| matches!(pair, [name, colon] if name.text == field && colon.text == ":"));
    let rest = start.and_then(|start| body.get(start + 2..)).ok_or_else(|| format!("a limit must say its {field} here"))?;
    Ok(rest.split(|token| token.text == ",").next().unwrap_or_default())
}

/// Digits in groups of three, as the sources write them.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push('_');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
/// A limit.
pub const A: Limit = Limit { name: "a_bytes", unit: "bytes", default: 1_024, min: 0, max: u64::MAX, bounds: "an a, so that b" };
#[cfg(test)]
mod tests { const T: Limit = Limit { name: "t", unit: "count", default: 1, min: 1, max: 1, bounds: "t" }; }
"#;
    const ROW: &str = "| `a_bytes` | x | bytes | 1_024 | 0 | 18_446_744_073_709_551_615 | an a, so that b |";

    fn problems(source: &str, rows: &[&str]) -> Vec<String> {
        let page = format!("{BEGIN}\n{HEADER}{}\n{END}\n", rows.join("\n"));
        let file = RustFile::parse("crates/x/src/limits.rs", source).unwrap();
        check(&Tree::of(&[(PAGE, &page)]), &[file]).into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn a_page_that_says_what_the_sources_say_is_sound() {
        assert_eq!(problems(SOURCE, &[ROW]), Vec::<String>::new());
    }

    #[test]
    fn a_missing_a_changed_and_a_stale_line_are_found() {
        assert_eq!(problems(SOURCE, &[]).len(), 1);
        assert_eq!(problems(SOURCE, &[&ROW.replace("1_024", "1_025")]).len(), 2);
        assert_eq!(problems("", &[ROW]).len(), 1);
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_named_with_what_is_missing() {
        for (from, to, expected) in [
            ("1_024", "KIB * 2", "default must be a number or another limit's, so that docs/limits.md can be checked"),
            ("min: 0, ", "", "a limit must say its min here"),
            ("\"bytes\"", "UNIT", "unit must be a plain string literal"),
        ] {
            assert_eq!(problems(&SOURCE.replacen(from, to, 1), &[]), [expected]);
        }
    }

    #[test]
    fn a_blessed_page_is_sound_and_keeps_what_stands_around_the_table() {
        let tree = Tree::of(&[(PAGE, &format!("before\n{BEGIN}\nold\n{END}\nafter\n"))]);
        let file = RustFile::parse("crates/x/src/limits.rs", SOURCE).unwrap();
        let files = [file];
        let page = page_with(&tree, &in_sources(&files).0).unwrap();
        assert_eq!(page, format!("before\n{BEGIN}\n{HEADER}{ROW}\n{END}\nafter\n"));
        assert_eq!(check(&Tree::of(&[(PAGE, &page)]), &files), []);
    }

    #[test]
    fn a_number_may_be_another_limits() {
        let source = SOURCE.replacen("min: 0", "min: B.max", 1)
            + "const B: Limit = Limit { name: \"b\", unit: \"bytes\", default: 1, min: 1, max: 7, bounds: \"a b\" };";
        let rows = [&ROW.replace("| 0 |", "| 7 |"), "| `b` | x | bytes | 1 | 1 | 7 | a b |"];
        assert_eq!(problems(&source, &rows.map(|row: &str| row)), Vec::<String>::new());
        assert_eq!(problems(&source.replace("B.max", "C.max"), &rows).len(), 2, "there is no C, so the first line is stale too");
    }

    #[test]
    fn the_type_itself_is_not_a_limit() {
        assert_eq!(
            problems("pub struct Limit { pub name: &'static str }\nimpl Limit { fn f() {} }\nfn g() -> Limit { h() }", &[]),
            Vec::<String>::new()
        );
    }
}
