//! The output of a worker: how much of it has arrived from its node, how much has been emitted as
//! events, and which task wrote which part.

use crate::event::OutputStream;
use crate::ids::TaskId;
use crate::pool::tasks::attribution::Marks;

/// What is known of the output of a rank's worker. Pairs are indexed by [`OutputStream`].
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// How many bytes of each descriptor have arrived from this machine.
    received: [u64; 2],
    /// How many of these bytes have been emitted.
    emitted: [u64; 2],
    /// How many bytes had arrived from earlier machines, in the same generation.
    earlier: [u64; 2],
    /// Where the output of each task ends.
    marks: [Marks; 2],
    /// Whether all output of the worker, which has exited, has arrived.
    has_ended: bool,
    /// Whether output did not arrive in time; nothing waits for output until some arrives.
    is_late: bool,
}

/// Output that has arrived, divided among the tasks that wrote it.
#[derive(Debug)]
pub(crate) struct Parts {
    /// How many bytes had arrived from earlier machines, in the same generation.
    pub(crate) earlier: u64,
    /// The length of each part, and the task that wrote it, if it is known.
    pub(crate) lengths: Vec<(usize, Option<TaskId>)>,
}

impl Output {
    /// The output of a worker whose machine has left: all of it has arrived, and `written` bytes
    /// count as those of earlier machines.
    pub(super) fn of_earlier(written: [u64; 2]) -> Self {
        Self { earlier: written, has_ended: true, ..Self::default() }
    }

    /// The output of the worker that is started in place of this one, in the same generation. On
    /// the same machine, that worker continues the same files.
    pub(super) fn successor(&self, same_machine: bool) -> Self {
        if same_machine {
            Self { received: self.received, emitted: self.emitted, earlier: self.earlier, ..Self::default() }
        } else {
            Self { earlier: self.written(), ..Self::default() }
        }
    }

    /// How many bytes of each descriptor have arrived from this machine.
    pub(crate) fn received(&self) -> [u64; 2] {
        self.received
    }

    /// How many bytes of each descriptor have arrived from all machines, in the same generation.
    pub(crate) fn written(&self) -> [u64; 2] {
        std::array::from_fn(|stream| self.earlier[stream] + self.received[stream])
    }

    /// Whether all output of the worker, which has exited, has arrived.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Records that `length` bytes have arrived, which begin at `offset` in the file of this
    /// machine. Bytes behind the end of the last task were written by the `running` task.
    pub(crate) fn on_arrived(
        &mut self,
        stream: OutputStream,
        offset: u64,
        length: usize,
        running: Option<TaskId>,
    ) -> Parts {
        let stream = stream as usize;
        self.received[stream] = offset + length as u64;
        let lengths = self.marks[stream].split(offset, length, running);
        Parts { earlier: self.earlier[stream], lengths }
    }

    /// Records that all output up to `end` has been emitted.
    pub(crate) fn on_emitted(&mut self, stream: OutputStream, end: u64) {
        self.emitted[stream as usize] = end;
        self.is_late = false;
    }

    /// Records that a task ended when the files had these lengths. Returns whether some of these
    /// bytes may be its own.
    pub(crate) fn on_task_end(&mut self, task: TaskId, [out, err]: [u64; 2]) -> bool {
        let [stdout, stderr] = &mut self.marks;
        stdout.end(task, out) | stderr.end(task, err)
    }

    /// Records that output did not arrive in time.
    pub(crate) fn on_late(&mut self) {
        self.is_late = true;
    }

    /// Records that no more output will arrive.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether nothing has to wait any more for the output up to these lengths of the files.
    pub(super) fn has_emitted(&self, ends: [u64; 2]) -> bool {
        let emitted = ends[0] <= self.emitted[0] && ends[1] <= self.emitted[1];
        emitted || self.is_late || self.has_ended
    }
}
