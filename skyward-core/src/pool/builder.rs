//! The configuration of a pool, which is checked as a whole before anything starts.

mod devices;
mod machines;
mod rehearsed;

use self::devices::with_cpu_devices;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::blueprint::decorated::Decorated;
use super::blueprint::{Blueprint, Declared, check_workers};
use super::calls::life::closed;
use super::calls::shared::{Settings, Shared};
use super::custody::cleanup::Cleanup;
use super::driver::run::Driver;
use super::driver::supervisor::Supervisor;
use super::fleet::account::Account;
use super::handle::Pool;
use super::metrics::Metrics;
use super::plan::PoolPlan;
use crate::compute::PendingCompute;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Events;
use crate::ids::PoolId;
use crate::payload::metadata::Metadata;
use crate::payload::{ComputeFn, Output, Source, TaskOptions, TraceContext, TraceSource};
use crate::plugin::{Plugin, PluginSet};
use crate::provider::client;
use crate::provider::{Checked, Labels, Local, Provider, Requirements};
use crate::spec::{Budget, ClusterInfo, Image, Limits, Nodes, Secrets};
#[cfg(feature = "terminal")]
use crate::terminal::Terminal;

/// The configuration of a pool. [`scope`](Self::scope) and [`start`](Self::start) check all of it
/// before they start anything.
///
/// ```no_run
/// # use skyward_core as skyward;
/// use skyward::compute::PendingCompute;
/// use skyward::error::Result;
/// use skyward::pool::Pool;
/// use skyward::provider::Local;
///
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
    /// Errors of payloads whose Python results do not fit their Rust types.
    misfits: Vec<Error>,
    trace: Option<TraceSource>,
    id: Option<PoolId>,
    /// For a rehearsed pool: the number of CPU devices that JAX gets in each worker.
    cpu_devices: Option<u32>,
    #[cfg(feature = "terminal")]
    terminal: Option<Terminal>,
}

impl Pool {
    /// Begins the configuration of a pool. By default the pool is one node on this host.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }
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

    /// Sets the provider that machines come from. Default: [`Local`], this host.
    pub fn provider(self, provider: impl Provider) -> Self {
        self.shared_provider(Arc::new(provider))
    }

    /// Sets a provider that several pools share; otherwise the same as
    /// [`provider`](Self::provider).
    pub fn shared_provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = provider;
        self
    }

    /// Sets the number of nodes: a number, or [`Nodes`] for a partial or an elastic pool.
    pub fn nodes(mut self, nodes: impl Into<Nodes>) -> Self {
        self.nodes = nodes.into();
        self
    }

    /// Sets the number of worker processes on each node. Default: the number that a plugin asks
    /// for, otherwise 1.
    pub fn workers_per_node(mut self, workers: u32) -> Self {
        self.workers_per_node = Some(workers);
        self
    }

    /// Sets the environment of the workers.
    pub fn image(mut self, image: Image) -> Self {
        self.image = image;
        self
    }

    /// Adds a plugin after the others; the first plugin is the outermost.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Sets deadlines and bounds.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits.countable();
        self
    }

    /// Sets the most that the pool may cost. By default there is no bound.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::pool::Pool;
    /// use skyward::spec::Budget;
    ///
    /// let builder = Pool::builder().budget(Budget::usd_per_hour(8.0).usd(50.0).hours(6.0));
    /// ```
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the price to assume, in US dollars per hour, for machines whose price the provider does
    /// not know. By default, a pool with a budget in dollars launches no such machine.
    pub fn assume_usd_per_hour(mut self, usd_per_hour: f64) -> Self {
        self.assumed = Some(usd_per_hour);
        self
    }

    /// Sets the deadlines and retries of all tasks that do not set their own.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use std::time::Duration;
    ///
    /// use skyward::payload::{RetryPolicy, TaskOptions};
    /// use skyward::pool::Pool;
    ///
    /// let options = TaskOptions::default()
    ///     .queue_timeout(Duration::from_secs(600))
    ///     .retry(RetryPolicy::default().crash(1));
    /// let builder = Pool::builder().tasks(options);
    /// ```
    pub fn tasks(mut self, options: TaskOptions) -> Self {
        self.tasks = options;
        self
    }

    /// Declares a payload: `.payload::<Train>()` for a function declared with
    /// `#[skyward::compute(payload = Train)]`. The packages that the payload needs (PEP 723) are
    /// merged into the image, and if the payload's decorator (`@sky.integrations.torch`) asks for a
    /// world, the workers are joined into one.
    ///
    /// Where the annotation of the Python function names a class in the same file, the fields of
    /// the Rust result type must be among the fields of that class: otherwise
    /// [`check`](Self::check) and [`start`](Self::start) return an error that names the missing
    /// fields.
    pub fn payload<F: ComputeFn>(mut self) -> Self {
        self.sources.push(F::source());
        self.misfits.extend(F::check().err());
        self
    }

    /// Declares the payload of a call that Rust code has built; otherwise the same as
    /// [`payload`](Self::payload).
    pub fn payload_of<T: Output>(mut self, call: &PendingCompute<T>) -> Self {
        self.sources.push(Arc::clone(call.source()));
        self
    }

    /// Sets the source of the trace context of tasks that do not set their own. The function is
    /// called when a task is submitted, within the task's tracing span, which is a child of the
    /// caller's span. Payloads read the trace context with `sky.trace_context()` and from their
    /// environment.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::payload::TraceContext;
    /// use skyward::pool::Pool;
    ///
    /// # fn headers() -> Vec<(String, String)> { Vec::new() }
    /// let builder = Pool::builder().trace_context(|| TraceContext::from_carrier(headers()));
    /// ```
    pub fn trace_context(mut self, source: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        self.trace = Some(TraceSource::new(source));
        self
    }

    /// Sets the pool's id, so that a simulated run can be replayed.
    #[cfg(feature = "testkit")]
    pub(crate) fn id(mut self, pool: PoolId) -> Self {
        self.id = Some(pool);
        self
    }

    /// Shows progress and the tasks' output on the terminal. By default nothing is printed.
    #[cfg(feature = "terminal")]
    pub fn terminal(mut self, terminal: Terminal) -> Self {
        self.terminal = Some(terminal);
        self
    }

    /// Checks the whole configuration and starts nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`], [`ErrorKind::Plugins`] or [`ErrorKind::Payload`], with a hint on
    /// what to do.
    pub fn check(&self) -> Result<()> {
        self.blueprint().map(|_| ())
    }

    /// Returns what the pool would launch, given what its provider offers now: candidates with
    /// prices, image, plugins and steps. Nothing is started and nothing is spent.
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
    /// - Those of [`check`](Self::check).
    /// - The provider cannot be queried, or has nothing that meets the requirements.
    /// - Files that the image names cannot be read.
    ///
    /// It is no error if the plugins or the budget exclude all candidates: the plan says why each
    /// of them is left out.
    ///
    /// # Cancel safety
    ///
    /// Nothing is started, so the future can be dropped at any time.
    pub async fn plan(&self) -> Result<PoolPlan> {
        let blueprint = self.blueprint()?;
        let inputs = blueprint.read_inputs(self.limits.start).await?;
        let market = blueprint.market(&Mutex::new(self.account())).await?;
        Ok(PoolPlan::new(&blueprint, &market, &inputs, &self.limits, self.budget))
    }

    /// Starts the pool, passes it to `body`, and ends the pool, also when `body` fails, panics or
    /// is dropped. When this method returns without an error, the machines are gone.
    ///
    /// `body` is an async closure:
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// # use skyward::{compute::PendingCompute, pool::Pool};
    /// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> skyward::Result<()> {
    /// let losses = Pool::builder().nodes(2).scope(async |pool| train(5).broadcast(pool).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A closure that returns an async block does not compile, because its future cannot borrow the
    /// pool. The compiler reports an error about lifetimes, or that an implementation of
    /// `AsyncFnOnce` is not general enough:
    ///
    /// ```compile_fail
    /// # use skyward_core as skyward;
    /// # use skyward::{compute::PendingCompute, pool::Pool};
    /// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> skyward::Result<()> {
    /// let losses = Pool::builder().nodes(2).scope(|pool| async move { train(5).broadcast(pool).await }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - The reason why the pool could not be started.
    /// - The error of `body`. If machines are not confirmed gone either, the error has the reason
    ///   as context.
    /// - After `body` succeeded: the reason why the machines are not confirmed gone.
    ///
    /// # Panics
    ///
    /// Only if `body` panics. The panic continues after the pool has been shut down.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the pool ends in the background. If the process ends too, the
    /// leases of the nodes end the machines.
    pub async fn scope<T, F>(self, body: F) -> Result<T>
    where
        F: AsyncFnOnce(&Pool) -> Result<T>,
    {
        let deadline = self.limits.shutdown;
        let pool = self.start().await?;
        let result = AssertUnwindSafe(body(&pool)).catch_unwind().await;
        let ended = pool.shutdown(deadline).await;
        match result {
            Ok(Ok(value)) => ended.map(|()| value),
            // Both errors are worth reporting; the error of the body comes first.
            Ok(Err(error)) => Err(match ended {
                Ok(()) => error,
                Err(left) => error.with_context("cleanup", left),
            }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts the pool. The pool ends with [`shutdown`](Pool::shutdown), or in the background when
    /// its last handle is dropped.
    ///
    /// # Errors
    ///
    /// - The configuration is invalid: see [`check`](Self::check).
    /// - The pool could not be started. What had been started is ended; the error names the
    ///   machines that are not confirmed gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the machines that were started are ended in the background.
    pub async fn start(self) -> Result<Pool> {
        // `pending` never completes, so the result is always a pool.
        match self.start_unless(std::future::pending()).await? {
            Some(pool) => Ok(pool),
            None => Err(closed()),
        }
    }

    /// Starts the pool unless `stop` completes first, for example on a signal to the program. If
    /// `stop` completes first, everything that was started is ended, and the method returns `None`
    /// when that is confirmed gone.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// use skyward::error::Result;
    /// use skyward::pool::Pool;
    ///
    /// # async fn example(terminated: impl Future<Output = ()>) -> Result<()> {
    /// let Some(pool) = Pool::builder().start_unless(terminated).await? else { return Ok(()) };
    /// # pool.shutdown(std::time::Duration::from_secs(30)).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start). After `stop`: the reason why the machines are not confirmed
    /// gone.
    ///
    /// # Cancel safety
    ///
    /// As for [`start`](Self::start). A program that returns from `main` right after it drops this
    /// future ends before the cleanup in the background has ended. To wait for the cleanup,
    /// complete `stop` instead of dropping the future.
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
        crate::pool::spawn::spawn(supervisor.run(driver, blueprint, ready).instrument(span));
        let up = tokio::select! {
            biased;
            // When the receiver is dropped, the driver ends what it has started.
            () = stop => None,
            up = up => Some(up),
        };
        match up {
            Some(Ok(Ok(()))) => Ok(Some(handle)),
            Some(Ok(Err(error))) => Err(error),
            // Without its driver a pool cannot become ready; `shutdown` waits for the end of what
            // it started.
            Some(Err(_)) => Err(match handle.shutdown(deadline).await {
                Ok(()) => handle.refusal(),
                Err(left) => handle.refusal().with_context("cleanup", left),
            }),
            None => handle.shutdown(deadline).await.map(|()| None),
        }
    }

    /// Starts to show events on the terminal if the user asked for that.
    #[cfg(feature = "terminal")]
    fn show(&self, events: Events, span: &tracing::Span) -> Option<JoinHandle<()>> {
        self.terminal.map(|terminal| crate::pool::spawn::spawn(terminal.render(events).instrument(span.clone())))
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
            .accelerator(self.requirements.accelerator.clone())
            .cpus(self.requirements.cpus)
            .shared_host(self.provider.capabilities().shared_host)
            .elastic(self.nodes.is_elastic());
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
        // Plugins read the devices that the workers will have, so they are set before; plugins may
        // also set the same variables, so the devices are set again after.
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

/// The user who starts pools in this process, for people who read a provider's list:
/// `ada@workstation`.
fn owner() -> String {
    let user =
        ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", client::host_name())
}
