//! Plays rounds, several at the same time, and counts what they cost.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use skyward_tools::context::Context;
use skyward_tools::ec2::Build;

use crate::args::Options;
use crate::count::Counts;
use crate::place::{Ground, Place};
use crate::plan::Plan;
use crate::round::{self, Played};

/// Plays rounds, and prints the counts as the last line of standard output. Succeeds if nothing was
/// lost, doubled or left.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if options.place == Place::Aws && !cfg!(feature = "aws") {
        bail!("this program was built without the feature `aws`; `cargo xtask chaos aws` builds it with that feature");
    }
    let client = std::env::current_exe().context("the path of this program, which its clients run too, is unknown")?;
    let ground = match options.place.prepare(&Context::discover()?, &client, Build::of_this_program())? {
        Ok(ground) => ground,
        Err(reason) => {
            eprintln!("no rounds can be played: {reason}");
            return Ok(ExitCode::from(UNAVAILABLE));
        }
    };
    let counts = play(&client, ground.as_ref(), options);
    println!("{counts}");
    Ok(if counts.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

/// The exit code where this host cannot play rounds, as `sysexits.h` defines it.
const UNAVAILABLE: u8 = 69;
