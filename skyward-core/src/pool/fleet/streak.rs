//! How often something was lost in a row, with no task that returned in between.

/// A count of losses in a row.
///
/// Tasks return far more often than anything is lost, so nobody reports each of them: the streak
/// remembers how many had returned when it last grew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Streak {
    losses: u32,
    returned: u64,
}

impl Streak {
    /// How long the streak is, if so many tasks have returned by now.
    pub(super) fn len(self, returned: u64) -> u32 {
        if self.returned == returned { self.losses } else { 0 }
    }

    /// Counts a loss, and returns how long the streak is.
    pub(super) fn grow(&mut self, returned: u64) -> u32 {
        *self = Self { losses: self.len(returned) + 1, returned };
        self.losses
    }
}
