//! The README and the guide as doc tests, so that their code is what the crate really offers.

#[doc = include_str!("../README.md")]
mod readme {}

#[doc = include_str!("../docs/getting-started.md")]
mod getting_started {}

#[doc = include_str!("../docs/payloads.md")]
mod payloads {}

#[doc = include_str!("../docs/plugins.md")]
mod plugins {}

#[doc = include_str!("../docs/plugins-writing.md")]
mod plugins_writing {}

#[doc = include_str!("../docs/pools.md")]
mod pools {}

#[doc = include_str!("../docs/errors.md")]
mod errors {}

#[doc = include_str!("../docs/embedding.md")]
mod embedding {}

#[doc = include_str!("../docs/ownership.md")]
mod ownership {}

#[doc = include_str!("../docs/recovery.md")]
mod recovery {}

#[doc = include_str!("../docs/hangs.md")]
mod hangs {}

#[doc = include_str!("../docs/calls.md")]
mod calls {}

#[doc = include_str!("../docs/joblib.md")]
mod joblib {}

#[doc = include_str!("../docs/cancellation.md")]
mod cancellation {}

#[doc = include_str!("../docs/secrets.md")]
mod secrets {}

#[doc = include_str!("../docs/observability.md")]
mod observability {}

#[cfg(feature = "ssh")]
#[doc = include_str!("../docs/ssh-hosts.md")]
mod ssh_hosts {}

#[cfg(feature = "docker")]
#[doc = include_str!("../docs/docker.md")]
mod docker {}

#[doc = include_str!("../docs/costs.md")]
mod costs {}

#[doc = include_str!("../docs/reference.md")]
mod reference {}

#[cfg(feature = "aws")]
#[doc = include_str!("../docs/aws.md")]
mod aws {}
