//! The `torch` plugin.

use std::time::Duration;

use serde_json::json;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::plugin::{Hook, HookKind, Plugin};
use skyward_core::spec::{Accelerator, ClusterInfo, Image};

use crate::build::{Build, without_nccl};
use crate::family::Installer;

/// Installs PyTorch and joins all workers of the pool into one process group; see [`torch`].
#[derive(Debug, Clone)]
pub struct Torch {
    build: Build,
    collectives: Collectives,
    timeout: Duration,
    collective_timeout: Option<Duration>,
}

/// The backend for the collective operations of the process group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collectives {
    /// NCCL on nodes with accelerators of NVIDIA or AMD; gloo on all others.
    #[default]
    Auto,
    /// NCCL: tensors on NVIDIA or AMD accelerators.
    Nccl,
    /// gloo: tensors in host memory.
    Gloo,
}

/// Installs PyTorch and joins all workers of the pool into one `torch.distributed` process group
/// before the first task.
///
/// Each worker is one rank. By default, each accelerator has a worker of its own. A pool with one
/// worker makes no process group. The plugin sets the variables of the `env://` convention
/// (`MASTER_ADDR`, `RANK`, `LOCAL_RANK`, …) as `torchrun` does.
///
/// # What is installed
///
/// By default, `torch` comes from the default package index. Its Linux build for x86-64 is one for
/// CUDA, which also runs on nodes without an accelerator, but includes CUDA's libraries (measured
/// for 2.15: 5 GB unpacked). It is the default because the smaller builds are only in PyTorch's own
/// package index, which a node may not reach. Nodes without an accelerator that do reach it can
/// have the build without CUDA: `torch().cuda("cpu")`.
///
/// The default build serves accelerators of NVIDIA. Other accelerators are refused before anything
/// starts, and so are kinds that [`Accelerator::family`] does not know, unless
/// [`cuda`](Torch::cuda) or [`index`](Torch::index) chooses a build, or the image names an
/// interpreter, which may contain a build.
///
/// NumPy is installed too, where the image does not name it: torch does not require it, but
/// `.numpy()` and tensors as arguments and results need it.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugin::Plugin;
/// use skyward::plugins;
/// use skyward::spec::{ClusterInfo, Image};
///
/// let image = plugins::torch().cuda("cpu").transform(Image::new(), &ClusterInfo::new(2, 1))?;
/// assert_eq!(image.pip, ["torch", "numpy"]);
/// assert_eq!(image.indexes[0].url, "https://download.pytorch.org/whl/cpu");
/// # Ok::<(), skyward_core::Error>(())
/// ```
pub fn torch() -> Torch {
    Torch {
        build: Build::new(INSTALLER),
        collectives: Collectives::Auto,
        timeout: Duration::from_secs(240),
        collective_timeout: None,
    }
}

impl Torch {
    /// Chooses a build from PyTorch's own package index: a CUDA version (`cu126`, `12.6`),
    /// `rocm6.4`, `xpu` or `cpu`. Nodes without an accelerator get the `cpu` build. A build that
    /// does not run on the accelerator's family is refused.
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

    /// Chooses the version: `2.9.1`, or a specifier such as `>=2.8,<3`.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.build.version = Some(version.into());
        self
    }

    /// Chooses the backend for the collective operations.
    #[must_use]
    pub fn collectives(mut self, collectives: Collectives) -> Self {
        self.collectives = collectives;
        self
    }

    /// Sets how long the workers may take to meet. The default of 240 s is less than the time that
    /// a pool gives hooks, so that the error names the missing rank.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long one collective operation may take. The default is torch's own: 10 minutes with
    /// NCCL, 30 with gloo.
    #[must_use]
    pub fn collective_timeout(mut self, timeout: Duration) -> Self {
        self.collective_timeout = Some(timeout);
        self
    }

    fn hook(&self, cluster: &ClusterInfo, kind: HookKind, factory: &str) -> Hook {
        let hook = Hook::new(kind, "skyward_plugins/torch.py", SOURCE, factory);
        let unserved = cluster.accelerator.as_ref().and_then(without_nccl).is_some();
        let collectives = match self.collectives {
            Collectives::Auto if unserved => "gloo",
            Collectives::Auto => "auto",
            Collectives::Nccl => "nccl",
            Collectives::Gloo => "gloo",
        };
        hook.config(json!({
            "collectives": collectives,
            "timeout": self.timeout.as_secs_f64(),
            "collective_timeout": self.collective_timeout.map(|timeout| timeout.as_secs_f64()),
        }))
    }
}

impl Plugin for Torch {
    fn name(&self) -> &str {
        "torch"
    }

    fn constructor(&self) -> String {
        let mut text = format!("plugins::torch(){}", self.build.calls("version"));
        if self.collectives != Collectives::Auto {
            text += &format!(".collectives(Collectives::{:?})", self.collectives);
        }
        text
    }

    fn workers_per_node(&self, accelerator: Option<&Accelerator>) -> Option<u32> {
        accelerator.map(|accelerator| accelerator.count)
    }

    fn joins_world(&self, cluster: &ClusterInfo) -> bool {
        cluster.may_be_many()
    }

    fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        let refuse = |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint));
        let accelerator = cluster.accelerator.as_ref();
        if accelerator.is_none() && self.collectives == Collectives::Nccl {
            return refuse(
                "NCCL needs accelerators, and the nodes have none".into(),
                "ask for some: `.accelerator(…)`, or choose `Collectives::Gloo`",
            );
        }
        let unserved = accelerator.filter(|_| self.collectives == Collectives::Nccl).and_then(without_nccl);
        if let Some((accelerator, family)) = unserved {
            return refuse(
                format!("the plugin `torch` cannot use NCCL on {}, which is of the family {family}", accelerator.kind),
                "leave `.collectives(…)` out or choose `Collectives::Gloo`: NCCL serves accelerators of NVIDIA and AMD",
            );
        }
        self.build.install(image, cluster)
    }

    fn around_app(&self, cluster: &ClusterInfo) -> Option<Hook> {
        Some(self.hook(cluster, HookKind::App, "around_app"))
    }

    fn around_task(&self, cluster: &ClusterInfo) -> Option<Hook> {
        cluster.may_be_many().then(|| self.hook(cluster, HookKind::Task, "around_task"))
    }
}

const INSTALLER: Installer = Installer {
    plugin: "torch",
    framework: "PyTorch",
    choose: "by `plugins::torch().cuda(…)` or `plugins::torch().index(…)`",
};

const SOURCE: &str = include_str!("../python/skyward_plugins/torch.py");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::FROM_INDEX;

    fn cpus() -> ClusterInfo {
        ClusterInfo::new(2, 1)
    }

    fn gpus(kind: &str) -> ClusterInfo {
        ClusterInfo::new(2, 4).accelerator(Accelerator::new(kind, 4))
    }

    fn url(plugin: &Torch, cluster: &ClusterInfo) -> Option<String> {
        let image = plugin.transform(Image::new(), cluster).unwrap();
        assert_eq!(image.pip, ["torch", "numpy"]);
        image.indexes.first().map(|index| {
            assert_eq!(index.packages, FROM_INDEX);
            index.url.trim_start_matches("https://download.pytorch.org/whl/").to_owned()
        })
    }

    #[test]
    fn a_build_comes_from_its_index_and_the_default_from_the_default_one() {
        for cluster in [cpus(), gpus("H100")] {
            assert_eq!(url(&torch(), &cluster), None);
        }
        for (name, build) in [
            ("cu126", "cu126"),
            ("12.6", "cu126"),
            ("CUDA12.8", "cu128"),
            ("130", "cu130"),
            ("rocm6.4", "rocm6.4"),
            ("xpu", "xpu"),
            ("cpu", "cpu"),
        ] {
            // Where the family is unknown the choice alone decides.
            assert_eq!(url(&torch().cuda(name), &gpus("X9")).as_deref(), Some(build));
            assert_eq!(url(&torch().cuda(name), &cpus()).as_deref(), Some("cpu"));
        }
        let mirror = torch().cuda("cu126").index("https://mirror.example/torch");
        assert_eq!(url(&mirror, &cpus()).as_deref(), Some("https://mirror.example/torch"));
    }

    #[test]
    fn numpy_is_there_in_a_version_that_suits() {
        for (version, expected) in [
            (None, ["torch", "numpy"]),
            (Some("2.9.1"), ["torch==2.9.1", "numpy"]),
            (Some("2.3.0"), ["torch==2.3.0", "numpy"]),
            (Some("2.2.2"), ["torch==2.2.2", "numpy<2"]),
            (Some("== 1.13.1"), ["torch== 1.13.1", "numpy<2"]),
            (Some(">=2.2,<3"), ["torch>=2.2,<3", "numpy"]),
        ] {
            let plugin = version.into_iter().fold(torch(), Torch::version);
            assert_eq!(plugin.transform(Image::new(), &cpus()).unwrap().pip, expected);
        }
        let pinned = torch().transform(Image::new().pip(["NumPy==1.26.4"]), &cpus()).unwrap();
        assert_eq!(pinned.pip, ["NumPy==1.26.4", "torch"]);
    }

    #[test]
    fn unknown_builds_are_refused() {
        for name in ["12", "cu12", "13", "", "cu12x", "rocm", "rocm64", "tpu", "../x"] {
            let error = torch().cuda(name).transform(Image::new(), &cpus()).unwrap_err();
            assert_eq!(error.message(), format!("PyTorch publishes no build for {name:?}"));
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        }
    }

    #[test]
    fn each_accelerator_has_a_worker() {
        assert_eq!(torch().workers_per_node(Some(&Accelerator::new("H100", 8))), Some(8));
        assert_eq!(torch().workers_per_node(None), None);
        let crowded = ClusterInfo::new(1, 5).accelerator(Accelerator::new("H100", 4));
        let error = torch().transform(Image::new(), &crowded).unwrap_err();
        assert_eq!(error.message(), "a node has 5 workers and 4× H100");
    }

    #[test]
    fn builds_and_collectives_must_suit_the_nodes() {
        let error = torch().collectives(Collectives::Nccl).transform(Image::new(), &cpus()).unwrap_err();
        assert_eq!(error.message(), "NCCL needs accelerators, and the nodes have none");
        for (build, kind) in [("cu126", "V100-SXM2"), ("rocm6.4", "MI300X"), ("cpu", "H100"), ("cpu", "v5e")] {
            assert_eq!(url(&torch().cuda(build), &gpus(kind)).as_deref(), Some(build), "{kind}");
        }
        for kind in ["MI300X", "v5e", "X9"] {
            torch().transform(Image::new().python("/opt/python"), &gpus(kind)).unwrap();
            torch().index("https://mirror.example/torch").transform(Image::new(), &gpus(kind)).unwrap();
        }
        for kind in ["NVIDIA X9", "H100-SXM5", "nvidia-tesla-t4"] {
            assert_eq!(url(&torch(), &gpus(kind)), None, "{kind}");
        }
    }

    #[test]
    fn accelerators_without_a_build_are_refused_by_name() {
        let index = "choose an index that has one by `plugins::torch().index(…)`, or ask for an accelerator of NVIDIA";
        let choose = "by `plugins::torch().cuda(…)` or `plugins::torch().index(…)`";
        let other = format!("remove the choice or choose another one {choose}, or ask for another accelerator");
        for (plugin, kind, message, hint) in [
            (
                torch(),
                "MI300X",
                "the plugin `torch` cannot serve MI300X, which is of the family AMD: it installs no build of PyTorch for it",
                format!("choose a build for ROCm, such as `rocm6.4`, {choose}"),
            ),
            (
                torch(),
                "v5litepod-8",
                "the plugin `torch` cannot serve v5litepod-8, which is of the family Google TPU: it installs no build of \
                 PyTorch for it",
                index.into(),
            ),
            (
                torch(),
                "Inf2",
                "the plugin `torch` cannot serve Inf2, which is of the family AWS Neuron: it installs no build of PyTorch for \
                 it",
                index.into(),
            ),
            (
                torch(),
                "Gaudi3",
                "the plugin `torch` cannot serve Gaudi3, which is of the family Intel Gaudi: it installs no build of PyTorch \
                 for it",
                index.into(),
            ),
            (
                torch(),
                "H1000",
                "the plugin `torch` does not know which build of PyTorch serves H1000: the accelerator is unknown",
                format!(
                    "the nearest known names are H100; for an accelerator of another name choose the build {choose}"
                ),
            ),
            (
                torch().cuda("12.6"),
                "MI300X",
                "the build `cu126` of PyTorch, which is chosen in the plugin `torch`, does not run on MI300X, which is of the \
                 family AMD",
                other.clone(),
            ),
            (
                torch().cuda("rocm6.4"),
                "H100",
                "the build `rocm6.4` of PyTorch, which is chosen in the plugin `torch`, does not run on H100, which is of the \
                 family NVIDIA",
                other,
            ),
            (
                torch().index("https://mirror.example/torch").collectives(Collectives::Nccl),
                "v6e",
                "the plugin `torch` cannot use NCCL on v6e, which is of the family Google TPU",
                "leave `.collectives(…)` out or choose `Collectives::Gloo`: NCCL serves accelerators of NVIDIA and AMD"
                    .into(),
            ),
        ] {
            let error = plugin.transform(Image::new(), &gpus(kind)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{kind}");
            assert_eq!(error.message(), message, "{kind}");
            assert_eq!(error.hint(), Some(&*hint), "{kind}");
        }
    }

    #[test]
    fn collectives_are_those_that_the_accelerators_have() {
        for (kind, collectives) in
            [("H100", "auto"), ("MI300X", "auto"), ("X9", "auto"), ("v5e", "gloo"), ("Trn1", "gloo")]
        {
            assert_eq!(torch().around_app(&gpus(kind)).unwrap().config["collectives"], collectives, "{kind}");
        }
    }

    #[test]
    fn the_hook_gets_the_choices() {
        let hook = torch().around_app(&cpus()).unwrap();
        assert_eq!(hook.config, json!({"collectives": "auto", "timeout": 240.0, "collective_timeout": null}));
        hook.validate().unwrap();
        let chosen = torch()
            .version("2.9.1")
            .collectives(Collectives::Gloo)
            .timeout(Duration::from_secs(9))
            .collective_timeout(Duration::from_secs(60));
        let config = json!({"collectives": "gloo", "timeout": 9.0, "collective_timeout": 60.0});
        assert_eq!(chosen.around_app(&cpus()).unwrap().config, config);
        let task = chosen.around_task(&cpus()).unwrap();
        assert_eq!(task.config, config);
        task.validate().unwrap();
        assert!(torch().around_task(&ClusterInfo::new(1, 1)).is_none());
        assert_eq!(chosen.constructor(), "plugins::torch().version(\"2.9.1\").collectives(Collectives::Gloo)");
    }
}
