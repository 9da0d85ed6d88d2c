//! How many tasks a worker gets ahead, and how often what is lost is started again.

use std::time::Duration;

/// A moving average of how long a worker's tasks take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Average {
    micros: f64,
    count: u32,
}

impl Average {
    /// Takes a task's time into account; the last eight weigh most.
    pub fn add(&mut self, micros: u64) {
        let micros = micros as f64;
        // One slow task at once ends the time of plenty; it comes back slowly.
        self.micros =
            if self.count == 0 || micros > self.micros { micros } else { self.micros * 0.875 + micros * 0.125 };
        self.count = self.count.saturating_add(1);
    }
}

/// How many tasks a worker may have, the running one among them. A task that waits on a busy worker has to be recalled before another can run it, so together they are to take no longer
/// than two milliseconds; what is not known is taken to be long.
pub fn depth(average: &Average) -> usize {
    if average.count == 0 {
        return 1;
    }
    ((AHEAD_MICROS / average.micros.max(1.0)) as usize).clamp(1, MAX_DEPTH)
}

/// A task that has run for so long is no longer short: what waits behind it is recalled. Well above what a whole worker's queue of short tasks takes, so that a pause of the machine is not taken for a long task.
pub const LONG: Duration = Duration::from_millis(50);

const AHEAD_MICROS: f64 = 2000.0;
const MAX_DEPTH: usize = 256;

/// Workers lost in a row without one task returning, before the pool gives up.
pub const MAX_BARREN_RESTARTS: u32 = 5;

/// Starts of its workers that may fail in a row before a node is taken for sick, where the other nodes are not.
pub const MAX_SICK: u32 = 3;

/// Machines that a node may lose in a row without one of its tasks returning, before the pool gives up.
pub const MAX_BARREN_REPLACEMENTS: u32 = 3;

/// A node that was ready for so long was sound: that it is lost then says nothing of those before.
pub const SOUND: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tasks_are_sent_ahead_and_one_long_task_ends_that() {
        let mut average = Average::default();
        assert_eq!(depth(&average), 1);
        average.add(10);
        assert_eq!(depth(&average), 200);
        average.add(1_000_000);
        assert_eq!(depth(&average), 1);
        for _ in 0..200 {
            average.add(0);
        }
        assert_eq!(depth(&average), MAX_DEPTH);
    }
}
