//! Rust files as flat token lists: enough to ask for functions, attributes, paths and literals without being fooled by
//! comments and strings. Macro bodies are read like everything else, so tests inside `proptest!` are seen.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tree::{Finding, Tree};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Mark,
    Literal,
    /// An opening delimiter and the index of its partner.
    Open {
        close: usize,
    },
    Close,
}

/// One token and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) kind: Kind,
    /// Counted from 1.
    pub(crate) line: usize,
    /// Inside a test folder, a `tests.rs` or a `#[cfg(test)]` item.
    pub(crate) in_test: bool,
}

/// One function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// From the line of its name to that of its closing brace.
    pub(crate) lines: usize,
    pub(crate) in_test: bool,
    /// Carries `#[test]` or another attribute whose path ends in `test`.
    pub(crate) is_test: bool,
    /// The tokens of its body, without the braces.
    pub(crate) body: std::ops::Range<usize>,
}

/// One parsed file.
#[derive(Debug)]
pub(crate) struct RustFile {
    pub(crate) path: String,
    pub(crate) tokens: Vec<Token>,
}

/// Parses every Rust file of the tree.
///
/// # Errors
/// The files that are not Rust, as findings.
pub(crate) fn parse_all(tree: &Tree) -> Result<Vec<RustFile>, Vec<Finding>> {
    let (files, findings): (Vec<_>, Vec<_>) =
        tree.texts_ending(".rs").map(|(path, text)| RustFile::parse(path, text)).partition(Result::is_ok);
    let findings: Vec<_> = findings.into_iter().filter_map(Result::err).collect();
    if findings.is_empty() { Ok(files.into_iter().flatten().collect()) } else { Err(findings) }
}

impl RustFile {
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self, Finding> {
        let stream: TokenStream = text.parse().map_err(|error| Finding::new(path, format!("is not Rust: {error}")))?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let mut file = Self { path: path.to_owned(), tokens };
        if is_test_path(path) {
            file.tokens.iter_mut().for_each(|token| token.in_test = true);
        }
        file.mark_test_items();
        Ok(file)
    }

    /// True when the tokens from `at` on read like this.
    pub(crate) fn reads(&self, at: usize, words: &[&str]) -> bool {
        self.tokens.get(at..at + words.len()).is_some_and(|tokens| tokens.iter().zip(words).all(|(token, word)| token.text == *word))
    }

    /// Where the tokens read like this.
    pub(crate) fn places<'a>(&'a self, words: &'a [&'a str]) -> impl Iterator<Item = &'a Token> {
        (0..self.tokens.len()).filter(|at| self.reads(*at, words)).filter_map(|at| self.tokens.get(at))
    }

    /// `path:line` of a token.
    pub(crate) fn place(&self, token: &Token) -> String {
        format!("{}:{}", self.path, token.line)
    }

    /// The functions of the file, those inside modules, blocks and macros included.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        let mut is_test = false;
        for (at, token) in self.tokens.iter().enumerate() {
            match token.text.as_str() {
                "#" => is_test |= self.attribute(at).is_some_and(|words| ends_in_test(&words)),
                "fn" => functions.extend(self.function(at, std::mem::take(&mut is_test))),
                // An item or statement ends here, and with it whatever its attributes said.
                ";" | "{" | "}" => is_test = false,
                _ => {}
            }
        }
        functions
    }

    /// The words given to macros whose name ends in `_tests`: by custom such a macro makes a test of each case it is given.
    pub(crate) fn listed_cases(&self) -> Vec<&str> {
        let makes_tests = |at: &usize| self.tokens.get(*at).is_some_and(|name| name.text.ends_with("_tests")) && self.reads(at + 1, &["!"]);
        let bodies = (0..self.tokens.len()).filter(makes_tests).filter_map(|at| match self.tokens.get(at + 2)?.kind {
            Kind::Open { close } => self.tokens.get(at + 3..close),
            _ => None,
        });
        bodies.flatten().filter(|token| token.kind == Kind::Word).map(|token| token.text.as_str()).collect()
    }

    fn function(&self, at: usize, is_test: bool) -> Option<Function> {
        let name = self.tokens.get(at + 1).filter(|name| name.kind == Kind::Word)?;
        let mut next = at + 2;
        loop {
            let token = self.tokens.get(next)?;
            match token.kind {
                Kind::Open { close } if token.text == "{" => {
                    let lines = self.tokens.get(close)?.line + 1 - name.line;
                    let body = next + 1..close;
                    return Some(Function { name: name.text.clone(), line: name.line, lines, in_test: name.in_test, is_test, body });
                }
                Kind::Open { close } => next = close + 1,
                Kind::Close => return None,
                _ if token.text == ";" => return None,
                _ => next += 1,
            }
        }
    }

    /// The tokens between the brackets of the attribute whose `#` stands at `at`.
    fn attribute(&self, at: usize) -> Option<Vec<&str>> {
        let open = if self.reads(at + 1, &["!"]) { at + 2 } else { at + 1 };
        match self.tokens.get(open) {
            Some(Token { text, kind: Kind::Open { close }, .. }) if text == "[" => {
                Some(self.tokens.get(open + 1..*close)?.iter().map(|token| token.text.as_str()).collect())
            }
            _ => None,
        }
    }

    fn mark_test_items(&mut self) {
        let starts: Vec<usize> = (0..self.tokens.len())
            .filter(|at| self.reads(*at, &["#"]) && self.attribute(*at).is_some_and(|words| is_cfg_test(&words)))
            .collect();
        for start in starts {
            let is_inner = self.reads(start + 1, &["!"]);
            let end = if is_inner { self.tokens.len() } else { self.item_end(start) };
            self.tokens.iter_mut().take(end + 1).skip(start).for_each(|token| token.in_test = true);
        }
    }

    /// The index of the `;` or the closing brace that ends the item beginning at `start`.
    fn item_end(&self, start: usize) -> usize {
        let mut at = start;
        while let Some(token) = self.tokens.get(at) {
            match token.kind {
                Kind::Open { close } if token.text == "{" => return close,
                Kind::Open { close } => at = close + 1,
                _ if token.text == ";" => return at,
                _ => at += 1,
            }
        }
        self.tokens.len()
    }
}

/// The value of a plain string literal.
pub(crate) fn string_value(token: &Token) -> Option<&str> {
    token.text.strip_prefix('"')?.strip_suffix('"')
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(word) => tokens.push(token(word.to_string(), Kind::Word, line)),
            TokenTree::Punct(mark) => tokens.push(token(mark.as_char().to_string(), Kind::Mark, line)),
            TokenTree::Literal(literal) => tokens.push(token(literal.to_string(), Kind::Literal, line)),
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => flatten(group.stream(), tokens),
            TokenTree::Group(group) => {
                let (open, close) = marks(group.delimiter());
                let at = tokens.len();
                tokens.push(token(open.to_owned(), Kind::Mark, line));
                flatten(group.stream(), tokens);
                let partner = tokens.len();
                tokens.push(token(close.to_owned(), Kind::Close, group.span_close().start().line));
                if let Some(opening) = tokens.get_mut(at) {
                    opening.kind = Kind::Open { close: partner };
                }
            }
        }
    }
}

const fn marks(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::Brace | Delimiter::None => ("{", "}"),
    }
}

const fn token(text: String, kind: Kind, line: usize) -> Token {
    Token { text, kind, line, in_test: false }
}

fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// `test`, `tokio::test`, `tokio::test(flavor = "…")`.
fn ends_in_test(attribute: &[&str]) -> bool {
    attribute.iter().take_while(|word| !matches!(**word, "(" | "=")).last() == Some(&"test")
}

fn is_cfg_test(attribute: &[&str]) -> bool {
    attribute.first() == Some(&"cfg") && attribute.contains(&"test") && !attribute.contains(&"not")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r##"
//! A file.
/// fn in_a_comment() {}
pub(crate) async fn shipped<T>(f: impl Fn() -> [u8; 3]) -> Result<T, ()> {
    let text = "fn in_a_string() {}";
    type F = fn(u8) -> u8;

}
trait T { fn declared(&self) -> Vec<u8>; }
#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "x")]
    fn plain() {}
    #[tokio::test(flavor = "current_thread")]
    async fn with_a_runtime() {}
    fn helper() {}
    proptest! { #[test] fn inside_a_macro(x in 0..9u8) { assert!(x < 9); } }
}
#[cfg(not(test))]
fn also_shipped() {}
"##;

    #[test]
    fn functions_are_found_with_their_size_and_whether_they_are_tests() {
        let file = RustFile::parse("src/a.rs", SAMPLE).unwrap();
        let seen: Vec<_> = file.functions().into_iter().map(|f| (f.name, f.line, f.lines, f.in_test, f.is_test)).collect();
        let expected = [
            ("shipped", 4, 5, false, false),
            ("plain", 14, 1, true, true),
            ("with_a_runtime", 16, 1, true, true),
            ("helper", 17, 1, true, false),
            ("inside_a_macro", 18, 1, true, true),
            ("also_shipped", 21, 1, false, false),
        ];
        assert_eq!(seen, expected.map(|(name, line, lines, in_test, is_test)| (name.to_owned(), line, lines, in_test, is_test)));
    }

    #[test]
    fn a_file_below_tests_is_test_code_throughout() {
        for (path, in_test) in [("crates/a/tests/main.rs", true), ("crates/a/src/b/tests.rs", true), ("crates/a/src/latests.rs", false)] {
            assert_eq!(RustFile::parse(path, "fn f() {}").unwrap().functions()[0].in_test, in_test, "{path}");
        }
    }

    #[test]
    fn an_inner_attribute_makes_the_whole_file_test_code() {
        let file = RustFile::parse("src/sim.rs", "#![cfg(test)]\nfn a() {}\nfn b() {}").unwrap();
        assert!(file.functions().iter().all(|function| function.in_test));
    }

    #[test]
    fn token_sequences_are_found_in_code_and_not_in_comments_or_strings() {
        let file = RustFile::parse("a.rs", "// todo!()\nfn f() { let s = \"todo!()\"; todo!() }").unwrap();
        assert_eq!(file.places(&["todo", "!"]).map(|token| token.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn the_cases_of_a_suite_are_those_its_macro_is_given() {
        let file = RustFile::parse("a.rs", "suite_tests!(make(); values: first_case, order: second_case); other!(third);").unwrap();
        assert_eq!(file.listed_cases(), ["make", "values", "first_case", "order", "second_case"]);
    }

    #[test]
    fn what_is_not_rust_is_named() {
        assert_eq!(RustFile::parse("a.rs", "fn f( {").unwrap_err().place, "a.rs");
    }
}
