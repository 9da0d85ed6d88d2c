//! A training on a machine that is taken back five times. It repeats at most the steps since its last
//! checkpoint, and its weights equal those of a training that nobody disturbed.
//!
//! ```sh
//! cargo run --example spot_training                  # on this host
//! cargo run --example spot_training -- --provider docker
//! ```

mod machines;

use std::collections::BTreeMap;
use std::sync::Arc;

use machines::{Machines, read_words};
use serde::Deserialize;
use skyward::checkpoint::Checkpoints;
use skyward::prelude::*;
use skyward::testkit::Spot;

#[derive(Debug, Deserialize)]
struct Report {
    loss: f64,
    digest: String,
}

#[derive(Debug, Deserialize)]
struct Step {
    step: u32,
}

#[skyward::compute(python = "examples/payloads/spot_training.py", payload = Train)]
fn train(steps: u32, every: u32, seconds: f64) -> Report;

const STEPS: u32 = 200;
const EVERY: u32 = 10;
const TIMES: usize = 5;

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let mut machines = Machines::default();
    read_words("spot_training", |word, words| machines.read(word, words));
    let folder = std::env::temp_dir().join(format!("skyward-spot-training-{}", std::process::id()));
    let trained = compare(&machines.provider(), &folder).await;
    // Of a failed example nothing is left either.
    let _ = std::fs::remove_dir_all(&folder);
    trained
}

async fn compare(machines: &Arc<dyn Provider>, folder: &std::path::Path) -> skyward::Result<()> {
    let (undisturbed, steps) = run(machines, Storage::folder(folder.join("undisturbed")), 0).await?;
    assert_eq!(steps.values().sum::<u32>(), STEPS);
    let storage = Storage::folder(folder.join("spot"));
    let (report, steps) = run(machines, storage.clone(), TIMES).await?;
    let repeated = steps.values().sum::<u32>() - STEPS;
    println!("loss {:.6}; {repeated} of {STEPS} steps were computed again, after {TIMES} losses", report.loss);
    println!("undisturbed: {}\ntaken back:  {}", undisturbed.digest, report.digest);
    assert_eq!(report.digest, undisturbed.digest);
    assert!(repeated <= TIMES as u32 * 2 * EVERY, "{repeated} steps");
    let latest = Checkpoints::open(&storage, "spot")?.latest().await?;
    assert_eq!(latest.map(|checkpoint| checkpoint.step()), Some(i64::from(STEPS)));
    Ok(())
}

/// Trains on a machine that is taken back so many times, each time some steps after a checkpoint.
/// Returns the report, and how often each step was computed.
async fn run(
    machines: &Arc<dyn Provider>,
    storage: Storage,
    times: usize,
) -> skyward::Result<(Report, BTreeMap<u32, u32>)> {
    let spot = Spot::new(Arc::clone(machines));
    Pool::builder()
        .provider(spot.clone())
        .storage(storage)
        .payload::<Train>()
        .terminal(Terminal::auto())
        .scope(async |pool| {
            let mut events = pool.events();
            let call: PendingCompute<Report> = train(STEPS, EVERY, 0.02);
            let patient = RetryPolicy::default().node_lost(times as u32 + 1).preempted(times as u32 + 1);
            let training = call.retry(patient).run(pool);
            let mut steps = BTreeMap::new();
            let mut taken = 0;
            let disturb = async {
                let mut last = 0;
                while let Some(item) = events.next().await {
                    let EventItem::Event(event) = item else { continue };
                    match &*event {
                        PoolEvent::Report(report) => {
                            let step = report.decode::<Step>()?.value.step;
                            *steps.entry(step).or_insert(0) += 1;
                            // Five steps after a checkpoint, half of the way to the next one.
                            let is_between = step % EVERY == EVERY / 2 && step > last + EVERY;
                            if taken < times && is_between {
                                (taken, last) = (taken + 1, step);
                                println!("machine {} is taken back at step {step}", spot.take_back().await?);
                            }
                        }
                        PoolEvent::TaskFinished { .. } | PoolEvent::TaskFailed { .. } => break,
                        _ => {}
                    }
                }
                Ok(())
            };
            let (report, ()) = tokio::try_join!(training, disturb)?;
            Ok((report, steps))
        })
        .await
}
