//! What a task does on a fake worker, step by step.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::event::OutputStream;
use crate::payload::value;
use crate::testkit::fake_worker::{Failure, Work};

/// What a task does: steps in the order in which they are added, and then its end.
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::Duration;
///
/// use skyward::testkit::script::Answer;
///
/// // Reports a loss, takes a minute, and runs out of memory.
/// Answer::raises("torch.OutOfMemoryError", "CUDA out of memory")
///     .reports(&0.7)
///     .after(Duration::from_secs(60))
///     .stderr("allocation failed\n");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Answer {
    pub(in crate::testkit) steps: Vec<Step>,
    pub(in crate::testkit) end: End,
}

/// A step before the end.
#[derive(Debug, Clone)]
pub(in crate::testkit) enum Step {
    After(Duration),
    Report(Bytes),
    Write(OutputStream, Bytes),
    Item(Bytes),
    Calls(u8),
    /// The task fails here: a value cannot be encoded.
    Fail(Failure),
}

/// How a task ends.
#[derive(Debug, Clone)]
pub(in crate::testkit) enum End {
    Return(Bytes),
    Fail(Failure),
    Exit(i32),
    Do(Work),
}

impl Answer {
    /// Returns this value. If it cannot be serialised, the task fails, as a task whose result
    /// cannot be sent.
    pub fn returns<T: Serialize + ?Sized>(value: &T) -> Self {
        Self::new(encode(value).map_or_else(End::Fail, End::Return))
    }

    /// Raises an exception of this class, with its module unless that is `builtins`.
    pub fn raises(type_name: &str, message: &str) -> Self {
        Self::new(End::Fail(Failure::raised(type_name, message)))
    }

    /// Ends the worker with this exit code.
    pub fn exits(code: i32) -> Self {
        Self::new(End::Exit(code))
    }

    /// Does work that depends on the arguments alone, such as hanging or crashing.
    pub fn does(work: Work) -> Self {
        Self::new(End::Do(work))
    }

    /// Takes this time.
    pub fn after(self, time: Duration) -> Self {
        self.step(Step::After(time))
    }

    /// Reports this value, as `sky.report(value)` does.
    pub fn reports<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.step(encode(value).map_or_else(Step::Fail, Step::Report))
    }

    /// Yields this value as the next item of a stream, as soon as the stream has credit.
    pub fn yields<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.step(encode(value).map_or_else(Step::Fail, Step::Item))
    }

    /// Writes to standard output.
    pub fn stdout(self, text: impl Into<String>) -> Self {
        self.step(Step::Write(OutputStream::Stdout, text.into().into()))
    }

    /// Writes to standard error.
    pub fn stderr(self, text: impl Into<String>) -> Self {
        self.step(Step::Write(OutputStream::Stderr, text.into().into()))
    }

    /// Makes this number of calls and waits for them. When one has failed, the task raises an
    /// exception. [`Rule::calls_of`](super::Rule::calls_of) answers the calls.
    pub fn calls(self, count: u8) -> Self {
        self.step(Step::Calls(count))
    }

    /// The traceback of the exception that the task raises.
    pub fn traceback(mut self, text: impl Into<String>) -> Self {
        if let End::Fail(failure) = &mut self.end {
            failure.traceback = text.into();
        }
        self
    }

    /// Whether an interrupt does not end the task.
    pub(in crate::testkit) fn ignores_interrupts(&self) -> bool {
        matches!(self.end, End::Do(Work::UntilKilled)) || self.is_deaf()
    }

    /// Whether the worker does not read its connection while it runs the task.
    pub(in crate::testkit) fn is_deaf(&self) -> bool {
        matches!(self.end, End::Do(Work::Deaf(_)))
    }

    fn new(end: End) -> Self {
        Self { steps: Vec::new(), end }
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    match value::encode_into(&mut bytes, value) {
        Ok(()) => Ok(bytes.into()),
        Err(error) => {
            let mut failure = Failure::of("encode");
            failure.message = error.to_string();
            Err(failure)
        }
    }
}
