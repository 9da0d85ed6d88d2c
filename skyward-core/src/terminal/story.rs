//! Converts a pool's events into lines and rows. Pure: no I/O, no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clean::clean;
use super::lines::{Line, Lines};
use crate::error::{Listed, WorkerExit};
use crate::event::{EventItem, OutputStream, PoolEvent, TransferState, count};
use crate::ids::{MachineId, NodeIndex, Rank, TaskId};

/// The state of a pool as the terminal shows it.
#[derive(Debug)]
pub(super) struct Story {
    quiet: bool,
    output: bool,
    colours: [bool; 2],
    lines: Lines,
    /// The machines that exist, each with the node that it is or is made ready for.
    alive: BTreeMap<MachineId, NodeIndex>,
    /// The nodes that are being made ready or ended, each with its present step in words.
    nodes: BTreeMap<NodeIndex, String>,
    /// The number of ready workers, and of workers that are being started.
    workers: Option<(u32, u32)>,
    /// The tasks whose payloads make calls, each with the number of calls that have ended, run and
    /// wait.
    calls: BTreeMap<TaskId, [usize; 3]>,
    /// The copies of files that run, each in words.
    transfers: BTreeMap<u64, String>,
    ready: bool,
    ending: bool,
}

/// Something to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Show {
    /// A line that a worker wrote.
    Output(OutputStream, String),
    /// A line about the pool that stays.
    Note(String),
    /// A step of progress: shown as a line only if no rows show it.
    Step(String),
}

/// A row of the progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Row {
    Text(String),
    Bar { text: String, done: u32, total: u32 },
}

impl Story {
    /// `stdout_colours` and `stderr_colours` set whether colours of the workers' output are kept.
    pub(super) fn new(quiet: bool, output: bool, stdout_colours: bool, stderr_colours: bool) -> Self {
        Self {
            quiet,
            output,
            colours: [stdout_colours, stderr_colours],
            lines: Lines::default(),
            alive: BTreeMap::new(),
            nodes: BTreeMap::new(),
            workers: None,
            calls: BTreeMap::new(),
            transfers: BTreeMap::new(),
            ready: false,
            ending: false,
        }
    }

    /// What to show for this event. `after` is the time since the rendering began.
    pub(super) fn render(&mut self, item: &EventItem, after: Duration) -> Vec<Show> {
        let mut shows = Vec::new();
        match item {
            EventItem::Event(event) => self.event(event, after, &mut shows),
            EventItem::Missed(number) => {
                // The last event of a task's calls, or of a transfer, may be among the missed events.
                self.calls.clear();
                self.transfers.clear();
                shows.push(Show::Note(match number {
                    1 => "1 event was not shown: the terminal was too slow".to_owned(),
                    _ => format!("{number} events were not shown: the terminal was too slow"),
                }));
            }
        }
        if self.quiet {
            shows.retain(|show| matches!(show, Show::Output(..)));
        }
        shows
    }

    /// What is left to show after the last event.
    pub(super) fn end(&mut self) -> Vec<Show> {
        self.nodes.clear();
        self.workers = None;
        self.calls.clear();
        self.transfers.clear();
        self.unfinished(None)
    }

    /// The rows of the progress.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<_> = self.nodes.values().take(MAX_ROWS).map(|step| Row::Text(step.clone())).collect();
        if self.nodes.len() > MAX_ROWS {
            rows.push(Row::Text(format!("and {} more nodes", self.nodes.len() - MAX_ROWS)));
        }
        if let Some((done, total)) = self.workers {
            rows.push(Row::Bar { text: "workers".to_owned(), done, total });
        }
        let calls = self.calls.iter().take(MAX_ROWS).map(|(task, [done, running, waiting])| {
            Row::Text(format!("task {task}: {done} calls done, {running} running, {waiting} waiting"))
        });
        rows.extend(calls);
        if self.calls.len() > MAX_ROWS {
            rows.push(Row::Text(format!("and {} more tasks that make calls", self.calls.len() - MAX_ROWS)));
        }
        rows.extend(self.transfers.values().take(MAX_ROWS).map(|text| Row::Text(text.clone())));
        if self.transfers.len() > MAX_ROWS {
            rows.push(Row::Text(format!("and {} more copies of files", self.transfers.len() - MAX_ROWS)));
        }
        let progress: Vec<_> = self.lines.progress().collect();
        let shown = progress.iter().take(MAX_ROWS);
        rows.extend(shown.map(|(rank, text)| Row::Text(format!("[rank {rank}] {}", clean(text, false)))));
        if progress.len() > MAX_ROWS {
            rows.push(Row::Text(format!("and progress of {} more workers", progress.len() - MAX_ROWS)));
        }
        rows
    }

    fn event(&mut self, event: &PoolEvent, after: Duration, shows: &mut Vec<Show>) {
        let words = || clean(event.to_string().as_bytes(), false);
        match event {
            PoolEvent::NodeLaunching { node }
            | PoolEvent::NodeWaiting { node, .. }
            | PoolEvent::BootstrapStep { node, .. }
            | PoolEvent::BootstrapLine { node, .. } => self.step(*node, words(), shows),
            PoolEvent::NodeLaunched { node, machine, .. } => {
                self.alive.insert(machine.clone(), *node);
                self.step(*node, words(), shows);
            }
            PoolEvent::GenerationStarting { workers, .. } => {
                self.nodes.clear();
                self.workers = Some((0, *workers));
                shows.push(Show::Step(words()));
            }
            PoolEvent::WorkerReady { .. } => {
                let mut text = words();
                if let Some((done, total)) = &mut self.workers {
                    *done = (*done + 1).min(*total);
                    text += &format!(" ({done} of {total})");
                    if self.ready && *done == *total {
                        self.workers = None;
                    }
                }
                shows.push(Show::Step(text));
            }
            PoolEvent::PoolReady { nodes, workers } => {
                self.nodes.clear();
                self.workers = None;
                let again = if self.ready { "ready again" } else { "ready" };
                self.ready = true;
                let (nodes, workers) = (count(*nodes, "node"), count(*workers, "worker"));
                shows.push(Show::Note(format!("{again} after {}: {nodes}, {workers}", time(after))));
            }
            PoolEvent::Calls { task, running: 0, waiting: 0, .. } => drop(self.calls.remove(task)),
            PoolEvent::Calls { task, done, running, waiting } => {
                self.calls.insert(*task, [*done, *running, *waiting]);
            }
            PoolEvent::Transfer(transfer) => match transfer.state {
                TransferState::Running => {
                    self.transfers.insert(transfer.number, words());
                }
                // One that was quick was never shown.
                _ => shows.extend(self.transfers.remove(&transfer.number).map(|_| Show::Step(words()))),
            },
            PoolEvent::CheckpointCommitted { .. } => shows.push(Show::Step(words())),
            PoolEvent::CheckpointResumed { .. }
            | PoolEvent::CheckpointSkipped { .. }
            | PoolEvent::CheckpointDropped { .. } => shows.push(Show::Note(words())),
            PoolEvent::TaskStalled { stacks, .. } => {
                shows.push(Show::Note(words()));
                let stacks = Listed(stacks).to_string();
                let mut lines = stacks.lines().skip(1);
                shows.extend(lines.by_ref().take(MAX_STACKS).map(|line| Show::Note(clean(line.as_bytes(), false))));
                let more = lines.count();
                if more > 0 {
                    shows.push(Show::Note(format!("  … {}", count(more as u32, "more line"))));
                }
            }
            PoolEvent::Output(output) if self.output => {
                for line in self.lines.take(output) {
                    shows.push(self.output_line(output.rank, output.stream, line));
                }
            }
            PoolEvent::WorkerExited { rank, exit } => {
                shows.extend(self.unfinished(Some(*rank)));
                // A pool that is ending ends its workers itself.
                if !self.ending && !matches!(exit, WorkerExit::WorldEnded) {
                    shows.push(Show::Note(words()));
                }
            }
            PoolEvent::NodeLost { node, .. }
            | PoolEvent::NodeReplaced { node, .. }
            | PoolEvent::NodeFailed { node, .. } => {
                self.nodes.remove(node);
                shows.push(Show::Note(words()));
            }
            PoolEvent::NodeJoined { node, machine, .. } => {
                self.alive.insert(machine.clone(), *node);
                self.nodes.clear();
                shows.push(Show::Note(words()));
            }
            PoolEvent::NodeDraining { .. } | PoolEvent::OfferRefused { .. } | PoolEvent::BudgetSpent { .. } => {
                shows.push(Show::Step(words()));
            }
            PoolEvent::Resized { .. } => {
                self.workers = None;
                shows.push(Show::Note(words()));
            }
            PoolEvent::TaskRetried { .. }
            | PoolEvent::NodeDisconnected { .. }
            | PoolEvent::NodeReconnected { .. }
            | PoolEvent::Failed { .. }
            | PoolEvent::NodeUnconfirmed { .. }
            | PoolEvent::RuntimeBlocked { .. } => shows.push(Show::Note(words())),
            PoolEvent::Draining => {
                self.ending = true;
                self.nodes = self.alive.values().map(|node| (*node, format!("node {node}: ending"))).collect();
                self.workers = None;
                shows.push(Show::Step(words()));
            }
            PoolEvent::NodeGone { node, machine } => {
                let row = self.alive.remove(machine).unwrap_or(*node);
                // The node may have another machine.
                if !self.alive.values().any(|alive| *alive == row) {
                    self.nodes.remove(&row);
                }
                shows.push(Show::Step(words()));
            }
            PoolEvent::Closed => {
                shows.extend(self.end());
                shows.push(Show::Step(format!("closed after {}", time(after))));
            }
            // Tasks may come by the thousand, and their callers get the outcomes.
            PoolEvent::TaskStarted { .. }
            | PoolEvent::TaskFinished { .. }
            | PoolEvent::TaskWarned { .. }
            | PoolEvent::TaskFailed { .. }
            | PoolEvent::TaskCancelled { .. }
            | PoolEvent::Output(_)
            | PoolEvent::Report(_) => {}
        }
    }

    fn step(&mut self, node: NodeIndex, text: String, shows: &mut Vec<Show>) {
        shows.push(Show::Step(text.clone()));
        self.nodes.insert(node, text);
    }

    fn unfinished(&mut self, of: Option<Rank>) -> Vec<Show> {
        let lines = self.lines.finish(of);
        lines.into_iter().map(|(rank, stream, line)| self.output_line(rank, stream, line)).collect()
    }

    fn output_line(&self, rank: Rank, stream: OutputStream, line: Line) -> Show {
        let colours = self.colours[usize::from(stream == OutputStream::Stderr)];
        let text = match line {
            Line::Text(text) => clean(&text, colours),
            Line::Gap(1) => "… 1 byte was not shown".to_owned(),
            Line::Gap(missing) => format!("… {missing} bytes were not shown"),
        };
        Show::Output(stream, format!("[rank {rank}] {text}"))
    }
}

fn time(duration: Duration) -> String {
    match duration.as_secs() {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// The most lines that are shown of the stacks of a gang without progress.
const MAX_STACKS: usize = 60;

/// The most nodes, tasks, transfers, and workers with a row of their own. The others share one row.
const MAX_ROWS: usize = 8;
