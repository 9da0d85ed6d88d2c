//! The `keras` plugin.

use serde_json::json;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::plugin::{Hook, HookKind, Plugin, Relation};
use skyward_core::spec::{Accelerator, AcceleratorFamily, ClusterInfo, Image, Python};

use crate::build::check_default;
use crate::family::Installer;
use crate::layout::Distribution;
use crate::requirement::{asks_for, requirement};

/// Installs Keras 3 on a backend, and distributes training over all workers; see [`keras`].
#[derive(Debug, Clone)]
pub struct Keras {
    backend: Backend,
    seed: Option<u32>,
    distribution: Option<Distribution>,
    version: Option<String>,
}

/// The framework that Keras computes with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// JAX: training is distributed over the workers with no change to the payload.
    #[default]
    Jax,
    /// PyTorch: the payload distributes training, with `DistributedDataParallel`.
    Torch,
    /// TensorFlow: the payload distributes training, with a `tf.distribute` strategy.
    Tensorflow,
}

/// Installs Keras 3, and chooses its backend before any payload imports it: Keras cannot change the
/// backend afterwards.
///
/// On JAX with more than one worker, the plugin also distributes training, unless another
/// [`Distribution`] is chosen: all workers start from the same weights, and `fit` averages
/// gradients over them. Each worker feeds its own part of the data (`sky.shard(…,
/// drop_last=True)`), in the same number of batches of the same size. This needs the plugin
/// [`jax`](crate::jax()) before it. On one worker Keras needs no other plugin, and installs the
/// backend itself. If the backend has no build for the accelerator, the pool is refused before
/// anything starts, unless the image or a plugin before this one names the backend's package.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugin::Plugin;
/// use skyward::plugins::{Backend, keras};
/// use skyward::spec::{ClusterInfo, Image};
///
/// let image = keras().backend(Backend::Torch).transform(Image::new(), &ClusterInfo::new(1, 1))?;
/// assert_eq!(image.pip, ["torch", "keras>=3.11"]);
/// assert_eq!(image.env["KERAS_BACKEND"], "torch");
/// # Ok::<(), skyward_core::Error>(())
/// ```
pub fn keras() -> Keras {
    Keras { backend: Backend::Jax, seed: None, distribution: None, version: None }
}

impl Keras {
    /// Chooses the backend. The default is JAX.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Seeds Python's, NumPy's, the backend's and Keras's random numbers at the start of every
    /// task.
    #[must_use]
    pub fn seed(mut self, seed: u32) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Chooses how training is spread over devices, on JAX only. The default is data parallel with
    /// more than one worker, and none with one.
    #[must_use]
    pub fn distribution(mut self, distribution: Distribution) -> Self {
        self.distribution = Some(distribution);
        self
    }

    /// Chooses the version: `3.15.1`, or a specifier such as `>=3.11,<4`. Distributed training
    /// needs 3.11.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Whether training is meant to span workers.
    fn spans(&self, cluster: &ClusterInfo) -> bool {
        cluster.may_be_many() && self.distribution != Some(Distribution::None)
    }

    fn check_distribution(&self, image: &Image, cluster: &ClusterInfo) -> Result<()> {
        let Some(distribution) = self.distribution.as_ref().filter(|it| **it != Distribution::None) else {
            return Ok(());
        };
        if self.backend != Backend::Jax {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                format!("keras distributes on jax only, and the backend is {}", self.backend.name()),
            )
            .with_hint(
                "leave `.distribution(…)` out and distribute in the payload, or choose `.backend(Backend::Jax)`",
            ));
        }
        let Distribution::ModelParallel(mesh) = distribution else { return Ok(()) };
        let each = match &cluster.accelerator {
            Some(accelerator) => accelerator.count,
            None => cluster.workers_per_node * virtual_devices(image),
        };
        let devices = u64::from(cluster.nodes) * u64::from(each);
        mesh.validate(devices, u64::from(cluster.nodes) * u64::from(cluster.workers_per_node))
    }

    /// The packages of the backend, unless a plugin before this one installs them.
    fn backend_requirement(&self, python: &Python, cluster: &ClusterInfo) -> Result<String> {
        let accelerator = cluster.accelerator.as_ref();
        let installer = self.backend.installer();
        match self.backend {
            Backend::Jax => crate::jax().requirement(&installer, accelerator),
            Backend::Torch => {
                accelerator.map_or(Ok(()), |accelerator| check_default(&installer, "torch", accelerator, python))?;
                Ok("torch".into())
            }
            Backend::Tensorflow => {
                let extra = accelerator.map(|accelerator| tensorflow_extra(&installer, accelerator)).transpose()?;
                requirement("tensorflow", extra, None)
            }
        }
    }

    fn hook(&self, kind: HookKind, factory: &str) -> Hook {
        let distribution = self.distribution.as_ref().map_or_else(|| json!({"kind": "auto"}), Distribution::config);
        Hook::new(kind, "skyward_plugins/keras.py", SOURCE, factory)
            .config(json!({"backend": self.backend.name(), "seed": self.seed, "distribution": distribution}))
    }
}

impl Backend {
    /// Keras's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jax => "jax",
            Self::Torch => "torch",
            Self::Tensorflow => "tensorflow",
        }
    }

    /// How errors about the backend's build name Keras.
    fn installer(self) -> Installer {
        let (framework, choose) = match self {
            Self::Jax => ("JAX", "by `plugins::jax().cuda(…)` before `plugins::keras()`"),
            Self::Torch => {
                ("PyTorch", "by `plugins::torch().cuda(…)` or `plugins::torch().index(…)` before `plugins::keras()`")
            }
            Self::Tensorflow => ("TensorFlow", "in the image: `.pip([\"tensorflow…\"])`"),
        };
        Installer { plugin: "keras", framework, choose }
    }
}

impl Plugin for Keras {
    fn name(&self) -> &str {
        "keras"
    }

    fn constructor(&self) -> String {
        let mut text = "plugins::keras()".to_owned();
        if self.backend != Backend::Jax {
            text += &format!(".backend(Backend::{:?})", self.backend);
        }
        if let Some(seed) = self.seed {
            text += &format!(".seed({seed})");
        }
        match &self.distribution {
            None => {}
            Some(Distribution::ModelParallel(_)) => text += ".distribution(Distribution::ModelParallel(…))",
            Some(other) => text += &format!(".distribution(Distribution::{other:?})"),
        }
        if let Some(version) = &self.version {
            text += &format!(".version({version:?})");
        }
        text
    }

    fn requires(&self, cluster: &ClusterInfo) -> Vec<Relation> {
        match self.backend {
            _ if !self.spans(cluster) => Vec::new(),
            Backend::Jax => vec![
                Relation::new(
                    "jax",
                    "it joins the workers into the world whose devices keras trains on (for a model in each worker alone: `plugins::keras().distribution(Distribution::None)`)",
                )
                .written("plugins::jax()"),
            ],
            Backend::Torch => vec![
                Relation::new(
                    "torch",
                    "it makes the process group over which the payload averages gradients (for a model in each worker alone: \
                     `plugins::keras().backend(Backend::Torch).distribution(Distribution::None)`)",
                )
                .written("plugins::torch()"),
            ],
            Backend::Tensorflow => Vec::new(),
        }
    }

    fn conflicts_with(&self, cluster: &ClusterInfo) -> Vec<Relation> {
        let other = match self.backend {
            _ if !self.spans(cluster) => return Vec::new(),
            Backend::Jax => "torch",
            Backend::Torch => "jax",
            Backend::Tensorflow => return Vec::new(),
        };
        let backend = self.backend.name();
        let reason = format!("keras trains in the world of {backend}, and the plugin {other} would replace that world");
        vec![Relation::new(other, reason).written(format!("plugins::{other}()"))]
    }

    fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        let backend = self.backend.name();
        if let Some(other) = image.env.get("KERAS_BACKEND").filter(|other| *other != backend) {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                format!("the image sets KERAS_BACKEND to {other:?}, and the keras plugin to {backend:?}"),
            )
            .with_hint("leave the variable to the plugin: `plugins::keras().backend(…)`"));
        }
        self.check_distribution(&image, cluster)?;
        let keras = requirement("keras", None, Some(self.version.as_deref().unwrap_or(">=3.11")))?;
        let image = if asks_for(&image.pip, backend) {
            image
        } else {
            let requirement = self.backend_requirement(&image.python, cluster)?;
            image.pip([requirement])
        };
        Ok(image.pip([keras]).env("KERAS_BACKEND", backend))
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<Hook> {
        Some(self.hook(HookKind::App, "around_app"))
    }

    fn around_task(&self, cluster: &ClusterInfo) -> Option<Hook> {
        let distributed = match &self.distribution {
            None => self.backend == Backend::Jax && cluster.may_be_many(),
            Some(distribution) => *distribution != Distribution::None,
        };
        (distributed || self.seed.is_some()).then(|| self.hook(HookKind::Task, "around_task"))
    }
}

/// The devices that JAX makes of one worker's CPU: what `JAX_NUM_CPU_DEVICES` says, else the flag
/// of XLA, else one.
fn virtual_devices(image: &Image) -> u32 {
    let number = |text: &str| text.trim().parse().ok().filter(|count| *count > 0);
    let flags = image.env.get("XLA_FLAGS").map_or("", String::as_str).split_whitespace();
    let flag = flags.filter_map(|flag| flag.strip_prefix("--xla_force_host_platform_device_count=")).next_back();
    let variable = image.env.get("JAX_NUM_CPU_DEVICES").and_then(|count| number(count));
    variable.or_else(|| flag.and_then(number)).unwrap_or(1)
}

/// TensorFlow's extra for an accelerator.
fn tensorflow_extra(installer: &Installer, accelerator: &Accelerator) -> Result<&'static str> {
    match installer.family(accelerator)? {
        AcceleratorFamily::Nvidia => Ok("and-cuda"),
        family => {
            let hint = format!("choose a build for it {}, or ask for an accelerator of NVIDIA", installer.choose);
            Err(installer.unserved(accelerator, family, &hint))
        }
    }
}

const SOURCE: &str = include_str!("../python/skyward_plugins/keras.py");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ModelParallel;

    fn one() -> ClusterInfo {
        ClusterInfo::new(1, 1)
    }

    #[test]
    fn the_backend_is_installed_where_nothing_else_does() {
        let gpus = one().accelerator(Accelerator::new("T4", 1));
        for (backend, cluster, before, pip) in [
            (Backend::Jax, one(), &[][..], &["jax", "keras>=3.11"][..]),
            (Backend::Jax, gpus.clone(), &[], &["jax[cuda12]", "keras>=3.11"]),
            (Backend::Jax, gpus.clone(), &["jax[cuda13]==0.10"], &["jax[cuda13]==0.10", "keras>=3.11"]),
            (Backend::Torch, one(), &[], &["torch", "keras>=3.11"]),
            (Backend::Torch, one(), &["Torch>=2"], &["Torch>=2", "keras>=3.11"]),
            (Backend::Tensorflow, one(), &[], &["tensorflow", "keras>=3.11"]),
            (Backend::Tensorflow, gpus, &[], &["tensorflow[and-cuda]", "keras>=3.11"]),
        ] {
            let plugin = keras().backend(backend);
            let image = plugin.transform(Image::new().pip(before.iter().copied()), &cluster).unwrap();
            assert_eq!(image.pip, pip);
            assert_eq!(image.env["KERAS_BACKEND"], backend.name());
        }
        let pinned = keras().version("3.15.1").transform(Image::new(), &one()).unwrap();
        assert_eq!(pinned.pip, ["jax", "keras==3.15.1"]);
    }

    #[test]
    fn virtual_devices_of_the_cpu_count_in_a_mesh() {
        let flag = "--xla_force_host_platform_device_count=";
        for (variables, devices) in [
            (vec![], 1),
            (vec![("JAX_NUM_CPU_DEVICES", "4".to_owned())], 4),
            (vec![("XLA_FLAGS", format!("{flag}4"))], 4),
            (vec![("XLA_FLAGS", format!("--xla_dump_to=/tmp {flag}2 {flag}4"))], 4),
            (vec![("XLA_FLAGS", format!("{flag}2")), ("JAX_NUM_CPU_DEVICES", "4".into())], 4),
            (vec![("XLA_FLAGS", format!("{flag}2")), ("JAX_NUM_CPU_DEVICES", "-1".into())], 2),
        ] {
            let image = variables.into_iter().fold(Image::new(), |image, (name, value)| image.env(name, value));
            assert_eq!(virtual_devices(&image), devices, "{image:?}");
            let mesh = ModelParallel::new([("data", 2), ("model", devices)]);
            let plugin = keras().distribution(Distribution::ModelParallel(mesh));
            plugin.transform(image.pip(["jax"]), &ClusterInfo::new(2, 1)).unwrap();
        }
    }

    #[test]
    fn accelerators_without_a_build_of_the_backend_are_refused_by_name() {
        let on = |kind: &str| one().accelerator(Accelerator::new(kind, 1));
        let refused = |backend: Backend, kind: &str| {
            let error = keras().backend(backend).transform(Image::new(), &on(kind)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            (error.message().to_owned(), error.hint().unwrap_or_default().to_owned())
        };
        for (backend, framework, kind, family) in [
            (Backend::Jax, "JAX", "Trn1", "AWS Neuron"),
            (Backend::Torch, "PyTorch", "MI300X", "AMD"),
            (Backend::Torch, "PyTorch", "v5e", "Google TPU"),
            (Backend::Tensorflow, "TensorFlow", "MI300X", "AMD"),
            (Backend::Tensorflow, "TensorFlow", "v5e", "Google TPU"),
            (Backend::Tensorflow, "TensorFlow", "Gaudi2", "Intel Gaudi"),
        ] {
            let (message, _) = refused(backend, kind);
            assert_eq!(
                message,
                format!(
                    "the plugin `keras` cannot serve {kind}, which is of the family {family}: it installs no build of \
                     {framework} for it"
                )
            );
        }
        for (backend, framework, choose) in [
            (Backend::Jax, "JAX", "by `plugins::jax().cuda(…)` before `plugins::keras()`"),
            (
                Backend::Torch,
                "PyTorch",
                "by `plugins::torch().cuda(…)` or `plugins::torch().index(…)` before `plugins::keras()`",
            ),
            (Backend::Tensorflow, "TensorFlow", "in the image: `.pip([\"tensorflow…\"])`"),
        ] {
            let (message, hint) = refused(backend, "quantum-annealer");
            assert_eq!(
                message,
                format!(
                    "the plugin `keras` does not know which build of {framework} serves quantum-annealer: the accelerator is \
                     unknown"
                )
            );
            assert_eq!(hint, format!("for an accelerator of another name choose the build {choose}"));
            // An image that names the package has chosen the build.
            let image = Image::new().pip([backend.name()]);
            keras().backend(backend).transform(image, &on("quantum-annealer")).unwrap();
        }
        // An interpreter of the user's may have a build of its own.
        let interpreter = Image::new().python("/opt/python");
        keras().backend(Backend::Torch).transform(interpreter, &on("MI300X")).unwrap();
        let image = keras().transform(Image::new(), &on("v5litepod-8")).unwrap();
        assert_eq!(image.pip, ["jax[tpu]", "keras>=3.11"]);
    }

    #[test]
    fn another_backend_in_the_image_is_refused() {
        let error = keras().transform(Image::new().env("KERAS_BACKEND", "torch"), &one()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert_eq!(error.message(), "the image sets KERAS_BACKEND to \"torch\", and the keras plugin to \"jax\"");
        keras().transform(Image::new().env("KERAS_BACKEND", "jax"), &one()).unwrap();
    }

    #[test]
    fn distribution_is_for_jax_and_fits_the_devices() {
        let error =
            keras().backend(Backend::Torch).distribution(Distribution::DataParallel).transform(Image::new(), &one());
        assert_eq!(error.unwrap_err().message(), "keras distributes on jax only, and the backend is torch");
        let four = || keras().distribution(Distribution::ModelParallel(ModelParallel::new([("data", 4)])));
        four().transform(Image::new(), &ClusterInfo::new(2, 2)).unwrap();
        four().transform(Image::new().env("JAX_NUM_CPU_DEVICES", "4"), &one()).unwrap();
        let gpus = ClusterInfo::new(2, 1).accelerator(Accelerator::new("T4", 2));
        four().transform(Image::new(), &gpus).unwrap();
        let error = four().transform(Image::new(), &ClusterInfo::new(3, 1)).unwrap_err();
        assert_eq!(error.message(), "the mesh has 4 places (data 4), and the workers have 3 devices");
    }

    #[test]
    fn hooks_get_the_choices_and_tasks_are_wrapped_only_where_it_matters() {
        let two = ClusterInfo::new(2, 1);
        let app = keras().around_app(&two).unwrap();
        assert_eq!(app.config, json!({"backend": "jax", "seed": null, "distribution": {"kind": "auto"}}));
        app.validate().unwrap();
        let task = keras().seed(3).distribution(Distribution::DataParallel).around_task(&two).unwrap();
        assert_eq!(task.config, json!({"backend": "jax", "seed": 3, "distribution": {"kind": "data_parallel"}}));
        task.validate().unwrap();
        for (plugin, cluster, wrapped) in [
            (keras(), one(), false),
            (keras(), two.clone(), true),
            (keras().seed(1), one(), true),
            (keras().distribution(Distribution::None), two.clone(), false),
            (keras().distribution(Distribution::DataParallel), one(), true),
            (keras().backend(Backend::Torch), two, false),
        ] {
            assert_eq!(plugin.around_task(&cluster).is_some(), wrapped, "{plugin:?}");
        }
    }
}
