//! From a bare machine to one on which an agent runs.
//!
//! A [`Plan`] is made from the image, without I/O; [`run()`] executes it over any [`Remote`](crate::remote::Remote). On a machine that is ready it is one command: it looks whether
//! environment and worker package are there, and becomes the agent. Only what is missing is made, once for all nodes and pools of the machine:
//!
//! | where, in `$SKYWARD_CACHE_DIR` or `${XDG_CACHE_HOME:-~/.cache}/skyward` | what |
//! |---|---|
//! | `uv/<version>` | uv, where the machine has none that is new enough |
//! | `downloads`, `pythons` | what uv keeps, where the user's own folders for that cannot be used |
//! | `envs/<content hash>` | an environment; its file `.ready`, written last, lists the installed packages |
//! | `worker/<digest>` | the worker package, compiled |
//!
//! A machine that can only read this folder has [a builder](crate::remote::Remote::builder), which makes the missing part of it.
//!
//! Without that variable, a folder on which no program may run, that cannot be written to, or with next to no space is not used but `/var/tmp/skyward-<user id>`.
//!
//! A machine needs a POSIX shell and what every Debian has. An interpreter and the image's Debian packages come from `apt-get`, where this user is root or may be by `sudo` without a password,
//! and never on the client's own host; without that, uv downloads an interpreter if it may (`UV_PYTHON_DOWNLOADS`). uv comes from the package index, by curl, wget or Python of the machine, or, where it has none of them or does not reach the index,
//! by those of the client, which puts it there; its digest is pinned.
//!
//! The machine's settings for pip hold for uv where uv has none of its own: `PIP_INDEX_URL`, `PIP_CERT`, `REQUESTS_CA_BUNDLE`, and `index-url` and `cert` in pip.conf. The client's settings are not those of another machine, and
//! stay with it: what its nodes need is said in the [`Image`](crate::spec::Image): indexes, credentials, certificates.

mod cause;
mod fetch;
mod inputs;
mod package;
mod plan;
mod run;

use std::collections::BTreeMap;

pub use inputs::{Inputs, Pins};
pub use plan::{Plan, Step};
pub use run::{StepEvent, run};

/// A machine on which an agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// The agent's process id on the machine.
    pub agent_pid: u32,
    /// The Unix socket on which the agent listens.
    pub agent_socket: String,
    /// The version of the protocol that the agent speaks.
    pub protocol: u32,
    /// The interpreter that runs the workers.
    pub python: String,
    /// Its version: `3.12.1`.
    pub python_version: String,
    /// The workers' `PYTHONPATH`, without what the image sets.
    pub python_path: String,
    /// The workers' working folder, which holds the image's files.
    pub work_dir: String,
    /// The workers' variables: the image's, with `PYTHONPATH` completed.
    pub env: BTreeMap<String, String>,
}
