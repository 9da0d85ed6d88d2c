//! Every limit of a pool and every option of a task is either applied, or refused by name before
//! anything starts.

use bytes::Bytes;
use skyward_core::compute::{ComputePool, PendingCompute};
use skyward_core::error::{Error, ErrorKind};
use skyward_core::payload::{Args, RetryPolicy, Source, Target, TaskOptions};
use skyward_core::plugin::plugin;
use skyward_core::pool::{Pool, PoolBuilder};
use skyward_core::spec::{Limits, Nodes};
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::time::timeout;

use super::*;

/// Sets a limit.
type Set<T> = fn(&mut Limits, T);

const DURATIONS: [(&str, Set<Duration>); 9] = [
    ("start", |limits, value| limits.start = value),
    ("environment", |limits, value| limits.environment = value),
    ("hooks", |limits, value| limits.hooks = value),
    ("grace", |limits, value| limits.grace = value),
    ("lease", |limits, value| limits.lease = value),
    ("shutdown", |limits, value| limits.shutdown = value),
    ("stall", |limits, value| limits.stall = Some(value)),
    ("stall_report", |limits, value| limits.stall_report = value),
    ("idle", |limits, value| limits.idle = value),
];

const COUNTS: [(&str, Set<usize>); 4] = [
    ("poison", |limits, value| limits.poison = value.try_into().unwrap_or(u32::MAX)),
    ("backlog", |limits, value| limits.backlog = value.try_into().unwrap_or(u32::MAX)),
    ("max_queued", |limits, value| limits.max_queued = value),
    ("max_frame_bytes", |limits, value| limits.max_frame_bytes = value),
];

/// Starts a pool, makes a call and a broadcast, and ends the pool within this deadline, all within
/// an hour.
async fn live(builder: PoolBuilder, deadline: Duration) -> Result<(), Error> {
    let life = async {
        let pool = builder.start().await?;
        let echoed = echo(1).run(&pool).await?;
        assert_eq!(echoed["n"], 1);
        let everywhere: Vec<Echo> = echo(2).broadcast(&pool).await?;
        assert_eq!(everywhere.len(), 2);
        pool.shutdown(deadline).await
    };
    timeout(Duration::from_secs(3600), life).await.expect("the pool hangs")
}

fn builder(provider: &FakeProvider, limits: Limits) -> PoolBuilder {
    Pool::builder().provider(provider.clone()).nodes(2).limits(limits)
}

/// Whether a pool with this limit works. A refused limit must be refused before anything starts, by
/// its name.
async fn is_served(name: &str, value: &str, limits: Limits, nodes: Nodes, joined: bool) -> bool {
    let provider = FakeProvider::new(Machines::default());
    let builder = builder(&provider, limits).nodes(nodes);
    let builder = if joined { builder.plugin(plugin("world").joins_world()) } else { builder };
    let checked = builder.check();
    let lived = live(builder, limits.shutdown).await;
    assert_eq!(provider.machines(), []);
    match (checked, lived) {
        (Ok(()), Ok(())) => true,
        (Err(refused), Err(_)) => {
            assert_eq!(refused.kind(), ErrorKind::InvalidSpec, "{name} = {value}: {refused}");
            assert_eq!(provider.launched(), 0, "{name} = {value}: {refused}");
            let message = refused.message();
            let told = message.starts_with(&format!("`Limits::{name}` is {value}")) && message.contains("it can be");
            assert!(told && refused.hint().is_some(), "{name} = {value}: {refused}");
            false
        }
        (checked, lived) => panic!("{name} = {value}: {checked:?}, {lived:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_limit_works_or_is_refused_by_its_name() {
    for (nodes, joined) in [(Nodes::fixed(2), false), (Nodes::fixed(2), true), (Nodes::elastic(2, 4), false)] {
        for (name, set) in DURATIONS {
            for value in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX] {
                let mut limits = Limits::default();
                set(&mut limits, value);
                let served = is_served(name, &format!("{value:?}"), limits, nodes, joined).await;
                assert_eq!(served, name == "grace" || value >= Duration::from_secs(1), "{name} = {value:?}");
            }
        }
        for (name, set) in COUNTS {
            for value in [0, 1, usize::MAX] {
                let mut limits = Limits::default();
                set(&mut limits, value);
                if name == "max_queued" && value == 1 {
                    // The limit is below the size of a broadcast, which is refused when it is made.
                    continue;
                }
                let served = is_served(name, &value.to_string(), limits, nodes, joined).await;
                assert_eq!(served, value > usize::from(name == "max_frame_bytes"), "{name} = {value}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_limits_may_be_unlimited_at_once() {
    let provider = FakeProvider::new(Machines::default());
    let mut limits = Limits::default();
    DURATIONS.iter().for_each(|(_, set)| set(&mut limits, Duration::MAX));
    COUNTS.iter().for_each(|(_, set)| set(&mut limits, usize::MAX));
    live(builder(&provider, limits), Duration::MAX).await.unwrap();
    assert_eq!(provider.machines(), []);
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_limits_still_replaces_a_lost_machine() {
    let lost_after = Some(Duration::from_secs(1));
    let provider = FakeProvider::new(Machines { lost_after, ..Machines::default() });
    let mut limits = Limits::default();
    DURATIONS.iter().for_each(|(_, set)| set(&mut limits, Duration::MAX));
    // A silent agent counts as lost after the lease.
    limits.lease = Duration::from_secs(60);
    let pool = builder(&provider, limits).start().await.unwrap();
    let replaced = async {
        while provider.replaced() == 0 || !pool.status().workers.iter().all(|worker| worker.ready) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(3600), replaced).await.expect("the pool hangs");
    pool.resize(Nodes::fixed(1)).await.unwrap();
    pool.shutdown(Duration::MAX).await.unwrap();
    assert_eq!(provider.machines(), []);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_may_have_any_deadline() {
    for deadline in [Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX] {
        let provider = FakeProvider::new(Machines::default());
        live(builder(&provider, Limits::default()), deadline).await.unwrap();
        assert_eq!(provider.machines(), [], "{deadline:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_option_of_a_task_works() {
    let provider = FakeProvider::new(Machines::default());
    let pool = builder(&provider, Limits::default()).start().await.unwrap();
    let retry = RetryPolicy::times(u32::MAX);
    for time in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        for options in [
            TaskOptions::default().timeout(time),
            TaskOptions::default().queue_timeout(time),
            TaskOptions::default().timeout(time).queue_timeout(time).retry(retry),
        ] {
            for target in [Target::Any, Target::Head] {
                let task = echo(1).into_task().unwrap().with_options(options);
                let outcome = async { pool.submit(task, target).await?.outcome().await };
                match timeout(Duration::from_secs(60), outcome).await.expect("the pool hangs") {
                    Ok(_) => {}
                    Err(error) => {
                        let late = matches!(error.kind(), ErrorKind::Timeout | ErrorKind::QueueTimeout);
                        assert!(late && time < Duration::MAX, "{options:?}: {error}");
                    }
                }
            }
        }
    }
    pool.shutdown(Duration::MAX).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn excessive_sizes_are_refused_before_anything_starts() {
    let provider = FakeProvider::new(Machines::default());
    let pool = || Pool::builder().provider(provider.clone());
    for (builder, kind) in [
        (pool().nodes(u32::MAX), ErrorKind::InvalidSpec),
        (pool().nodes(Nodes::elastic(1, u32::MAX)), ErrorKind::InvalidSpec),
        (pool().workers_per_node(0), ErrorKind::InvalidSpec),
        (pool().nodes(2).workers_per_node(u32::MAX), ErrorKind::InvalidSpec),
        (pool().cpus(u32::MAX), ErrorKind::Provider),
        (pool().memory_gib(u32::MAX), ErrorKind::Provider),
    ] {
        let error = builder.start().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(provider.launched(), 0);
}

#[tokio::test(start_paused = true)]
async fn arguments_and_results_may_be_as_large_as_a_frame() {
    const MIB: usize = 1 << 20;
    let returned = async |bytes: usize, limits: Limits| {
        let provider = FakeProvider::new(Machines::default());
        let pool = builder(&provider, limits).start().await.unwrap();
        let source = Source::file("a.py", "def f(n): ...", "f");
        let call = PendingCompute::new(Arc::new(source), Args::new().with("n", &Bytes::from(vec![0; bytes])));
        let back: Result<BTreeMap<String, Bytes>, Error> = call.run(&pool).await;
        assert_eq!(provider.launched(), 2, "no machine is lost");
        pool.shutdown(Duration::from_secs(60)).await.unwrap();
        back.map(|back| back["n"].len()).map_err(|error| error.kind())
    };
    let mut small = Limits::default();
    small.max_frame_bytes = MIB;
    assert_eq!(returned(8 * MIB, Limits::default()).await, Ok(8 * MIB));
    assert_eq!(returned(MIB / 2, small).await, Ok(MIB / 2));
    assert!(returned(2 * MIB, small).await.is_err());
}
