//! Test programs that cargo builds: where they are, and several of them run at once.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::console::Console;
use crate::context::Context;
use crate::ignored;
use crate::process::Run;
use crate::step::Checks;

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// As the test is called in its package.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Where cargo runs it: the folder of its package.
    pub(crate) folder: PathBuf,
}

/// Builds the test programs that the arguments of `cargo test` choose.
pub(crate) fn build<'a>(context: &Context, arguments: impl IntoIterator<Item = &'a str>) -> Result<Vec<Program>> {
    let cargo = context.cargo(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    Ok(programs(&cargo.args(arguments).read()?))
}

/// Runs programs, with these variables, that must exit with 0 and leave nothing, as many at once as
/// said. What each writes is shown in one piece when it has ended.
pub(crate) fn run(
    context: &Context,
    programs: Vec<Program>,
    variables: &[(&str, PathBuf)],
    at_once: usize,
    checks: &mut Checks,
) -> Result<()> {
    let console = Console::current();
    let queue = Mutex::new(VecDeque::from(programs));
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (queue, sender) = (&queue, sender.clone());
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
                        ignored::run(tests, context, &mut checks)
                            .with_context(|| format!("the test program {}", program.name))
                    });
                    if sender.send((checks, ran, text)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut broken = None;
        for (ended, ran, text) in ended {
            console.write(&text);
            checks.absorb(ended);
            broken = broken.or(ran.err());
        }
        broken.map_or(Ok(()), Err)
    })
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
    }
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    // A package's other programs are built for its tests.
    let messages = messages.filter(|message| message.profile.as_ref().is_some_and(|profile| profile.test));
    let programs = messages.filter_map(|message| {
        let folder = message.manifest_path?.parent()?.to_path_buf();
        Some(Program { name: message.target?.name, path: message.executable?, folder })
    });
    programs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str) -> Program {
        Program { name: name.into(), path: name.into(), folder: "/".into() }
    }

    #[test]
    fn programs_are_read_from_what_cargo_reports() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{"name":"a"},"profile":{"test":false},"executable":null}"#,
            "\nnot JSON\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{"name":"b"},"profile":{"test":false},"executable":"/x/b"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{"name":"t"},"profile":{"test":true},"executable":"/x/t-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(programs(messages), [Program { name: "t".into(), path: "/x/t-1".into(), folder: "/a".into() }]);
    }

    #[test]
    fn all_programs_run_and_those_that_fail_are_reported() {
        let context = Context::discover().unwrap();
        let mut checks = Checks::default();
        run(&context, vec![shell("true"), shell("false"), shell("true")], &[], 2, &mut checks).unwrap();
        assert!(checks.outcome("").err().unwrap().to_string().contains("false ended with"));
        let mut checks = Checks::default();
        let error = run(&context, vec![shell("/no/such/program"), shell("true")], &[], 2, &mut checks).err().unwrap();
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }
}
