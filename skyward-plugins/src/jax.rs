//! The `jax` plugin.

use std::time::Duration;

use serde_json::json;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::plugin::{Hook, HookKind, Plugin};
use skyward_core::spec::{Accelerator, AcceleratorFamily, ClusterInfo, Image};

use crate::family::Installer;
use crate::requirement::requirement;

/// Installs JAX and joins all workers of the pool into one JAX world; see [`jax`].
#[derive(Debug, Clone)]
pub struct Jax {
    cuda: Option<String>,
    version: Option<String>,
    timeout: Duration,
}

/// Installs JAX and joins all workers of the pool into one JAX world before the first task.
///
/// Each worker is one process of the world, `jax.devices()` shows the devices of all of them, and
/// computations over those must run on every worker at the same time (a broadcast). A pool with one
/// worker makes no world. On nodes without an accelerator the plugin installs JAX for the CPU,
/// whose collectives go through gloo.
///
/// If a node has several workers, each gets an equal share of the node's accelerators. The default,
/// one worker per node, suits JAX, which uses all accelerators of its process.
///
/// The plugin serves accelerators of NVIDIA, AMD and Google (TPU). It refuses others before
/// anything starts, and also kinds that [`Accelerator::family`] does not know, unless
/// [`cuda`](Jax::cuda) chooses the build.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugin::Plugin;
/// use skyward::plugins;
/// use skyward::spec::{Accelerator, ClusterInfo, Image};
///
/// let gpus = ClusterInfo::new(4, 1).accelerator(Accelerator::new("A100", 8));
/// let image = plugins::jax().cuda("cu124").transform(Image::new(), &gpus)?;
/// assert_eq!(image.pip, ["jax[cuda12]"]);
/// # Ok::<(), skyward_core::Error>(())
/// ```
pub fn jax() -> Jax {
    Jax { cuda: None, version: None, timeout: Duration::from_secs(240) }
}

impl Jax {
    /// Chooses the build for nodes with an accelerator: a CUDA version under any of its names
    /// (`12`, `13`, `12.4`, `cu124`, `cuda13`), or one of JAX's extras ([`Jax::EXTRAS`]). Without
    /// it: `tpu` for TPUs, `rocm7-local` for AMD's, and for NVIDIA's `cuda12`, which runs on every
    /// driver from 525 on. A build that does not run on the accelerator's family is refused.
    #[must_use]
    pub fn cuda(mut self, name: impl Into<String>) -> Self {
        self.cuda = Some(name.into());
        self
    }

    /// Chooses the version: `0.10.2`, or a specifier such as `>=0.10,<0.12`.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Sets how long the workers may take to meet. The default of 240 s is less than the time that
    /// a pool gives hooks, so that the error names the missing rank.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The extras of JAX that install a build for an accelerator.
    pub const EXTRAS: &[&str] = &["cuda12", "cuda13", "cuda12-local", "cuda13-local", "tpu", "rocm7-local"];

    /// The requirement for nodes with this accelerator, for `jax` or a plugin that needs it.
    pub(crate) fn requirement(&self, installer: &Installer, accelerator: Option<&Accelerator>) -> Result<String> {
        let chosen = self.cuda.as_deref().map(extra).transpose()?;
        let extra = accelerator.map(|accelerator| extra_for(installer, accelerator, chosen)).transpose()?;
        requirement("jax", extra, self.version.as_deref())
    }
}

impl Plugin for Jax {
    fn name(&self) -> &str {
        "jax"
    }

    fn constructor(&self) -> String {
        let call = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!(".{name}({value:?})"));
        let calls = [call("cuda", &self.cuda), call("version", &self.version)];
        format!("plugins::jax(){}", calls.into_iter().flatten().collect::<String>())
    }

    fn joins_world(&self, cluster: &ClusterInfo) -> bool {
        cluster.may_be_many()
    }

    fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        let accelerator = cluster.accelerator.as_ref();
        if let Some(accelerator) = accelerator.filter(|it| !it.count.is_multiple_of(cluster.workers_per_node)) {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                format!("{} workers on a node cannot share its {accelerator} evenly", cluster.workers_per_node),
            )
            .with_hint("one worker uses all of them: `.workers_per_node(1)`"));
        }
        Ok(image.pip([self.requirement(&INSTALLER, accelerator)?]))
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<Hook> {
        let hook = Hook::new(HookKind::App, "skyward_plugins/jax.py", SOURCE, "around_app");
        Some(hook.config(json!({"timeout": self.timeout.as_secs_f64()})))
    }
}

/// JAX's extra for a build under any of its names.
fn extra(name: &str) -> Result<&'static str> {
    let plain = name.trim().to_ascii_lowercase().replace('_', "-");
    if let Some(extra) = Jax::EXTRAS.iter().find(|extra| **extra == plain) {
        return Ok(extra);
    }
    let version = plain.strip_prefix("cuda").or_else(|| plain.strip_prefix("cu")).unwrap_or(&plain);
    let number = version.trim_end_matches("-pip");
    let digits = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    match number.get(..2) {
        Some("12") if digits => Ok("cuda12"),
        Some("13") if digits => Ok("cuda13"),
        _ => Err(Error::new(ErrorKind::InvalidSpec, format!("JAX publishes no build for {name:?}")).with_hint(
            format!("give a CUDA version (`12`, `13`, `cu124`) or one of JAX's extras: {}", Jax::EXTRAS.join(", ")),
        )),
    }
}

/// The extra for an accelerator: the chosen one, if it is for the accelerator's family, or else the
/// family's.
fn extra_for(installer: &Installer, accelerator: &Accelerator, chosen: Option<&'static str>) -> Result<&'static str> {
    if let (None, Some(chosen)) = (accelerator.family(), chosen) {
        return Ok(chosen);
    }
    let family = installer.family(accelerator)?;
    let (default, prefix) = match family {
        AcceleratorFamily::Nvidia => ("cuda12", "cuda"),
        AcceleratorFamily::Amd => ("rocm7-local", "rocm"),
        AcceleratorFamily::Tpu => ("tpu", "tpu"),
        _ => return Err(installer.unserved(accelerator, family, ELSEWHERE)),
    };
    match chosen {
        Some(chosen) if !chosen.starts_with(prefix) => Err(installer.unsuited(chosen, accelerator, family)),
        chosen => Ok(chosen.unwrap_or(default)),
    }
}

const INSTALLER: Installer = Installer { plugin: "jax", framework: "JAX", choose: "by `plugins::jax().cuda(…)`" };

const ELSEWHERE: &str = "leave the plugin out and install JAX for it by the image, `.pip([…])`, or ask for an accelerator of \
                         NVIDIA, AMD or Google TPU";

const SOURCE: &str = include_str!("../python/skyward_plugins/jax.py");

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(kind: &str) -> ClusterInfo {
        let accelerator = (!kind.is_empty()).then(|| Accelerator::new(kind, 8));
        ClusterInfo::new(2, 1).accelerator(accelerator)
    }

    #[test]
    fn cuda_is_known_by_all_its_names() {
        for (name, extra) in [
            ("12", "cuda12"),
            ("13", "cuda13"),
            ("12.4", "cuda12"),
            ("cu121", "cuda12"),
            ("cu124", "cuda12"),
            ("CU128", "cuda12"),
            ("cu130", "cuda13"),
            ("cu132", "cuda13"),
            ("cuda12", "cuda12"),
            ("cuda12_pip", "cuda12"),
            ("cuda12_local", "cuda12-local"),
            ("cuda13-local", "cuda13-local"),
            ("tpu", "tpu"),
            ("rocm7-local", "rocm7-local"),
        ] {
            // Where the family is unknown the choice alone decides.
            let image = jax().cuda(name).transform(Image::new(), &cluster("X9")).unwrap();
            assert_eq!(image.pip, [format!("jax[{extra}]")], "{name}");
        }
    }

    #[test]
    fn an_unknown_build_is_refused_with_those_that_exist_even_where_it_would_not_be_installed() {
        for name in ["cu118", "11", "1", "", "cuda", "cuda12-remote", "rocm6", "12x"] {
            let error = jax().cuda(name).transform(Image::new(), &cluster("")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert_eq!(
                format!("{error:#}"),
                format!(
                    "JAX publishes no build for {name:?}\nhint: give a CUDA version (`12`, `13`, `cu124`) or one of JAX's extras: cuda12, cuda13, cuda12-local, \
                     cuda13-local, tpu, rocm7-local"
                )
            );
        }
    }

    #[test]
    fn the_build_suits_the_accelerator() {
        for (kind, requirement) in [
            ("", "jax"),
            ("H100", "jax[cuda12]"),
            ("V100", "jax[cuda12]"),
            ("V100-SXM2", "jax[cuda12]"),
            ("T4", "jax[cuda12]"),
            ("v5e", "jax[tpu]"),
            ("V6e", "jax[tpu]"),
            ("Trillium", "jax[tpu]"),
            ("tpu-v5-lite-podslice", "jax[tpu]"),
            ("MI300X", "jax[rocm7-local]"),
            ("V520", "jax[rocm7-local]"),
            ("NVIDIA X9", "jax[cuda12]"),
        ] {
            assert_eq!(jax().transform(Image::new(), &cluster(kind)).unwrap().pip, [requirement], "{kind}");
        }
        let pinned = jax().cuda("13").version("0.10.2");
        assert_eq!(pinned.transform(Image::new(), &cluster("")).unwrap().pip, ["jax==0.10.2"]);
        assert_eq!(pinned.transform(Image::new(), &cluster("H100")).unwrap().pip, ["jax[cuda13]==0.10.2"]);
        assert_eq!(pinned.constructor(), "plugins::jax().cuda(\"13\").version(\"0.10.2\")");
    }

    #[test]
    fn accelerators_without_a_build_are_refused_by_name() {
        let other =
            "remove the choice or choose another one by `plugins::jax().cuda(…)`, or ask for another accelerator";
        for (plugin, kind, message, hint) in [
            (
                jax(),
                "Trn2",
                "the plugin `jax` cannot serve Trn2, which is of the family AWS Neuron: it installs no build of JAX for it",
                "leave the plugin out and install JAX for it by the image, `.pip([…])`, or ask for an accelerator of NVIDIA, \
                 AMD or Google TPU",
            ),
            (
                jax().cuda("12"),
                "HL-205",
                "the plugin `jax` cannot serve HL-205, which is of the family Intel Gaudi: it installs no build of JAX for it",
                ELSEWHERE,
            ),
            (
                jax(),
                "H1000",
                "the plugin `jax` does not know which build of JAX serves H1000: the accelerator is unknown",
                "the nearest known names are H100; for an accelerator of another name choose the build by \
                 `plugins::jax().cuda(…)`",
            ),
            (
                jax(),
                "quantum-annealer",
                "the plugin `jax` does not know which build of JAX serves quantum-annealer: the accelerator is unknown",
                "for an accelerator of another name choose the build by `plugins::jax().cuda(…)`",
            ),
            (
                jax().cuda("cu124"),
                "MI300X",
                "the build `cuda12` of JAX, which is chosen in the plugin `jax`, does not run on MI300X, which is of the family \
                 AMD",
                other,
            ),
            (
                jax().cuda("tpu"),
                "H100",
                "the build `tpu` of JAX, which is chosen in the plugin `jax`, does not run on H100, which is of the family \
                 NVIDIA",
                other,
            ),
        ] {
            let error = plugin.transform(Image::new(), &cluster(kind)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{kind}");
            assert_eq!(error.message(), message, "{kind}");
            assert_eq!(error.hint(), Some(hint), "{kind}");
        }
    }

    #[test]
    fn workers_must_divide_the_accelerators() {
        let uneven = ClusterInfo::new(1, 3).accelerator(Accelerator::new("H100", 8));
        let error = jax().transform(Image::new(), &uneven).unwrap_err();
        assert_eq!(error.message(), "3 workers on a node cannot share its 8× H100 evenly");
        let even = ClusterInfo::new(1, 4).accelerator(Accelerator::new("H100", 8));
        jax().transform(Image::new(), &even).unwrap();
    }

    #[test]
    fn the_hook_gets_the_time_limit() {
        let hook = jax().timeout(Duration::from_millis(1500)).around_app(&cluster("")).unwrap();
        assert_eq!(hook.config, json!({"timeout": 1.5}));
        assert_eq!(hook.filename, "skyward_plugins/jax.py");
        hook.validate().unwrap();
    }
}
