//! Events in words.

use std::fmt;
use std::time::Duration;

use super::{EventItem, PoolEvent};

/// One line, without the pool's id, for a log or a terminal. Text of providers and payloads is in it
/// as it is: a terminal must not show its control characters.
impl fmt::Display for PoolEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeLaunching { node } => write!(f, "node {node}: launching"),
            Self::NodeWaiting { node, machine, report } => write!(f, "node {node}: machine {machine} is {report}"),
            Self::OfferRefused { node, offer, error } => {
                write!(f, "node {node}: the offer {offer} was refused: {}", error.summary())
            }
            Self::BudgetSpent { spent } => write!(f, "the budget is nearly spent (${:.2}): the pool ends", spent.usd),
            Self::Failed { error } => write!(f, "the pool has failed, and ends: {}", error.summary()),
            Self::NodeLaunched { node, machine, address } => {
                write!(f, "node {node}: launched machine {machine} at {address}")
            }
            Self::BootstrapStep { node, step } => write!(f, "node {node}: {step}"),
            Self::BootstrapLine { node, step, line } => write!(f, "node {node}: {step}: {line}"),
            Self::GenerationStarting { generation, workers } => {
                write!(f, "starting {} (generation {generation})", count(*workers, "worker"))
            }
            Self::WorkerReady { rank, node, pid } => write!(f, "rank {rank} is ready: node {node}, process {pid}"),
            Self::PoolReady { nodes, workers } => {
                write!(f, "the pool is ready: {}, {}", count(*nodes, "node"), count(*workers, "worker"))
            }
            Self::TaskStarted { task, attempt, rank } => {
                write!(f, "task {task} was sent to rank {rank} (attempt {attempt})")
            }
            Self::TaskFinished { task, rank, micros } => {
                write!(f, "task {task} returned on rank {rank} after {:.1?}", Duration::from_micros(*micros))
            }
            Self::TaskWarned { task, rank, message, .. } => write!(f, "task {task} on rank {rank}: {message}"),
            Self::TaskFailed { task, error } => write!(f, "task {task} failed: {}", error.summary()),
            Self::TaskCancelled { task } => write!(f, "task {task} was cancelled"),
            Self::TaskRetried { task, attempt, error } => {
                write!(f, "task {task} is retried (attempt {attempt}): {}", error.summary())
            }
            Self::Calls { task, done, running, waiting } => {
                write!(f, "task {task}: {done} calls done, {running} running, {waiting} waiting")
            }
            Self::TaskStalled { task, entry, message, .. } => write!(f, "task {task}, `{entry}`: {message}"),
            Self::Transfer(transfer) => transfer.fmt(f),
            Self::CheckpointCommitted { name, step, bytes } => {
                write!(f, "checkpoint of {name} at step {step} is committed: {} KiB", bytes.div_ceil(1 << 10))
            }
            Self::CheckpointResumed { name, step: Some(step) } => write!(f, "{name} goes on after step {step}"),
            Self::CheckpointResumed { name, step: None } => write!(f, "{name} begins: it has no checkpoint yet"),
            Self::CheckpointSkipped { name, sequence, step, why } => {
                write!(f, "checkpoint {sequence} of {name}")?;
                step.map_or(Ok(()), |step| write!(f, ", at step {step},"))?;
                write!(f, " is skipped: {why}")
            }
            Self::CheckpointDropped { name, step, why } => {
                write!(f, "step {step} of {name} is not committed: {why}")
            }
            Self::Output(output) => write!(f, "rank {}: {}", output.rank, String::from_utf8_lossy(&output.bytes)),
            Self::Report(report) => match report.task {
                Some(task) => write!(f, "task {task} reports a value on rank {}", report.rank),
                None => write!(f, "a hook reports a value on rank {}", report.rank),
            },
            Self::WorkerExited { rank, exit } => write!(f, "the worker of rank {rank} {exit}"),
            Self::NodeDisconnected { node, error } => {
                write!(f, "the connection to node {node} was lost: {}", error.summary())
            }
            Self::NodeReconnected { node } => write!(f, "the connection to node {node} is restored"),
            Self::NodeLost { node, error } => write!(f, "node {node} is lost: {}", error.summary()),
            Self::NodeReplaced { node, machine, address } => {
                write!(f, "node {node} is replaced: machine {machine} at {address}")
            }
            Self::NodeFailed { node, error } => {
                write!(f, "the new machine for node {node} failed: {}", error.summary())
            }
            Self::NodeJoined { node, machine, address } => {
                write!(f, "node {node} has joined: machine {machine} at {address}")
            }
            Self::NodeDraining { node, reason, ends_in } => {
                write!(f, "node {node} is draining: {reason}")?;
                ends_in.map_or(Ok(()), |time| write!(f, ", in {time:.0?}"))
            }
            Self::Resized { nodes, workers } => {
                write!(f, "the pool has {} and {} now", count(*nodes, "node"), count(*workers, "worker"))
            }
            Self::NodeUnconfirmed { node, error } => {
                write!(f, "node {node}: its machine may still exist: {}", error.summary())
            }
            Self::RuntimeBlocked { late, lease } => {
                write!(f, "the runtime was blocked for {late:.1?}: leases of {lease:?} were renewed late")
            }
            Self::Draining => f.write_str("ending"),
            Self::NodeGone { node, machine } => write!(f, "node {node}: machine {machine} is gone"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// The event in words, or how many events the reader has missed.
impl fmt::Display for EventItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => event.fmt(f),
            Self::Missed(1) => f.write_str("1 event was missed"),
            Self::Missed(number) => write!(f, "{number} events were missed"),
        }
    }
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::{Error, ErrorKind, WorkerExit};
    use crate::event::{OutputChunk, OutputStream};
    use crate::ids::{Attempt, Generation, NodeIndex, Rank, TaskId};
    use crate::payload::{Report, Value};

    #[test]
    fn an_event_is_one_line_with_what_it_is_about() {
        let error = Error::new(ErrorKind::NodeLost, "the agent is gone").with_hint("look there");
        let node = NodeIndex(3);
        for (event, line) in [
            (PoolEvent::NodeLost { node, error: error.clone() }, "node 3 is lost: the agent is gone"),
            (PoolEvent::TaskFailed { task: TaskId(7), error }, "task 7 failed: the agent is gone"),
            (
                PoolEvent::WorkerExited { rank: Rank(2), exit: WorkerExit::Code(3) },
                "the worker of rank 2 exited with code 3",
            ),
            (PoolEvent::PoolReady { nodes: 1, workers: 2 }, "the pool is ready: 1 node, 2 workers"),
            (
                PoolEvent::TaskFinished { task: TaskId(1), rank: Rank(0), micros: 1500 },
                "task 1 returned on rank 0 after 1.5ms",
            ),
        ] {
            assert_eq!(event.to_string(), line);
        }
        assert_eq!(EventItem::Missed(2).to_string(), "2 events were missed");
    }

    #[test]
    fn an_event_is_written_with_its_name_seconds_and_text() {
        let lost = PoolEvent::NodeLost { node: NodeIndex(3), error: Error::new(ErrorKind::NodeLost, "gone") };
        let record = serde_json::to_value(&lost).unwrap();
        assert_eq!((&record["event"], &record["node"]), (&json!("node_lost"), &json!(3)));
        assert_eq!(record["error"]["message"], "gone");
        let blocked = PoolEvent::RuntimeBlocked { late: Duration::from_millis(1500), lease: Duration::from_secs(4) };
        assert_eq!(
            serde_json::to_value(&blocked).unwrap(),
            json!({"event": "runtime_blocked", "late": 1.5, "lease": 4.0})
        );
        let bytes = &b"a\xffb\n"[..];
        let (node, rank, stream) = (NodeIndex(0), Rank(1), OutputStream::Stderr);
        let output = PoolEvent::Output(OutputChunk::new(node, rank, stream, Generation(1), 0, bytes));
        let record = serde_json::to_value(&output).unwrap();
        assert_eq!(record["text"], "a\u{fffd}b\n");
        assert_eq!((&record["event"], &record["stream"]), (&json!("output"), &json!("stderr")));
        let value = Value::encode(&json!({"loss": [0.5, 1]}), rank).unwrap();
        let report = PoolEvent::Report(Report::new(Some(TaskId(4)), Attempt(1), node, rank, value));
        let record = serde_json::to_value(&report).unwrap();
        assert_eq!((&record["task"], &record["value"]), (&json!(4), &json!({"loss": [0.5, 1]})));
    }
}
