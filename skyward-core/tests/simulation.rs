//! The whole pool on a paused clock.
//!
//! `SKYWARD_SIM_SEEDS` says how many seeds are played, `SKYWARD_SIM_FIRST` with which one it begins, `SKYWARD_SIM_SEED` plays that one alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::time::{Duration, Instant};

use skyward_core::pool::{ComputePool, Pool};
use skyward_core::testkit::fake_provider::{FakeProvider, Script, Turn};
use skyward_core::testkit::fake_worker::{Fate, Faultless, Work};
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
    // A fake machine that froze after its end.
    // A gang whose callers had given up one after another, for which a world waited for ever.
    // A node that was to leave and, connected again, seemed to stay.
    // A task that a lost worker had not begun, while its node was to leave and the others were idle.
    // Nodes that were lost before or after they were told to leave, and of which the status said nothing.
    // A machine that was not wanted any more, and had the number of another node that was just being stopped.
    for seed in [2953, 3429, 5762, 17459, 441, 976, 11342, 19684, 29119] {
        sim::run(seed).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[test]
fn a_seed_is_played_the_same_each_time() {
    for seed in 0..60 {
        let play = || sim::run(seed).unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(play(), play(), "seed {seed}");
    }
}

#[test]
fn no_seed_breaks_an_invariant() {
    if let Some(seed) = number("SKYWARD_SIM_SEED") {
        let seen = sim::run(seed).unwrap_or_else(|broken| panic!("{broken}"));
        println!("seed {seed}: {seen:?}");
        return;
    }
    let count = number("SKYWARD_SIM_SEEDS").unwrap_or(300);
    let started = Instant::now();
    let first = number("SKYWARD_SIM_FIRST").unwrap_or(0);
    let played = sim::run_many(first, count).unwrap_or_else(|broken| panic!("{broken}"));
    let virtual_time: Duration = played.iter().map(|seen| seen.took).sum();
    let sum = |what: fn(&sim::Seen) -> usize| played.iter().map(what).sum::<usize>();
    println!(
        "{count} seeds: {virtual_time:?} in {:?}; {} pools were ready; of {} tasks {} returned and {} failed, on {} machines, of which {} took the place of another; {} sizes were asked for and reached, {} pools had more nodes than they began with",
        started.elapsed(),
        sum(|seen| seen.ready.into()),
        sum(|seen| seen.tasks),
        sum(|seen| seen.returned),
        sum(|seen| seen.failed),
        sum(|seen| seen.machines),
        sum(|seen| seen.replaced),
        sum(|seen| seen.resized),
        sum(|seen| seen.grown.into())
    );
    // What never gets far finds nothing.
    assert!(sum(|seen| seen.ready.into()) as u64 * 3 > count, "most pools do not become ready");
    assert!(sum(|seen| seen.returned) > sum(|seen| seen.failed), "most tasks fail");
    assert!(sum(|seen| seen.replaced) as u64 * 6 > count, "hardly a machine is replaced");
    assert!(sum(|seen| seen.resized) as u64 * 6 > count, "hardly a size is reached");
    assert!(sum(|seen| seen.grown.into()) as u64 * 20 > count, "hardly a pool grows");
    assert!(sum(|seen| seen.failed) > 0, "no task fails: there are no faults");
}

/// Everything takes a while.
#[derive(Debug)]
struct Slow;

impl Fate for Slow {
    fn work(&self, args: &[u8], run: u32) -> Work {
        Faultless.work(args, run)
    }

    fn hooks(&self, _: u32, _: u32, _: u64) -> Option<Duration> {
        Some(Duration::from_millis(40))
    }

    fn delay(&self, node: u32, frame: u64) -> Duration {
        Faultless.delay(node, frame)
    }

    fn cut(&self, node: u32, connection: u64, frame: u64) -> bool {
        Faultless.cut(node, connection, frame)
    }

    fn repeats(&self, node: u32) -> bool {
        Faultless.repeats(node)
    }
}

impl Script for Slow {
    fn launch(&self, _: u32, _: u32) -> Turn {
        Turn::Works(Duration::from_millis(40))
    }

    fn connect(&self, _: u32, _: u32) -> Turn {
        Turn::Works(Duration::from_millis(40))
    }

    fn command(&self, _: u32, _: u32) -> Turn {
        Turn::Works(Duration::from_millis(40))
    }

    fn terminate(&self, _: u32, _: u32) -> Turn {
        Turn::Works(Duration::from_millis(40))
    }
}

/// The first process of the machine ends while it says hello.
#[derive(Debug)]
struct EndsGreeting;

impl Fate for EndsGreeting {
    fn work(&self, args: &[u8], run: u32) -> Work {
        Faultless.work(args, run)
    }

    fn hooks(&self, node: u32, worker: u32, generation: u64) -> Option<Duration> {
        Faultless.hooks(node, worker, generation)
    }

    fn delay(&self, node: u32, frame: u64) -> Duration {
        Faultless.delay(node, frame)
    }

    fn cut(&self, node: u32, connection: u64, frame: u64) -> bool {
        Faultless.cut(node, connection, frame)
    }

    fn repeats(&self, node: u32) -> bool {
        Faultless.repeats(node)
    }

    fn ends_greeting(&self, _: u32, _: u32, start: u32) -> bool {
        start == 1
    }
}

impl Script for EndsGreeting {}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_while_it_says_hello_is_not_taken_for_one_that_takes_tasks() {
    let provider = FakeProvider::new(std::sync::Arc::new(EndsGreeting));
    let error = Pool::builder().provider(provider.clone()).nodes(1).start().await.err().unwrap();
    assert!(error.to_string().contains("before it took a task"), "{error}");
    assert!(provider.machines().is_empty(), "{:?}", provider.machines());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_stopped_at_any_moment_has_left_nothing_when_it_returns() {
    let (mut stopped, mut started) = (0, 0);
    for millis in (0..600).step_by(7) {
        let provider = FakeProvider::new(std::sync::Arc::new(Slow));
        let stop = tokio::time::sleep(Duration::from_millis(millis));
        match Pool::builder().provider(provider.clone()).nodes(2).start_unless(stop).await.unwrap() {
            Some(pool) => {
                pool.shutdown(Duration::from_secs(20)).await.unwrap();
                started += 1;
            }
            None => stopped += 1,
        }
        let left = (provider.machines(), provider.running());
        assert!(left.0.is_empty() && left.1.is_empty(), "stopped after {millis} ms: {left:?}");
    }
    assert!(stopped > 5 && started > 5, "{stopped} starts were stopped, {started} were not");
}
