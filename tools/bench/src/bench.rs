//! A run of a suite: ours beside others, on one machine.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};
use skyward_tools::context::Context;
use skyward_tools::process::Run;

use crate::rows::{Measured, Row, Suite};
use crate::{aws, data, docker, expansion, local, ssh};

/// A run of a suite, as the command line asks for it.
#[derive(Debug, PartialEq)]
pub(crate) struct Bench {
    pub(crate) suite: &'static Suite,
    /// In the order of the suite.
    pub(crate) rows: Vec<&'static Row>,
    pub(crate) quick: bool,
    /// Without the peers.
    pub(crate) ours: bool,
}

/// Runs rounds of all rows, and prints a table and, as the last line, JSON.
pub(crate) fn run(bench: &Bench, context: &Context) -> Result<()> {
    let mut measured = Measured::default();
    match bench.suite.name {
        "data" => data::measure(bench, context, &mut measured)?,
        "ssh" => ssh::measure(bench, context, &mut measured)?,
        "docker" => docker::measure(bench, context, &mut measured)?,
        "aws" => aws::measure(bench, context, &mut measured)?,
        "macro" => expansion::measure(bench, context, &mut measured)?,
        "python" => local::measure(bench, context, &mut measured, &local::PYTHON)?,
        _ => local::measure(bench, context, &mut measured, &local::LOCAL)?,
    }
    let (systems, rounds) = (bench.suite.systems, bench.rounds());
    println!("\n{}", measured.table(systems, &bench.rows));
    println!(
        "medians of {rounds} rounds; a budget relative to another system uses the figure of that system in this run\n"
    );
    println!("{}", measured.json(systems, &bench.rows));
    Ok(())
}

impl Bench {
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { ROUNDS }
    }

    /// Runs one program of it for some of its rows; its last line with a brace is the result.
    pub(crate) fn read(&self, run: Run, rows: &[&Row]) -> Result<Map<String, Value>> {
        let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        let run = run.args(["--only", &names.join(",")]).args(self.quick.then_some("--quick"));
        let output = run.check()?.output;
        let line = output.lines().rev().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("{run} printed no line of JSON"))?;
        serde_json::from_str(line).with_context(|| format!("the output of {run} should be JSON: {line}"))
    }
}

impl Measured {
    /// Adds the results of one of our programs: an object of rows for each system.
    pub(crate) fn add_all(&mut self, systems: &Map<String, Value>) {
        for (system, rows) in systems {
            if let Value::Object(rows) = rows {
                self.add(system, rows);
            }
        }
    }
}

/// The program for nodes that are not processes of this host.
pub(crate) const MACHINES: &[&str] = &["bench", "--quiet", "--package=skyward-bench", "--bench=machines"];
const ROUNDS: usize = 3;
