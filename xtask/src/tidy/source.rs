//! What no source may hold: unfinished marks, tests that are silently off, tests that sleep and hope.

use crate::rust_source::RustFile;
use crate::tree::Finding;

/// Token sequences, where they count, and what to do instead.
struct Ban {
    words: &'static [&'static str],
    only_in_tests: bool,
    problem: &'static str,
}

const SLEEPS: &str = "a test must not sleep and hope; wait on an event or virtual time, or with latent_testkit::wait_until";
const BANS: &[Ban] = &[
    Ban { words: &["todo", "!"], only_in_tests: false, problem: "todo! must not be committed" },
    Ban { words: &["unimplemented", "!"], only_in_tests: false, problem: "unimplemented! must not be committed" },
    Ban { words: &["[", "ignore", "]"], only_in_tests: false, problem: "an ignored test must say why: #[ignore = \"reason\"]" },
    Ban { words: &["thread", ":", ":", "sleep"], only_in_tests: true, problem: SLEEPS },
    Ban { words: &["time", ":", ":", "sleep"], only_in_tests: true, problem: SLEEPS },
];

pub(super) fn check(files: &[RustFile]) -> Vec<Finding> {
    let found = files.iter().flat_map(|file| BANS.iter().map(move |ban| (file, ban)));
    found.flat_map(|(file, ban)| places(file, ban)).collect()
}

fn places(file: &RustFile, ban: &Ban) -> Vec<Finding> {
    let places = file.places(ban.words).filter(|token| token.in_test || !ban.only_in_tests);
    places.map(|token| Finding::new(file.place(token), ban.problem)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ban_finds_its_planted_violation_and_nothing_else() {
        let cases = [
            ("src/a.rs", "fn f() { todo!() }", 1),
            ("src/a.rs", "fn f() { unimplemented!(\"x\") }", 1),
            ("src/a.rs", "#[test] #[ignore] fn f() {}", 1),
            ("src/a.rs", "#[test] #[ignore = \"needs an hour\"] fn f() {}", 0),
            ("src/a.rs", "fn f() { std::thread::sleep(D); }", 0),
            ("tests/a.rs", "fn f() { std::thread::sleep(D); }", 1),
            ("src/a.rs", "#[cfg(test)] mod tests { async fn f() { tokio::time::sleep(D).await } }", 1),
            ("src/a.rs", "// todo!()\nconst S: &str = \"todo!()\";", 0),
        ];
        for (path, source, count) in cases {
            assert_eq!(check(&[RustFile::parse(path, source).unwrap()]).len(), count, "{path}: {source}");
        }
    }
}
