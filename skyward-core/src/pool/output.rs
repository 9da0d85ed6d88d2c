//! Which task wrote which bytes. No I/O.

use std::collections::VecDeque;

use crate::ids::TaskId;

/// The ends of what each task wrote to one descriptor of one worker, as far as they are known and not yet used.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    ends: VecDeque<(u64, TaskId)>,
    last: u64,
}

impl Marks {
    /// A task ended when so many bytes had been written. Whether any of them may be its own.
    pub(crate) fn end(&mut self, task: TaskId, offset: u64) -> bool {
        let wrote = offset > self.last;
        if wrote {
            self.ends.push_back((offset, task));
            self.last = offset;
        }
        wrote
    }

    /// Splits the bytes from `offset` on, `length` of them, by the tasks that wrote them: lengths with tasks. What lies behind the last known end was written by the `running` task.
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
    fn bytes_belong_to_the_task_that_ended_behind_them() {
        let mut marks = Marks::default();
        let (a, b, c) = (TaskId(1), TaskId(2), TaskId(3));
        assert_eq!(marks.split(0, 4, Some(a)), [(4, Some(a))]);
        assert_eq!([marks.end(a, 10), marks.end(b, 10), marks.end(c, 15)], [true, false, true]);
        assert_eq!(marks.split(4, 20, None), [(6, Some(a)), (5, Some(c)), (9, None)]);
        assert_eq!(marks.split(24, 1, None), [(1, None)]);
    }
}
