//! From a bare machine to one on which an agent runs.
//!
//! A [`Plan`] is made from the image, without I/O; [`run()`] executes it over any [`Remote`](crate::remote::Remote). On a machine that is ready it is one command: it looks whether
//! environment and worker package are there, and becomes the agent. Only what is missing is made, once for all nodes and pools of the machine:
//!
//! | where, in `$SKYWARD_CACHE_DIR` or `${XDG_CACHE_HOME:-~/.cache}/skyward` | what |
//! |---|---|
//! | `uv/<version>` | uv, where the machine has none that is new enough |
//! | `envs/<content hash>` | an environment; its file `.ready`, written last, lists the installed packages |
//! | `worker/<digest>` | the worker package, compiled |
//!
//! uv downloads an interpreter only when the machine has none that suits, and may (`UV_PYTHON_DOWNLOADS`). The machine's settings for pip hold for uv where uv has none of its own: `PIP_INDEX_URL`,
//! `PIP_CERT`, `REQUESTS_CA_BUNDLE`.

mod cause;
mod inputs;
mod package;
mod plan;
mod run;

use std::collections::BTreeMap;

pub use inputs::{InputFile, Inputs, Pins};
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
