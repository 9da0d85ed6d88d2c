//! The `accelerate` and `transformers` plugins.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use skyward_core::checkpoint::Checkpoints;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::plugin::{Hook, HookKind, Plugin, Relation};
use skyward_core::spec::{Accelerator, AcceleratorFamily, ClusterInfo, Image};

use crate::build::{Build, without_nccl};
use crate::family::Installer;
use crate::fsdp::Fsdp;
use crate::requirement::requirement;

/// Makes Accelerate, and the `Trainer` of Transformers, train on all workers; see [`accelerate`]
/// and [`transformers`].
#[derive(Debug, Clone)]
pub struct Accelerate {
    kind: Kind,
    build: Build,
    version: Option<String>,
    mixed_precision: Option<MixedPrecision>,
    fsdp: Option<Fsdp>,
    checkpoints: Option<String>,
    timeout: Duration,
}

/// The number type of mixed precision, unless the payload chooses one: models use it for operations
/// that lose little accuracy by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MixedPrecision {
    /// `bfloat16`: accelerators from NVIDIA's A100 on, and CPUs.
    Bf16,
    /// `float16`, with scaled gradients: accelerators only.
    Fp16,
}

impl MixedPrecision {
    /// Accelerate's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Accelerate,
    Transformers,
}

impl Kind {
    fn name(self) -> &'static str {
        self.installer().plugin
    }

    fn installer(self) -> Installer {
        let (plugin, choose) = match self {
            Self::Accelerate => {
                ("accelerate", "by `plugins::accelerate().cuda(…)` or `plugins::accelerate().index(…)`")
            }
            Self::Transformers => {
                ("transformers", "by `plugins::transformers().cuda(…)` or `plugins::transformers().index(…)`")
            }
        };
        Installer { plugin, framework: "PyTorch", choose }
    }
}

/// Installs Accelerate and PyTorch. `Accelerator` finds all workers of the pool as ranks of one
/// world.
///
/// Each worker is one rank. By default, each accelerator has a worker of its own. The plugin sets
/// the variables by which `torchrun` describes a world; `Accelerator` makes the process group, in
/// the first task that runs on all workers (a broadcast). On nodes without an accelerator it
/// computes on the CPU, over gloo.
///
/// A task that one worker runs alone is one process, on that worker's accelerator.
///
/// The plugin installs PyTorch as [`torch`](crate::torch()) does. A pool cannot have both plugins,
/// because each makes the process group.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugin::Plugin;
/// use skyward::plugins::{Fsdp, MixedPrecision, accelerate};
/// use skyward::spec::{Accelerator, ClusterInfo, Image};
///
/// let plugin = accelerate().mixed_precision(MixedPrecision::Bf16).fsdp(Fsdp::wrap("LlamaDecoderLayer"));
/// let gpus = ClusterInfo::new(2, 8).accelerator(Accelerator::new("H100", 8));
/// let image = plugin.transform(Image::new(), &gpus)?;
/// assert_eq!(image.pip, ["torch", "numpy", "accelerate>=1.6"]);
/// assert_eq!(image.env["ACCELERATE_MIXED_PRECISION"], "bf16");
/// # Ok::<(), skyward_core::Error>(())
/// ```
pub fn accelerate() -> Accelerate {
    Accelerate::new(Kind::Accelerate)
}

/// Does what [`accelerate`] does, and also installs Transformers, whose `Trainer` trains on all
/// ranks of a broadcast.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugin::Plugin;
/// use skyward::plugins;
/// use skyward::spec::{ClusterInfo, Image};
///
/// let plugin = plugins::transformers().cuda("cpu");
/// let image = plugin.transform(Image::new(), &ClusterInfo::new(2, 1))?;
/// assert_eq!(image.pip, ["torch", "numpy", "accelerate>=1.6", "transformers"]);
/// # Ok::<(), skyward_core::Error>(())
/// ```
pub fn transformers() -> Accelerate {
    Accelerate::new(Kind::Transformers)
}

impl Accelerate {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            build: Build::new(kind.installer()),
            version: None,
            mixed_precision: None,
            fsdp: None,
            checkpoints: None,
            timeout: Duration::from_secs(240),
        }
    }

    /// Chooses the build of PyTorch, as [`Torch::cuda`](crate::Torch::cuda) does.
    #[must_use]
    pub fn cuda(mut self, name: impl Into<String>) -> Self {
        self.build.cuda = Some(name.into());
        self
    }

    /// Takes torch, torchvision and torchaudio from this package index, for any accelerator.
    #[must_use]
    pub fn index(mut self, url: impl Into<String>) -> Self {
        self.build.index = Some(url.into());
        self
    }

    /// Chooses the version of PyTorch: `2.9.1`, or a specifier such as `>=2.8,<3`.
    #[must_use]
    pub fn torch_version(mut self, version: impl Into<String>) -> Self {
        self.build.version = Some(version.into());
        self
    }

    /// Chooses the version of the package that gives the plugin its name, Accelerate or
    /// Transformers: `5.23.0`, or a specifier such as `>=5,<6`.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Chooses the number type of mixed precision in every task, unless `Accelerator` or
    /// `TrainingArguments` chooses one.
    #[must_use]
    pub fn mixed_precision(mut self, precision: MixedPrecision) -> Self {
        self.mixed_precision = Some(precision);
        self
    }

    /// Divides models among the ranks of a broadcast; without it, each rank has a whole model.
    /// Needs accelerators, and more than one worker. A task that one worker runs alone has the
    /// whole model.
    #[must_use]
    pub fn fsdp(mut self, fsdp: Fsdp) -> Self {
        self.fsdp = Some(fsdp);
        self
    }

    /// Lets the `Trainer` of Transformers keep its checkpoints in the storage of the pool, under this
    /// name, and continue from the latest one, with no change to the payload.
    ///
    /// `Trainer` saves when its arguments say so (`save_steps`, `save_strategy`), and once after each
    /// notice that a machine will end. The next `Trainer.train` under the same name continues from
    /// the latest checkpoint: in the next try, on another machine, and in another pool. The latest
    /// checkpoint takes the place of what the payload passes as `resume_from_checkpoint`. The storage
    /// keeps as many checkpoints as `save_total_limit` says, and 3 without it.
    ///
    /// A second `Trainer.train` of one task has the name with `.2` at its end, and so on. Tasks that
    /// train different models at the same time need names of their own: use `sky.checkpoints` with
    /// `sky.integrations.trainer_checkpoint` in the payload.
    ///
    /// The pool needs [`storage`](skyward_core::pool::PoolBuilder::storage), and the plugin is
    /// [`transformers`].
    ///
    /// ```
    /// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
    /// use skyward::plugins;
    /// use skyward::pool::Pool;
    /// use skyward::storage::Storage;
    ///
    /// let builder = Pool::builder()
    ///     .storage(Storage::folder("/data/runs"))
    ///     .plugin(plugins::transformers().checkpoints("run-42"));
    /// ```
    #[must_use]
    pub fn checkpoints(mut self, name: impl Into<String>) -> Self {
        self.checkpoints = Some(name.into());
        self
    }

    /// Sets how long the workers may take to meet before the first task. The default of 240 s is
    /// less than the time that a pool gives hooks, so that the error names the missing rank.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn refuse<T>(&self, problem: &str, hint: &str) -> Result<T> {
        let message = format!("the plugin `{}` {problem}", self.kind.name());
        Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint))
    }

    /// Refuses options that Accelerate would ignore silently, or refuse after the pool has started.
    fn check(&self, cluster: &ClusterInfo) -> Result<()> {
        let accelerator = cluster.accelerator.as_ref();
        let family = accelerator.and_then(Accelerator::family);
        if self.mixed_precision == Some(MixedPrecision::Fp16) {
            let hint = "choose `MixedPrecision::Bf16`";
            match family {
                _ if accelerator.is_none() => {
                    return self.refuse(
                        "cannot compute in fp16 on nodes without an accelerator: Accelerate would compute in fp32",
                        "ask for accelerators: `.accelerator(…)`, or choose `MixedPrecision::Bf16`",
                    );
                }
                Some(family @ (AcceleratorFamily::Tpu | AcceleratorFamily::Neuron)) => {
                    return self.refuse(&format!("cannot compute in fp16 on accelerators of {family}"), hint);
                }
                _ => {}
            }
        }
        self.check_checkpoints(cluster)?;
        let Some(fsdp) = &self.fsdp else { return Ok(()) };
        if accelerator.is_none() {
            return self.refuse(
                "cannot divide a model by FSDP on nodes without an accelerator: Accelerate would train a whole model on each",
                "ask for accelerators: `.accelerator(…)`, or leave `.fsdp(…)` out",
            );
        }
        if family == Some(AcceleratorFamily::Tpu) {
            return self.refuse(
                "cannot divide a model by FSDP on Google TPU: Accelerate reads its variables on other accelerators only",
                "leave `.fsdp(…)` out, and divide the model in the payload: `TrainingArguments(fsdp_config={\"xla\": True, …})`",
            );
        }
        if !cluster.may_be_many() {
            return self.refuse(
                "cannot divide a model by FSDP in a pool of one worker: Accelerate would train the whole model",
                "ask for more nodes or accelerators, or leave `.fsdp(…)` out",
            );
        }
        fsdp.check()
    }

    fn check_checkpoints(&self, cluster: &ClusterInfo) -> Result<()> {
        let Some(name) = &self.checkpoints else { return Ok(()) };
        if self.kind == Kind::Accelerate {
            return self.refuse(
                "keeps no checkpoints: only the `Trainer` of Transformers says when it saves",
                "use `plugins::transformers().checkpoints(…)`, or `sky.checkpoints` in the payload",
            );
        }
        Checkpoints::check_name(name)?;
        if !cluster.storage {
            return self.refuse(
                &format!("keeps the checkpoints \"{name}\", and the pool has no storage for them"),
                "name one where the pool is built: `.storage(Storage::folder(\"/data/runs\"))`",
            );
        }
        Ok(())
    }

    /// The variables that FSDP reads in a task of all workers; empty without FSDP.
    fn gang_variables(&self) -> BTreeMap<&'static str, String> {
        self.fsdp.as_ref().map(Fsdp::variables).unwrap_or_default()
    }

    /// Refuses an image that sets one of the plugin's variables to something else.
    fn check_variables(&self, image: &Image) -> Result<()> {
        let precision = self.mixed_precision.map(|precision| (PRECISION, precision.name().to_owned()));
        for (name, value) in self.gang_variables().into_iter().chain(precision) {
            if let Some(other) = image.env.get(name).filter(|other| **other != value) {
                return self.refuse(
                    &format!("sets {name} to {value:?}, and the image to {other:?}"),
                    "set it in one place: leave the variable out of the image, or the option out of the plugin",
                );
            }
        }
        Ok(())
    }

    /// A hook for a cluster whose workers this plugin joins, or whose `Trainer` keeps checkpoints.
    fn hook(&self, cluster: &ClusterInfo, kind: HookKind, factory: &str) -> Option<Hook> {
        let cuda = cluster.accelerator.as_ref().is_some_and(|accelerator| without_nccl(accelerator).is_none());
        let hook = Hook::new(kind, "skyward_plugins/accelerate.py", SOURCE, factory);
        let config = json!({
            "timeout": self.timeout.as_secs_f64(),
            "cuda": cuda,
            "fsdp": self.gang_variables(),
            "checkpoints": self.checkpoints,
        });
        (cluster.may_be_many() || self.checkpoints.is_some()).then(|| hook.config(config))
    }
}

impl Plugin for Accelerate {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn constructor(&self) -> String {
        let mut text = format!("plugins::{}(){}", self.kind.name(), self.build.calls("torch_version"));
        if let Some(version) = &self.version {
            text += &format!(".version({version:?})");
        }
        if let Some(precision) = self.mixed_precision {
            text += &format!(".mixed_precision(MixedPrecision::{precision:?})");
        }
        if self.fsdp.is_some() {
            text += ".fsdp(…)";
        }
        if let Some(name) = &self.checkpoints {
            text += &format!(".checkpoints({name:?})");
        }
        text
    }

    fn workers_per_node(&self, accelerator: Option<&Accelerator>) -> Option<u32> {
        accelerator.map(|accelerator| accelerator.count)
    }

    fn conflicts_with(&self, _: &ClusterInfo) -> Vec<Relation> {
        let (other, who) = match self.kind {
            Kind::Accelerate => (Kind::Transformers, "`Accelerator`"),
            Kind::Transformers => (Kind::Accelerate, "`Trainer`"),
        };
        let torch = format!("it installs PyTorch itself, and {who} makes the process group that `torch` would make");
        vec![
            Relation::new(other.name(), "`transformers` is `accelerate` with Transformers, and one of them is enough")
                .written(format!("plugins::{}()", other.name())),
            Relation::new("torch", torch).written("plugins::torch()"),
        ]
    }

    fn joins_world(&self, cluster: &ClusterInfo) -> bool {
        cluster.may_be_many()
    }

    fn world(&self) -> &str {
        "torch"
    }

    fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        self.check(cluster)?;
        self.check_variables(&image)?;
        let version = self.version.as_deref();
        let packages = match self.kind {
            Kind::Accelerate => vec![requirement("accelerate", None, Some(version.unwrap_or(ACCELERATE)))?],
            Kind::Transformers => {
                vec![requirement("accelerate", None, Some(ACCELERATE))?, requirement("transformers", None, version)?]
            }
        };
        let image = self.build.install(image, cluster)?.pip(packages);
        Ok(match self.mixed_precision {
            Some(precision) => image.env(PRECISION, precision.name()),
            None => image,
        })
    }

    fn around_app(&self, cluster: &ClusterInfo) -> Option<Hook> {
        self.hook(cluster, HookKind::App, "around_app")
    }

    fn around_task(&self, cluster: &ClusterInfo) -> Option<Hook> {
        self.hook(cluster, HookKind::Task, "around_task")
    }
}

const SOURCE: &str = include_str!("../python/skyward_plugins/accelerate.py");

const PRECISION: &str = "ACCELERATE_MIXED_PRECISION";

/// The first version that divides models by version 2 of FSDP.
const ACCELERATE: &str = ">=1.6";

#[cfg(test)]
mod tests;
