//! Counts of tests, read from the closing lines of the test runners.

use std::fmt;
use std::ops::AddAssign;

/// How many tests passed, failed and did not run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Adds up the closing lines of cargo test and pytest in a command's output.
    pub(crate) fn read(output: &str) -> Self {
        let mut tally = Self::default();
        for line in output.lines() {
            let pytest = line.trim_matches(['=', ' ']);
            if let Some(counts) = line.strip_prefix("test result: ") {
                tally += Self::counts(counts, ';');
            } else if pytest.contains(" in ") && pytest.starts_with(|first: char| first.is_ascii_digit()) {
                tally += Self::counts(pytest, ',');
            }
        }
        tally
    }

    fn counts(line: &str, separator: char) -> Self {
        let mut tally = Self::default();
        for part in line.split(separator) {
            // `ok. 3 passed`, `1 failed`, `2 skipped in 0.41s`
            let words: Vec<&str> = part.split_whitespace().collect();
            let Some(index) = words.iter().position(|word| word.parse::<u64>().is_ok()) else { continue };
            let (Ok(count), Some(what)) = (words[index].parse::<u64>(), words.get(index + 1)) else { continue };
            match *what {
                "passed" | "xfailed" => tally.passed += count,
                "failed" | "error" | "errors" | "xpassed" => tally.failed += count,
                "skipped" | "ignored" => tally.skipped += count,
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_runners_add_up() {
        let output = "\
running 3 tests
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s
test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
12 passed, 4 skipped, 1 warning in 0.50s
===== 1 failed, 5 passed, 2 errors in 3.10s =====
3 files in the folder
";
        assert_eq!(Tally::read(output), Tally { passed: 21, failed: 5, skipped: 5 });
    }

    #[test]
    fn output_without_a_closing_line_counts_nothing() {
        assert_eq!(Tally::read("3 passed the post\nno tests ran in 0.01s\n"), Tally::default());
    }
}
