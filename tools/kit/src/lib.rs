//! What `xtask` and the tools beside this package share: the project's folders and packages,
//! commands that they run, and what they install, build and start on this host.

#[path = "../../../skyward-aws/testkit/src/bootable.rs"]
mod bootable;
pub mod console;
pub mod context;
pub mod ec2;
pub mod environment;
pub mod image;
pub mod interrupt;
pub mod line;
pub mod metadata;
pub mod needs;
pub mod process;
pub mod selection;
#[path = "../../../skyward-core/tests/support/sshd.rs"]
pub mod sshd;
mod timing;
