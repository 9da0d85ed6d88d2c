//! The `jax` plugin.

use std::time::Duration;

use serde_json::json;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::plugin::{Hook, HookKind, Plugin};
use skyward_core::spec::{Accelerator, ClusterInfo, Image};

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
/// Each worker is one process of the world, `jax.devices()` shows the devices of all of them, and computations over those must run on every worker at the same time (a broadcast).
/// With one worker nothing is joined. On nodes without an accelerator it installs JAX for the CPU, whose collectives go through gloo.
///
/// Where a node has several workers, each gets its equal share of the node's accelerators. The default, one worker per node, suits JAX: it uses all of them.
///
/// ```
/// use skyward_core::plugin::Plugin;
/// use skyward_core::spec::{Accelerator, ClusterInfo, Image};
///
/// let gpus = ClusterInfo::new(4, 1).with_accelerator(Some(Accelerator::new("A100", 8)));
/// let image = skyward_plugins::jax().cuda("cu124").transform(Image::new(), &gpus)?;
/// assert_eq!(image.pip, ["jax[cuda12]"]);
/// # Ok::<(), skyward_core::Error>(())
/// ```
pub fn jax() -> Jax {
    Jax { cuda: None, version: None, timeout: Duration::from_secs(240) }
}

impl Jax {
    /// Chooses the build for nodes with an accelerator: a CUDA version under any of its names (`12`, `13`, `12.4`, `cu124`, `cuda13`), or one of JAX's extras
    /// ([`Jax::EXTRAS`]). Without it: `tpu` for TPUs, `rocm7-local` for AMD's, and else `cuda12`, which runs on every driver from 525 on.
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

    /// What all workers together get to meet. The default of 240 s is less than what a pool gives hooks, so that the error is the one that names the missing rank.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The extras of JAX that install a build for an accelerator.
    pub const EXTRAS: &[&str] = &["cuda12", "cuda13", "cuda12-local", "cuda13-local", "tpu", "rocm7-local"];

    /// What is to be installed on nodes with this accelerator.
    pub(crate) fn requirement(&self, accelerator: Option<&Accelerator>) -> Result<String> {
        let chosen = self.cuda.as_deref().map(extra).transpose()?;
        let extra = accelerator.map(|accelerator| chosen.unwrap_or_else(|| extra_of(&accelerator.kind)));
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
        Ok(image.pip([self.requirement(accelerator)?]))
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<Hook> {
        let hook = Hook::new(HookKind::App, "skyward_plugins/jax.py", SOURCE, "around_app");
        Some(hook.with_config(json!({"timeout": self.timeout.as_secs_f64()})))
    }
}

/// JAX's extra for what people call it.
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

/// The extra that suits an accelerator.
fn extra_of(kind: &str) -> &'static str {
    let kind = kind.to_ascii_lowercase();
    let numbered =
        |prefix: &str| kind.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if kind.contains("tpu") || (numbered("v") && kind != "v100") {
        "tpu"
    } else if numbered("mi") {
        "rocm7-local"
    } else {
        "cuda12"
    }
}

const SOURCE: &str = include_str!("../python/skyward_plugins/jax.py");

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(kind: &str) -> ClusterInfo {
        let accelerator = (!kind.is_empty()).then(|| Accelerator::new(kind, 8));
        ClusterInfo::new(2, 1).with_accelerator(accelerator)
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
            let image = jax().cuda(name).transform(Image::new(), &cluster("H100")).unwrap();
            assert_eq!(image.pip, [format!("jax[{extra}]")], "{name}");
        }
    }

    #[test]
    fn an_unknown_build_is_refused_with_those_that_exist_even_where_it_would_not_be_installed() {
        for name in ["cu118", "11", "1", "", "cuda", "cuda12-remote", "rocm6", "12x"] {
            let error = jax().cuda(name).transform(Image::new(), &cluster("")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert_eq!(
                error.to_string(),
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
            ("T4", "jax[cuda12]"),
            ("v5e", "jax[tpu]"),
            ("V6e", "jax[tpu]"),
            ("MI300X", "jax[rocm7-local]"),
        ] {
            assert_eq!(jax().transform(Image::new(), &cluster(kind)).unwrap().pip, [requirement], "{kind}");
        }
        let pinned = jax().cuda("13").version("0.10.2");
        assert_eq!(pinned.transform(Image::new(), &cluster("")).unwrap().pip, ["jax==0.10.2"]);
        assert_eq!(pinned.transform(Image::new(), &cluster("H100")).unwrap().pip, ["jax[cuda13]==0.10.2"]);
        assert_eq!(pinned.constructor(), "plugins::jax().cuda(\"13\").version(\"0.10.2\")");
    }

    #[test]
    fn workers_must_divide_the_accelerators() {
        let uneven = ClusterInfo::new(1, 3).with_accelerator(Some(Accelerator::new("H100", 8)));
        let error = jax().transform(Image::new(), &uneven).unwrap_err();
        assert_eq!(error.message(), "3 workers on a node cannot share its 8× H100 evenly");
        let even = ClusterInfo::new(1, 4).with_accelerator(Some(Accelerator::new("H100", 8)));
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
