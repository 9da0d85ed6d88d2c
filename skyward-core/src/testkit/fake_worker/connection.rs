//! The connections to a fake node: byte streams in memory to its agent, its workers, and their
//! calls.

use std::collections::VecDeque;

use tokio::time::sleep;

use super::{FakeNode, State, lock};
use crate::remote::ByteStream;
use crate::testkit::fake_files::FAKE_MOVER;
use crate::worker::link::{Reader, Sender, link};

impl FakeNode {
    /// Connects to the socket at this path: that of the agent, of the mover, of a worker, or
    /// of a worker's calls.
    pub fn open(&self, socket: &str) -> Option<ByteStream> {
        let (socket, calls) = match socket.strip_suffix(".calls") {
            Some(socket) => (socket, true),
            None => (socket, false),
        };
        let worker = match socket.rsplit_once("/w") {
            Some((_, number)) => Some(number.parse::<u32>().ok()?),
            None => None,
        };
        let socket = match (worker, calls) {
            (None, _) if socket == FAKE_MOVER.1 => Socket::Mover,
            (None, _) => Socket::Agent,
            (Some(worker), false) => Socket::Worker(worker),
            (Some(worker), true) => Socket::Calls(worker),
        };
        let (connection, max_frame_bytes) = {
            let mut state = lock(&self.0.state);
            let there = match worker {
                None => state.agent,
                Some(worker) => state.workers.get(&worker).is_some_and(|worker| worker.alive),
            };
            if !there && !state.frozen {
                return None;
            }
            if state.connections == MOST_CONNECTIONS {
                self.0
                    .witness
                    .wrong(format!("node {} was connected to more than {MOST_CONNECTIONS} times", self.0.node));
                return None;
            }
            state.connections += 1;
            let connection = state.connections;
            if let Some(worker) = worker.and_then(|worker| state.workers.get_mut(&worker)) {
                match &mut worker.calls {
                    Some(own) if calls => own.newest = connection,
                    None if calls => return None,
                    _ => worker.newest = connection,
                }
            }
            (connection, state.max_frame_bytes.unwrap_or(u32::MAX as usize))
        };
        let (near, far) = tokio::io::duplex(PIPE);
        let (sender, writer, reader) = link(Box::new(far), max_frame_bytes);
        tokio::spawn(async move {
            // The reader sees the same error.
            let _ = writer.run().await;
        });
        let node = self.clone();
        tokio::spawn(async move { node.serve(socket, connection, sender, reader).await });
        Some(Box::new(near))
    }

    /// Handles the frames of one connection; the fate may delay them or cut the connection.
    async fn serve(self, socket: Socket, connection: u64, sender: Sender, mut reader: Reader) {
        let worker = socket.worker();
        if let Some(worker) = worker {
            self.until(|state| match state.workers.get(&worker) {
                Some(worker) => worker.ready || !worker.alive,
                None => true,
            })
            .await;
        }
        let pid = worker.and_then(|worker| lock(&self.0.state).workers.get(&worker).map(|worker| worker.pid));
        let mut waiting = VecDeque::new();
        for number in 0.. {
            let gone = self.until(|state| !state.frozen && !is_there(state, socket, pid, connection));
            let frame = tokio::select! {
                biased;
                frame = reader.next(&mut waiting) => frame,
                () = gone => break,
            };
            let Ok(frame) = frame else { break };
            sleep(self.fate().delay(self.0.node, number)).await;
            if self.fate().cut(self.0.node, connection, number) {
                break;
            }
            if let Socket::Worker(worker) = socket {
                self.until(|state| state.workers.get(&worker).is_none_or(|worker| !worker.deaf || !worker.alive)).await;
            }
            let mut state = lock(&self.0.state);
            if state.frozen {
                continue;
            }
            if !is_there(&state, socket, pid, connection) {
                break;
            }
            self.0.witness.saw(self.0.node, &frame);
            let understood = match socket {
                Socket::Agent => self.on_agent_frame(&mut state, &sender, frame),
                Socket::Mover => self.0.script.artifacts.on_frame(&sender, &frame),
                Socket::Worker(worker) => self.on_worker_frame(&mut state, worker, &sender, frame),
                Socket::Calls(worker) => self.on_calls_frame(&mut state, worker, &sender, frame),
            };
            drop(state);
            if understood.is_none() {
                self.0.witness.wrong(format!("the node cannot read a frame on connection {connection}"));
                break;
            }
            self.0.changed.notify_waiters();
        }
        sender.close();
    }
}

/// The socket of a node that a connection goes to.
#[derive(Debug, Clone, Copy)]
enum Socket {
    Agent,
    Mover,
    Worker(u32),
    Calls(u32),
}

impl Socket {
    fn worker(self) -> Option<u32> {
        match self {
            Self::Agent | Self::Mover => None,
            Self::Worker(worker) | Self::Calls(worker) => Some(worker),
        }
    }
}

fn is_there(state: &State, socket: Socket, pid: Option<u32>, connection: u64) -> bool {
    let worker = |worker: u32| state.workers.get(&worker).filter(|it| it.alive && Some(it.pid) == pid);
    match socket {
        Socket::Agent | Socket::Mover => state.agent,
        Socket::Worker(number) => worker(number).is_some_and(|it| it.newest == connection),
        Socket::Calls(number) => {
            worker(number).and_then(|it| it.calls.as_ref()).is_some_and(|calls| calls.newest == connection)
        }
    }
}

/// A client that connects more often than this loops.
const MOST_CONNECTIONS: u64 = 2000;
/// The most bytes under way in each direction of a connection.
const PIPE: usize = 4 << 10;
