//! An account's reserved capacity, as a test declares it.

use std::time::SystemTime;

/// A capacity reservation or a capacity block. By default it has been active for a while, and has
/// no end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) count: u32,
    pub(crate) is_block: bool,
    pub(crate) state: String,
    pub(crate) platform: String,
    pub(crate) starts: SystemTime,
    pub(crate) ends: Option<SystemTime>,
}

impl Reservation {
    /// A reservation of this many instances of a type in a zone, for `Linux/UNIX`.
    pub fn new(id: &str, instance_type: &str, zone: &str, count: u32) -> Self {
        Self {
            id: id.into(),
            instance_type: instance_type.into(),
            zone: zone.into(),
            count,
            is_block: false,
            state: "active".into(),
            platform: "Linux/UNIX".into(),
            starts: SystemTime::now(),
            ends: None,
        }
    }

    /// A capacity block, which has an end.
    #[must_use]
    pub fn block(mut self, ends: SystemTime) -> Self {
        self.is_block = true;
        self.ends = Some(ends);
        self
    }

    /// Its state, as EC2 names it: `scheduled`, `expired`.
    #[must_use]
    pub fn state(mut self, state: &str) -> Self {
        self.state = state.into();
        self
    }

    /// Its platform, as EC2 names it: `Windows`.
    #[must_use]
    pub fn platform(mut self, platform: &str) -> Self {
        self.platform = platform.into();
        self
    }
}
