//! Skips that are counted. A test that quietly passes because something is missing says what is not true.
//!
//! [`skip!`](crate::skip) prints a line, writes one to the file that `LATENT_SKIPS_FILE` names and returns from the test.
//! `cargo xtask test` counts that file and takes the skipped tests off the passed ones.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

/// Names the file that takes one line for each skip.
pub const SKIPS_FILE_VAR: &str = "LATENT_SKIPS_FILE";
/// `1` promises a broker: a test that misses it fails.
pub const REQUIRE_BROKER_VAR: &str = "LATENT_REQUIRE_BROKER";

/// What a test cannot run without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The pinned NATS server. Where it is promised, missing it is a failure.
    Broker,
    /// The broker that `AV_NATS_URL` names. Promised with the pinned server.
    NatsUrl,
    /// The independent client that reads streams, which comes with the broker. Promised with it.
    Reader,
    /// Something that only the person running the tests can name, through this environment variable. Never promised.
    Input(&'static str),
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broker => f.write_str("no broker"),
            Self::NatsUrl => f.write_str("AV_NATS_URL unset"),
            Self::Reader => f.write_str("no nats-py"),
            Self::Input(variable) => write!(f, "{variable} unset"),
        }
    }
}

/// What happens to a skip in this run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkipPolicy {
    /// Where skips are counted, if anywhere.
    pub skips_file: Option<PathBuf>,
    /// True when this run promised a broker.
    pub broker_required: bool,
}

impl SkipPolicy {
    /// The policy that this process's environment asks for.
    pub fn from_environment() -> Self {
        Self::from_values(std::env::var_os(SKIPS_FILE_VAR), std::env::var_os(REQUIRE_BROKER_VAR))
    }

    fn from_values(skips_file: Option<OsString>, broker_required: Option<OsString>) -> Self {
        Self { skips_file: skips_file.map(PathBuf::from), broker_required: broker_required.is_some_and(|value| value == "1") }
    }

    /// Counts the skip of `test`.
    ///
    /// # Panics
    /// When the run promised what is missing, or the skip cannot be counted: both fail the test, as they must.
    #[allow(clippy::panic, clippy::print_stderr, reason = "this runs inside a test: a panic is its failure, stderr its voice")]
    pub fn record(&self, test: &str, missing: Missing) {
        let promised = self.broker_required && !matches!(missing, Missing::Input(_));
        assert!(!promised, "{test}: {missing}, and {REQUIRE_BROKER_VAR}=1 promised one");
        eprintln!("SKIPPED {test} ({missing})");
        if let Err(error) = self.count(test, missing) {
            panic!("{test}: skipped ({missing}), but the skip cannot be counted: {error}");
        }
    }

    /// One `write` of one line in append mode, so that lines of concurrent test processes never mix.
    fn count(&self, test: &str, missing: Missing) -> io::Result<()> {
        let Some(path) = &self.skips_file else { return Ok(()) };
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{test}\t{missing}\n").as_bytes())
    }
}

/// The path of the function that `marker`, an item inside it, belongs to. Used by [`skip!`](crate::skip).
pub fn test_name_of<T>(_marker: &T) -> String {
    let path = std::any::type_name::<T>();
    let path = path.rsplit_once("::").map_or(path, |(function, _marker)| function);
    path.trim_end_matches("::{{closure}}").to_owned()
}

/// Leaves a test (or an async test) early because something is [`Missing`](crate::Missing), and counts that.
///
/// ```no_run
/// use latent_testkit::{Missing, skip};
///
/// # fn replays_the_named_file() {
/// let Some(path) = std::env::var_os("LATENT_EXAMPLE_FILE") else { skip!(Missing::Input("LATENT_EXAMPLE_FILE")) };
/// # drop(path);
/// # }
/// ```
#[macro_export]
macro_rules! skip {
    ($missing:expr) => {{
        fn marker() {}
        $crate::SkipPolicy::from_environment().record(&$crate::test_name_of(&marker), $missing);
        return;
    }};
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_the_value_1_promises_a_broker() {
        for (value, required) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
            assert_eq!(SkipPolicy::from_values(None, value.map(OsString::from)).broker_required, required, "{value:?}");
        }
    }

    #[test]
    fn a_promise_of_a_broker_says_nothing_about_other_input() {
        SkipPolicy { broker_required: true, ..SkipPolicy::default() }.record("some::test", Missing::Input("SOME_FILE"));
    }

    #[test]
    #[should_panic(expected = "cannot be counted")]
    fn a_skip_that_cannot_be_counted_fails_the_test() {
        let folder = tempfile::tempdir().unwrap();
        SkipPolicy { skips_file: Some(folder.path().to_owned()), ..SkipPolicy::default() }.record("some::test", Missing::Broker);
    }

    /// The macro reads the environment, so this test runs itself again as a process with another one.
    #[test]
    fn the_macro_leaves_the_test_and_counts_it_unless_a_broker_was_promised() {
        const ROLE: &str = "LATENT_TESTKIT_ROLE";
        if std::env::var_os(ROLE).is_some() {
            skip!(Missing::Broker);
        }
        let own_name = "skip::tests::the_macro_leaves_the_test_and_counts_it_unless_a_broker_was_promised";
        let folder = tempfile::tempdir().unwrap();
        for (promised, passes, counted) in [("0", true, format!("latent_testkit::{own_name}\tno broker\n")), ("1", false, String::new())] {
            let file = folder.path().join(promised);
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", own_name]).env(ROLE, "child").env(SKIPS_FILE_VAR, &file).env(REQUIRE_BROKER_VAR, promised);
            assert_eq!(child.output().unwrap().status.success(), passes, "{REQUIRE_BROKER_VAR}={promised}");
            assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), counted);
        }
    }

    #[test]
    fn an_async_test_is_named_without_its_closure() {
        let name = {
            let closure = || {
                fn marker() {}
                test_name_of(&marker)
            };
            closure()
        };
        assert_eq!(name, "latent_testkit::skip::tests::an_async_test_is_named_without_its_closure");
    }
}
