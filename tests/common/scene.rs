//! A pool of two nodes with one worker each. The second worker waits for the test while it enters
//! and leaves its hooks, so that the test can make a fault at any moment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use skyward::ids::PoolId;
use skyward::plugin::plugin;
use skyward::pool::{Pool, PoolBuilder};
use skyward::spec::Limits;

use super::{limits, processes_of, unique};

/// A folder with files through which a test and the payloads or hooks of its pool synchronise.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// Whether this process removes the folder.
    ours: bool,
}

/// A folder, and the parts of a pool that waits for files in it.
pub(crate) struct Scene(pub(crate) Folder);

/// A process of node 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Worker,
    Agent,
}

/// What a worker's hook reports about its process.
#[derive(Debug, Clone)]
pub(crate) struct Entered {
    pub(crate) pool: PoolId,
    worker: u32,
    agent: u32,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("skyward-scene-{}-{}", std::process::id(), unique()));
        std::fs::create_dir(&path).unwrap();
        Self { path, ours: true }
    }

    /// The folder of another process.
    pub(crate) fn of_another(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ours: false }
    }

    /// Makes a file, so that hooks or a payload that wait for it go on.
    pub(crate) fn open(&self, gate: &str) {
        std::fs::write(self.path.join(gate), "").unwrap();
    }

    /// The path of a file in the folder.
    pub(crate) fn gate(&self, name: &str) -> String {
        self.path.join(name).to_str().unwrap().to_owned()
    }

    /// Waits until a hook or a payload has made this file.
    pub(crate) async fn reached(&self, name: &str) {
        let path = self.path.join(name);
        super::until(name, || path.exists()).await;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self(Folder::new())
    }

    /// A builder of the pool, with deadlines that fit no real work. The lease is longer than a test
    /// that does not wait for it.
    pub(crate) fn pool(&self, change: impl FnOnce(&mut Limits)) -> PoolBuilder {
        let mut limits = limits();
        limits.lease = Duration::from_secs(60);
        change(&mut limits);
        let hook = plugin("scene").config(serde_json::json!({"folder": self.path})).around_app(HOOK);
        Pool::builder().nodes(2).limits(limits).plugin(hook)
    }

    /// Waits until both workers are in their hooks. Returns the processes of node 1.
    pub(crate) async fn entered(&self) -> Entered {
        self.reached("entered0").await;
        self.reached("entered1").await;
        Entered::read(&self.path.join("entered1"))
    }
}

impl std::ops::Deref for Scene {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.0
    }
}

impl Entered {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut words = text.split(' ');
        let machine = words.next().unwrap();
        let mut pid = || words.next().unwrap().parse().unwrap();
        Self { pool: PoolId::new(machine.rsplit_once('.').unwrap().0), worker: pid(), agent: pid() }
    }

    /// Sends a signal to the worker or the agent, and waits until the process has stopped or ended.
    pub(crate) async fn signal(&self, victim: Victim, name: &str) {
        let pid = match victim {
            Victim::Worker => self.worker,
            Victim::Agent => self.agent,
        };
        assert!(processes_of(&self.pool).iter().any(|line| line.starts_with(&format!("\"{pid}\""))), "{self:?}");
        super::signal(name, pid).await;
    }
}

/// In this hook, rank 1 waits for the files `enter` and `leave`.
const HOOK: &str = "
import os
import pathlib
import time

import skyward as sky

def around_app(config):
    folder = pathlib.Path(config['folder'])
    rank = sky.instance_info().global_worker_index

    def wait(said, gate):
        new = folder / f'.{said}{rank}'
        new.write_text(f\"{os.environ['SKYWARD_MACHINE']} {os.getpid()} {os.getppid()}\")
        new.rename(folder / f'{said}{rank}')
        while rank == 1 and not (folder / gate).exists():
            time.sleep(0.002)

    wait('entered', 'enter')
    yield
    wait('leaving', 'leave')
";
