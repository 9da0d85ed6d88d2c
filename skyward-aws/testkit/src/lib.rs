//! An EC2 on loopback, for tests of a provider that rents machines from EC2.
//!
//! It has four parts. The documentation of each says where it differs from EC2:
//!
//! - moto, a mock of AWS's calls in Python; `moto/moto_loopback.py` starts it and corrects some of
//!   its behaviour;
//! - a proxy in front of it, which logs calls, plays the faults of [`Rules`], and has shims for
//!   what moto lacks: client tokens, capacity and reservations, phases of a launch, placement
//!   groups, prices, quotas, pages;
//! - a firewall, which enforces the rules of security groups where this host has what it takes;
//! - a hypervisor behind moto, which boots each running instance in namespaces of this host, with
//!   OpenSSH's server, from its user data alone. A wrong host key, a missing key or a forgotten
//!   shutdown behaviour fails a test as it would on EC2.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use skyward_aws_testkit::{Cloud, CloudOptions, Rule};
//!
//! let cloud = Cloud::start(CloudOptions::new().region("eu-west-1")).await?;
//! cloud.rules().add(Rule::error("RunInstances", 503, "RequestLimitExceeded", "Request limit exceeded.").times(2));
//! // … a client that calls cloud.endpoint() with cloud.environment() …
//! assert!(cloud.left(None).await?.is_empty());
//! # Ok(())
//! # }
//! ```

mod address_service;
mod bootable;
mod clock;
mod cloud;
mod firewall;
mod guard;
mod host;
mod http;
mod hypervisor;
mod left;
mod moto;
mod network;
mod options;
mod phases;
mod policy;
mod proxy;
mod python;
mod records;
mod reservation;
mod rules;
mod shims;
mod timing;
mod xml;

pub use cloud::Cloud;
pub use hypervisor::Instance;
pub use left::Left;
pub use moto::end_importer;
pub use options::{CloudOptions, missing};
pub use phases::Phases;
pub use proxy::{Call, Calls};
pub use records::Market;
pub use reservation::Reservation;
pub use rules::{Rule, Rules};
