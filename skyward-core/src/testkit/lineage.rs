//! Which try of a task made which call, on all nodes of a simulation. The fakes check calls with
//! it.
//!
//! The body of a call is its caller's body with one more byte, which stands for what the call does,
//! and with a number that no other call has.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::fake_worker::{FakeNode, lock};

/// The tries of all tasks and calls, by number.
#[derive(Debug, Default)]
pub(super) struct Lineage(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    tries: Vec<Try>,
    /// The try that made each call.
    calls: BTreeMap<Bytes, usize>,
}

/// A task or a call while a worker runs it.
#[derive(Debug, Default)]
struct Try {
    /// The try of the caller, for a call.
    caller: Option<usize>,
    ended: Option<Instant>,
}

/// A task or a call that a worker runs as long as this value lives.
#[derive(Debug)]
pub(super) struct Running {
    node: FakeNode,
    pub(super) number: usize,
    /// What the task does: its body, without the number of the call.
    pub(super) args: Bytes,
    /// How many callers are above it: as many bytes at the end of `args` stand for its calls.
    pub(super) depth: usize,
}

impl Lineage {
    /// The body of a call that this try makes.
    pub(super) fn call(&self, caller: &Running, index: u8) -> Bytes {
        let mut tables = lock(&self.0);
        let number = tables.calls.len() as u32;
        let body = Bytes::from([&caller.args[..], &[index], &number.to_be_bytes()].concat());
        tables.calls.insert(body.clone(), caller.number);
        body
    }

    /// Whether a call was made below this try.
    pub(super) fn descends(&self, body: &Bytes, from: usize) -> bool {
        let tables = lock(&self.0);
        let caller = tables.calls.get(body).copied();
        std::iter::successors(caller, |number| tables.tries[*number].caller).any(|number| number == from)
    }
}

impl Running {
    /// A worker begins a task or a call.
    pub(super) fn begin(node: &FakeNode, body: &Bytes) -> Self {
        let mut tables = lock(&node.witness().lineage().0);
        let caller = tables.calls.get(body).copied();
        let args = if caller.is_some() { body.slice(..body.len() - NUMBER) } else { body.clone() };
        let depth = std::iter::successors(caller, |number| tables.tries[*number].caller).count();
        tables.tries.push(Try { caller, ended: None });
        Self { node: node.clone(), number: tables.tries.len() - 1, args, depth }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = Instant::now();
        let outlived = {
            let mut tables = lock(&self.node.witness().lineage().0);
            tables.tries[self.number].ended = Some(now);
            let caller = tables.tries[self.number].caller.map(|caller| &tables.tries[caller]);
            caller.and_then(|caller| caller.ended).map_or(Duration::ZERO, |ended| now - ended)
        };
        // Tasks on a frozen machine end when the provider ends the machine, however late that is.
        if !self.node.froze() {
            self.node.witness().count_calls(|calls| calls.outlived = calls.outlived.max(outlived));
        }
    }
}

/// The length of a call's number in bytes.
const NUMBER: usize = 4;
