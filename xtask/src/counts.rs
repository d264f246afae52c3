//! What the test harness says, added up. No I/O: lines in, numbers out.

/// Tests of any number of test programs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// Names of failed tests, and of steps that failed without a test to blame.
    pub(crate) failures: Vec<String>,
    /// Names of ignored tests with their reasons, and of tests that skipped themselves.
    pub(crate) skips: Vec<String>,
}

impl Counts {
    /// Takes one line of a test program's output.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(summary) = line.strip_prefix("test result: ") {
            self.passed += number_before(summary, " passed");
            self.failed += number_before(summary, " failed");
            self.ignored += number_before(summary, " ignored");
        } else if let Some((name, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            match verdict.split_once(',').map_or(verdict, |(word, _reason)| word) {
                "FAILED" => self.failures.push(name.to_owned()),
                "ignored" => self.skips.push(format!("{name} ({verdict})")),
                _ => {}
            }
        }
    }

    /// Takes a step that failed. One whose failed tests are counted already adds nothing to them.
    pub(crate) fn step_failed(&mut self, name: &str, failed_before: u64) {
        if self.failed == failed_before {
            self.failed += 1;
            self.failures.push(name.to_owned());
        }
    }

    /// Takes the file that skipped tests wrote to: the harness counted each of them as passed.
    pub(crate) fn skips_file(&mut self, text: &str) {
        for line in text.lines() {
            self.skips.push(line.replace('\t', " (") + ")");
            self.passed = self.passed.saturating_sub(1);
            self.ignored += 1;
        }
    }

    /// The line that ends `cargo xtask test`.
    pub(crate) fn summary(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.ignored)
    }

    /// True when no test ran at all.
    pub(crate) const fn is_empty(&self) -> bool {
        self.passed == 0 && self.failed == 0
    }
}

/// The number right before `unit`, 0 when there is none.
fn number_before(text: &str, unit: &str) -> u64 {
    let before = text.split_once(unit).map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 4 tests
test a::works ... ok
test a::panics - should panic ... ok
test a::fails ... FAILED
test a::waits ... ignored, needs a quiet machine
test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s
test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    fn counted(output: &str) -> Counts {
        let mut counts = Counts::default();
        output.lines().for_each(|line| counts.line(line));
        counts
    }

    #[test]
    fn results_of_several_programs_add_up_and_name_what_did_not_pass() {
        let counts = counted(OUTPUT);
        assert_eq!(counts.summary(), "12 passed, 1 failed, 1 skipped");
        assert_eq!(counts.failures, ["a::fails"]);
        assert_eq!(counts.skips, ["a::waits (ignored, needs a quiet machine)"]);
    }

    #[test]
    fn a_skipped_test_is_taken_off_the_passed_ones() {
        let mut counts = counted(OUTPUT);
        counts.skips_file("a::works\tno broker\na::panics\tSOME_FILE unset\n");
        assert_eq!(counts.summary(), "10 passed, 1 failed, 3 skipped");
        assert_eq!(counts.skips[1..], ["a::works (no broker)", "a::panics (SOME_FILE unset)"]);
    }

    #[test]
    fn a_failed_step_counts_once_and_only_where_no_test_is_to_blame() {
        let mut counts = counted(OUTPUT);
        counts.step_failed("tests", 0);
        assert_eq!(counts.failed, 1, "its failed test is counted already");
        counts.step_failed("formatting", 1);
        assert_eq!((counts.failed, counts.failures.last().map(String::as_str)), (2, Some("formatting")));
    }

    #[test]
    fn output_without_a_result_is_a_run_of_nothing() {
        assert!(counted("error: could not compile\ntest result\ntest result: ok. many passed").is_empty());
    }
}
