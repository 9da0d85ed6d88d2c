//! The whole pool on a paused clock.
//!
//! `SKYWARD_SIM_SEEDS` says how many seeds are played, `SKYWARD_SIM_SEED` plays that one alone, fifty times: what is due at the same moment may come in any order.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::time::{Duration, Instant};

use skyward_core::testkit::sim;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// Seeds that have broken an invariant once, beyond those that are played each time.
#[test]
fn what_was_mended_stays_mended() {
    // A task that was sent again behind another one, whose time then did not count.
    // A pool that was to end while it tried to reach the workers of a machine that is silent.
    // An agent's answer that came after its request was given up, and was taken for that to the next.
    for seed in [2953, 3429, 5762] {
        for _ in 0..5 {
            sim::run(seed).unwrap_or_else(|broken| panic!("{broken}"));
        }
    }
}

#[test]
fn no_seed_breaks_an_invariant() {
    if let Some(seed) = number("SKYWARD_SIM_SEED") {
        for _ in 0..50 {
            let seen = sim::run(seed).unwrap_or_else(|broken| panic!("{broken}"));
            println!("seed {seed}: {seen:?}");
        }
        return;
    }
    let count = number("SKYWARD_SIM_SEEDS").unwrap_or(300);
    let started = Instant::now();
    let played = sim::run_many(0, count).unwrap_or_else(|broken| panic!("{broken}"));
    let virtual_time: Duration = played.iter().map(|seen| seen.took).sum();
    let sum = |what: fn(&sim::Seen) -> usize| played.iter().map(what).sum::<usize>();
    println!(
        "{count} seeds: {virtual_time:?} in {:?}; {} pools were ready; of {} tasks {} returned and {} failed, on {} machines",
        started.elapsed(),
        sum(|seen| seen.ready.into()),
        sum(|seen| seen.tasks),
        sum(|seen| seen.returned),
        sum(|seen| seen.failed),
        sum(|seen| seen.machines)
    );
    // What never gets far finds nothing.
    assert!(sum(|seen| seen.ready.into()) as u64 * 3 > count, "most pools do not become ready");
    assert!(sum(|seen| seen.returned) > sum(|seen| seen.failed), "most tasks fail");
    assert!(sum(|seen| seen.failed) > 0, "no task fails: there are no faults");
}
