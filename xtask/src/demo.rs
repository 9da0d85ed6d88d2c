//! `cargo xtask demo`: makes nodes on this host, trains the main example on them, and removes them
//! again.

use std::fs;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::book::quotes;
use crate::context::Context;
use crate::digits;
use crate::ec2::Build;
use crate::examples::Built;
use crate::interrupt;
use crate::nodes::{Nodes, Place};
use crate::process::Run;
use crate::selection::Selection;
use crate::step::{Outcome, Step};

/// A demo, as the command line asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demo {
    pub(crate) place: Place,
    pub(crate) nodes: usize,
}

/// Examples that are built, and a ledger for them, apart from the user's own.
struct Stage {
    built: Built,
    records: PathBuf,
}

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "machines",
        about: "the main example and the tutorial on SSH servers, in containers and on instances that are made for it",
        run: machines,
    }]
}

/// Trains, and prints the example's JSON as the last line. `false` if it failed. In any case,
/// removes what it has made.
pub(crate) fn run(demo: Demo, context: &Context) -> Result<bool> {
    interrupt::watch()?;
    let trained = Nodes::make(demo.place, demo.nodes, context, Build::Release).and_then(|made| {
        let nodes = made.map_err(|reason| anyhow!("{reason}"))?;
        if !nodes.image.is_empty() {
            println!(
                "the demo keeps the image {} and the volume {VOLUME}… with the environment for the next run",
                nodes.image
            );
        }
        Stage::set(context, Built::for_users(context, &EXAMPLES, demo.place)?)?.train(&nodes, demo.nodes)
    });
    match trained {
        Ok(line) => println!("\n{line}"),
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(false);
        }
    }
    Ok(true)
}

fn machines(context: &Context) -> Result<Outcome> {
    let (mut trained, mut skipped) = (Vec::new(), Vec::new());
    for place in Place::ALL {
        match Nodes::make(place, FEW, context, Build::Tests)? {
            Ok(nodes) => {
                // Only instances need a build with the SDK of AWS.
                let selection = if place == Place::Aws { Selection::Everything } else { Selection::Light };
                let built = || Built::for_tests(context, selection, &[digits::EXAMPLE, REAP, TUTORIAL]);
                Stage::set(context, built()?)?.train(&nodes, FEW).with_context(|| place.to_string())?;
                Stage::set(context, built()?)?
                    .follow_tutorial(&nodes, context)
                    .with_context(|| format!("the tutorial, {place}"))?;
                trained.push(place.to_string());
            }
            Err(reason) => skipped.push(format!("not {place}: {reason}")),
        }
    }
    if trained.is_empty() {
        return Ok(Outcome::skipped(skipped.join("; ")));
    }
    let note = [trained, skipped].concat();
    Ok(Outcome::passed(note.join("; ")))
}

impl Stage {
    fn set(context: &Context, built: Built) -> Result<Self> {
        let records = context.scratch().join(format!("demo-{}", process::id()));
        fs::create_dir_all(&records).with_context(|| format!("cannot make the folder {}", records.display()))?;
        Ok(Self { built, records })
    }

    /// Trains on this number of nodes, and returns the example's last line.
    fn train(self, nodes: &Nodes, count: usize) -> Result<String> {
        let train = self.example(digits::EXAMPLE).args(["--json", "--nodes", &count.to_string()]);
        let output = self.run(nodes, train)?;
        digits::check_reports(&output, count)?;
        Ok(output.lines().last().unwrap_or_default().to_owned())
    }

    /// Runs the tutorial's training, which prints the same wherever the nodes are.
    fn follow_tutorial(self, nodes: &Nodes, context: &Context) -> Result<()> {
        let train = self.example(TUTORIAL);
        quotes::check_printed(&context.root, TUTORIAL, &self.run(nodes, train)?)
    }

    /// Runs an example on the nodes, and returns its output. When this returns, nothing that the
    /// example has started is left.
    fn run(self, nodes: &Nodes, example: Run) -> Result<String> {
        let trained = nodes.given_to(example).deadline(DEADLINE).check();
        // The clean-up runs also after a signal.
        interrupt::forget();
        // A client that has ended by itself leaves nothing.
        let reaped = nodes.given_to(self.example(REAP)).deadline(REAP_DEADLINE).check();
        let output = match (trained, reaped) {
            (Ok(trained), Ok(reaped)) if reaped.output.contains(NOTHING) => trained.output,
            (Ok(_), Ok(reaped)) => bail!("the example has left something behind: {}", reaped.output.trim()),
            (Err(error), Ok(_)) => return self.clear().and(Err(error)),
            (_, Err(error)) => {
                let records = self.records.display();
                return Err(error
                    .context(format!("what the example has left could not be ended; its records are in {records}")));
            }
        };
        self.clear()?;
        nodes.check_left()?;
        Ok(output)
    }

    fn example(&self, name: &str) -> Run {
        self.built.run(name).quiet_env("SKYWARD_STATE_DIR", &self.records)
    }

    fn clear(self) -> Result<()> {
        fs::remove_dir_all(&self.records).with_context(|| format!("cannot remove {}", self.records.display()))
    }
}

/// Ends what a client has left.
const REAP: &str = "reap";
/// The tutorial's example for nodes elsewhere, of which it uses two.
const TUTORIAL: &str = "tutorial_train";
/// The examples that a demo runs.
const EXAMPLES: [&str; 2] = [digits::EXAMPLE, REAP];
/// The most nodes: more would slow each other down on one machine.
pub(crate) const MOST_NODES: usize = 16;
/// For the step.
const FEW: usize = 2;
/// What `reap` says when a client has left nothing.
const NOTHING: &str = "nothing was left behind";
/// How the names of the volumes begin in which containers share environments.
const VOLUME: &str = "skyward-cache-";
/// The first run downloads the packages of the environment.
const DEADLINE: Duration = Duration::from_secs(20 * 60);
const REAP_DEADLINE: Duration = Duration::from_secs(5 * 60);
