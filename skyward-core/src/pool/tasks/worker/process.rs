//! The operating system process of a worker: not started yet, running, or ended.

use crate::error::{LastWords, WorkerExit};

/// The process of a worker, and the process before it.
#[derive(Debug, Default)]
pub(crate) struct Process {
    stage: Stage,
    /// The process before this one on the same machine, whose end may be reported once more.
    before: Option<u32>,
}

#[derive(Debug, Default)]
enum Stage {
    /// The agent has not answered the request to start the process.
    #[default]
    NotStarted,
    Running(Started),
    Ended {
        exit: WorkerExit,
        /// What the process wrote last on standard error.
        words: LastWords,
        /// The process, if the agent answered the request to start it after its end was known.
        late: Option<Started>,
    },
}

/// A process that the agent has started.
#[derive(Debug)]
struct Started {
    pid: u32,
    /// The socket on which the worker listens on its node.
    socket: String,
}

impl Process {
    /// The process that is started in place of this one, on the same machine or on another one.
    pub(super) fn successor(&self, same_machine: bool) -> Self {
        let before = self.pid().or(self.before).filter(|_| same_machine);
        Self { stage: Stage::NotStarted, before }
    }

    /// The process id, if the agent has reported that the process is started.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.started().map(|started| started.pid)
    }

    /// The process id, and the socket on which the worker listens on its node.
    pub(crate) fn address(&self) -> Option<(u32, &str)> {
        self.started().map(|started| (started.pid, started.socket.as_str()))
    }

    /// Whether this process runs, as far as is known.
    pub(crate) fn runs_as(&self, pid: u32) -> bool {
        matches!(&self.stage, Stage::Running(started) if started.pid == pid)
    }

    /// How the process has ended, or how the pool has lost it.
    pub(crate) fn exit(&self) -> Option<&WorkerExit> {
        match &self.stage {
            Stage::Ended { exit, .. } => Some(exit),
            Stage::NotStarted | Stage::Running(_) => None,
        }
    }

    /// How the process has ended, and what it wrote last on standard error.
    pub(crate) fn end(&self) -> Option<(WorkerExit, LastWords)> {
        match &self.stage {
            Stage::Ended { exit, words, .. } => Some((exit.clone(), words.clone())),
            Stage::NotStarted | Stage::Running(_) => None,
        }
    }

    /// Whether the process has ended, or is lost with its machine.
    pub(crate) fn has_ended(&self) -> bool {
        self.exit().is_some()
    }

    /// Records that the agent has started the process.
    pub(crate) fn on_started(&mut self, pid: u32, socket: String) {
        let started = Started { pid, socket };
        match &mut self.stage {
            Stage::Ended { late, .. } => *late = Some(started),
            Stage::NotStarted | Stage::Running(_) => self.stage = Stage::Running(started),
        }
    }

    /// Whether a report that a process has ended is news about this process.
    pub(super) fn is_ended_by(&self, pid: u32) -> bool {
        match &self.stage {
            // The report may be a repeated one about the process before this one.
            Stage::NotStarted => self.before != Some(pid),
            Stage::Running(started) => started.pid == pid,
            Stage::Ended { .. } => false,
        }
    }

    /// Records that the process has ended.
    pub(super) fn on_ended(&mut self, pid: u32, exit: WorkerExit, words: LastWords) {
        *self = Self { stage: Stage::Ended { exit, words, late: None }, before: Some(pid) };
    }

    /// Records that the process is lost with its machine.
    pub(super) fn on_machine_lost(&mut self, exit: WorkerExit) {
        *self = Self { stage: Stage::Ended { exit, words: LastWords::default(), late: None }, before: None };
    }

    fn started(&self) -> Option<&Started> {
        match &self.stage {
            Stage::NotStarted => None,
            Stage::Running(started) => Some(started),
            Stage::Ended { late, .. } => late.as_ref(),
        }
    }
}
