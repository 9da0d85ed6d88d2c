//! `cargo xtask mutants`: breaks one mechanism after another in the source code, and checks that the
//! test fails which is named for it.
//!
//! A mutant is applied in place, and all are built in the common target folder: each build compiles
//! what the mutant changes. The command restores the files when it ends, also after Ctrl-C.

mod aws;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::context::Context;
use crate::interrupt;
use crate::process::Run;
use crate::tally::Tally;

/// The mutants to run, as the command line asks for them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mutants {
    /// Their names; none: all of them.
    pub(crate) names: Vec<String>,
    /// Whether they are only listed.
    pub(crate) list: bool,
}

/// A change of the source code that breaks a mechanism.
#[derive(Debug)]
struct Mutant {
    name: &'static str,
    /// In the repository.
    file: &'static str,
    /// What is replaced: it occurs once in the file.
    text: &'static str,
    instead: &'static str,
    /// The test that has to fail.
    test: Test,
}

/// A test of a package with a provider, by its full name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    Unit(&'static str),
    EndToEnd(&'static str),
}

/// What a run of a test shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Caught,
    Survived,
    /// It shows nothing, for this reason.
    Unclear(String),
}

/// The names of the mutants.
pub(crate) fn names() -> impl Iterator<Item = &'static str> + Clone {
    aws::MUTANTS.iter().map(|mutant| mutant.name)
}

/// Runs the mutants; `true` when each was caught. Or lists them; `true` when each can be applied.
pub(crate) fn run(asked: &Mutants, context: &Context) -> Result<bool> {
    let is_asked = |mutant: &&Mutant| asked.names.is_empty() || asked.names.iter().any(|name| name == mutant.name);
    let mutants: Vec<&Mutant> = aws::MUTANTS.iter().filter(is_asked).collect();
    let outdated: Vec<String> =
        mutants.iter().filter_map(|mutant| mutant.changed(context).err()).map(|error| format!("{error:#}")).collect();
    if asked.list {
        mutants.iter().for_each(|mutant| println!("{:<44} {}", mutant.name, mutant.test));
    }
    ensure!(outdated.is_empty(), "{}", outdated.join("\n"));
    if asked.list {
        return Ok(true);
    }
    refuse_changed(context, &mutants)?;
    interrupt::watch()?;
    for test in mutants.iter().map(|mutant| mutant.test).collect::<BTreeSet<_>>() {
        match verdict(context, test)? {
            Verdict::Survived => {}
            Verdict::Caught => bail!("{test} fails without any mutant"),
            Verdict::Unclear(why) => bail!("without any mutant: {why}"),
        }
    }
    let mut report = Vec::new();
    for mutant in mutants {
        let broken = Broken::by(mutant, context)?;
        println!("\n== {}", mutant.name);
        let verdict = verdict(context, mutant.test)?;
        drop(broken);
        report.push((mutant, verdict));
    }
    println!();
    for (mutant, verdict) in &report {
        println!("{:<44} {verdict:<10} {}", mutant.name, mutant.test);
    }
    Ok(report.iter().all(|(_, verdict)| *verdict == Verdict::Caught))
}

impl Mutant {
    /// The file's text with and without the change.
    fn changed(&self, context: &Context) -> Result<(String, String)> {
        let Self { name, file, text, instead, .. } = self;
        let original = fs::read_to_string(context.root.join(file)).with_context(|| format!("cannot read {file}"))?;
        let count = original.matches(text).count();
        ensure!(count == 1, "the mutant {name} no longer applies: its text occurs {count} times in {file}:\n{text}");
        Ok((original.replacen(text, instead, 1), original))
    }
}

/// A file with a mutant, which is restored when this is dropped.
struct Broken {
    path: PathBuf,
    original: String,
}

impl Broken {
    fn by(mutant: &Mutant, context: &Context) -> Result<Self> {
        let (changed, original) = mutant.changed(context)?;
        let path = context.root.join(mutant.file);
        // First what restores it: a write may fail after a part of the text.
        let broken = Self { path, original };
        fs::write(&broken.path, changed).with_context(|| format!("cannot change {}", broken.path.display()))?;
        Ok(broken)
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.original) {
            let path = self.path.display();
            eprintln!("error: {path} still has the change of a mutant ({error}): git checkout -- {path}");
        }
    }
}

/// Fails if git sees changes in the files of mutants: they could not be told from those of a mutant.
fn refuse_changed(context: &Context, mutants: &[&Mutant]) -> Result<()> {
    let files: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.file).collect();
    let changed = Run::new("git").args(["status", "--porcelain", "--"]).args(files).dir(&context.root).read()?;
    ensure!(changed.is_empty(), "mutants change files that have changes already; commit them first:\n{changed}");
    Ok(())
}

/// Builds a test and runs it.
fn verdict(context: &Context, test: Test) -> Result<Verdict> {
    let cargo = || context.cargo(["test"]).args(PACKAGES).args([test.target()]);
    if !cargo().args(["--no-run"]).finish()?.status.success() {
        return Ok(Verdict::Unclear(format!("{test} does not compile")));
    }
    let run = cargo().args(["--", "--include-ignored", "--exact", test.name()]).deadline(TEST_ENDS);
    match run.finish() {
        Ok(finished) => Ok(Verdict::of(test, &finished.output)),
        Err(error) if interrupt::asked() => Err(error),
        Err(error) => Ok(Verdict::Unclear(format!("{error:#}"))),
    }
}

impl Verdict {
    /// By what a test program has written that ran one test.
    fn of(test: Test, output: &str) -> Self {
        match Tally::read(output) {
            Tally { passed: 1, failed: 0, .. } => Self::Survived,
            Tally { passed: 0, failed: 1, .. } => Self::Caught,
            tally => Self::Unclear(format!("not one test has the name {test}: {tally}")),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught => f.pad("caught"),
            Self::Survived => f.pad("SURVIVED"),
            Self::Unclear(why) => write!(f, "UNCLEAR ({why})"),
        }
    }
}

impl Test {
    fn name(self) -> &'static str {
        match self {
            Self::Unit(name) | Self::EndToEnd(name) => name,
        }
    }

    /// The argument of cargo that builds it.
    fn target(self) -> &'static str {
        match self {
            Self::Unit(_) => "--lib",
            Self::EndToEnd(_) => "--test=e2e",
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// As who works on the provider builds its tests; the SDK is compiled for these packages once.
const PACKAGES: [&str; 2] = ["--package=skyward-aws", "--package=skyward-aws-testkit"];
/// How long a test may take that a mutant makes wait. Each wait of a test has a shorter deadline.
const TEST_ENDS: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_has_a_name_of_its_own_and_applies_once() {
        let context = Context::discover().unwrap();
        assert_eq!(names().collect::<BTreeSet<_>>().len(), names().count());
        for mutant in aws::MUTANTS {
            let (changed, original) = mutant.changed(&context).unwrap();
            assert_ne!(changed, original, "{}", mutant.name);
            assert!(!mutant.name.contains([' ', ',']), "{}", mutant.name);
        }
    }

    #[test]
    fn each_test_that_a_mutant_names_is_there() {
        let context = Context::discover().unwrap();
        for mutant in aws::MUTANTS {
            let folder = match mutant.test {
                Test::Unit(_) => "skyward-aws/src",
                Test::EndToEnd(_) => "skyward-aws/tests/e2e",
            };
            let (module, function) = mutant.test.name().rsplit_once("::").unwrap();
            let file = context.root.join(folder).join(module.trim_end_matches("::tests").replace("::", "/") + ".rs");
            let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(text.contains(&format!("fn {function}()")), "{} has no {function}", file.display());
        }
    }

    #[test]
    fn a_text_that_is_not_there_once_is_refused_with_the_name_of_its_mutant() {
        let context = Context::discover().unwrap();
        for (text, count) in [("a text that no file has", 0), ("use ", 2)] {
            let file = "xtask/src/mutants/aws.rs";
            let test = Test::Unit("tests::none");
            let error =
                Mutant { name: "some", file, text, instead: "", test }.changed(&context).unwrap_err().to_string();
            assert!(error.contains("the mutant some no longer applies") && error.contains(file), "{error}");
            assert!(count > 1 || error.contains("occurs 0 times"), "{error}");
        }
    }

    #[test]
    fn a_file_is_restored_when_its_mutant_is_dropped() {
        let path = std::env::temp_dir().join(format!("skyward-mutant-{}", std::process::id()));
        fs::write(&path, "broken").unwrap();
        drop(Broken { path: path.clone(), original: "as before".into() });
        assert_eq!(fs::read_to_string(&path).unwrap(), "as before");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_test_shows_something_only_if_it_alone_ran() {
        let test = Test::EndToEnd("once::a_test");
        let of = |line: &str| Verdict::of(test, &format!("running 1 test\ntest result: {line} 0 ignored\n"));
        assert_eq!(of("ok. 1 passed; 0 failed;"), Verdict::Survived);
        assert_eq!(of("FAILED. 0 passed; 1 failed;"), Verdict::Caught);
        for unclear in ["ok. 0 passed; 0 failed;", "ok. 2 passed; 0 failed;"] {
            assert!(matches!(of(unclear), Verdict::Unclear(why) if why.contains("once::a_test")), "{unclear}");
        }
        assert!(matches!(Verdict::of(test, "killed"), Verdict::Unclear(_)));
    }
}
