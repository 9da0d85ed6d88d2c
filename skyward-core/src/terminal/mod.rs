//! Shows a pool's events in a terminal: progress while the pool starts, and task output as it
//! arrives.

mod bars;
mod clean;
mod lines;
mod story;
mod timing;

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use self::bars::Bars;
use self::story::{Show, Story};
use self::timing::LAST_WRITE;
use crate::event::{EventItem, Events, OutputStream};

/// Shows a pool's events on standard output and standard error. A pool shows nothing by default.
///
/// - Progress goes to standard error: as moving rows if standard error is a terminal, and as plain
///   lines otherwise.
/// - Output of the workers goes to the stream that they wrote it to, standard output or standard
///   error, with a prefix for the rank: `[rank 1] epoch 3 …`.
/// - A line of output is shown when it is complete. If it was overwritten with `\r`, as progress
///   bars do, its last text is shown. Bytes that are not UTF-8 are replaced, and escape sequences
///   other than colours are removed.
///
/// The pool never waits for the terminal. A slow terminal misses events, and shows how many it has
/// missed.
///
/// ```no_run
/// # use skyward_core as skyward;
/// # use skyward::compute::ComputePool;
/// use skyward::Terminal;
///
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
    /// Shows progress, in the form that standard error supports, and the workers' output.
    pub fn auto() -> Self {
        Self { quiet: false, output: true }
    }

    /// Sets whether progress is hidden. The workers' output is still shown.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Sets whether the workers' output is shown.
    pub fn output(mut self, output: bool) -> Self {
        self.output = output;
        self
    }

    /// Shows these events until the stream ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the events that were already taken from the stream are still
    /// shown, and the others are not.
    pub async fn render(self, mut events: Events) {
        let (sender, receiver) = mpsc::channel(WAITING_EVENTS);
        let (done, shown) = oneshot::channel();
        // Writing to a terminal can block for any time. On a thread of its own, it blocks neither
        // the runtime nor the runtime's shutdown.
        let thread = std::thread::Builder::new().name("skyward-terminal".to_owned()).spawn(move || {
            self.show(receiver);
            let _ = done.send(());
        });
        if let Err(error) = thread {
            tracing::warn!(%error, "cannot start a thread for the terminal; no events are shown");
            return;
        }
        while let Some(item) = events.next().await {
            if sender.send(item).await.is_err() {
                break;
            }
        }
        drop(sender);
        let _ = tokio::time::timeout(LAST_WRITE, shown).await;
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

    /// Updates the rows of the progress.
    fn rows(&mut self, story: &Story);
}

/// Shows plain lines.
struct Plain<O, E> {
    stdout: O,
    stderr: E,
}

/// Shows moving rows, with lines above them.
struct Moving<O, E> {
    bars: Bars,
    stdout: O,
    stderr: E,
}

fn follow(mut story: Story, mut receiver: mpsc::Receiver<EventItem>, stage: &mut impl Stage) {
    let start = Instant::now();
    while let Some(item) = receiver.blocking_recv() {
        let shows = story.render(&item, start.elapsed());
        // Update the rows first, so that no outdated row appears below a line.
        stage.rows(&story);
        for show in shows {
            // If the terminal is gone, continue: the channel must still be emptied.
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
            // The rows show the step.
            Show::Step(_) => Ok(()),
        }
    }

    fn rows(&mut self, story: &Story) {
        self.bars.set(&story.rows());
    }
}

/// Writes the line in one call, so that no other writer's line comes in between.
fn write_line(writer: &mut impl Write, line: &str) -> io::Result<()> {
    writer.write_all(format!("{line}\n").as_bytes())?;
    writer.flush()
}

/// How many events wait in memory for the terminal's thread. Further events wait in the pool, which
/// drops them for a slow reader.
const WAITING_EVENTS: usize = 256;

#[cfg(test)]
mod tests;
