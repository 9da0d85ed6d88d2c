//! The same training on a pool, and with the same interpreter started by hand.

use std::process::Stdio;

use skyward::error::{Error, ErrorKind};
use skyward::prelude::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::common::calls::SHUTDOWN;
use super::common::{Table, median};
use super::numpy;

#[skyward::compute(python = "benches/local/training.py")]
fn train(steps: u32) -> f64;

#[skyward::compute]
fn interpreter() -> String {
    "
    import sys
    return sys.executable
    "
}

pub(crate) async fn measure(table: &mut Table) -> skyward::Result<()> {
    let pairs = table.times(10).max(4);
    table.row("train_overhead_pct", overhead(pairs)).await
}

/// The overhead in percent: the median over pairs of runs of about a second each. The two runs of a
/// pair follow each other directly, because the load of the machine changes over time.
async fn overhead(pairs: usize) -> skyward::Result<f64> {
    let pool = Pool::builder().provider(Local::default()).image(numpy()).start().await?;
    let mut by_hand = ByHand::start(&interpreter().run(&pool).await?)?;
    train(STEPS / 10).run(&pool).await?;
    by_hand.train(STEPS / 10).await?;
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let (ours, theirs) = if pair % 2 == 0 {
            let ours = train(STEPS).run(&pool).await?;
            (ours, by_hand.train(STEPS).await?)
        } else {
            let theirs = by_hand.train(STEPS).await?;
            (train(STEPS).run(&pool).await?, theirs)
        };
        ratios.push(ours / theirs);
    }
    by_hand.end().await?;
    pool.shutdown(SHUTDOWN).await?;
    Ok((median(ratios) - 1.0) * 100.0)
}

/// The training in a separate process, without Skyward.
struct ByHand {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl ByHand {
    fn start(python: &str) -> skyward::Result<Self> {
        let mut child = Command::new(python)
            .args(["-u", concat!(env!("CARGO_MANIFEST_DIR"), "/benches/local/training.py")])
            .env("OMP_NUM_THREADS", "1")
            .env("OPENBLAS_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed().with_source(error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Err(failed()) };
        Ok(Self { child, input, output: BufReader::new(output).lines() })
    }

    async fn train(&mut self, steps: u32) -> skyward::Result<f64> {
        let line = format!("{steps}\n");
        self.input.write_all(line.as_bytes()).await.map_err(|error| failed().with_source(error))?;
        while let Ok(Some(line)) = self.output.next_line().await {
            if let Some(seconds) = line.strip_prefix("took ").and_then(|seconds| seconds.parse().ok()) {
                return Ok(seconds);
            }
        }
        Err(failed())
    }

    async fn end(mut self) -> skyward::Result<()> {
        drop(self.input);
        self.child.wait().await.map(|_| ()).map_err(|error| failed().with_source(error))
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Io, "the training by hand ended before it had reported how long it took")
}

const STEPS: u32 = 1500;
