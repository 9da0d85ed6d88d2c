//! The messages that a worker of a fake node gets.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use super::frames::{Failure, number, push, read, send};
use super::worker::{FIRST_PID, Stream, Waiting};
use super::{FakeNode, State};
use crate::worker::codec::Frame;
use crate::worker::link::Sender;
use crate::worker::message::PROTOCOL_VERSION;

impl FakeNode {
    pub(super) fn on_worker_frame(
        &self,
        state: &mut State,
        worker_index: u32,
        sender: &Sender,
        frame: Frame,
    ) -> Option<()> {
        let node = self.0.node;
        let worker = state.workers.get_mut(&worker_index)?;
        let head = &frame.head[..];
        match number(head)? {
            65 => {
                let (_, _, _, acknowledged, streams): Greeting = read(head)?;
                let hello =
                    (97, PROTOCOL_VERSION, worker.pid, worker.generation, worker.rank, true, "3.12.1", worker.received);
                if self.fate().ends_greeting(node, worker_index, worker.pid - FIRST_PID) {
                    self.end_worker(state, worker_index, None, Some(9));
                    send(sender, &hello, Bytes::new());
                    return Some(());
                }
                worker.client = Some(sender.clone());
                worker.acknowledge(acknowledged);
                send(sender, &hello, Bytes::new());
                for (run, arrived, granted) in streams {
                    if let Some(stream) = worker.streams.get_mut(&run) {
                        stream.advance(granted, arrived);
                        stream.items.iter().for_each(|(_, item)| push(sender, item.clone()));
                    }
                }
                for (_, _, kept) in &worker.kept {
                    push(sender, kept.clone());
                }
            }
            66 => {
                let (_, payload, _): (u32, u32, String) = read(head)?;
                let Payload { entry } = rmp_serde::from_slice(&frame.body).ok()?;
                worker.loaded.insert(payload, entry.into());
            }
            67 => {
                let mut rest = head;
                rmp::decode::read_array_len(&mut rest).ok()?;
                let mut next = || rmp::decode::read_int::<u64, _>(&mut rest).ok();
                let (_, run, payload, acknowledged, granted) = (next()?, next()?, next()? as u32, next()?, next()?);
                if state.succeeded {
                    self.0.witness.wrong(format!("run {run} came to a machine of node {node} that was replaced"));
                }
                let entry = worker.loaded.get(&payload).cloned().unwrap_or_else(|| {
                    self.0.witness.wrong(format!("run {run} came before its source"));
                    Arc::default()
                });
                worker.acknowledge(acknowledged);
                if run > worker.received {
                    worker.received = run;
                    worker.waiting.push_back(Waiting { run, entry, args: frame.body });
                    worker.streams.insert(run, Stream { granted, ..Stream::default() });
                }
            }
            68 => {
                let (_, acknowledged): (u32, u64) = read(head)?;
                worker.acknowledge(acknowledged);
            }
            69 => {
                let (_, run, granted, arrived): (u32, u64, u64, u64) = read(head)?;
                if let Some(stream) = worker.streams.get_mut(&run) {
                    stream.advance(granted, arrived);
                }
            }
            70 => {
                let (_, task): (u32, u64) = read(head)?;
                if worker.running == Some(task) {
                    worker.cancelled.insert(task);
                } else if let Some(place) = worker.waiting.iter().position(|waiting| waiting.run == task) {
                    worker.waiting.remove(place);
                    worker.answer(task, Err(Failure::of("cancelled")));
                }
            }
            71 => self.end_worker(state, worker_index, Some(0), None),
            73 => {
                let (_, _, _, _): (u32, String, f64, String) = read(head)?;
                self.0.witness.on_notice();
            }
            74 => {
                let (_, _): (u32, u32) = read(head)?;
            }
            _ => return None,
        }
        Some(())
    }
}

/// The part of a payload that the fake reads.
#[derive(Deserialize)]
struct Payload {
    entry: String,
}

/// Number, version, generation, acknowledged; and of each stream: run, arrived, granted.
type Greeting = (u32, u32, u64, u64, Vec<(u64, u64, u64)>);
