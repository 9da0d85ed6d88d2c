//! The configuration of a pool, which is checked as a whole before anything starts.

mod blueprint;
mod devices;
mod machines;
mod payloads;
mod rehearsed;
mod start;
mod until;
mod watched;

use std::sync::{Arc, Mutex};

use self::until::Until;
pub use self::until::interrupted;
use self::watched::Watched;
use super::fleet::account::Account;
use super::handle::Pool;
use super::plan::PoolPlan;
use crate::bootstrap::Included;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::event::Events;
use crate::ids::PoolId;
use crate::payload::{Source, TaskOptions, TraceContext, TraceSource};
use crate::plugin::{Plugin, PluginSet};
use crate::provider::{Labels, Local, Provider, Requirements};
use crate::spec::{Budget, Image, Limits, Nodes};
use crate::storage::Storage;
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
///
/// In the order in which a program needs them:
///
/// | what | methods |
/// |---|---|
/// | machines | [`provider`](Self::provider), [`nodes`](Self::nodes), [`workers_per_node`](Self::workers_per_node), [`accelerator`](Self::accelerator), [`cpus`](Self::cpus), [`memory_gib`](Self::memory_gib), [`disk_gib`](Self::disk_gib), [`architecture`](Self::architecture), [`market`](Self::market), [`zones`](Self::zones), [`label`](Self::label) |
/// | what runs | [`payload`](Self::payload), [`payload_of`](Self::payload_of), [`lazily`](Self::lazily), [`plugin`](Self::plugin), [`image`](Self::image), [`mixed_environments`](Self::mixed_environments), [`storage`](Self::storage), [`data`](Self::data) |
/// | bounds | [`budget`](Self::budget), [`most_usd_per_hour`](Self::most_usd_per_hour), [`assume_usd_per_hour`](Self::assume_usd_per_hour), [`limits`](Self::limits), [`tasks`](Self::tasks), [`until`](Self::until) |
/// | what one sees | [`events`](Self::events), [`trace_context`](Self::trace_context), and with the feature `terminal` its `terminal` |
/// | before a start | [`check`](Self::check), [`plan`](Self::plan), [`rehearse`](Self::rehearse), [`rehearse_within`](Self::rehearse_within) |
/// | start | [`scope`](Self::scope), [`try_scope`](Self::try_scope), [`start`](Self::start) |
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
    is_mixed: bool,
    limits: Limits,
    storage: Option<Storage>,
    data: Vec<(String, Data)>,
    budget: Budget,
    assumed: Option<f64>,
    tasks: TaskOptions,
    sources: Vec<Arc<Source>>,
    /// Errors of payloads whose Python results do not fit their Rust types.
    misfits: Vec<Error>,
    is_lazy: bool,
    trace: Option<TraceSource>,
    id: Option<PoolId>,
    /// For a rehearsed pool: the number of CPU devices that JAX gets in each worker.
    cpu_devices: Option<u32>,
    #[cfg(feature = "terminal")]
    terminal: Option<Terminal>,
    until: Until,
    watched: Watched,
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
            is_mixed: false,
            limits: Limits::default(),
            storage: None,
            data: Vec::new(),
            budget: Budget::default(),
            assumed: None,
            tasks: TaskOptions::default(),
            sources: Vec::new(),
            misfits: Vec::new(),
            is_lazy: false,
            trace: None,
            id: None,
            cpu_devices: None,
            #[cfg(feature = "terminal")]
            terminal: None,
            until: Until::default(),
            watched: Watched::default(),
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

    /// Sets whether nodes may have different environments: other minor versions of Python, other
    /// packages. By default, a node whose environment differs from that of the others is refused
    /// before its workers start, because a call is pickled on one node and unpickled on another. In
    /// a pool with mixed environments, payloads cannot make calls, and no plugin or payload may
    /// join the workers into one world.
    pub fn mixed_environments(mut self, mixed: bool) -> Self {
        self.is_mixed = mixed;
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

    /// Sets the storage, where the [checkpoints](crate::checkpoint::Checkpoints) of payloads
    /// (`sky.checkpoints`) outlive their machines and this pool. By default there is none. The start of
    /// the pool checks that the storage can be written, listed and read, and that it refuses to create
    /// an object twice.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::pool::Pool;
    /// use skyward::storage::Storage;
    ///
    /// let builder = Pool::builder().storage(Storage::folder("/data/runs"));
    /// ```
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = Some(storage);
        self
    }

    /// Gives the pool a data set under a name: payloads get its folder with `sky.data("digits")`. Each
    /// machine gets its files once, before its workers start, into a cache that outlives the pool. The
    /// start of the pool checks that the folder can be read and brought before anything is launched.
    ///
    /// A name has 1 to 100 letters from A to Z, digits, `.`, `_` and `-`, with no `.` at the beginning.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::data::Data;
    /// use skyward::pool::Pool;
    ///
    /// let builder = Pool::builder().data("digits", Data::folder("data/digits"));
    /// ```
    pub fn data(mut self, name: impl Into<String>, data: Data) -> Self {
        self.data.push((name.into(), data));
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

    /// Ends the start or the scope when this future completes, for example on a signal to the program
    /// ([`interrupted`]): everything that was started is ended, and [`start`](Self::start) or
    /// [`scope`](Self::scope) returns an error of the kind
    /// [`ErrorKind::Cancelled`](crate::error::ErrorKind::Cancelled) when that is confirmed gone. The
    /// body of a scope is dropped. A pool that [`start`](Self::start) has returned goes on: its
    /// program decides when it ends.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// use skyward::pool::{Pool, interrupted};
    ///
    /// # async fn example() -> skyward::Result<()> {
    /// let pool = Pool::builder().until(interrupted()).start().await?;
    /// # pool.shutdown(std::time::Duration::from_secs(30)).await
    /// # }
    /// ```
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        self.until = Until::new(stop);
        self
    }

    /// The events of the pool that this builder starts, from the first one: a program can watch the
    /// start, which takes minutes where machines are rented. The stream ends with the pool, or when
    /// the builder is dropped. A clone of the builder starts another pool, with events of its own.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// use skyward::pool::Pool;
    ///
    /// # async fn example() -> skyward::Result<()> {
    /// let builder = Pool::builder().nodes(2);
    /// let mut events = builder.events();
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         println!("{event}");
    ///     }
    /// });
    /// let pool = builder.start().await?;
    /// # pool.shutdown(std::time::Duration::from_secs(30)).await
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        self.watched.events()
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

    /// Checks the whole configuration and starts nothing. Of the image's files, it looks at names
    /// and sizes, which blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec),
    /// [`ErrorKind::Plugins`](crate::error::ErrorKind::Plugins) or
    /// [`ErrorKind::Payload`](crate::error::ErrorKind::Payload), with a hint on what to do.
    pub fn check(&self) -> Result<()> {
        Included::find(&self.blueprint()?.image).map(|_| ())
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
        let account = Account::new(self.budget, self.limits.shutdown);
        let shortlist = blueprint.shortlist(&Mutex::new(account)).await?;
        Ok(PoolPlan::new(&blueprint, &shortlist, &inputs, &self.limits, self.budget))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_check_knows_the_files_of_the_image_and_their_size() {
        let root = std::env::temp_dir().join(format!("sky-{:08x}", rand::random::<u32>()));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::File::create(root.join("set.bin")).unwrap().set_len(300 << 20).unwrap();
        let check = |image: Image| Pool::builder().image(image).check();
        for (image, words) in [
            (Image::new().include(root.join("none")), "none, which cannot be read"),
            (Image::new().include(&root), "300 MiB, more than 256 MiB; the largest are"),
        ] {
            let error = check(image).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
            assert!(error.message().contains(words) && error.hint().is_some(), "{error:#}");
        }
        check(Image::new().include(&root).exclude(["*.bin"])).unwrap();
        std::fs::remove_dir_all(root).unwrap();
    }
}
