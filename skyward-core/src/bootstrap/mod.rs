//! From a bare machine to one on which an agent runs.
//!
//! A [`Plan`] is made from the image, without I/O; [`run()`] executes it over any
//! [`Remote`](crate::remote::Remote). On a machine that is ready, this is one command: it checks
//! that the environment and the worker package exist, and becomes the agent. Only what is missing
//! is created, once for all nodes and pools of the machine:
//!
//! | where, in `$SKYWARD_CACHE_DIR` or `${XDG_CACHE_HOME:-~/.cache}/skyward` | what |
//! |---|---|
//! | `uv/<version>` | uv, where the machine has none that is new enough |
//! | `downloads`, `pythons` | uv's own caches, where the user's folders for them cannot be used |
//! | `envs/<content hash>` | an environment; its `.ready`, written last, lists the packages |
//! | `worker/<digest>` | the worker package, compiled |
//!
//! A machine that can only read this folder has [a builder](crate::remote::Remote::builder), which
//! creates what is missing.
//!
//! Without that variable, `/var/tmp/skyward-<user id>` is used instead where no program may run in
//! the folder, where it cannot be written to, or where it has almost no free space.
//!
//! A machine needs a POSIX shell and what every Debian has.
//!
//! - An interpreter and the image's Debian packages come from `apt-get`, where this user is root or
//!   may use `sudo` without a password, and never on the client's own host. Otherwise uv downloads
//!   an interpreter, if it may (`UV_PYTHON_DOWNLOADS`).
//! - uv comes from the package index, downloaded by the machine's curl, wget or Python. Where the
//!   machine has none of them or cannot reach the index, the client downloads uv and puts it there.
//!   The digest of uv is pinned.
//!
//! The machine's settings for pip also apply to uv, where uv has none of its own: `PIP_INDEX_URL`,
//! `PIP_CERT`, `REQUESTS_CA_BUNDLE`, and `index-url` and `cert` in pip.conf. Those that decide which
//! packages are installed are part of the environment's name. Settings of a project, in files of the
//! folders above or in variables such as `UV_PROJECT`, do not apply, and neither do the client's
//! settings to other machines. What nodes need belongs into the [`Image`](crate::spec::Image):
//! indexes, credentials, certificates.

mod cause;
mod fetch;
mod included;
mod inputs;
mod package;
mod plan;
mod project;
mod reading;
mod requirements;
mod run;
mod timing;

use std::collections::BTreeMap;

pub(crate) use included::Included;
pub use inputs::Inputs;
pub use plan::{Plan, Step};
pub use requirements::RequirementFiles;
pub use run::{StepEvent, run};

/// A machine on which an agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// The agent's process id on the machine.
    pub agent_pid: u32,
    /// The Unix socket on which the agent listens.
    pub agent_socket: String,
    /// The version of the agent's protocol.
    pub protocol: u32,
    /// The interpreter that runs the workers.
    pub python: String,
    /// Its version: `3.12.1`.
    pub python_version: String,
    /// The workers' `PYTHONPATH`, without the image's part.
    pub python_path: String,
    /// The workers' working folder, which contains the image's files.
    pub work_dir: String,
    /// The workers' environment variables: the image's, with `PYTHONPATH` completed.
    pub env: BTreeMap<String, String>,
}
