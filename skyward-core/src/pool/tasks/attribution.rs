//! Attributes the bytes of a worker's output to tasks. No I/O.

use std::collections::VecDeque;

use crate::ids::TaskId;

/// Where the output of each task ends, for one descriptor of one worker, as far as it is known and
/// still needed.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    ends: VecDeque<(u64, TaskId)>,
    last: u64,
}

impl Marks {
    /// Records that a task ended when `offset` bytes had been written. Returns whether some of
    /// these bytes may be its own.
    pub(crate) fn end(&mut self, task: TaskId, offset: u64) -> bool {
        let wrote = offset > self.last;
        if wrote {
            self.ends.push_back((offset, task));
            self.last = offset;
        }
        wrote
    }

    /// Splits `length` bytes from `offset` on by the tasks that wrote them, into lengths with
    /// tasks. Bytes behind the last known end were written by the `running` task.
    pub(crate) fn split(
        &mut self,
        offset: u64,
        length: usize,
        running: Option<TaskId>,
    ) -> Vec<(usize, Option<TaskId>)> {
        let mut parts = Vec::new();
        let (mut at, end) = (offset, offset + length as u64);
        while at < end {
            match self.ends.front().copied() {
                Some((mark, _)) if mark <= at => {
                    self.ends.pop_front();
                }
                Some((mark, task)) => {
                    let until = mark.min(end);
                    parts.push(((until - at) as usize, Some(task)));
                    at = until;
                }
                None => {
                    parts.push(((end - at) as usize, running));
                    at = end;
                }
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_belong_to_the_task_whose_end_comes_after_them() {
        let mut marks = Marks::default();
        let (a, b, c) = (TaskId(1), TaskId(2), TaskId(3));
        assert_eq!(marks.split(0, 4, Some(a)), [(4, Some(a))]);
        assert_eq!([marks.end(a, 10), marks.end(b, 10), marks.end(c, 15)], [true, false, true]);
        assert_eq!(marks.split(4, 20, None), [(6, Some(a)), (5, Some(c)), (9, None)]);
        assert_eq!(marks.split(24, 1, None), [(1, None)]);
    }
}
