//! A cloud with its client.

use std::time::Duration;

use indoc::indoc;
use skyward_aws::{Addressing, Aws};
use skyward_aws_testkit::{Call, Cloud, CloudOptions, Left};
use skyward_core::compute::PendingCompute;
use skyward_core::event::{EventItem, Events, PoolEvent};
use skyward_core::ids::{MachineId, PoolId};
use skyward_core::payload::{Output, Payload};
use skyward_core::pool::{Pool, PoolBuilder};
use skyward_core::provider::{Machine, Place, Provider};
use skyward_core::remote::Remote;
use skyward_core::spec::Limits;
use tokio::time::{Instant, sleep};

/// An EC2 on loopback.
pub(crate) struct Scene {
    pub(crate) cloud: Cloud,
}

impl Scene {
    /// A cloud with machines.
    pub(crate) async fn new() -> Self {
        Self::of(CloudOptions::new()).await
    }

    pub(crate) async fn of(options: CloudOptions) -> Self {
        Self { cloud: Cloud::start(options).await.unwrap_or_else(|error| panic!("{error:#}")) }
    }

    /// The provider as a user of this cloud sets it up.
    pub(crate) fn aws(&self) -> Aws {
        let environment = self.cloud.environment();
        let (id, key) = (&environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"].as_str());
        self.without_credentials().credentials(id, key, None)
    }

    pub(crate) fn without_credentials(&self) -> Aws {
        Aws::new()
            .region(self.cloud.region())
            .endpoint_url(self.cloud.endpoint())
            .subnets(self.cloud.subnets().values())
            .addressing(Addressing::Private)
            .ssh_port(self.cloud.ssh_port())
            .cache_folder(env!("CARGO_TARGET_TMPDIR"))
    }

    pub(crate) fn pool(&self, nodes: u32) -> PoolBuilder {
        Pool::builder().provider(self.aws()).nodes(nodes).limits(limits())
    }

    /// The ids of the machines that are there.
    pub(crate) fn instances(&self) -> Vec<String> {
        self.cloud.instances().into_iter().map(|instance| instance.id).collect()
    }

    /// The calls that asked for instances and were no dry runs.
    pub(crate) fn launches(&self) -> Vec<Call> {
        self.cloud.calls().of("RunInstances").into_iter().filter(|call| !call.is_dry_run()).collect()
    }

    pub(crate) async fn left(&self) -> Vec<Left> {
        self.cloud.left(None).await.unwrap()
    }

    /// Ends the test: nothing that the provider made is left.
    pub(crate) async fn assert_nothing_left(self) {
        let left = self.left().await;
        assert!(left.is_empty(), "{left:?}");
    }

    /// Ends the machines of a pool that a test launched by itself, and then the test.
    #[track_caller]
    pub(crate) fn end(self, aws: &Aws, pool: &PoolId) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let machines = aws.list(pool).await.unwrap();
            let ids: Vec<MachineId> = machines.into_iter().map(|machine| machine.id).collect();
            for ended in aws.terminate(&ids).await {
                ended.unwrap_or_else(|error| panic!("{caller}: {error:?}"));
            }
            until("the machines are gone", async || self.instances().is_empty()).await;
            torn_down(aws, pool).await;
            self.assert_nothing_left().await;
        }
    }

    /// Waits until nothing is left: what ends without anybody who waits for it.
    #[track_caller]
    pub(crate) fn until_nothing_left(self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let end = Instant::now() + PATIENCE;
            loop {
                let left = self.left().await;
                if left.is_empty() {
                    return;
                }
                assert!(Instant::now() < end, "{caller}: {left:?}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Waits until a machine is reached.
pub(crate) async fn reached(aws: &Aws, machine: &Machine) -> (Place, Box<dyn Remote>) {
    let reached = async {
        loop {
            let report = aws.inspect(std::slice::from_ref(&machine.id)).await.unwrap().remove(0);
            if let Some(place) = report.place {
                match aws.connect(machine, &place).await {
                    Ok(remote) => return (place, remote),
                    Err(error) => assert!(error.is_temporary(), "{error:?}"),
                }
            }
            sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("the machine is reached")
}

/// Tears a pool down as a client does: instances that end use what they shared for a while.
#[track_caller]
pub(crate) fn torn_down(aws: &Aws, pool: &PoolId) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let end = Instant::now() + PATIENCE;
        while let Err(error) = aws.teardown(pool).await {
            assert!(error.is_temporary() && Instant::now() < end, "{caller}: {error:?}");
            sleep(PAUSE).await;
        }
    }
}

/// Long enough for a loaded host; a machine that is not renewed ends soon.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.lease = Duration::from_secs(20);
    limits.start = Duration::from_secs(120);
    limits
}

/// Returns 7.
pub(crate) const SEVEN: &str = indoc! {"
    def f():
        return 7
"};

/// A call of Python code, whose function is `f`.
pub(crate) fn python<T: Output>(code: &'static str) -> PendingCompute<T> {
    Payload::python("code.py", code, "f").into()
}

/// A call that a start makes once: no dry run, and of those that list instances the one that asks
/// about those that were launched.
pub(crate) fn is_of_a_start(call: &Call) -> bool {
    !call.is_dry_run()
        && (call.action != "DescribeInstances" || call.filters().iter().any(|(name, _)| *name == "instance-id"))
}

/// How many of them were made of an action.
pub(crate) fn made(scene: &Scene, action: &str) -> usize {
    scene.cloud.calls().of(action).iter().filter(|call| is_of_a_start(call)).count()
}

/// Waits until this is so.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let end = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < end, "{caller}: it never came that {what}");
            sleep(PAUSE).await;
        }
    }
}

/// Waits for an event of a pool.
pub(crate) async fn event<T>(events: &mut Events, wanted: impl Fn(&PoolEvent) -> Option<T>) -> T {
    let next = async {
        while let Some(item) = events.next().await {
            if let EventItem::Event(event) = item
                && let Some(found) = wanted(&event)
            {
                return found;
            }
        }
        panic!("the pool has ended")
    };
    tokio::time::timeout(PATIENCE, next).await.expect("the event does not come")
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);
