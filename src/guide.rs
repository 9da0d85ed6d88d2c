//! The guide: the pages of the folder `docs`, which are also published as a book.
//!
//! Start with the [tutorial], then read the [concepts]. `cargo xtask docs` builds the book, with
//! search.

// A table of link targets precedes each page; `cargo xtask docs --write` makes the tables.

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/pictures.md")]
#[doc = include_str!("../docs/concepts.md")]
pub mod concepts {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/tutorial.md")]
pub mod tutorial {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/getting-started.md")]
pub mod getting_started {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/what-it-looks-like.md")]
pub mod what_it_looks_like {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/payloads.md")]
pub mod payloads {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/plugins.md")]
pub mod plugins {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/pools.md")]
pub mod pools {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/options.md")]
pub mod options {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/files.md")]
pub mod files {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/data.md")]
pub mod data {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/checkpoints.md")]
pub mod checkpoints {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/errors.md")]
pub mod errors {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/debugging.md")]
pub mod debugging {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/recovery.md")]
pub mod recovery {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/hangs.md")]
pub mod hangs {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/cancellation.md")]
pub mod cancellation {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/calls.md")]
pub mod calls {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/joblib.md")]
pub mod joblib {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/embedding.md")]
pub mod embedding {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/observability.md")]
pub mod observability {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/ownership.md")]
pub mod ownership {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/costs.md")]
pub mod costs {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/secrets.md")]
pub mod secrets {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/ssh-hosts.md")]
pub mod ssh_hosts {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/docker.md")]
pub mod docker {}

#[doc = include_str!("guide/links.md")]
#[cfg_attr(any(not(doctest), feature = "aws"), doc = include_str!("../docs/aws.md"))]
pub mod aws {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/providers.md")]
pub mod providers {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/plugins-writing.md")]
pub mod plugins_writing {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/testkit.md")]
pub mod testkit {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/comparison.md")]
pub mod comparison {}
