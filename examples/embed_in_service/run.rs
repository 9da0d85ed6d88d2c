//! Follows one training from its first attempt to its end.

use std::time::Duration;

use skyward::event::{Events, OutputStream};
use skyward::payload::{Output, TaskHandle};
use skyward::prelude::*;

use super::journal::{Event, Journal};
use super::problem::Problem;
use super::training::{Report, Step};
use super::trainings::{State, Training, Trainings};

/// A task that the pool has, with the events since just before.
pub(crate) struct Submitted {
    pub(crate) handle: TaskHandle,
    pub(crate) events: Events,
}

/// Returns when the training has finished, failed or was cancelled.
pub(crate) async fn run(trainings: &Trainings, training: &Training, first: Submitted) {
    let end = tokio::select! {
        // Dropping the attempt drops the task's handle, which cancels it on its worker.
        () = training.cancel.notified() => None,
        end = attempts(trainings, training, first) => Some(end),
    };
    let (state, event) = match end {
        Some(Ok(report)) => (State::Finished { report: report.clone() }, Event::Finished { report }),
        Some(Err(error)) => {
            let problem = Problem::from(&error);
            (State::Failed { error: problem.clone() }, Event::Failed { error: problem })
        }
        None => (State::Cancelled, Event::Cancelled),
    };
    training.set(state);
    training.journal.end(event);
}

/// A pool does not retry streams, because it cannot take back the items that it has delivered. This
/// service can: the event `retried` announces to followers that the epochs begin again.
async fn attempts(trainings: &Trainings, training: &Training, first: Submitted) -> skyward::Result<Report> {
    let mut submitted = first;
    for attempt in 1.. {
        match follow(training, submitted, attempt).await {
            Err(error) if is_loss(&error) && attempt < ATTEMPTS && !trainings.is_stopping() => {
                training.set(State::Waiting);
                training.journal.tell(Event::Retried { attempt: attempt + 1, error: Problem::from(&error) });
                submitted = trainings.submit(&training.request).await?;
            }
            end => return end,
        }
    }
    Err(Error::new(ErrorKind::WorkerExited, "no attempt was left"))
}

/// One attempt.
async fn follow(training: &Training, submitted: Submitted, attempt: u32) -> skyward::Result<Report> {
    let Submitted { handle, mut events } = submitted;
    let mut teller = Teller { training, attempt, task: handle.id(), rank: 0, lines: [Vec::new(), Vec::new()] };
    let mut steps = Streaming::<Step>::receive(handle).await?;
    let mut report = None;
    let end = loop {
        tokio::select! {
            biased;
            Some(item) = events.next() => teller.on_event(item),
            step = steps.next() => match step {
                Some(Ok(Step::Epoch(epoch))) => {
                    training.set(State::Running { attempt, rank: teller.rank, progress: Some(epoch.clone()) });
                    training.journal.tell(Event::Progress(epoch));
                }
                Some(Ok(Step::Report(last))) => report = Some(last),
                Some(Err(error)) => break Err(error),
                None => break report.ok_or_else(|| Error::new(ErrorKind::Decode, "the training ended without a report")),
            }
        }
    };
    // Output travels apart from results, and arrives a little later.
    let late = async {
        while let Some(item) = events.next().await {
            teller.on_event(item);
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, late).await;
    teller.flush();
    end
}

/// Copies the pool's events about one task to the journal.
struct Teller<'a> {
    training: &'a Training,
    attempt: u32,
    task: skyward::ids::TaskId,
    rank: u32,
    /// Unfinished lines of standard output and standard error.
    lines: [Vec<u8>; 2],
}

impl Teller<'_> {
    fn journal(&self) -> &Journal {
        &self.training.journal
    }

    fn on_event(&mut self, item: EventItem) {
        let event = match item {
            EventItem::Event(event) => event,
            EventItem::Missed(events) => return self.journal().tell(Event::Missed { events }),
            _ => return,
        };
        match &*event {
            PoolEvent::TaskStarted { task, rank, .. } if *task == self.task => {
                self.rank = rank.0;
                self.training.set(State::Running { attempt: self.attempt, rank: self.rank, progress: None });
                self.journal().tell(Event::Started { attempt: self.attempt, rank: self.rank });
            }
            PoolEvent::Output(output) if output.task == Some(self.task) => {
                for byte in output.bytes.iter().copied() {
                    let line = &mut self.lines[output.stream as usize];
                    if byte != b'\n' {
                        line.push(byte);
                    }
                    if byte == b'\n' || line.len() == LONGEST_LINE {
                        self.tell_line(output.stream);
                    }
                }
            }
            _ => {}
        }
    }

    fn tell_line(&mut self, stream: OutputStream) {
        let line = std::mem::take(&mut self.lines[stream as usize]);
        let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
        let stream = if stream == OutputStream::Stdout { "stdout" } else { "stderr" };
        self.journal().tell(Event::Output { stream, line });
    }

    /// Copies unfinished lines to the journal.
    fn flush(&mut self) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            if !self.lines[stream as usize].is_empty() {
                self.tell_line(stream);
            }
        }
    }
}

/// Whether the worker was lost, as opposed to an error of the training.
fn is_loss(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WorkerExited | ErrorKind::NodeLost)
}

const ATTEMPTS: u32 = 2;
/// Agents read output at least every 200 ms.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// Longer lines are cut into several.
const LONGEST_LINE: usize = 4096;
