//! Steps: what `cargo xtask test` is made of, in which order they run, and how their outcomes are
//! reported.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::console::{Console, say};
use crate::context::Context;
use crate::failed;
use crate::process::Run;
use crate::tally::Tally;

/// One check of the project.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// What `--only` and `--skip` take.
    pub(crate) name: &'static str,
    /// What it checks, for `--list` and the header.
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Context) -> Result<Outcome>,
}

/// How a step ended that did not fail.
pub(crate) enum Outcome {
    /// The check passed, with a note such as the number of tests.
    Passed(String),
    /// The check cannot run here, for this reason.
    Skipped(String),
}

/// Several commands of one step: all of them run, and the step fails with the list of those that
/// failed.
#[derive(Default)]
pub(crate) struct Checks {
    run: usize,
    failures: Vec<String>,
    tally: Tally,
    /// How many tests did not run, for each reason.
    ignored: BTreeMap<String, u64>,
}

impl Outcome {
    pub(crate) fn passed(note: impl Into<String>) -> Self {
        Self::Passed(note.into())
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped(reason.into())
    }
}

impl Checks {
    /// Runs a command that must exit with 0 and leave nothing behind.
    pub(crate) fn run(&mut self, run: &Run) -> Result<()> {
        self.output(run).map(drop)
    }

    /// The same for a compiler, which must print no warning. A flag that denies warnings would
    /// compile every dependency again.
    pub(crate) fn run_without_warnings(&mut self, run: &Run) -> Result<()> {
        if self.output(run)?.lines().any(|line| line.starts_with("warning")) {
            self.failures.push(format!("{run} has warnings"));
        }
        Ok(())
    }

    /// The same, with what it wrote.
    pub(crate) fn output(&mut self, run: &Run) -> Result<String> {
        self.run += 1;
        let finished = run.finish()?;
        self.tally += Tally::read(&finished.output);
        if !finished.status.success() {
            let tests = failed::read(&finished.output);
            let tests = tests.iter().map(|test| format!("\n    failed: {test}"));
            self.failures.push(format!("{run} ended with {}{}", finished.status, tests.collect::<String>()));
        }
        if finished.left_behind {
            self.failures.push(format!("{run} ended, and a process that it started still held its output"));
        }
        Ok(finished.output)
    }

    /// Adds what others have run.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.run += other.run;
        self.failures.extend(other.failures);
        self.tally += other.tally;
        for (reason, count) in other.ignored {
            *self.ignored.entry(reason).or_default() += count;
        }
    }

    /// The same without the tests that their programs ignored.
    pub(crate) fn without_ignored(mut self) -> Self {
        self.tally.skipped = 0;
        self
    }

    /// Counts a test that does not run for this reason.
    pub(crate) fn ignore(&mut self, reason: impl Into<String>) {
        self.tally.skipped += 1;
        *self.ignored.entry(reason.into()).or_default() += 1;
    }

    /// Records a failure that no command has reported.
    pub(crate) fn fail(&mut self, message: impl Into<String>) {
        self.failures.push(message.into());
    }

    /// Fails with the list, if there is one.
    pub(crate) fn outcome(self, note: impl Into<String>) -> Result<Outcome> {
        match self.failures.as_slice() {
            [] => Ok(Outcome::passed(note)),
            [one] => bail!("{one}"),
            many => bail!("{} failures:\n  {}", many.len(), many.join("\n  ")),
        }
    }

    /// For commands that run tests: without a single one, something is wrong with the step itself.
    pub(crate) fn tested(self) -> Result<Outcome> {
        if self.failures.is_empty() && self.tally.passed == 0 {
            bail!("{} commands ran and no test passed in any of them", self.run);
        }
        let ignored = self.ignored.iter().map(|(reason, count)| format!("\n    {count} ignored: {reason}"));
        let note = std::iter::once(self.tally.to_string()).chain(ignored).collect::<String>();
        self.outcome(note)
    }
}

/// Runs all of them, also after a failure; `true` when none failed. Those that [`BESIDE`] names run
/// beside the others, one after the other, in the order of that list.
pub(crate) fn run_all(steps: &[Step], context: &Context) -> Result<bool> {
    let begin = Instant::now();
    let (ended, beside_ended) = mpsc::channel();
    let (mut beside, ahead): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|step| BESIDE.contains(&step.name));
    beside.sort_by_key(|step| BESIDE.iter().position(|name| *name == step.name));
    // With nothing to run beside, the output of a step is shown as it comes.
    let (beside, ahead) = if ahead.is_empty() { (ahead, beside) } else { (beside, ahead) };
    let mut report = thread::scope(|scope| {
        scope.spawn(|| {
            for step in beside {
                let (done, text) = Console::hold(|| run_one(step, begin, context));
                Console::default().write(&text);
                if ended.send(done).is_err() {
                    return;
                }
            }
            drop(ended);
        });
        let mut report: Vec<Report> = ahead.into_iter().map(|step| run_one(step, begin, context)).collect();
        report.extend(beside_ended.iter());
        report
    });
    report.sort_by_key(|done| done.begin);
    print_summary(&report, begin.elapsed());
    Ok(report.iter().all(|done| done.outcome.is_ok()))
}

/// How a step ended.
struct Report {
    name: &'static str,
    outcome: Result<Outcome>,
    /// When the step began, after the begin of the first one.
    begin: Duration,
    elapsed: Duration,
}

fn run_one(step: &Step, first: Instant, context: &Context) -> Report {
    say!("\n== {}: {}", step.name, step.about);
    let begin = first.elapsed();
    let outcome = (step.run)(context);
    let elapsed = first.elapsed() - begin;
    say!("-- {}: {} ({})", step.name, Verdict(&outcome), Minutes(elapsed));
    Report { name: step.name, outcome, begin, elapsed }
}

/// Prints the steps in the order in which they began. Several may have run at the same time.
fn print_summary(report: &[Report], elapsed: Duration) {
    println!("\n{:<14} {:>7} {:>7}  result", "step", "began", "took");
    let mut tally = Tally::default();
    for Report { name, outcome, begin, elapsed } in report {
        println!(
            "{name:<14} {:>7} {:>7}  {}",
            Minutes(*begin).to_string(),
            Minutes(*elapsed).to_string(),
            Verdict(outcome)
        );
        match outcome {
            Ok(Outcome::Passed(_)) => tally.passed += 1,
            Ok(Outcome::Skipped(_)) => tally.skipped += 1,
            Err(_) => tally.failed += 1,
        }
    }
    println!("{:<14} {:>7} {:>7}  minutes and seconds", "all", "", Minutes(elapsed).to_string());
    println!("\nsteps: {} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
}

/// A time as minutes and seconds: `3:07`.
struct Minutes(Duration);

impl std::fmt::Display for Minutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs_f64().round() as u64;
        write!(f, "{}:{:02}", seconds / 60, seconds % 60)
    }
}

/// An outcome in words.
struct Verdict<'a>(&'a Result<Outcome>);

impl std::fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Ok(Outcome::Passed(note)) if note.is_empty() => f.write_str("passed"),
            Ok(Outcome::Passed(note)) => write!(f, "passed: {note}"),
            Ok(Outcome::Skipped(reason)) => write!(f, "SKIPPED: {reason}"),
            Err(error) => write!(f, "FAILED: {error:#}"),
        }
    }
}

/// Steps that do not build in the folder that the others build in, or wait for most of their time, or
/// check one crate after another: they run beside the others, which compile and then wait for
/// machines.
const BESIDE: [&str; 13] = [
    "python-lint",
    "python-unit",
    "image",
    "dependencies",
    "documents",
    "deny",
    "advisories",
    "package",
    "book",
    "python-test",
    "ui",
    "fuzz",
    // With many short waits for the lock of the folder.
    "features",
];
/// The steps of `--fast`, which a run of all steps begins with.
pub(crate) const FAST: [&str; 5] = ["format", "clippy", "unit", "python-lint", "python-unit"];

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &'static str, run: fn(&Context) -> Result<Outcome>) -> Step {
        Step { name, about: "", run }
    }

    #[test]
    fn all_steps_run_and_one_that_fails_fails_the_run() {
        let context = Context::discover().unwrap();
        let steps = [
            step("image", |_| Ok(Outcome::passed(""))),
            step("test", |_| Ok(Outcome::passed(""))),
            step("deny", |_| bail!("it broke")),
        ];
        assert!(run_all(&steps[..2], &context).unwrap());
        assert!(!run_all(&steps, &context).unwrap());
        assert!(!run_all(&steps[2..], &context).unwrap());
    }

    fn shell(script: &str) -> Run {
        Run::new("sh").args(["-c", script])
    }

    #[test]
    fn all_commands_of_a_step_run_and_all_failures_are_reported() {
        let mut checks = Checks::default();
        // Held, because it reads like the output of these tests.
        Console::hold(|| {
            for script in ["exit 1", "echo 2 passed in 0.1s", "exit 4"] {
                checks.run(&shell(script)).unwrap();
            }
        });
        let error = checks.tested().err().unwrap().to_string();
        assert!(error.starts_with("2 failures:"), "{error}");
        assert!(error.contains("exit status: 1") && error.contains("exit status: 4"), "{error}");
    }

    #[test]
    fn a_test_step_that_tests_nothing_fails() {
        let mut checks = Checks::default();
        checks.run(&shell("true")).unwrap();
        assert!(checks.tested().err().unwrap().to_string().contains("no test passed"));
    }

    #[test]
    fn outcomes_say_passed_skipped_or_failed() {
        let verdict = |outcome| Verdict(&outcome).to_string();
        assert_eq!(verdict(Ok(Outcome::passed(""))), "passed");
        assert_eq!(verdict(Ok(Outcome::passed("3 passed, 0 failed"))), "passed: 3 passed, 0 failed");
        assert_eq!(verdict(Ok(Outcome::skipped("no engine"))), "SKIPPED: no engine");
        assert_eq!(verdict(Err(anyhow::anyhow!("it broke"))), "FAILED: it broke");
    }
}
