//! A provider of your own: machines are folders of this host, with the processes that were started
//! in them. `cargo run --example custom_provider` runs it, with `-- --plan` shows what would be
//! launched; `tests/custom_provider.rs` runs the testkit's conformance suite on it;
//! `docs/providers.md` explains the code.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use skyward::ids::{MachineId, PoolId};
use skyward::prelude::*;
use skyward::provider::{Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Part};
use skyward::provider::{Place, PoolRecord, PoolRequest, Requirements, launch_each, terminate_each};
use skyward::remote::{Command, Process, Remote};

/// A provider whose machines are folders below this one. Each folder contains its machine's record,
/// so that any process can list the machines.
#[derive(Debug, Clone)]
pub struct Folders(PathBuf);

impl Folders {
    /// Keeps the machines' folders in `root`, whose path must be short: sockets are made below it.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }
    fn folder(&self, machine: &MachineId) -> skyward::Result<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        match machine.as_str().chars().all(plain) && !machine.as_str().is_empty() {
            true => Ok(self.0.join(machine.as_str())),
            false => Err(Error::new(ErrorKind::Provider, format!("`{machine}` is no machine of this provider"))),
        }
    }
    fn make(&self, batch: &LaunchBatch, request: &LaunchRequest) -> skyward::Result<Machine> {
        // The launch id is the machine's id: the same launch is the same folder.
        let id = MachineId::new(request.launch.as_str());
        let folder = self.folder(&id)?;
        let machine = Machine::of(batch, request, id);
        self.own(&request.pool, &request.owner)?;
        // Without an await in between, the future is never dropped half-way.
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("machine.new"), serde_json::to_vec(&machine)?))
            .and_then(|()| fs::rename(folder.join("machine.new"), folder.join("machine.json")))
            .map_err(|error| failed("make", &folder, error))?;
        Ok(machine)
    }
    /// The file with the owner of a pool.
    fn owner(&self, pool: &PoolId) -> PathBuf {
        self.0.join(format!("{pool}.owner"))
    }
    fn own(&self, pool: &PoolId, owner: &str) -> skyward::Result<()> {
        let file = self.owner(pool);
        let written = fs::create_dir_all(&self.0).and_then(|()| fs::write(&file, owner));
        written.map_err(|error| failed("write", &file, error))
    }
    fn machines(&self) -> impl Iterator<Item = Machine> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let records = entries.filter_map(|entry| fs::read(entry.path().join("machine.json")).ok());
        records.filter_map(|record| serde_json::from_slice(&record).ok())
    }
    async fn end(&self, machine: &MachineId) -> skyward::Result<()> {
        let folder = self.folder(machine)?;
        let script = "while pids=$(grep -lzxsF \"SKYWARD_MACHINE=$machine\" /proc/[0-9]*/environ | tr -dc '0-9\\n'); \
                      [ -n \"$pids\" ]; do kill -9 $pids || true; done; rm -rf \"$folder\"";
        let end = Command::script(script).env("machine", machine.as_str()).env("folder", folder.to_string_lossy());
        // Once more, for processes that were started just before the folder was removed. None can
        // start in it afterwards.
        for _ in 0..2 {
            let output = Process::new().run(&end, &|_| {}).await?;
            if !output.success() {
                return Err(failed("end the processes of", &folder, std::io::Error::other(output.stderr)).temporary());
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Provider for Folders {
    fn name(&self) -> &str {
        "folders"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::new().outlives_client().adopts().shared_host()
    }
    async fn identity(&self) -> skyward::Result<String> {
        Ok(self.0.to_string_lossy().into_owned())
    }
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }
    async fn offers(&self, requirements: &Requirements) -> skyward::Result<Vec<Offer>> {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let offer = Offer::new("folder", "this host", cpus, 1);
        Ok(requirements.are_met_by(&offer).then_some(offer).into_iter().collect())
    }
    async fn prepare(&self, pool: &PoolRequest) -> skyward::Result<()> {
        self.own(&pool.pool, &pool.owner)
    }
    async fn adopt(&self, pool: &PoolRequest) -> skyward::Result<()> {
        // All that it knows of a pool is in files.
        self.prepare(pool).await
    }
    async fn launch(&self, batch: &LaunchBatch) -> Vec<skyward::Result<Machine>> {
        launch_each(batch, async |request| self.make(batch, request)).await
    }
    async fn inspect(&self, machines: &[MachineId]) -> skyward::Result<Vec<MachineReport>> {
        let at = |folder: PathBuf| Place::new("127.0.0.1", folder.to_string_lossy()).on_client_host();
        let report = |folder: PathBuf| match folder.exists() {
            true => MachineReport::new(MachineState::Running).at(at(folder)),
            false => MachineReport::new(MachineState::Gone),
        };
        machines.iter().map(|machine| self.folder(machine).map(report)).collect()
    }
    async fn connect(&self, machine: &Machine, _: &Place) -> skyward::Result<Box<dyn Remote>> {
        let folder = self.folder(&machine.id)?;
        // Every process on the machine carries its mark, and none can start in a folder that is
        // gone.
        Ok(Box::new(Process::new().env("SKYWARD_MACHINE", machine.id.as_str()).folder(folder)))
    }
    async fn terminate(&self, machines: &[MachineId]) -> Vec<skyward::Result<()>> {
        terminate_each(machines, |machine| self.end(machine)).await
    }
    async fn teardown(&self, pool: &PoolId) -> skyward::Result<()> {
        let file = self.owner(pool);
        let removed = if file.exists() { fs::remove_file(&file) } else { Ok(()) };
        removed.map_err(|error| failed("remove", &file, error))
    }
    async fn list(&self, pool: &PoolId) -> skyward::Result<Vec<Machine>> {
        Ok(self.machines().filter(|machine| machine.pool == *pool).collect())
    }
    async fn pools(&self) -> skyward::Result<Vec<PoolRecord>> {
        // This provider has no keeper, so any machine that exists may be alive.
        let expires = SystemTime::now() + Duration::from_secs(60);
        let owner = |pool: &PoolId| fs::read_to_string(self.owner(pool)).unwrap_or_default();
        let record = |machine: Machine| PoolRecord::new(machine.pool.clone(), expires).owner(owner(&machine.pool));
        Ok(PoolRecord::of_parts(self.machines().map(record)))
    }
}

fn failed(verb: &str, folder: &std::path::Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Provider, format!("cannot {verb} {}", folder.display())).with_source(error)
}

#[skyward::compute]
fn place() -> (u32, String) {
    "import os, skyward as sky; return sky.instance_info().node, os.environ['SKYWARD_MACHINE']"
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let root = std::env::temp_dir().join(format!("folders-{}", std::process::id()));
    let pool = Pool::builder().provider(Folders::new(&root)).nodes(2);
    if std::env::args().any(|word| word == "--plan") {
        return pool.plan().await.map(|plan| println!("{plan}"));
    }
    pool.scope(async |pool| {
        let places = place().broadcast(pool).await?;
        println!("nodes and their machines: {places:?}");
        assert_eq!(places[1], (1, format!("{}-n1-a1", pool.id())));
        Ok(())
    })
    .await?;
    fs::remove_dir(&root).map_err(|error| failed("remove", &root, error))
}
