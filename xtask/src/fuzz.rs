//! Looks for bytes that break a decoder, with libFuzzer.
//!
//! The checks of the programs in `fuzz/` are in `skyward-core/src/fuzzing.rs`. Ordinary tests run
//! them too, but only briefly.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::context::Context;
use crate::process::Run;
use crate::step::{Checks, Outcome, Step};

/// A run of the fuzz programs, as the command line asks for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fuzz {
    /// The programs, one after another; none: all of them.
    pub(crate) programs: Vec<String>,
    /// How long each program runs.
    pub(crate) seconds: u64,
}

impl Default for Fuzz {
    fn default() -> Self {
        Self { programs: Vec::new(), seconds: 60 }
    }
}

pub(crate) fn steps() -> Vec<Step> {
    vec![Step { name: "fuzz", about: "the programs of `cargo xtask fuzz` compile without a warning", run: check }]
}

/// Compiles the programs, which are in a workspace of their own that no other step checks.
fn check(context: &Context) -> Result<Outcome> {
    if let Some(reason) = missing() {
        return Ok(Outcome::skipped(reason));
    }
    let mut checks = Checks::default();
    let cargo = |arguments: &[&str]| Run::new(crate::context::cargo()).args(arguments).dir(context.root.join("fuzz"));
    checks.run(&cargo(&["fmt", "--check"]))?;
    let clippy = cargo(&["clippy", "--locked", "--all-targets", "--", "-D", "warnings"]);
    let target = context.workspace.target_directory.join("fuzz-check");
    checks.run(&clippy.env("RUSTFLAGS", "--cfg fuzzing").quiet_env("CARGO_TARGET_DIR", target))?;
    checks.outcome(programs(context)?.join(", "))
}

/// Runs the programs; `true` when none found anything.
pub(crate) fn run(fuzz: &Fuzz, context: &Context) -> Result<bool> {
    if let Some(reason) = missing() {
        bail!("{reason}");
    }
    let all = programs(context)?;
    if let Some(unknown) = fuzz.programs.iter().find(|name| !all.contains(name)) {
        bail!("there is no fuzz program {unknown:?}; there are: {}", all.join(", "));
    }
    let target = context.workspace.target_directory.join("fuzz");
    let host = host()?;
    // With a target given, build scripts and macros are built without these flags.
    let build = Run::new(crate::context::cargo())
        .args(["build", "--locked", "--release", "--target", host.as_str()])
        .dir(context.root.join("fuzz"));
    build.env("RUSTFLAGS", FLAGS).quiet_env("CARGO_TARGET_DIR", &target).check()?;
    let mut clean = true;
    for name in all.iter().filter(|name| fuzz.programs.is_empty() || fuzz.programs.contains(name)) {
        clean &= look(context, name, &target.join(&host).join("release").join(name), fuzz.seconds)?;
    }
    Ok(clean)
}

/// Runs one program; what it writes, a line for each input that reaches something new, goes to a
/// file.
fn look(context: &Context, name: &str, program: &PathBuf, seconds: u64) -> Result<bool> {
    let grown = context.cache.join("fuzz").join(name);
    let artifacts = context.root.join("fuzz/artifacts").join(name);
    fs::create_dir_all(&grown)?;
    fs::create_dir_all(&artifacts)?;
    let path = context.scratch().join(format!("fuzz-{name}.log"));
    fs::create_dir_all(context.scratch())?;
    println!("{name}: {seconds} s; inputs of earlier runs are in {}", grown.display());
    let log = File::create(&path)?;
    let status = Command::new("timeout")
        .arg((seconds + GRACE).to_string())
        .arg("nice")
        .arg(program)
        .args([format!("-max_total_time={seconds}"), format!("-timeout={HANG}"), format!("-rss_limit_mb={MEMORY}")])
        .args(["-print_final_stats=1".to_owned(), format!("-artifact_prefix={}/", artifacts.display())])
        .args([grown, context.root.join("fuzz/corpus").join(name)])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("cannot start the program")?;
    let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    println!("  {}", figures(&text));
    if !status.success() {
        let tail: Vec<&str> = text.lines().rev().take(LAST_LINES).collect();
        println!("  the program ended with {status}; its whole output is in {}", path.display());
        tail.iter().rev().for_each(|line| println!("  | {line}"));
        println!("  to run it again: {} FILE", program.display());
    }
    Ok(status.success())
}

/// The result: executions, coverage, and how many inputs reach it.
fn figures(log: &str) -> String {
    let stat = |name: &str| log.lines().rev().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned();
    let reached = log.lines().rev().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |key| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1));
        Some(format!("{} edges, {} features, {} inputs", value("cov:")?, value("ft:")?, value("corp:")?))
    });
    format!(
        "{} executions, {}",
        stat("stat::number_of_executed_units:"),
        reached.unwrap_or_else(|| "no coverage".into())
    )
}

/// The names of the programs.
fn programs(context: &Context) -> Result<Vec<String>> {
    let folder = context.root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let names = entries.flatten().filter_map(|entry| {
        Some(entry.path().file_stem()?.to_str()?.to_owned()).filter(|_| entry.path().extension().is_some())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

fn host() -> Result<String> {
    let version = Run::new("rustc").args(["-vV"]).read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` printed no line `host:`")
}

/// Why this host cannot fuzz.
fn missing() -> Option<&'static str> {
    let compiler = Run::new("c++").args(["--version"]).read();
    compiler.is_err().then_some("libFuzzer needs a C++ compiler: apt-get install g++")
}

/// What cargo-fuzz gives the compiler, without a sanitizer: the stable compiler has none, and this
/// code has no `unsafe`.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Seconds that one input may take.
const HANG: u32 = 5;
/// MiB, for all.
const MEMORY: u32 = 1024;
/// Seconds for the inputs that were found before.
const GRACE: u64 = 120;
const LAST_LINES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_figures_of_a_log_are_printed() {
        let log = "#2 INITED cov: 5 ft: 6 corp: 1/1b\n#9 DONE   cov: 50 ft: 60 corp: 7/87Kb lim: 9 exec/s: 3\n\
                   stat::number_of_executed_units: 12\n";
        assert_eq!(figures(log), "12 executions, 50 edges, 60 features, 7/87Kb inputs");
        assert_eq!(figures("nothing"), "? executions, no coverage");
    }
}
