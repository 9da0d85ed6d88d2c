//! How many calls of EC2 pools of different sizes make, and what a large idle pool costs its
//! client.
//!
//! The instances have no machines: a hundred of them with Python are too much for most hosts. The
//! pool and the provider launch, inspect, tag and terminate them as usual; only their nodes are
//! simulated in this process, and nothing on a node calls a service of AWS.

use std::collections::BTreeMap;
use std::time::Duration;

use skyward::prelude::*;

use super::emulator::Emulator;
use super::processor::processor_seconds;
use super::table::Table;
use super::watched::Watched;
use super::{SHUTDOWN, beside};

pub(crate) async fn measure(table: &mut Table, program: &str) -> skyward::Result<()> {
    if !ROWS.iter().chain(&IDLE).any(|row| table.wants(row)) {
        return Ok(());
    }
    let emulator = Emulator::start(program, &["--without-machines"]).map_err(beside)?;
    for (nodes, row) in SIZES.into_iter().zip(ROWS) {
        let idle = nodes == SIZES[2] && IDLE.iter().any(|row| table.wants(row));
        if !table.wants(row) && !idle {
            continue;
        }
        emulator.calls().map_err(beside)?;
        let pool = Pool::builder().provider(Watched::simulated(emulator.aws())).nodes(nodes);
        let pool = pool.start().await?;
        let mut calls = emulator.calls().map_err(beside)?;
        if idle {
            let span = if table.options.quick { MINUTE / 2 } else { MINUTE };
            let times = MINUTE.as_secs_f64() / span.as_secs_f64();
            let processor = processor_seconds()?;
            tokio::time::sleep(span).await;
            let took = processor_seconds()? - processor;
            table.row(IDLE[0], async { Ok(took * times) }).await?;
            let while_idle = emulator.calls().map_err(beside)?;
            eprintln!("{nodes} instances without work: {while_idle:?}");
            table.row(IDLE[1], async { Ok(sum(&while_idle) as f64 * times) }).await?;
        }
        pool.shutdown(SHUTDOWN).await?;
        for (action, count) in emulator.calls().map_err(beside)? {
            *calls.entry(action).or_default() += count;
        }
        eprintln!("{nodes} instances from start to gone: {calls:?}");
        table.row(row, async { Ok(sum(&calls) as f64) }).await?;
        emulator.check_left().map_err(beside)?;
    }
    Ok(())
}

fn sum(calls: &BTreeMap<String, u64>) -> u64 {
    calls.values().sum()
}

const SIZES: [u32; 3] = [1, 10, 100];
const ROWS: [&str; 3] = ["aws_1_node_calls", "aws_10_nodes_calls", "aws_100_nodes_calls"];
const IDLE: [&str; 2] = ["aws_100_idle_cpu_s", "aws_100_idle_calls_per_min"];
const MINUTE: Duration = Duration::from_secs(60);
