//! Tests that failed, read from the output of the test runners, so that the summary of a run names
//! them: what a step writes is often cut before somebody reads it.

use std::fmt;

/// A failed test, with the end of what its runner shows of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Failed {
    name: String,
    lines: Vec<String>,
}

/// The failed tests in the output of a command that runs cargo's test programs or pytest.
pub(crate) fn read(output: &str) -> Vec<Failed> {
    let mut failed: Vec<Failed> = Vec::new();
    let mut is_inside = false;
    for line in output.lines() {
        if let Some(name) = header(line) {
            is_inside = true;
            failed.push(Failed { name: name.to_owned(), lines: Vec::new() });
        } else if is_end(line) {
            is_inside = false;
        } else if is_inside && let Some(test) = failed.last_mut() {
            test.lines.push(line.trim_end().to_owned());
        }
    }
    for test in &mut failed {
        while test.lines.last().is_some_and(String::is_empty) {
            test.lines.pop();
        }
        test.lines.drain(..test.lines.len().saturating_sub(LINES));
    }
    failed
}

/// The name in the line above the output of a failed test: `---- NAME stdout ----` of Rust's programs,
/// `____ NAME ____` of pytest, which writes one `_` at each side of a name that fills the line.
fn header(line: &str) -> Option<&str> {
    let rust = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
    let pytest = || {
        let name = line.trim_start_matches('_').strip_prefix(' ')?.trim_end_matches('_').strip_suffix(' ')?;
        // Between two frames of a traceback, it writes `_ _ _ _ _`.
        (line.starts_with('_') && line.ends_with('_') && !name.starts_with('_')).then_some(name)
    };
    rust.or_else(pytest).map(str::trim).filter(|name| !name.is_empty())
}

/// Whether a line ends the output of a failed test, as far as it is of use.
fn is_end(line: &str) -> bool {
    line == "failures:" || line == "stack backtrace:" || line.starts_with("test result: ") || line.starts_with("====")
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n      | {line}"))
    }
}

/// How many lines of a test's output are kept, the last ones.
const LINES: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str, lines: &[&str]) -> Failed {
        Failed { name: name.into(), lines: lines.iter().map(|&line| line.into()).collect() }
    }

    #[test]
    fn failed_tests_of_rust_are_read_with_their_output() {
        let output = "
running 3 tests
test a::one ... ok
test a::two ... FAILED
test three ... FAILED

failures:

---- a::two stdout ----

thread 'a::two' panicked at src/a.rs:3:5:
left != right
stack backtrace:
   0: __rustc::rust_begin_unwind
   1: core::panicking::panic_fmt
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.

---- three stdout ----
it broke


failures:
    a::two
    three

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";
        let two = ["", "thread 'a::two' panicked at src/a.rs:3:5:", "left != right"];
        assert_eq!(read(output), [failed("a::two", &two), failed("three", &["it broke"])]);
    }

    #[test]
    fn failed_tests_of_pytest_are_read_with_their_output() {
        let output = "
=================================== FAILURES ===================================
__________________________ TestCalls.test_one[slow-2] __________________________
[gw0] linux -- Python 3.12.3

>       check(1)

tests/test_calls.py:3:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
>       assert 1 == 2
E       assert 1 == 2

tests/test_calls.py:9: AssertionError
_ test_what_takes_a_while_to_find_is_set_back_before_the_next_payload[a handler] _
[gw1] linux -- Python 3.12.3
=========================== short test summary info ============================
FAILED tests/test_calls.py::TestCalls::test_one[slow-2] - assert 1 == 2
========================= 2 failed, 4 passed in 0.15s ==========================
";
        let lines = [
            "[gw0] linux -- Python 3.12.3",
            "",
            ">       check(1)",
            "",
            "tests/test_calls.py:3:",
            "_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _",
            ">       assert 1 == 2",
            "E       assert 1 == 2",
            "",
            "tests/test_calls.py:9: AssertionError",
        ];
        let long = "test_what_takes_a_while_to_find_is_set_back_before_the_next_payload[a handler]";
        let expected = [failed("TestCalls.test_one[slow-2]", &lines), failed(long, &["[gw1] linux -- Python 3.12.3"])];
        assert_eq!(read(output), expected);
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let lines: String = (0..100).map(|line| format!("{line}\n")).collect();
        let failed = read(&format!("---- long stdout ----\n{lines}\nfailures:\n"));
        assert_eq!(failed[0].lines.len(), LINES);
        assert_eq!(failed[0].lines.last().unwrap(), "99");
    }

    #[test]
    fn output_of_tests_that_pass_names_none() {
        assert_eq!(read("test a ... ok\n\ntest result: ok. 1 passed; 0 failed\n3 passed in 0.1s\n"), []);
    }
}
