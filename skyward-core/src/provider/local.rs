//! Nodes on this host.

/// Nodes on this host.
#[derive(Debug, Clone, Default)]
pub struct Local;
