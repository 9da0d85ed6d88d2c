//! The messages that the agent of a fake node gets.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;

use super::frames::{number, read, send};
use super::worker::exited;
use super::{FakeNode, State};
use crate::testkit::fake_calls::announcement;
use crate::testkit::fake_files::FAKE_MOVER;
use crate::worker::codec::Frame;
use crate::worker::link::Sender;
use crate::worker::message::PROTOCOL_VERSION;

impl FakeNode {
    pub(super) fn on_agent_frame(&self, state: &mut State, sender: &Sender, frame: Frame) -> Option<()> {
        let head = &frame.head[..];
        match number(head)? {
            1 => {
                let (_, _, _, max_frame_bytes): (u32, u32, String, usize) = read(head)?;
                state.max_frame_bytes = Some(max_frame_bytes);
                state.client = Some(sender.clone());
                state.workers.values_mut().for_each(|worker| worker.subscribed = false);
                let installed = BTreeMap::from([("python", self.fate().python(self.node()))]);
                let installed = rmp_serde::to_vec(&installed).ok()?;
                let hello = (33, PROTOCOL_VERSION, 1, "3.12.1", BTreeMap::<String, u32>::new());
                send(sender, &hello, installed.into());
                let ended = state.workers.iter().filter(|(_, worker)| !worker.alive);
                for (number, worker) in ended {
                    send(sender, &exited(*number, worker, None, Some(9)), Bytes::new());
                }
                for (number, worker) in state.workers.iter().filter(|(_, it)| it.alive && it.calls.is_some()) {
                    send(sender, &announcement(*number, worker.pid, worker.generation), Bytes::new());
                }
            }
            2 => {
                let (_, request, generation, workers): (u32, u64, u64, Vec<u32>) = read(head)?;
                if state.workers.values().any(|worker| worker.alive && worker.generation < generation) {
                    self.0.witness.wrong(format!("generation {generation} was started beside an older one"));
                }
                let Spec { cluster } = rmp_serde::from_slice(&frame.body).ok()?;
                let first = cluster.node * cluster.workers_per_node;
                let started: Vec<(u32, u32, String)> = workers
                    .iter()
                    .map(|worker| {
                        let pid = self.start_worker(state, *worker, generation, first + worker);
                        (*worker, pid, format!("/fake/w{worker}"))
                    })
                    .collect();
                send(sender, &(34, request, generation, started), Bytes::new());
            }
            3 => {
                let (_, request): (u32, u64) = read(head)?;
                send(sender, &(35, request, "10.0.0.1", 4242), Bytes::new());
            }
            4 => {
                let (_, generation, worker, signal): (u32, u64, u32, String) = read(head)?;
                let it = state.workers.get_mut(&worker).filter(|it| it.generation == generation && it.alive);
                match (signal.as_str(), it) {
                    ("interrupt", Some(it)) => it.interrupted = true,
                    ("stacks", Some(_)) => {
                        let text = "Current thread 0x1 (most recent call first):\n  File \"fake.py\", line 1 in work\n";
                        send(sender, &(44, generation, worker), Bytes::from_static(text.as_bytes()));
                    }
                    ("kill", Some(_)) => self.end_worker(state, worker, None, Some(9)),
                    _ => {}
                }
            }
            5 => {
                let (_, request, generation, workers, _): (u32, u64, u64, Vec<u32>, f64) = read(head)?;
                for worker in &workers {
                    if state.workers.get(worker).is_some_and(|it| it.alive && it.generation == generation) {
                        self.end_worker(state, *worker, Some(0), None);
                    }
                }
                send(sender, &(40, request, generation, workers), Bytes::new());
            }
            6 => {
                let (_, sequence, lease): (u32, u64, f64) = read(head)?;
                state.lease = Some(Instant::now() + Duration::from_secs_f64(lease));
                send(sender, &(37, sequence), Bytes::new());
            }
            7 => {
                let (_, generation, worker_index, stdout, stderr): (u32, u64, u32, usize, usize) = read(head)?;
                if let Some(worker) = state.workers.get_mut(&worker_index).filter(|it| it.generation == generation) {
                    worker.subscribed = true;
                    for (stream, from) in [stdout, stderr].into_iter().enumerate() {
                        let rest = worker.output[stream].get(from..).unwrap_or_default();
                        if !rest.is_empty() {
                            send(
                                sender,
                                &(38, generation, worker_index, stream + 1, from),
                                Bytes::copy_from_slice(rest),
                            );
                        }
                    }
                }
            }
            8 => {
                let (_, request, _): (u32, u64, f64) = read(head)?;
                let alive: Vec<u32> =
                    state.workers.iter().filter(|(_, worker)| worker.alive).map(|(number, _)| *number).collect();
                alive.into_iter().for_each(|worker| self.end_worker(state, worker, None, Some(9)));
                send(sender, &(42, request), Bytes::new());
                state.agent = false;
            }
            9 => {
                let (_, generation, worker, pid, upto): (u32, u64, u32, u32, u64) = read(head)?;
                if let Some(it) =
                    state.workers.get_mut(&worker).filter(|it| it.generation == generation && it.pid == pid)
                {
                    it.recalled = it.recalled.max(upto);
                    send(sender, &(45, generation, worker, pid, upto, it.begun), Bytes::new());
                }
            }
            10 => {
                let (_, _): (u32, Vec<String>) = read(head)?;
            }
            11 => {
                let (_, request): (u32, u64) = read(head)?;
                let (pid, socket) = FAKE_MOVER;
                send(sender, &(48, request, pid, socket), Bytes::new());
            }
            _ => return None,
        }
        Some(())
    }
}

/// The part of a start spec that the fake reads.
#[derive(Deserialize)]
struct Spec {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    node: u32,
    workers_per_node: u32,
}
