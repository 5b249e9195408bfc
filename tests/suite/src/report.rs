//! Results of tests, read from the output of libtest.

use std::time::Duration;

/// The results of one test binary, or of several together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// Each test that ran, with its time.
    pub(crate) tests: Vec<Test>,
}

/// One test that ran.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) took: Duration,
}

impl Report {
    /// Reads the output of a test binary, or of several one after the other. A process that fails, or ends before it
    /// has printed its result, counts as one failed test where its output names none; one without libtest as one test.
    pub(crate) fn read(output: &str, succeeded: bool) -> Self {
        let mut report = Self::default();
        let (mut begun, mut results) = (0, 0);
        for line in output.lines() {
            if let Some(counts) = line.strip_prefix("test result: ") {
                results += 1;
                report.passed += count(counts, "passed");
                report.failed += count(counts, "failed");
                report.skipped += count(counts, "ignored");
            } else if begins(line) {
                begun += 1;
            } else if let Some(test) = test(line) {
                report.tests.push(test);
            }
        }
        if (!succeeded || results < begun) && report.failed == 0 {
            report.failed = 1;
        } else if succeeded && results == 0 {
            report.passed = 1;
        }
        report
    }

    /// Adds the results of another binary.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.tests.extend(other.tests);
    }

    /// The counts, in the form that tools read: `N passed, N failed`.
    pub(crate) fn counts(&self) -> String {
        let skipped = if self.skipped > 0 { format!(", {} skipped", self.skipped) } else { String::new() };
        format!("{} passed, {} failed{skipped}", self.passed, self.failed)
    }

    /// The names of the tests that failed.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().filter(|test| !test.passed).map(|test| test.name.as_str())
    }
}

/// Whether libtest says that it begins: `running 3 tests`.
fn begins(line: &str) -> bool {
    let words = line.strip_prefix("running ").and_then(|rest| rest.split_once(' '));
    words.is_some_and(|(count, tests)| count.parse::<usize>().is_ok() && ["test", "tests"].contains(&tests))
}

/// Reads the number before a word: `ok. 3 passed; 0 failed; …`.
fn count(counts: &str, word: &str) -> usize {
    let part = counts.split([';', '.']).find(|part| part.trim_end().ends_with(word));
    part.and_then(|part| part.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Reads a line of a test that ended: `test NAME ... ok <1.234s>`. What the test printed may stand before its result.
fn test(line: &str) -> Option<Test> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (result, took) = match rest.rsplit_once(" <") {
        Some((result, took)) => (result, took.strip_suffix("s>")?.parse().ok()?),
        None => (rest, 0.0),
    };
    let passed = match result {
        "ok" => true,
        "FAILED" => false,
        _ => return None,
    };
    let name = name.strip_suffix(" - should panic").unwrap_or(name).to_owned();
    Some(Test { name, passed, took: Duration::try_from_secs_f64(took).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_libtest_is_read() {
        let output = "\nrunning 3 tests\ntest a::b ... ok <0.250s>\ntest c - should panic ... ok <12.000s>\n\
                      test d ... FAILED <1.5s>\ntest e has been running for over 60 seconds\n\n\
                      test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 7 filtered out; finished in 12.5s\n";
        let report = Report::read(output, false);
        assert_eq!((report.passed, report.failed, report.skipped), (2, 1, 4));
        assert_eq!(report.failures().collect::<Vec<_>>(), ["d"]);
        assert_eq!(report.tests[1].name, "c");
        assert_eq!(report.tests[1].took, Duration::from_secs(12));
        assert_eq!(report.counts(), "2 passed, 1 failed, 4 skipped");
    }

    #[test]
    fn processes_without_results_count_as_one_test() {
        let table = [
            ("hello", true, "1 passed, 0 failed"),
            ("hello", false, "0 passed, 1 failed"),
            ("running 2 tests\ntest a ... ok <1.0s>", true, "0 passed, 1 failed"),
            ("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", true, "0 passed, 0 failed"),
            ("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", false, "2 passed, 1 failed"),
        ];
        for (output, succeeded, counts) in table {
            assert_eq!(Report::read(output, succeeded).counts(), counts, "{output:?} {succeeded}");
        }
    }
}
