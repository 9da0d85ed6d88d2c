//! The place of the EC2 provider.
//!
//! It is not written yet, and this crate has no items: a pool on EC2 cannot be started with this version. It exists so that the workspace's
//! boundary is fixed from the start: this is the only crate that will depend on a cloud SDK, and nothing depends on it by default.
