//! This host.

/// This host.
#[derive(Debug, Clone, Copy, Default)]
pub struct Process;
