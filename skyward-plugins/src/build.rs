//! The build of PyTorch that suits the nodes, for the plugins that install it.

use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::spec::{Accelerator, AcceleratorFamily, ClusterInfo, Image, PackageIndex, Python};

use crate::family::Installer;
use crate::requirement::{asks_for, requirement};

/// Which PyTorch a plugin installs, as its user has chosen.
#[derive(Debug, Clone)]
pub(crate) struct Build {
    installer: Installer,
    /// A build of PyTorch's own package index.
    pub(crate) cuda: Option<String>,
    /// A package index to take torch from.
    pub(crate) index: Option<String>,
    pub(crate) version: Option<String>,
}

impl Build {
    pub(crate) fn new(installer: Installer) -> Self {
        Self { installer, cuda: None, index: None, version: None }
    }

    /// The choices as they are written after the plugin's constructor; `version` is the plugin's
    /// name for the version.
    pub(crate) fn calls(&self, version: &str) -> String {
        let calls = [("cuda", &self.cuda), ("index", &self.index), (version, &self.version)];
        let written = calls.into_iter().filter_map(|(name, value)| Some(format!(".{name}({:?})", value.as_ref()?)));
        written.collect()
    }

    /// Adds torch, and NumPy where the image does not name it, for the accelerators of the nodes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a build or an accelerator that PyTorch or the plugin does not
    /// serve, and for workers without an accelerator of their own.
    pub(crate) fn install(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        if let Some(accelerator) = cluster.accelerator.as_ref().filter(|it| cluster.workers_per_node > it.count) {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                format!("a node has {} workers and {accelerator}", cluster.workers_per_node),
            )
            .with_hint("each rank needs an accelerator of its own: leave `.workers_per_node(…)` out"));
        }
        let url = self.url(cluster.accelerator.as_ref(), &image.python)?;
        let named = asks_for(&image.pip, "numpy");
        let image = image.pip([requirement("torch", None, self.version.as_deref())?]);
        let image = if named { image } else { image.pip([self.numpy()]) };
        Ok(match url {
            Some(url) => image.index(PackageIndex::new("pytorch", url).only(FROM_INDEX.iter().copied())),
            None => image,
        })
    }

    /// NumPy in a version that this torch was built for: those before 2.3 know no NumPy 2.
    fn numpy(&self) -> &'static str {
        let exact = self.version.as_deref().map(|version| version.trim().trim_start_matches("==").trim_start());
        let mut parts = exact.unwrap_or_default().split('.').map(str::parse::<u32>);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (2, 3) => "numpy<2",
            _ => "numpy",
        }
    }

    /// Where torch comes from, if not from the default index.
    fn url(&self, accelerator: Option<&Accelerator>, python: &Python) -> Result<Option<String>> {
        let build = self.cuda.as_deref().map(build).transpose()?;
        if self.index.is_some() {
            return Ok(self.index.clone());
        }
        let build = match (build, accelerator) {
            (Some(_), None) => Some("cpu".into()),
            (Some(build), Some(accelerator)) => {
                check_build(&self.installer, &build, accelerator)?;
                Some(build)
            }
            (None, Some(accelerator)) => {
                check_default(&self.installer, self.installer.plugin, accelerator, python)?;
                None
            }
            (None, None) => None,
        };
        Ok(build.map(|build| format!("{PYTORCH_INDEX}/{build}")))
    }
}

/// The folder of PyTorch's index for what people call a build.
fn build(name: &str) -> Result<String> {
    let plain = name.trim().to_ascii_lowercase();
    let digits = |text: &str, length| text.len() == length && text.chars().all(|c| c.is_ascii_digit());
    let cuda = plain.strip_prefix("cuda").or_else(|| plain.strip_prefix("cu")).unwrap_or(&plain).replace('.', "");
    let rocm = plain.strip_prefix("rocm").and_then(|version| version.split_once('.'));
    if plain == "cpu" || plain == "xpu" || rocm.is_some_and(|(major, minor)| digits(major, 1) && digits(minor, 1)) {
        Ok(plain)
    } else if digits(&cuda, 3) {
        Ok(format!("cu{cuda}"))
    } else {
        Err(Error::new(ErrorKind::InvalidSpec, format!("PyTorch publishes no build for {name:?}"))
            .with_hint("give a CUDA version with its minor number (`cu126`, `12.6`), `rocm6.4`, `xpu` or `cpu`"))
    }
}

/// Refuses a build of PyTorch's index that does not run on the accelerator's family.
fn check_build(installer: &Installer, build: &str, accelerator: &Accelerator) -> Result<()> {
    let Some(family) = accelerator.family() else { return Ok(()) };
    let runs = match family {
        AcceleratorFamily::Nvidia => build.starts_with("cu"),
        AcceleratorFamily::Amd => build.starts_with("rocm"),
        _ => false,
    };
    if runs || build == "cpu" { Ok(()) } else { Err(installer.unsuited(build, accelerator, family)) }
}

/// Refuses an accelerator that the default build does not see; an interpreter of the user's may
/// have a build of its own. `chooser` is the plugin by which the user chooses another build.
pub(crate) fn check_default(
    installer: &Installer,
    chooser: &str,
    accelerator: &Accelerator,
    python: &Python,
) -> Result<()> {
    if matches!(python, Python::Interpreter(_)) {
        return Ok(());
    }
    let family = installer.family(accelerator)?;
    let hint = match family {
        AcceleratorFamily::Nvidia => return Ok(()),
        AcceleratorFamily::Amd => format!("choose a build for ROCm, such as `rocm6.4`, {}", installer.choose),
        _ => format!(
            "choose an index that has one by `plugins::{chooser}().index(…)`, or ask for an accelerator of NVIDIA"
        ),
    };
    Err(installer.unserved(accelerator, family, &hint))
}

/// An accelerator whose tensors NCCL does not carry, and its family.
pub(crate) fn without_nccl(accelerator: &Accelerator) -> Option<(&Accelerator, AcceleratorFamily)> {
    let family = accelerator.family()?;
    (!matches!(family, AcceleratorFamily::Nvidia | AcceleratorFamily::Amd)).then_some((accelerator, family))
}

const PYTORCH_INDEX: &str = "https://download.pytorch.org/whl";

/// What PyTorch's index has that must not come from elsewhere, where a build is chosen.
pub(crate) const FROM_INDEX: [&str; 6] =
    ["torch", "torchvision", "torchaudio", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu"];
