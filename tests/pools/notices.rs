//! Machines that their provider takes back, with real Python: the payload receives the notice, and
//! another machine takes the place.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{assert_nothing_left, limits, python, soon, until};
use async_trait::async_trait;
use indoc::indoc;
use skyward::compute::ComputePool;
use skyward::compute::PendingCompute;
use skyward::event::{DrainReason, EventItem, Events, PoolEvent};
use skyward::ids::{MachineId, MachineNumber, NodeIndex, PoolId};
use skyward::payload::Target;
use skyward::plugin::plugin;
use skyward::pool::{Pool, PoolBuilder};
use skyward::provider::{
    Capabilities, LaunchBatch, Local, Machine, MachineReport, Offer, Part, Place, PoolRecord, PoolRequest, Provider,
    Requirements,
};
use skyward::remote::Remote;

/// Machines on this host. The first has a watch command that gives notice when the test makes a
/// file.
#[derive(Debug, Clone)]
struct Spot {
    inner: Arc<dyn Provider>,
    file: PathBuf,
    seen: Arc<Mutex<Seen>>,
}

/// The machines in the order of their launches, and the machines that the pool terminated.
#[derive(Debug, Default)]
struct Seen {
    launched: Vec<(MachineNumber, MachineId)>,
    ended: Vec<MachineId>,
}

impl Spot {
    fn new(folder: &Folder) -> Self {
        Self { inner: Arc::new(Local::default()), file: folder.path.join("taken back"), seen: Arc::default() }
    }

    /// Makes the watch command give notice.
    fn take_back(&self) {
        std::fs::write(&self.file, "").unwrap();
    }

    /// The machine that was launched with this number, if any.
    fn machine(&self, number: u32) -> Option<MachineId> {
        let seen = self.seen.lock().unwrap();
        seen.launched.iter().find(|(launched, _)| launched.0 == number).map(|(_, machine)| machine.clone())
    }

    fn has_ended(&self, machine: &MachineId) -> bool {
        self.seen.lock().unwrap().ended.contains(machine)
    }
}

#[async_trait]
impl Provider for Spot {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn identity(&self) -> skyward::Result<String> {
        self.inner.identity().await
    }

    fn parts(&self) -> Vec<Part> {
        self.inner.parts()
    }

    async fn offers(&self, requirements: &Requirements) -> skyward::Result<Vec<Offer>> {
        self.inner.offers(requirements).await
    }

    async fn prepare(&self, pool: &PoolRequest) -> skyward::Result<()> {
        self.inner.prepare(pool).await
    }

    async fn adopt(&self, pool: &PoolRequest) -> skyward::Result<()> {
        self.inner.adopt(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<skyward::Result<Machine>> {
        let machines = self.inner.launch(batch).await;
        let launched = machines.iter().flatten().map(|machine| (machine.number, machine.id.clone()));
        self.seen.lock().unwrap().launched.extend(launched);
        machines
    }

    async fn inspect(&self, machines: &[MachineId]) -> skyward::Result<Vec<MachineReport>> {
        let mut reports = self.inner.inspect(machines).await?;
        let first = self.machine(0);
        for (machine, report) in machines.iter().zip(&mut reports) {
            if Some(machine) == first.as_ref() {
                report.place =
                    report.place.take().map(|place| place.watch(["sh", "-c", WATCH, &self.file.display().to_string()]));
            }
        }
        Ok(reports)
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> skyward::Result<Box<dyn Remote>> {
        self.inner.connect(machine, at).await
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<skyward::Result<()>> {
        self.seen.lock().unwrap().ended.extend_from_slice(machines);
        self.inner.terminate(machines).await
    }

    async fn teardown(&self, pool: &PoolId) -> skyward::Result<()> {
        self.inner.teardown(pool).await
    }

    async fn list(&self, pool: &PoolId) -> skyward::Result<Vec<Machine>> {
        self.inner.list(pool).await
    }

    async fn pools(&self) -> skyward::Result<Vec<PoolRecord>> {
        self.inner.pools().await
    }
}

/// Computes in pure Python until notice is given, reports it, and waits for the test. Returns the
/// argument of the function of `sky.on_notice`, the value of `sky.notice()`, and the machine.
fn train(folder: &Folder) -> PendingCompute<(f64, Option<f64>, String)> {
    python(TRAIN).arg("folder", folder.path.to_str().unwrap().to_owned()).into()
}

/// Returns the value of `sky.notice()`, the machine, and the generation.
fn ask() -> PendingCompute<(Option<f64>, String, u64)> {
    python(indoc! {"
        import os
        import skyward as sky
        def f():
            return sky.notice(), os.environ['SKYWARD_MACHINE'], sky.instance_info().generation
    "})
    .into()
}

fn pool(spot: &Spot) -> PoolBuilder {
    let mut limits = limits();
    // A busy host must not cause the loss of a machine.
    limits.lease = Duration::from_secs(60);
    Pool::builder().provider(spot.clone()).nodes(2).limits(limits)
}

/// Waits until a node has another machine. Returns both, with the events about draining nodes.
async fn replaced(events: &mut Events) -> (NodeIndex, MachineId, Vec<(NodeIndex, DrainReason, Option<Duration>)>) {
    let mut leaving = Vec::new();
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else { continue };
        match &*event {
            PoolEvent::NodeDraining { node, reason, ends_in } => leaving.push((*node, *reason, *ends_in)),
            PoolEvent::NodeReplaced { node, machine, .. } => return (*node, machine.clone(), leaving),
            PoolEvent::NodeLost { node, error } => panic!("node {node} is lost: {error}"),
            _ => {}
        }
    }
    panic!("the pool has ended");
}

#[track_caller]
fn assert_told(left: f64, still: Option<f64>) {
    let still = still.unwrap();
    assert!(0.0 < left && left <= SECONDS && 0.0 <= still && still <= left, "{left} s, {still} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preempted_machine_notifies_its_payload_and_is_replaced_before_it_ends() {
    let folder = Folder::new();
    let spot = Spot::new(&folder);
    let pool = pool(&spot).start().await.unwrap();
    let mut events = pool.events();
    let (on_first, on_second) = (Target::Node(NodeIndex(0)), Target::Node(NodeIndex(1)));
    assert_eq!(ask().run_on(&pool, on_first).await.unwrap().0, None, "no notice was given");
    let running = pool.submit(train(&folder).into_task().unwrap(), on_first).await.unwrap();
    folder.reached("begun0").await;
    let first = spot.machine(0).unwrap();
    spot.take_back();
    // The loop has ended, so the function was called within it.
    folder.reached("told0").await;
    until("a successor is launched", || spot.machine(2).is_some()).await;
    until("the node's status shows the notice", || pool.status().nodes[0].ending == Some(DrainReason::Preempted)).await;
    assert!(!spot.has_ended(&first), "the machine's task runs");
    assert_eq!(pool.status().nodes[0].machine, first);
    assert_eq!(
        soon("the other node", ask().run_on(&pool, on_second)).await.unwrap().0,
        None,
        "the notice concerns one node"
    );
    assert_eq!(pool.status().nodes[1].ending, None);
    // Tasks for the node now wait for its successor.
    let later = pool.submit(ask().into_task().unwrap(), on_first).await.unwrap();
    folder.open("go");
    let outcome = soon("the task returns", running.outcome()).await.unwrap();
    let (left, still, before): (f64, Option<f64>, String) = skyward::payload::value::decode(&outcome.bytes).unwrap();
    assert_told(left, still);
    let (node, machine, leaving) = soon("another machine takes the place", replaced(&mut events)).await;
    assert_eq!(node, NodeIndex(0));
    assert_eq!(Some(&machine), spot.machine(2).as_ref());
    let [(NodeIndex(0), DrainReason::Preempted, Some(ends_in))] = leaving[..] else { panic!("{leaving:?}") };
    assert!(ends_in <= Duration::from_secs_f64(SECONDS), "{ends_in:?}");
    let outcome = soon("the waiting task", later.outcome()).await.unwrap();
    let (notice, after, _): (Option<f64>, String, u64) = skyward::payload::value::decode(&outcome.bytes).unwrap();
    assert_eq!(notice, None, "the new machine has no end");
    assert_ne!(after, before);
    until("the first machine is ended", || spot.has_ended(&first)).await;
    let status = pool.status();
    assert_eq!(&status.nodes[0].machine, &machine);
    assert_eq!(status.nodes[0].ending, None);
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_nothing_left(pool.id());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_world_every_rank_receives_the_notice_of_one_machine() {
    let folder = Folder::new();
    let spot = Spot::new(&folder);
    let pool = pool(&spot).plugin(plugin("world").joins_world()).start().await.unwrap();
    let mut events = pool.events();
    let first = spot.machine(0).unwrap();
    let notice = async {
        for rank in 0..2 {
            folder.reached(&format!("begun{rank}")).await;
        }
        spot.take_back();
        for rank in 0..2 {
            folder.reached(&format!("told{rank}")).await;
        }
        until("a successor is launched", || spot.machine(2).is_some()).await;
        assert!(!spot.has_ended(&first), "the gang runs");
        folder.open("go");
    };
    let (trained, ()) = tokio::join!(train(&folder).broadcast(&pool), notice);
    let trained = trained.unwrap();
    trained.iter().for_each(|(left, still, _)| assert_told(*left, *still));
    let (node, machine, leaving) = soon("another machine takes the place", replaced(&mut events)).await;
    assert_eq!(node, NodeIndex(0));
    assert_eq!(Some(&machine), spot.machine(2).as_ref());
    assert_eq!(leaving.len(), 1, "{leaving:?}");
    let after = soon("the world goes on", ask().broadcast(&pool)).await.unwrap();
    for (rank, (notice, _, generation)) in after.iter().enumerate() {
        assert_eq!(*notice, None, "rank {rank}");
        assert_eq!(*generation, 2, "rank {rank}");
    }
    assert_ne!(after[0].1, trained[0].2);
    assert_eq!(after[1].1, trained[1].2, "the other rank's machine stays");
    until("the first machine is ended", || spot.has_ended(&first)).await;
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_nothing_left(pool.id());
}

/// The watch command of the first machine, with the file as `$0`.
const WATCH: &str = "while [ ! -e \"$0\" ]; do sleep 0.1; done; echo preempted 30 the market has changed; sleep 1000";
/// The seconds in its notice.
const SECONDS: f64 = 30.0;
const TRAIN: &str = "
import os
import pathlib
import time

import skyward as sky

def f(folder):
    told = []
    sky.on_notice(told.append)
    folder = pathlib.Path(folder)
    rank = sky.instance_info().global_worker_index
    (folder / f'begun{rank}').touch()
    end, steps = time.monotonic() + 60, 0
    while not told:
        steps += 1
        if time.monotonic() > end:
            raise RuntimeError('nobody has given notice')
    (folder / f'told{rank}').touch()
    while not (folder / 'go').exists():
        time.sleep(0.002)
    return told[0], sky.notice(), os.environ['SKYWARD_MACHINE']
";
