//! The state of one worker's connection: which sources it has, what was acknowledged. No I/O.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::message::ToWorker;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TaskId;
use crate::payload::{Source, Task};

/// What the client knows of a worker process, across reconnects.
#[derive(Debug)]
pub struct Session {
    references: HashMap<String, u32>,
    /// Results up to this number were handed on.
    received: u64,
    /// Results up to this number were acknowledged.
    acknowledged: u64,
    unacknowledged_bytes: usize,
    max_frame: usize,
}

/// One frame to send.
pub type Outgoing = (Vec<u8>, Bytes);

impl Session {
    /// The session of a new worker process.
    pub fn new(max_frame: usize) -> Self {
        Self { references: HashMap::new(), received: 0, acknowledged: 0, unacknowledged_bytes: 0, max_frame }
    }

    /// The frames that make the worker run a task: its source, once, and the call. `gang`: all ranks run it at the same time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Payload`] when source or arguments are larger than a frame.
    pub fn run(
        &mut self,
        id: TaskId,
        task: &Task,
        credit: u32,
        gang: bool,
        mut send: impl FnMut(Outgoing),
    ) -> Result<()> {
        self.check_size("arguments", task.args.len())?;
        let reference = match self.references.get(task.source.digest()) {
            Some(reference) => *reference,
            None => {
                let body = source_body(&task.source)?;
                self.check_size("source", body.len())?;
                let reference = self.references.len() as u32;
                send(ToWorker::Load { reference, digest: task.source.digest(), body }.encode()?);
                self.references.insert(task.source.digest().to_owned(), reference);
                reference
            }
        };
        self.acknowledge_all();
        let acknowledged = self.acknowledged;
        let (trace, args) = (task.trace.as_ref(), task.args.clone());
        send(ToWorker::Run { task: id.0, reference, acknowledged, credit, trace, gang, args }.encode()?);
        Ok(())
    }

    /// Takes note of a result. `false`: it came before, and is dropped. The second value is an acknowledgement to send now, because much is kept on the node.
    pub fn on_result(&mut self, sequence: u64, bytes: usize) -> (bool, Option<u64>) {
        if sequence <= self.received {
            return (false, None);
        }
        self.received = sequence;
        self.unacknowledged_bytes += bytes;
        let due = self.unacknowledged_bytes >= ACK_BYTES || self.received - self.acknowledged >= ACK_RESULTS;
        (true, due.then(|| self.acknowledge_all()))
    }

    /// Whether a result can have this number: the worker counts them, and sends none before the one that comes before it.
    pub fn expects(&self, sequence: u64) -> bool {
        sequence <= self.received.saturating_add(1)
    }

    /// Acknowledges all that was received; gives the number to send.
    pub fn acknowledge_all(&mut self) -> u64 {
        self.acknowledged = self.received;
        self.unacknowledged_bytes = 0;
        self.acknowledged
    }

    /// After a reconnect the worker's references are forgotten.
    pub fn on_reconnect(&mut self) {
        self.references.clear();
    }

    /// Results up to this number were handed on.
    pub fn received(&self) -> u64 {
        self.received
    }

    fn check_size(&self, what: &str, length: usize) -> Result<()> {
        if length <= self.max_frame {
            return Ok(());
        }
        Err(too_large(what, length, self.max_frame))
    }
}

/// The error of a payload that does not fit into a frame.
pub(crate) fn too_large(what: &str, length: usize, max_frame: usize) -> Error {
    Error::new(
        ErrorKind::Payload,
        format!("the payload's {what} take {length} bytes, and a frame holds {max_frame} at most"),
    )
    .with_hint("raise `Limits::max_frame`, or let the payload read large data from a file that the image includes")
}

fn source_body(source: &Arc<Source>) -> Result<Bytes> {
    #[derive(serde::Serialize)]
    struct Body<'a> {
        entry: &'a str,
        main: &'a str,
        first_line: u32,
        files: Vec<(&'a str, &'a str)>,
    }
    let files = source.files().iter().map(|file| (&*file.path, &*file.text)).collect();
    let body = Body { entry: source.entry(), main: source.main(), first_line: source.first_line(), files };
    let mut bytes = Vec::with_capacity(source.size() + 256);
    crate::payload::value::encode_into(&mut bytes, &body)
        .map_err(|error| Error::new(ErrorKind::Payload, "the payload's source cannot be encoded").with_source(error))?;
    Ok(bytes.into())
}

/// What a worker may keep before it is told to forget, beside the acknowledgement that each call carries.
const ACK_BYTES: usize = 16 << 20;
const ACK_RESULTS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Args;

    fn task(text: &'static str) -> Task {
        Task::new(Arc::new(Source::file("a.py", text, "f")), Args::new().encode().unwrap())
    }

    fn run(session: &mut Session, id: u64, task: &Task) -> Vec<u8> {
        let mut numbers = Vec::new();
        session.run(TaskId(id), task, 0, false, |(head, _)| numbers.push(head[1])).unwrap();
        numbers
    }

    #[test]
    fn a_source_is_sent_once_and_again_after_a_reconnect() {
        let mut session = Session::new(1 << 20);
        assert_eq!(run(&mut session, 1, &task("def f(): pass")), [66, 67]);
        assert_eq!(run(&mut session, 2, &task("def f(): pass")), [67]);
        assert_eq!(run(&mut session, 3, &task("def f(): 1")), [66, 67]);
        session.on_reconnect();
        assert_eq!(run(&mut session, 4, &task("def f(): 1")), [66, 67]);
    }

    #[test]
    fn a_repeated_result_is_dropped_and_large_ones_are_acknowledged() {
        let mut session = Session::new(1 << 20);
        assert!(session.expects(1) && !session.expects(2));
        assert_eq!(session.on_result(1, 10), (true, None));
        assert!(session.expects(1) && session.expects(2) && !session.expects(u64::MAX));
        assert_eq!(session.on_result(1, 10), (false, None));
        assert_eq!(session.on_result(2, ACK_BYTES), (true, Some(2)));
    }

    #[test]
    fn what_does_not_fit_a_frame_is_an_error_before_it_is_sent() {
        let mut session = Session::new(8);
        let error = session.run(TaskId(1), &task("def f(): pass"), 0, false, |_| panic!("sent")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Payload);
    }
}
