//! The desk of a pool: hears the movers of all nodes, passes their news to the task of the name that they
//! concern, and has data sets brought that workers ask for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::attempt::{Channel, Saved};
use super::lazily::bring;
use super::messages::{FromPayload, Record, ToPayload};
use super::name::{Heard, Name};
use super::post::Post;
use super::room::Room;
use super::timing::{ATTEND_PAUSE, REACH_PAUSE, RELEASE};
use crate::error::{Error, ErrorKind};
use crate::ids::{MachineId, NodeIndex};
use crate::pool::mover::{Line, News};
use crate::pool::tasks::shared::Shared;
use crate::worker::message::{Note, ToMover};

/// The desk of a pool.
pub(crate) struct Desk {
    shared: Arc<Shared>,
    post: Post,
    news: mpsc::UnboundedReceiver<News>,
    end: oneshot::Receiver<()>,
    ended: oneshot::Sender<()>,
    machines: HashMap<MachineId, Attended>,
    /// Keep the connections to the movers.
    attendants: JoinSet<()>,
    names: HashMap<String, mpsc::UnboundedSender<Heard>>,
    /// The tasks of the names.
    tasks: JoinSet<()>,
    /// Bring data sets.
    brings: JoinSet<()>,
    room: Room,
    /// The name that each rank uses, and its connection, by the id of the use.
    opens: HashMap<String, (String, Channel)>,
    /// The number of the last message from each connection.
    heard: HashMap<Channel, u64>,
    /// The connections that have ended, of which messages may come again.
    closed: VecDeque<Channel>,
}

/// A machine whose mover is heard.
struct Attended {
    node: NodeIndex,
    /// Notified when the connection has ended.
    lost: Arc<Notify>,
    attendant: AbortHandle,
}

/// Ends a desk.
pub(crate) struct DeskEnd {
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl DeskEnd {
    /// Ends the desk, and waits until its names are given back, so that the next pool has them at once.
    pub(crate) async fn end(self) {
        let Self { end, ended } = self;
        if end.send(()).is_ok() {
            let _ = timeout(RELEASE, ended).await;
        }
    }
}

impl Desk {
    pub(crate) fn new(shared: &Arc<Shared>, news: mpsc::UnboundedReceiver<News>) -> (Self, DeskEnd) {
        let (end, ends) = oneshot::channel();
        let (ending, ended) = oneshot::channel();
        let desk = Self {
            shared: Arc::clone(shared),
            post: Post(Arc::clone(shared)),
            news,
            end: ends,
            ended: ending,
            machines: HashMap::new(),
            attendants: JoinSet::new(),
            names: HashMap::new(),
            tasks: JoinSet::new(),
            brings: JoinSet::new(),
            room: Room::new(),
            opens: HashMap::new(),
            heard: HashMap::new(),
            closed: VecDeque::new(),
        };
        (desk, DeskEnd { end, ended })
    }

    /// Serves until the pool ends.
    pub(crate) async fn run(mut self) {
        let changed = self.shared.lock().nodes.changed();
        loop {
            self.look_at_nodes();
            let changed = changed.notified();
            tokio::select! {
                biased;
                _ = &mut self.end => break,
                news = self.news.recv() => match news {
                    Some(news) => self.on_news(news),
                    None => break,
                },
                Some(_) = self.tasks.join_next() => {}
                Some(_) = self.brings.join_next() => {}
                () = changed => {}
            }
        }
        self.attendants.abort_all();
        self.brings.abort_all();
        // The tasks of the names end with the last sender.
        self.names.clear();
        while self.tasks.join_next().await.is_some() {}
        let _ = self.ended.send(());
    }

    /// Begins to hear the movers of new machines, and reports those that are gone.
    fn look_at_nodes(&mut self) {
        let present: HashMap<MachineId, NodeIndex> = {
            let state = self.shared.lock();
            let present = state.nodes.iter().filter(|(_, row)| row.agent.is_some());
            present.map(|(node, row)| (row.machine.id.clone(), node)).collect()
        };
        let gone: Vec<MachineId> = self.machines.keys().filter(|known| !present.contains_key(known)).cloned().collect();
        for machine in gone {
            if let Some(attended) = self.machines.remove(&machine) {
                attended.attendant.abort();
            }
            self.heard.retain(|channel, _| channel.machine != machine);
            self.closed.retain(|channel| channel.machine != machine);
            self.opens.retain(|_, (_, at)| at.machine != machine);
            self.shared.data.forget(&machine);
            self.tell_all(|| Heard::MachineGone(machine.clone()));
        }
        for (machine, node) in present {
            if !self.machines.contains_key(&machine) {
                let lost = Arc::new(Notify::new());
                let attend = attend(Arc::clone(&self.shared), node, machine.clone(), Arc::clone(&lost));
                let attendant = self.attendants.spawn(attend);
                self.machines.insert(machine, Attended { node, lost, attendant });
            }
        }
    }

    fn on_news(&mut self, News { machine, note }: News) {
        let Some(attended) = self.machines.get(&machine) else { return };
        let node = attended.node;
        let channel = |number| Channel { node, machine: machine.clone(), number };
        match note {
            None => {
                attended.lost.notify_one();
                self.shared.data.forget(&machine);
            }
            Some(Note::Sent { channel: from, number, body }) => self.on_sent(channel(from), number, &body),
            Some(Note::Closed { channel: from }) => {
                let channel = channel(from);
                // Its number stays known: what was sent may come again until this arrives.
                self.post.acknowledge(&channel, self.heard.get(&channel).copied().unwrap_or_default());
                self.opens.retain(|_, (_, at)| *at != channel);
                if !self.closed.contains(&channel) {
                    self.closed.push_back(channel.clone());
                }
                if self.closed.len() > MOST_CLOSED
                    && let Some(oldest) = self.closed.pop_front()
                {
                    self.heard.remove(&oldest);
                }
                self.tell_all(|| Heard::Closed(channel.clone()));
            }
            Some(Note::Saved { save, path, record }) => {
                let saved = |rank, meta| Saved { id: save.clone(), node, machine: machine.clone(), path, rank, meta };
                match Record::read(&record) {
                    Ok(Record { name, key, step, rank, meta }) => {
                        let saved = saved(rank, meta);
                        match self.names.get(&name) {
                            Some(task) => drop(task.send(Heard::Saved { key, step, saved })),
                            None => self.post.settle([saved]),
                        }
                    }
                    Err(error) => {
                        tracing::warn!(pool = %self.shared.pool, node = node.0, %error, "a save on the node is none");
                        self.post.settle([saved(0, String::new())]);
                    }
                }
            }
        }
    }

    /// A message of a worker has arrived, perhaps again.
    fn on_sent(&mut self, from: Channel, number: u64, body: &[u8]) {
        let last = self.heard.entry(from.clone()).or_default();
        let is_new = number > *last;
        *last = number.max(*last);
        self.post.acknowledge(&from, *last);
        if !is_new {
            return;
        }
        let (name, heard) = match FromPayload::read(body) {
            Ok(FromPayload::Open(opening)) if self.shared.storage.is_none() => {
                self.post.deliver(&from, &ToPayload::refused(opening.n, &without_storage()));
                return;
            }
            Ok(FromPayload::Open(opening)) => {
                self.opens.insert(opening.open.clone(), (opening.name.clone(), from.clone()));
                (opening.name.clone(), Heard::Open(opening, from))
            }
            Ok(FromPayload::Close { open }) => {
                let Some((name, _)) = self.opens.get(&open).filter(|(_, at)| *at == from).cloned() else { return };
                self.opens.remove(&open);
                (name, Heard::Close { open, from })
            }
            Ok(FromPayload::Due { open, step }) => {
                let Some((name, _)) = self.opens.get(&open) else { return };
                (name.clone(), Heard::Due { open, step, from })
            }
            Ok(FromPayload::Wait { n, open, step }) => {
                let Some((name, _)) = self.opens.get(&open) else { return };
                (name.clone(), Heard::Wait { n, open, step, from })
            }
            Ok(FromPayload::Data { n, name }) => {
                self.brings.spawn(bring(self.post.clone(), from, n, name));
                return;
            }
            Err(error) => {
                tracing::warn!(pool = %self.shared.pool, node = from.node.0, %error, "a payload has sent a message that is none");
                return;
            }
        };
        let Some(storage) = &self.shared.storage else { return };
        let task = self.names.entry(name).or_insert_with_key(|name| {
            let (task, inbox) = mpsc::unbounded_channel();
            self.tasks.spawn(Name::new(&self.shared, storage, &self.room, name.clone(), inbox).run());
            task
        });
        let _ = task.send(heard);
    }

    fn tell_all(&self, heard: impl Fn() -> Heard) {
        for task in self.names.values() {
            let _ = task.send(heard());
        }
    }
}

/// Keeps a connection to the mover of a node, over which its news come.
async fn attend(shared: Arc<Shared>, node: NodeIndex, machine: MachineId, lost: Arc<Notify>) {
    loop {
        let pause: Duration = match shared.ask_mover(node, Some(&machine), Line::Control, &ToMover::Attend).await {
            Ok(_) => ATTEND_PAUSE,
            Err(error) => {
                tracing::debug!(pool = %shared.pool, node = node.0, %error, "the mover of the node is not heard");
                REACH_PAUSE
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = lost.notified() => {}
        }
    }
}

fn without_storage() -> Error {
    Error::new(ErrorKind::InvalidSpec, "this pool has no storage for checkpoints")
        .with_hint("give it one: `Pool::builder().storage(Storage::folder(\"/data/runs\"))`")
}

/// How many connections that have ended are remembered: as many as movers keep, of some nodes.
const MOST_CLOSED: usize = 4096;
