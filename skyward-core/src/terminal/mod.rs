//! A pool's events for people: progress while it starts, task output as it comes.

mod bars;
mod clean;
mod lines;
mod story;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use self::bars::Bars;
use self::story::{Show, Story};
use crate::event::{EventItem, Events, OutputStream};

/// Shows a pool's events to people, on standard output and standard error. A pool shows nothing unless it is given one.
///
/// Progress goes to standard error: as moving rows where that is a terminal, as plain lines elsewhere. What the workers write goes where they wrote it, standard output or standard
/// error, line by line behind its rank: `[rank 1] epoch 3 …`. A line is shown when it is whole; of one that is written over (`\r`, as progress bars do) the last text is
/// shown; bytes that are no text are replaced, and escape sequences other than colours are left out.
///
/// The pool never waits for the terminal: one that is slow misses events, and says how many.
///
/// ```no_run
/// # use skyward_core::{pool::ComputePool, terminal::Terminal};
/// # async fn example(pool: &impl ComputePool) {
/// Terminal::auto().output(false).render(pool.events()).await;
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it shows nothing until it is given to a pool or renders its events"]
pub struct Terminal {
    quiet: bool,
    output: bool,
}

impl Terminal {
    /// Progress in the form that standard error can show, and the workers' output.
    pub fn auto() -> Self {
        Self { quiet: false, output: true }
    }

    /// Leaves out progress; output stays.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Says whether the workers' output is shown.
    pub fn output(mut self, output: bool) -> Self {
        self.output = output;
        self
    }

    /// Shows these events, to their end.
    ///
    /// # Cancel safety
    ///
    /// What was taken from the events is still shown; the rest is not.
    pub async fn render(self, mut events: Events) {
        let (sender, receiver) = mpsc::channel(WAITING_EVENTS);
        let (done, shown) = oneshot::channel();
        // Writing to a terminal can block for as long as its user likes: on a thread of its own that holds up neither the runtime nor its end.
        let thread = std::thread::Builder::new().name("skyward-terminal".to_owned()).spawn(move || {
            self.show(receiver);
            let _ = done.send(());
        });
        if let Err(error) = thread {
            tracing::warn!(%error, "there is no thread for the terminal; nothing is shown");
            return;
        }
        while let Some(item) = events.next().await {
            if sender.send(item).await.is_err() {
                break;
            }
        }
        drop(sender);
        let _ = tokio::time::timeout(LAST_WORDS, shown).await;
    }

    fn show(self, receiver: mpsc::Receiver<EventItem>) {
        let story = Story::new(self.quiet, self.output, io::stdout().is_terminal(), io::stderr().is_terminal());
        let moving = !self.quiet && io::stderr().is_terminal();
        if moving {
            follow(story, receiver, &mut Moving { bars: Bars::stderr(), stdout: io::stdout(), stderr: io::stderr() });
        } else {
            follow(story, receiver, &mut Plain { stdout: io::stdout(), stderr: io::stderr() });
        }
    }
}

/// Where a story is shown.
trait Stage {
    fn show(&mut self, show: &Show) -> io::Result<()>;

    /// What stands there for now.
    fn rows(&mut self, story: &Story);
}

/// Lines alone.
struct Plain<O, E> {
    stdout: O,
    stderr: E,
}

/// Rows that move, with lines above them.
struct Moving<O, E> {
    bars: Bars,
    stdout: O,
    stderr: E,
}

fn follow(mut story: Story, mut receiver: mpsc::Receiver<EventItem>, stage: &mut impl Stage) {
    let start = Instant::now();
    while let Some(item) = receiver.blocking_recv() {
        let shows = story.tell(&item, start.elapsed());
        // First the rows, so that none that is over stands below a line.
        stage.rows(&story);
        for show in shows {
            // A terminal that is gone is no reason to stop: the channel must still be emptied.
            let _ = stage.show(&show);
        }
    }
    let shows = story.end();
    stage.rows(&story);
    for show in shows {
        let _ = stage.show(&show);
    }
}

impl<O: Write, E: Write> Stage for Plain<O, E> {
    fn show(&mut self, show: &Show) -> io::Result<()> {
        match show {
            Show::Output(OutputStream::Stdout, line) => write_line(&mut self.stdout, line),
            Show::Output(OutputStream::Stderr, line) | Show::Note(line) | Show::Step(line) => {
                write_line(&mut self.stderr, line)
            }
        }
    }

    fn rows(&mut self, _: &Story) {}
}

impl<O: Write, E: Write> Stage for Moving<O, E> {
    fn show(&mut self, show: &Show) -> io::Result<()> {
        match show {
            Show::Output(OutputStream::Stdout, line) => self.bars.aside(|| write_line(&mut self.stdout, line)),
            Show::Output(OutputStream::Stderr, line) | Show::Note(line) => {
                self.bars.aside(|| write_line(&mut self.stderr, line))
            }
            // The rows say it.
            Show::Step(_) => Ok(()),
        }
    }

    fn rows(&mut self, story: &Story) {
        self.bars.set(&story.rows());
    }
}

/// In one call, so that lines of other writers do not come in between.
fn write_line(writer: &mut impl Write, line: &str) -> io::Result<()> {
    writer.write_all(format!("{line}\n").as_bytes())?;
    writer.flush()
}

/// Few: what waits here is not yet missed, but held in memory.
const WAITING_EVENTS: usize = 256;

/// How long the end waits for a terminal that does not take its text.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
