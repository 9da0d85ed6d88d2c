//! Plays rounds, several at the same time, and counts what they cost.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use skyward_tools::context::Context;
use skyward_tools::ec2::Build;
use skyward_tools::interrupt;

use crate::args::Options;
use crate::place::Place;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::round::{self, Game, Played};
use crate::timing::PLAYER_POLL;

/// Plays rounds, and prints the counts as the last line of standard output. Succeeds if all rounds
/// have ended, and nothing was lost, doubled or left.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if options.place == Place::Aws && !cfg!(feature = "aws") {
        bail!("this program was built without the feature `aws`; `cargo xtask chaos aws` builds it with that feature");
    }
    interrupt::watch()?;
    // This program's own file, also when another build has taken its place since.
    let client = PathBuf::from("/proc/self/exe");
    let ground = match options.place.prepare(&Context::discover()?, &client, Build::of_this_program()) {
        Ok(Ok(ground)) => ground,
        Ok(Err(reason)) => {
            eprintln!("no rounds can be played: {reason}");
            return Ok(ExitCode::from(UNAVAILABLE));
        }
        Err(_) if interrupt::asked() => {
            eprintln!("the run was interrupted before its first round");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(error),
    };
    let game = Game { client: &client, place: options.place, ground: ground.as_ref(), interrupted: interrupt::asked };
    let begin = Instant::now();
    let progress = play(&game, options, begin);
    if let Some(next) = progress.next() {
        // A single round is played again.
        let rest = Options { from: next, ..options };
        eprintln!("round {next} has not ended; continue with: {rest}");
    }
    println!("{}", progress.summary(begin.elapsed()));
    Ok(match progress.next() {
        _ if !progress.counts().is_clean() => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
        Some(_) if interrupt::asked() => ExitCode::from(INTERRUPTED),
        Some(_) => ExitCode::FAILURE,
    })
}

/// Plays the rounds, unless the run is interrupted before they have ended.
fn play(game: &Game<'_>, options: Options, begin: Instant) -> Progress {
    let rounds = options.range();
    let most = thread::available_parallelism().map_or(2, usize::from) * 2;
    let jobs = options.jobs.unwrap_or_else(|| most.min(options.place.most_jobs()));
    let next = AtomicU64::new(rounds.start);
    let mut progress = Progress::new(rounds.clone());
    let (sender, played) = mpsc::channel::<Played>();
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, next, end) = (sender.clone(), &next, rounds.end);
            scope.spawn(move || {
                if let Err(error) = game.ground.enter() {
                    eprintln!("no rounds can be played here: {error:#}");
                    return;
                }
                while !(game.interrupted)() {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    if round >= end {
                        return;
                    }
                    let plan = Plan::draw(options.place, options.seed, round);
                    if let Some(played) = round::play(game, round, &plan)
                        && sender.send(played).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut interrupted = false;
        loop {
            match played.recv_timeout(PLAYER_POLL) {
                Ok(played) => on_played(&mut progress, &played, options, begin),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if (game.interrupted)() && !interrupted {
                interrupted = true;
                eprintln!("interrupted: the rounds that run are given up and cleaned up after");
            }
        }
    });
    progress
}

/// Counts a round, and reports a failure and, every few rounds, the progress.
fn on_played(progress: &mut Progress, played: &Played, options: Options, begin: Instant) {
    // A single round is always shown.
    if !played.counts.is_clean() || options.only.is_some() {
        eprintln!("{played}");
        let again = Options { only: Some(played.round), jobs: None, ..options };
        eprintln!("play it again: {again}");
    }
    progress.on_ended(played.round, &played.counts, played.took);
    if progress.counts().rounds.is_multiple_of(EACH) {
        eprintln!("{}", progress.summary(begin.elapsed()));
    }
}

/// After how many rounds the progress is reported.
const EACH: u64 = 20;
/// The exit code where this host cannot play rounds, as `sysexits.h` defines it.
const UNAVAILABLE: u8 = 69;
/// The exit code after Ctrl-C, as shells report it.
const INTERRUPTED: u8 = 130;
