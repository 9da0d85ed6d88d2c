//! Tests that are ignored until a machine has what they need: `#[ignore = "needs docker, sshd"]`.
//! Those whose needs are met run with the others; the rest are counted by reason.

use anyhow::{Result, bail};

use crate::context::Context;
use crate::needs::{self, Need};
use crate::process::Run;
use crate::step::Checks;
use crate::tally::Tally;

/// An ignored test.
#[derive(Debug, PartialEq, Eq)]
struct Ignored {
    name: String,
    reason: String,
}

/// Which tests of a program to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those that are not ignored.
    Plain,
    /// Those that are ignored, if this machine has what they need.
    Ignored,
    /// All of them.
    All,
}

/// Runs tests of a command that takes the arguments of Rust's test programs. The command must exit
/// with 0 and leave nothing.
pub(crate) fn run(tests: impl Fn() -> Run, which: Which, context: &Context, checks: &mut Checks) -> Result<()> {
    run_unless(tests, which, |need| Ok(need.missing(context)?.map(str::to_owned)), checks)
}

fn run_unless(
    tests: impl Fn() -> Run,
    which: Which,
    missing: impl Fn(&Need) -> Result<Option<String>>,
    checks: &mut Checks,
) -> Result<()> {
    if which == Which::Plain {
        // Those that are ignored are counted where they can run.
        let mut plain = Checks::default();
        plain.run_leaving_nothing(tests())?;
        checks.absorb(plain.without_ignored());
        return Ok(());
    }
    let ignored = list(&tests).unwrap_or_else(|error| {
        checks.fail(format!("cannot list the ignored tests of {}: {error:#}", tests()));
        Vec::new()
    });
    let mut skip = Vec::new();
    for test in &ignored {
        let why = why_not(&test.reason, &missing).unwrap_or_else(|error| {
            checks.fail(format!("{}: the test {} is ignored and {error:#}", tests(), test.name));
            Some(test.reason.clone())
        });
        if let Some(why) = why {
            checks.ignore(why);
            skip.extend(["--skip", test.name.as_str()]);
        }
    }
    let all = match which {
        // Two words skip one test.
        Which::Ignored if skip.len() == 2 * ignored.len() => return Ok(()),
        Which::Ignored => tests().args(["--ignored", "--exact"]).args(skip),
        _ if ignored.is_empty() => tests(),
        _ => tests().args(["--include-ignored", "--exact"]).args(skip),
    };
    checks.run_leaving_nothing(all).map(drop)
}

/// The ignored tests. A program prints their reasons only when it is asked to run them, and then it
/// runs none of them.
fn list(tests: impl Fn() -> Run) -> Result<Vec<Ignored>> {
    let listed = tests().args(["--ignored", "--list", "--format", "terse"]).read()?;
    let names: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let said = tests().args(["--exact"]).args(&names).read()?;
    let ignored = reasons(&said);
    let counted = Tally::read(&said).skipped;
    if ignored.len() != names.len() || counted != names.len() as u64 {
        bail!("{} of its {} ignored tests have a reason; each needs one", ignored.len(), names.len());
    }
    Ok(ignored)
}

/// The ignored tests that a program reports, with their reasons.
fn reasons(output: &str) -> Vec<Ignored> {
    let reports = output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... ignored, "));
    // A test that should panic has more than its name there.
    let ignored = reports.map(|(name, reason)| Ignored {
        name: name.split(" - ").next().unwrap_or(name).to_owned(),
        reason: reason.to_owned(),
    });
    ignored.collect()
}

/// Why a test that is ignored for this reason does not run here; nothing if it does.
fn why_not(reason: &str, missing: impl Fn(&Need) -> Result<Option<String>>) -> Result<Option<String>> {
    let Some(names) = reason.strip_prefix("needs ") else { return Ok(Some(reason.to_owned())) };
    let mut lacks = Vec::new();
    for name in names.split(", ") {
        let Some(need) = needs::find(name) else {
            let known: Vec<_> = needs::names().collect();
            bail!("needs {name:?}, which `tools/kit/src/needs.rs` does not know; it knows: {}", known.join(", "));
        };
        lacks.extend(missing(need)?.map(|why| format!("needs {name} ({why})")));
    }
    Ok((!lacks.is_empty()).then(|| lacks.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Console;

    fn lacks_docker(need: &Need) -> Result<Option<String>> {
        Ok((need.name == "docker").then(|| "there is no engine".to_owned()))
    }

    /// A test program with a test that is not ignored, and with these that are.
    fn program(ignored: &'static [(&'static str, &'static str)]) -> impl Fn() -> Run {
        let listed: String = ignored.iter().map(|(name, _)| format!("{name}: test\n")).collect();
        let reported: String =
            ignored.iter().map(|(name, reason)| format!("test {name} ... ignored, {reason}\n")).collect();
        let count = ignored.len();
        let script = format!(
            "case $* in
             --ignored*) printf '{listed}' ;;
             --exact*) printf '{reported}test result: ok. 0 passed; 0 failed; {count} ignored; 1 filtered out\\n' ;;
             *)
                 skipped=$(printf '%s\\n' \"$@\" | grep -c -e --skip)
                 echo \"test result: ok. $(({count} + 1 - skipped)) passed; 0 failed; 0 ignored; $skipped filtered out\" ;;
             esac"
        );
        move || Run::new("sh").args(["-c", script.as_str(), "sh"])
    }

    /// Runs a program. Its output is held back, because it reads like that of these tests.
    fn run_held(program: impl Fn() -> Run) -> Checks {
        let mut checks = Checks::default();
        Console::hold(|| run_unless(program, Which::All, lacks_docker, &mut checks)).0.unwrap();
        checks
    }

    fn note(ignored: &'static [(&'static str, &'static str)]) -> Result<String> {
        let checks = run_held(program(ignored));
        match checks.tested()? {
            crate::step::Outcome::Passed(note) | crate::step::Outcome::Skipped(note) => Ok(note),
        }
    }

    #[test]
    fn reasons_are_read_from_the_report_of_a_program() {
        let output = "
running 3 tests
test a::one ... ignored, needs docker, sshd
test two - should panic ... ignored, needs curl
test three ... ok
test four ... ignored

test result: ok. 1 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let ignored = |name: &str, reason: &str| Ignored { name: name.into(), reason: reason.into() };
        assert_eq!(reasons(output), [ignored("a::one", "needs docker, sshd"), ignored("two", "needs curl")]);
    }

    #[test]
    fn a_test_does_not_run_where_one_of_its_needs_is_missing() {
        assert_eq!(why_not("needs sshd, curl", lacks_docker).unwrap(), None);
        let why = why_not("needs sshd, docker", lacks_docker).unwrap();
        assert_eq!(why.as_deref(), Some("needs docker (there is no engine)"));
        assert_eq!(why_not("run by hand", lacks_docker).unwrap().as_deref(), Some("run by hand"));
        let error = why_not("needs sshd, luck", lacks_docker).unwrap_err().to_string();
        assert!(error.contains("needs \"luck\"") && error.contains("sshd, docker"), "{error}");
    }

    #[test]
    fn tests_whose_needs_are_met_run_and_the_rest_are_counted_by_reason() {
        assert_eq!(note(&[]).unwrap(), "1 passed, 0 failed");
        assert_eq!(note(&[("a", "needs sshd"), ("b", "needs curl")]).unwrap(), "3 passed, 0 failed");
        let note = note(&[("a", "needs sshd"), ("b", "needs docker"), ("c", "a role"), ("d", "needs docker")]).unwrap();
        let lines: Vec<&str> = note.lines().map(str::trim).collect();
        let wanted =
            ["2 passed, 0 failed, 3 skipped", "1 ignored: a role", "2 ignored: needs docker (there is no engine)"];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn tests_that_are_not_ignored_run_alone_and_those_that_are_ignored_too() {
        let commands = |ignored: &'static [(&'static str, &'static str)], which| {
            let ((), text) = Console::hold(|| {
                run_unless(program(ignored), which, lacks_docker, &mut Checks::default()).unwrap();
            });
            // The arguments are behind the script, in the last line of the command.
            text.lines().find_map(|line| line.trim().strip_prefix("esac sh")).map(|line| line.trim().to_owned())
        };
        let some = &[("a", "needs sshd"), ("b", "needs docker")];
        assert_eq!(commands(some, Which::Plain).as_deref(), Some(""));
        assert_eq!(commands(some, Which::Ignored).as_deref(), Some("--ignored --exact --skip b"));
        assert_eq!(commands(some, Which::All).as_deref(), Some("--include-ignored --exact --skip b"));
        assert_eq!(commands(&[("b", "needs docker")], Which::Ignored), None);
        assert_eq!(commands(&[], Which::Ignored), None);
    }

    #[test]
    fn a_need_that_is_not_known_and_a_missing_reason_fail_the_step() {
        let error = note(&[("a", "needs luck")]).unwrap_err().to_string();
        assert!(error.contains("the test a is ignored and needs \"luck\""), "{error}");
        let bare = || {
            Run::new("sh").args([
                "-c",
                "case $* in --ignored*) echo 'a: test' ;; *) echo 'test a ... ignored' ;; esac",
                "sh",
            ])
        };
        let error = run_held(bare).tested().err().unwrap().to_string();
        assert!(error.contains("0 of its 1 ignored tests have a reason"), "{error}");
    }
}
