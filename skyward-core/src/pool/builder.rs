//! What a pool is to be; everything is checked before anything starts.

mod decorated;
mod machines;
mod rehearse;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::Instrument;

pub(crate) use self::decorated::Decorated;
use super::account::Account;
use super::bring_up::Blueprint;
use super::cleanup::Cleanup;
use super::driver::Driver;
use super::handle::Pool;
use super::metrics::Metrics;
use super::node::Declared;
use super::plan::PoolPlan;
use super::rehearsal::with_cpu_devices;
use super::shared::{Settings, Shared, closed};
use super::supervisor::Supervisor;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Events;
use crate::ids::PoolId;
use crate::payload::metadata::Metadata;
use crate::payload::{ComputeFn, Output, PendingCompute, Source, TaskOptions, TraceContext, TraceSource};
use crate::plugin::{Plugin, PluginSet};
use crate::provider::client;
use crate::provider::{Checked, Labels, Local, Provider, Requirements};
use crate::spec::{Budget, ClusterInfo, Image, Limits, Nodes, Secrets};
#[cfg(feature = "terminal")]
use crate::terminal::Terminal;

/// What a pool is to be. [`scope`](Self::scope) or [`start`](Self::start) checks all of it before anything is started.
///
/// ```no_run
/// # use skyward_core::{error::Result, pool::Pool, payload::PendingCompute, provider::Local};
/// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> Result<()> {
/// let losses = Pool::builder()
///     .provider(Local::default())
///     .nodes(2)
///     .scope(async |pool| train(5).broadcast(pool).await)
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a pool starts with `.scope(…)` or `.start()`"]
pub struct PoolBuilder {
    provider: Arc<dyn Provider>,
    nodes: Nodes,
    workers_per_node: Option<u32>,
    requirements: Requirements,
    labels: Labels,
    image: Image,
    plugins: PluginSet,
    limits: Limits,
    budget: Budget,
    assumed: Option<f64>,
    tasks: TaskOptions,
    sources: Vec<Arc<Source>>,
    /// Payloads whose results cannot become their Rust types.
    misfits: Vec<Error>,
    trace: Option<TraceSource>,
    id: Option<PoolId>,
    /// Of a pool that is rehearsed: the CPU devices that JAX has in each worker.
    cpu_devices: Option<u32>,
    #[cfg(feature = "terminal")]
    terminal: Option<Terminal>,
}

impl PoolBuilder {
    pub(crate) fn new() -> Self {
        Self {
            provider: Arc::new(Local::default()),
            nodes: Nodes::fixed(1),
            workers_per_node: None,
            requirements: Requirements::default(),
            labels: Labels::new(),
            image: Image::new(),
            plugins: PluginSet::default(),
            limits: Limits::default(),
            budget: Budget::default(),
            assumed: None,
            tasks: TaskOptions::default(),
            sources: Vec::new(),
            misfits: Vec::new(),
            trace: None,
            id: None,
            cpu_devices: None,
            #[cfg(feature = "terminal")]
            terminal: None,
        }
    }

    /// Where the machines come from; this host, unless it is said.
    pub fn provider(self, provider: impl Provider) -> Self {
        self.shared_provider(Arc::new(provider))
    }

    /// The same for a provider that several pools share.
    pub fn shared_provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = provider;
        self
    }

    /// How many nodes: a number, or [`Nodes`].
    pub fn nodes(mut self, nodes: impl Into<Nodes>) -> Self {
        self.nodes = nodes.into();
        self
    }

    /// How many worker processes on each node: 1, unless it is said or a plugin knows better.
    pub fn workers_per_node(mut self, workers: u32) -> Self {
        self.workers_per_node = Some(workers);
        self
    }

    /// The environment of the workers.
    pub fn image(mut self, image: Image) -> Self {
        self.image = image;
        self
    }

    /// Adds a plugin after the others; the first is the outermost.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Deadlines and bounds.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits.countable();
        self
    }

    /// What the pool may cost; without this there is no bound.
    ///
    /// ```
    /// # use skyward_core::{pool::Pool, spec::Budget};
    /// let builder = Pool::builder().budget(Budget::usd_per_hour(8.0).usd(50.0).hours(6.0));
    /// ```
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Takes this for the US dollars per hour of machines whose price the provider does not know. Without it, a pool with a budget in dollars takes no such machine.
    pub fn assume_usd_per_hour(mut self, usd_per_hour: f64) -> Self {
        self.assumed = Some(usd_per_hour);
        self
    }

    /// Deadlines and retries of all tasks that do not say their own.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use skyward_core::{payload::{RetryPolicy, TaskOptions}, pool::Pool};
    /// let builder = Pool::builder()
    ///     .tasks(TaskOptions::default().queue_timeout(Duration::from_secs(600)).retry(RetryPolicy::default().crash(1)));
    /// ```
    pub fn tasks(mut self, options: TaskOptions) -> Self {
        self.tasks = options;
        self
    }

    /// Declares a payload, `.payload::<Train>()` for a function declared with `#[skyward::compute(payload = Train)]`: merges
    /// what it needs (PEP 723) into the image, and joins the workers into one world where its decorator asks for one
    /// (`@sky.integrations.torch`).
    ///
    /// Where the Python function's annotation names a class of the same file, the fields that the Rust result asks for must be among those of the class:
    /// [`check`](Self::check) and [`start`](Self::start) say which are not.
    pub fn payload<F: ComputeFn>(mut self) -> Self {
        self.sources.push(F::source());
        self.misfits.extend(F::check().err());
        self
    }

    /// The same for a call that was put together by Rust code.
    pub fn payload_of<T: Output>(mut self, call: &PendingCompute<T>) -> Self {
        self.sources.push(Arc::clone(call.source()));
        self
    }

    /// Says which trace each task belongs to that does not say it itself: it is called when a task is submitted, within the task's span, which is below the caller's. Payloads
    /// see it as `sky.trace_context()` and in their environment.
    ///
    /// ```
    /// # use skyward_core::{payload::TraceContext, pool::Pool};
    /// # fn headers() -> Vec<(String, String)> { Vec::new() }
    /// let builder = Pool::builder().trace_context(|| TraceContext::from_carrier(headers()));
    /// ```
    pub fn trace_context(mut self, source: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        self.trace = Some(TraceSource::new(source));
        self
    }

    /// The id of a pool that is played again.
    #[cfg(feature = "testkit")]
    pub(crate) fn id(mut self, pool: PoolId) -> Self {
        self.id = Some(pool);
        self
    }

    /// Shows progress and the tasks' output on the terminal. Without this nothing is printed.
    #[cfg(feature = "terminal")]
    pub fn terminal(mut self, terminal: Terminal) -> Self {
        self.terminal = Some(terminal);
        self
    }

    /// Checks everything, and starts nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`], [`ErrorKind::Plugins`] or [`ErrorKind::Payload`], with what to do.
    pub fn check(&self) -> Result<()> {
        self.blueprint().map(|_| ())
    }

    /// What the pool would launch, by what its provider offers now: candidates with prices, image, plugins, steps. It starts nothing and spends nothing.
    ///
    /// ```no_run
    /// # async fn example(builder: skyward_core::pool::PoolBuilder) -> skyward_core::Result<()> {
    /// println!("{}", builder.plan().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); the provider cannot be asked, or has nothing that meets the requirements; files that the image names cannot be read. That plugins or budget leave all candidates out is
    /// no error, but in the plan.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub async fn plan(&self) -> Result<PoolPlan> {
        let blueprint = self.blueprint()?;
        let inputs = blueprint.read_inputs(self.limits.start).await?;
        let market = blueprint.market(&Mutex::new(self.account())).await?;
        Ok(PoolPlan::new(&blueprint, &market, &inputs, &self.limits, self.budget))
    }

    /// Starts the pool, hands it to `body`, and ends it: also when `body` fails, panics, or is dropped. When this returns, the machines are gone.
    ///
    /// # Errors
    ///
    /// What kept the pool from starting; the error of `body`; or, after `body` succeeded, what kept the machines from being confirmed gone.
    ///
    /// # Panics
    ///
    /// Only as `body` does, after the machines are gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the pool ends in the background, and by the lease of its nodes if the process ends too.
    pub async fn scope<T, F>(self, body: F) -> Result<T>
    where
        F: AsyncFnOnce(&Pool) -> Result<T>,
    {
        let deadline = self.limits.shutdown;
        let pool = self.start().await?;
        let result = AssertUnwindSafe(body(&pool)).catch_unwind().await;
        let ended = crate::pool::ComputePool::shutdown(&pool, deadline).await;
        match result {
            Ok(Ok(value)) => ended.map(|()| value),
            // Both are worth knowing; what the body failed with comes first.
            Ok(Err(error)) => Err(match ended {
                Ok(()) => error,
                Err(left) => error.with_context("cleanup", left),
            }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts the pool. It ends with [`shutdown`](crate::pool::ComputePool::shutdown), or in the background when its last handle is dropped.
    ///
    /// # Errors
    ///
    /// What was asked for cannot be ([`check`](Self::check)), or could not be started; what had been started is gone then.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, what was started is ended in the background.
    pub async fn start(self) -> Result<Pool> {
        // `pending` does not come first.
        match self.start_unless(std::future::pending()).await? {
            Some(pool) => Ok(pool),
            None => Err(closed()),
        }
    }

    /// Starts the pool unless `stop` comes first, such as a signal to the program. Then what was started by then is ended, and it is `None` when that is confirmed gone.
    ///
    /// ```no_run
    /// # use skyward_core::{error::Result, pool::{ComputePool, Pool}};
    /// # async fn example(terminated: impl Future<Output = ()>) -> Result<()> {
    /// let Some(pool) = Pool::builder().start_unless(terminated).await? else { return Ok(()) };
    /// # pool.shutdown(std::time::Duration::from_secs(30)).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); after `stop`, what kept the machines from being confirmed gone.
    ///
    /// # Cancel safety
    ///
    /// As [`start`](Self::start). A program that returns from `main` right afterwards ends before the background does: this method waits.
    pub async fn start_unless(self, stop: impl Future<Output = ()>) -> Result<Option<Pool>> {
        let deadline = self.limits.shutdown;
        let mut blueprint = self.blueprint()?;
        let pool = self.id.clone().unwrap_or_else(PoolId::random);
        blueprint.provider = blueprint.provider.of_pool(&pool);
        let span = tracing::info_span!(target: "skyward::pool", "pool", pool = %pool, provider = self.provider.name());
        let (commands, received) = mpsc::unbounded_channel();
        let account = Arc::new(Mutex::new(self.account()));
        let settings = Settings {
            limits: self.limits,
            defaults: self.tasks,
            secrets: Secrets::new(blueprint.image.secrets.clone()),
            trace: self.trace.clone(),
            metrics: Metrics::new(self.provider.name()),
            account: Arc::clone(&account),
        };
        let shared = Shared::new(pool.clone(), settings, commands);
        let screen = self.show(shared.events(), &span);
        let cleanup = Cleanup::new(blueprint.provider.clone(), pool).charging(account);
        let supervisor = Supervisor::new(Arc::clone(&shared), cleanup.clone());
        let handle = Pool::new(Arc::clone(&shared), cleanup.clone());
        let driver = Driver::new(shared, received, cleanup, screen);
        let (ready, up) = oneshot::channel();
        super::driver::spawn(supervisor.run(driver, blueprint, ready).instrument(span));
        let up = tokio::select! {
            biased;
            // Without a receiver the driver ends what it has started.
            () = stop => None,
            up = up => Some(up),
        };
        match up {
            Some(Ok(Ok(()))) => Ok(Some(handle)),
            Some(Ok(Err(error))) => Err(error),
            // Without its driver a pool does not become ready; what it started is being ended.
            Some(Err(_)) => Err(match crate::pool::ComputePool::shutdown(&handle, deadline).await {
                Ok(()) => handle.refusal(),
                Err(left) => handle.refusal().with_context("cleanup", left),
            }),
            None => crate::pool::ComputePool::shutdown(&handle, deadline).await.map(|()| None),
        }
    }

    /// Begins to show events on the terminal, if that was asked for.
    #[cfg(feature = "terminal")]
    fn show(&self, events: Events, span: &tracing::Span) -> Option<JoinHandle<()>> {
        self.terminal.map(|terminal| super::driver::spawn(terminal.render(events).instrument(span.clone())))
    }

    #[cfg(not(feature = "terminal"))]
    fn show(&self, _: Events, _: &tracing::Span) -> Option<JoinHandle<()>> {
        None
    }

    fn account(&self) -> Account {
        let mut account = Account::new(self.budget, self.limits.shutdown);
        account.set_most(self.nodes.most());
        account
    }

    fn blueprint(&self) -> Result<Blueprint> {
        self.nodes.validate()?;
        self.budget.check()?;
        let workers = match self.workers_per_node {
            Some(workers) => workers,
            None => self.plugins.workers_per_node(self.requirements.accelerator.as_ref())?.unwrap_or(1),
        };
        if workers == 0 {
            return Err(Error::new(ErrorKind::InvalidSpec, "each node has 0 workers")
                .with_hint("a node without workers runs nothing: `.workers_per_node(1)`"));
        }
        check_workers(self.nodes, workers)?;
        self.limits.check()?;
        let cluster = ClusterInfo::new(self.nodes.wanted(), workers)
            .with_accelerator(self.requirements.accelerator.clone())
            .with_elastic(self.nodes.is_elastic());
        self.plugins.check(&cluster)?;
        if let Some(misfit) = self.misfits.first() {
            return Err(misfit.clone());
        }
        let mut image = self.image.clone();
        for source in &self.sources {
            image = Metadata::read(source.main_text())
                .and_then(|metadata| metadata.merge_into(image))
                .map_err(|error| error.with_context("payload", source.main()))?;
        }
        let decorated = Decorated::find(&self.sources)?;
        let joined = Decorated::joined(decorated.as_ref(), &self.plugins, &cluster)?;
        // Plugins look at the devices that there will be, and may set the same variables.
        let with_devices = |image| match self.cpu_devices {
            Some(devices) => with_cpu_devices(image, devices),
            None => image,
        };
        let image = with_devices(image);
        let declared = Declared { image: image.clone(), joined, decorated };
        let image = with_devices(self.plugins.transform(image, &cluster)?);
        image.validate()?;
        Ok(Blueprint {
            provider: Checked::new(Arc::clone(&self.provider)).deadline(self.limits.start).assuming(self.assumed),
            nodes: self.nodes,
            requirements: self.requirements.clone(),
            cluster,
            image,
            plugins: self.plugins.clone(),
            declared,
            labels: self.labels.clone(),
            owner: owner(),
        })
    }
}

/// Who starts pools in this process, for people who look at a provider's list: `ada@workstation`.
fn owner() -> String {
    let user =
        ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", client::host_name())
}

/// Whether a pool of these nodes has no more workers than it may.
pub(super) fn check_workers(nodes: Nodes, per_node: u32) -> Result<()> {
    let most = nodes.most();
    if most.checked_mul(per_node).is_none_or(|all| all > MOST_WORKERS) {
        let what = format!("{most} nodes with {per_node} workers each are more than {MOST_WORKERS} workers");
        return Err(Error::new(ErrorKind::InvalidSpec, what).with_hint("start several pools"));
    }
    Ok(())
}

/// Workers of one pool, at most: their broadcasts must fit the queue's count.
const MOST_WORKERS: u32 = 100_000;
