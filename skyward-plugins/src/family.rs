//! Which accelerators the builds of a framework run on, and the errors for accelerators without a
//! build.

use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::spec::{Accelerator, AcceleratorFamily};

/// A plugin that installs a framework for the accelerators of the nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Installer {
    /// The plugin's name.
    pub(crate) plugin: &'static str,
    /// What it installs.
    pub(crate) framework: &'static str,
    /// How the user chooses the build, as the rest of a sentence that begins with "choose the build
    /// ".
    pub(crate) choose: &'static str,
}

impl Installer {
    /// The family of an accelerator for which the user has chosen no build.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a kind that is not known.
    pub(crate) fn family(&self, accelerator: &Accelerator) -> Result<AcceleratorFamily> {
        accelerator.family().ok_or_else(|| {
            let Self { plugin, framework, choose } = self;
            let message = format!(
                "the plugin `{plugin}` does not know which build of {framework} serves {}: the accelerator is unknown",
                accelerator.kind
            );
            let near = accelerator.nearest_kinds();
            let near = match near.is_empty() {
                true => String::new(),
                false => format!("the nearest known names are {}; ", near.join(", ")),
            };
            Error::new(ErrorKind::InvalidSpec, message)
                .with_hint(format!("{near}for an accelerator of another name choose the build {choose}"))
        })
    }

    /// The error for an accelerator of a family that the plugin installs no build for.
    pub(crate) fn unserved(&self, accelerator: &Accelerator, family: AcceleratorFamily, hint: &str) -> Error {
        let Self { plugin, framework, .. } = self;
        let message = format!(
            "the plugin `{plugin}` cannot serve {}, which is of the family {family}: it installs no build of {framework} \
             for it",
            accelerator.kind
        );
        Error::new(ErrorKind::InvalidSpec, message).with_hint(hint)
    }

    /// The error for a build that the user has chosen and that is for other accelerators.
    pub(crate) fn unsuited(&self, build: &str, accelerator: &Accelerator, family: AcceleratorFamily) -> Error {
        let Self { plugin, framework, .. } = self;
        let message = format!(
            "the build `{build}` of {framework}, which is chosen in the plugin `{plugin}`, does not run on {}, which is \
             of the family {family}",
            accelerator.kind
        );
        let hint = format!("remove the choice or choose another one {}, or ask for another accelerator", self.choose);
        Error::new(ErrorKind::InvalidSpec, message).with_hint(hint)
    }
}
