//! How many tasks a worker gets ahead.

use super::timing::{AHEAD, LONG_TASK};
use std::time::Duration;

/// A moving average of how long a worker's tasks take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Average {
    micros: f64,
    count: u32,
}

impl Average {
    /// Takes a task's time into account; the last eight tasks weigh most.
    pub fn add(&mut self, micros: u64) {
        let micros = micros as f64;
        // One slow task raises the average at once; fast tasks lower it slowly.
        self.micros =
            if self.count == 0 || micros > self.micros { micros } else { self.micros * 0.875 + micros * 0.125 };
        self.count = self.count.saturating_add(1);
    }
}

/// How many tasks a worker may have, including the running one. A task that waits on a busy worker
/// has to be recalled before another worker can run it, so all tasks of a worker together may take
/// at most two milliseconds, or two round trips to the worker: with less, a distant worker would be
/// idle while its next task is on the way. A worker without measured tasks counts as slow.
pub fn depth(average: &Average, round_trip: Duration) -> usize {
    if average.count == 0 {
        return 1;
    }
    let ahead = AHEAD.max(2 * round_trip).as_micros() as f64;
    ((ahead / average.micros.max(1.0)) as usize).clamp(1, MAX_DEPTH)
}

/// Whether the round trip decides how many tasks a worker gets ahead.
pub fn is_far(round_trip: Duration) -> bool {
    2 * round_trip > AHEAD
}

/// The bytes of arguments from which on a distant worker gets nothing behind a task. The transfer
/// of more may take longer than a short task may be under way, and a recalled task is sent once
/// more.
pub const LARGE: usize = 16 << 10;

/// When a task is no longer short, counted from when it was sent or became the first one: tasks
/// that wait behind it are recalled. The limit is above what a worker's full queue of short tasks
/// takes, by enough that a pause of the machine does not look like a long task.
pub fn long(round_trip: Duration) -> Duration {
    LONG_TASK + 2 * round_trip
}

const MAX_DEPTH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tasks_are_sent_ahead_until_one_task_is_long() {
        let near = Duration::from_micros(100);
        let mut average = Average::default();
        assert_eq!(depth(&average, near), 1);
        average.add(10);
        assert_eq!(depth(&average, near), 200);
        average.add(1_000_000);
        assert_eq!(depth(&average, near), 1);
        for _ in 0..200 {
            average.add(0);
        }
        assert_eq!(depth(&average, near), MAX_DEPTH);
    }

    #[test]
    fn a_distant_worker_gets_tasks_for_two_round_trips() {
        let far = Duration::from_millis(40);
        let mut average = Average::default();
        assert_eq!(depth(&average, far), 1, "nothing is known about the tasks");
        average.add(5_000);
        assert_eq!(depth(&average, far), 16);
        average.add(50_000);
        assert_eq!(depth(&average, far), 1);
    }
}
