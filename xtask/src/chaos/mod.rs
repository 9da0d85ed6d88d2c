//! `cargo xtask chaos`: pools whose workers, agents, machines and clients are killed, stopped and
//! cut off at random moments, and counts what that cost.

mod count;
mod place;
mod plan;
mod processes;
mod round;
#[path = "../../../tests/chaos/words.rs"]
mod words;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::count::Counts;
use self::place::Ground;
pub(crate) use self::place::Place;
use self::plan::Plan;
use self::round::Played;
use crate::context::Context;
use crate::ec2::Build;
use crate::programs;
use crate::step::{Outcome, Step};

/// The rounds to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// The place of the pools.
    pub(crate) place: Place,
    /// The number of rounds.
    pub(crate) rounds: u64,
    /// The seed from which all rounds are drawn.
    pub(crate) seed: u64,
    /// Plays only this round.
    pub(crate) only: Option<u64>,
    /// How many rounds run at the same time. The default depends on the place and this host.
    pub(crate) jobs: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { place: Place::Local, rounds: 200, seed: 1, only: None, jobs: None }
    }
}

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step {
            name: "chaos",
            about: "a few rounds in which workers, agents and clients are killed and stopped",
            run: |context| step(context, Place::Local, 6),
        },
        Step {
            name: "chaos-docker",
            about: "a few rounds of chaos over containers",
            run: |context| step(context, Place::Docker, 4),
        },
        Step {
            name: "chaos-ssh",
            about: "a few rounds of chaos over SSH hosts",
            run: |context| step(context, Place::Ssh, 4),
        },
        Step {
            name: "chaos-aws",
            about: "a few rounds of chaos over instances of an EC2 on loopback",
            run: |context| step(context, Place::Aws, 2),
        },
    ]
}

fn step(context: &Context, place: Place, rounds: u64) -> Result<Outcome> {
    let client = build(context, Build::Tests.arguments())?;
    let ground = match place.prepare(context, &client, Build::Tests)? {
        Ok(ground) => ground,
        Err(reason) => return Ok(Outcome::skipped(reason)),
    };
    let counts = play(&client, ground.as_ref(), Options { place, rounds, ..Options::default() });
    // Rounds without faults would find nothing.
    if counts.is_clean() && counts.faults > 0 && counts.returned > 0 {
        return Ok(Outcome::passed(counts.to_string()));
    }
    bail!("{counts}");
}

/// Plays rounds, and prints the counts as the last line of standard output. `true` if nothing was
/// lost, doubled or left.
pub(crate) fn run(context: &Context, options: Options) -> Result<bool> {
    eprintln!("building the clients");
    let client = build(context, arguments(options.place))?;
    let ground = match options.place.prepare(context, &client, Build::Release)? {
        Ok(ground) => ground,
        Err(reason) => bail!("no rounds can be played: {reason}"),
    };
    let counts = play(&client, ground.as_ref(), options);
    println!("{counts}");
    Ok(counts.is_clean())
}

fn play(client: &Path, ground: &dyn Ground, options: Options) -> Counts {
    let rounds = match options.only {
        Some(round) => round..round + 1,
        None => 0..options.rounds,
    };
    let most = thread::available_parallelism().map_or(2, usize::from) * 2;
    let jobs = options.jobs.unwrap_or_else(|| most.min(options.place.most_jobs()));
    let next = AtomicU64::new(rounds.start);
    let begin = Instant::now();
    let (sender, played) = mpsc::channel::<Played>();
    let mut counts = Counts::default();
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, next, end) = (sender.clone(), &next, rounds.end);
            scope.spawn(move || {
                if let Err(error) = ground.enter() {
                    eprintln!("no rounds can be played here: {error:#}");
                    return;
                }
                loop {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    if round >= end {
                        return;
                    }
                    let plan = Plan::draw(options.place, options.seed, round);
                    if sender.send(round::play(client, options.place, ground, round, &plan)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for played in played {
            // A single round is always shown.
            if !played.counts.is_clean() || options.only.is_some() {
                eprintln!("{played}");
                let Options { place, seed, .. } = options;
                eprintln!("play it again: cargo xtask chaos {} --seed {seed} --only {}", place.name(), played.round);
            }
            counts += &played.counts;
            if counts.rounds.is_multiple_of(20) {
                eprintln!("{:.0} s: {counts}", begin.elapsed().as_secs_f64());
            }
        }
    });
    counts
}

/// Builds the clients' program, and returns its path.
fn build(context: &Context, arguments: &[&str]) -> Result<PathBuf> {
    let built = programs::build(context, arguments.iter().copied().chain(["--test=chaos"]))?;
    let client = built.into_iter().find(|program| program.name == "chaos");
    Ok(client.context("cargo did not report where it has put the chaos clients")?.path)
}

/// How the clients of a place are built: only those on EC2 need the SDK of AWS.
fn arguments(place: Place) -> &'static [&'static str] {
    match place {
        Place::Local | Place::Docker | Place::Ssh => &["--release", "--package=skyward", "--no-default-features"],
        Place::Aws => Build::Release.arguments(),
    }
}
