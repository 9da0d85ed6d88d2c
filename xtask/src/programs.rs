//! Test programs that cargo builds: where they are, and several of them run at once.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::console::Console;
use crate::context::Context;
use crate::environment::Environment;
use crate::ignored::{self, Which};
use crate::needs;
use crate::process::Run;
use crate::selection::Selection;
use crate::step::Checks;

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// As the test is called in its package.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Where cargo runs it: the folder of its package.
    pub(crate) folder: PathBuf,
    /// Whether it lies in the package's folder of tests, and not in a library or program.
    pub(crate) is_integration: bool,
}

impl Program {
    /// Whether both are built of one target, perhaps with different features.
    pub(crate) fn is_of_the_target(&self, other: &Self) -> bool {
        (&self.name, &self.folder, self.is_integration) == (&other.name, &other.folder, other.is_integration)
    }
}

/// Builds the test programs of these targets, and shows how the build goes on.
pub(crate) fn build<'a>(
    context: &Context,
    selection: Selection,
    targets: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Program>> {
    let targets: Vec<&str> = targets.into_iter().collect();
    let cargo = || context.cargo(["test", "--no-run"]).args(selection.arguments(context)).args(&targets);
    cargo().check()?;
    Ok(programs(&cargo().args(["--message-format=json-render-diagnostics"]).read()?))
}

/// Runs tests of programs, which must exit with 0 and leave nothing. They wait for most of their
/// time, so several run at once. What each writes is shown in one piece when it has ended.
pub(crate) fn run(mut programs: Vec<Program>, which: Which, context: &Context, checks: &mut Checks) -> Result<()> {
    programs.sort_by_key(|program| LONG.iter().position(|name| *name == program.name).unwrap_or(LONG.len()));
    let mut variables = variables(&programs, context)?;
    if which != Which::Plain {
        variables.push(("RUST_TEST_THREADS", THREADS.into()));
    }
    let console = Console::current();
    let queue = Mutex::new(VecDeque::from(programs));
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            let (queue, sender, variables) = (&queue, sender.clone(), &variables);
            scope.spawn(move || {
                loop {
                    let Some(program) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else {
                        return;
                    };
                    let mut checks = Checks::default();
                    let (ran, text) = Console::hold(|| {
                        let tests = || {
                            let run = Run::new(&program.path).dir(&program.folder);
                            variables.iter().fold(run, |run, (name, value)| run.quiet_env(name, value))
                        };
                        ignored::run(tests, which, context, &mut checks)
                            .with_context(|| format!("the test program {}", program.name))
                    });
                    if sender.send((checks, ran, text)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (ended, ran, text) in ended {
            console.write(&text);
            checks.absorb(ended);
            if let Err(error) = ran {
                checks.fail(format!("{error:#}"));
            }
        }
    });
    Ok(())
}

/// The environment variables that describe this machine to tests with the SDK of a cloud.
fn variables(programs: &[Program], context: &Context) -> Result<Vec<(&'static str, PathBuf)>> {
    let is_heavy = |program: &Program| {
        let mut packages = context.workspace.packages.iter();
        packages.any(|package| package.folder() == program.folder && !package.is_light())
    };
    if !programs.iter().any(is_heavy) || needs::MOTO.missing(context)?.is_some() {
        return Ok(Vec::new());
    }
    Ok(vec![("SKYWARD_MOTO_PYTHON", Environment::moto(context)?.program("python"))])
}

/// The test programs among what cargo reports that it has built.
fn programs(messages: &str) -> Vec<Program> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        manifest_path: Option<PathBuf>,
        target: Option<Target>,
        profile: Option<Profile>,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    // A package's other programs are built for its tests.
    let messages = messages.filter(|message| message.profile.as_ref().is_some_and(|profile| profile.test));
    let programs = messages.filter_map(|message| {
        let folder = message.manifest_path?.parent()?.to_path_buf();
        let Target { name, kind } = message.target?;
        Some(Program { name, path: message.executable?, folder, is_integration: kind == ["test"] })
    });
    programs.collect()
}

/// Programs at the same time.
const AT_ONCE: usize = 2;
/// Tests of a program at the same time, among which are those that wait for machines.
const THREADS: &str = "3";
/// Programs that take longer than the others, the longest first: they begin in this order.
const LONG: [&str; 6] = ["long_calls", "pools", "embed_in_service", "conformance", "calls", "machines"];

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str) -> Program {
        Program { name: name.into(), path: name.into(), folder: "/".into(), is_integration: true }
    }

    #[test]
    fn programs_are_read_from_what_cargo_reports() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{"name":"a","kind":["lib"]},"profile":{"test":false},"executable":null}"#,
            "\nnot JSON\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{"name":"b","kind":["bin"]},"profile":{"test":false},"executable":"/x/b"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{"name":"t","kind":["test"]},"profile":{"test":true},"executable":"/x/t-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let expected = Program { name: "t".into(), path: "/x/t-1".into(), folder: "/a".into(), is_integration: true };
        assert_eq!(programs(messages), [expected]);
    }

    #[test]
    fn all_programs_run_and_those_that_fail_are_reported() {
        let context = Context::discover().unwrap();
        let mut checks = Checks::default();
        run(vec![shell("true"), shell("false"), shell("true")], Which::Plain, &context, &mut checks).unwrap();
        assert!(checks.outcome("").err().unwrap().to_string().contains("false ended with"));
        let mut checks = Checks::default();
        run(vec![shell("/no/such/program"), shell("true")], Which::Plain, &context, &mut checks).unwrap();
        assert!(checks.outcome("").err().unwrap().to_string().contains("/no/such/program"));
    }
}
