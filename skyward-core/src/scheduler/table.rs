//! A table by task, and lists within it. Each operation on one task takes the same time however
//! many tasks there are.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::TaskId;

/// Rows by task, in pages. Tasks are numbered one after another and a number is never used twice,
/// so the number gives the page, and a look-up of a removed task finds nothing.
///
/// No part of the table grows by moving: one allocation of many pages can take the allocator
/// hundreds of milliseconds when a million rows were freed before, and the pool's lock is held for
/// that time.
pub(crate) struct TaskTable<T> {
    /// By number, without pages whose tasks are all removed; the last page stays.
    pages: BTreeMap<u64, Box<Page<T>>>,
    len: usize,
}

struct Page<T> {
    used: usize,
    // Each row is an allocation of its own: a table of a million rows never moves.
    rows: [Option<Box<T>>; PAGE as usize],
}

/// A list of tasks. The rows of the tasks hold the links.
#[derive(Debug, Default)]
pub(super) struct List {
    head: Option<TaskId>,
    tail: Option<TaskId>,
    len: usize,
}

/// A row's neighbours in its list.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Links {
    before: Option<TaskId>,
    after: Option<TaskId>,
}

/// A row that one list at a time can hold.
pub(super) trait Linked {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
}

impl<T> TaskTable<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, id: &TaskId) -> Option<&T> {
        self.pages.get(&page(*id))?.rows[row(*id)].as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: &TaskId) -> Option<&mut T> {
        self.pages.get_mut(&page(*id))?.rows[row(*id)].as_deref_mut()
    }

    /// Inserts a row. Returns the row that was there before.
    pub(crate) fn insert(&mut self, id: TaskId, value: T) -> Option<Box<T>> {
        let number = page(id);
        if !self.pages.contains_key(&number) {
            self.drop_empty_last();
        }
        let page = self.pages.entry(number).or_insert_with(Page::empty);
        let before = page.rows[row(id)].replace(Box::new(value));
        page.used += usize::from(before.is_none());
        self.len += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove(&mut self, id: &TaskId) -> Option<Box<T>> {
        let number = page(*id);
        let page = self.pages.get_mut(&number)?;
        let removed = page.rows[row(*id)].take()?;
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 && self.pages.last_key_value().is_some_and(|(last, _)| *last != number) {
            self.pages.remove(&number);
        }
        Some(removed)
    }

    /// Removes an empty last page. The last page stays when its tasks are removed, because the next
    /// task belongs to it, until another page follows.
    fn drop_empty_last(&mut self) {
        if let Some(last) = self.pages.last_entry().filter(|last| last.get().used == 0) {
            last.remove();
        }
    }

    /// The first task from `id` on.
    pub(crate) fn next_from(&self, id: TaskId) -> Option<TaskId> {
        self.pages.range(page(id)..).find_map(|(number, rows)| {
            let from = if *number == page(id) { row(id) } else { 0 };
            let place = rows.rows[from..].iter().position(Option::is_some)?;
            Some(TaskId(number * PAGE + (from + place) as u64))
        })
    }

    /// The tasks, in the order of their numbers.
    pub(crate) fn keys(&self) -> impl Iterator<Item = TaskId> + '_ {
        std::iter::successors(self.next_from(TaskId(0)), |id| self.next_from(TaskId(id.0 + 1)))
    }
}

impl<T> Default for TaskTable<T> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), len: 0 }
    }
}

impl<T: fmt::Debug> fmt::Debug for TaskTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.keys().map(|id| (id, self.get(&id)))).finish()
    }
}

impl<T> Page<T> {
    fn empty() -> Box<Self> {
        Box::new(Self { used: 0, rows: [const { None }; PAGE as usize] })
    }
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn front(&self) -> Option<TaskId> {
        self.head
    }

    pub(super) fn push_back<T: Linked>(&mut self, table: &mut TaskTable<T>, id: TaskId) {
        let before = self.tail.replace(id);
        self.link(table, id, Links { before, after: None });
    }

    pub(super) fn push_front<T: Linked>(&mut self, table: &mut TaskTable<T>, id: TaskId) {
        let after = self.head.replace(id);
        self.link(table, id, Links { before: None, after });
    }

    /// Removes a task that is in this list.
    pub(super) fn remove<T: Linked>(&mut self, table: &mut TaskTable<T>, id: TaskId) {
        let Some(row) = table.get_mut(&id) else { return };
        let Links { before, after } = std::mem::take(row.links_mut());
        match before.and_then(|before| table.get_mut(&before)) {
            Some(row) => row.links_mut().after = after,
            None => self.head = after,
        }
        match after.and_then(|after| table.get_mut(&after)) {
            Some(row) => row.links_mut().before = before,
            None => self.tail = before,
        }
        self.len -= 1;
    }

    #[cfg(test)]
    pub(super) fn pop_front<T: Linked>(&mut self, table: &mut TaskTable<T>) -> Option<TaskId> {
        let id = self.head?;
        self.remove(table, id);
        Some(id)
    }

    /// The tasks, from the front.
    pub(super) fn iter<'a, T: Linked>(&self, table: &'a TaskTable<T>) -> impl Iterator<Item = TaskId> + use<'a, T> {
        std::iter::successors(self.head, |id| table.get(id).and_then(|row| row.links().after))
    }

    fn link<T: Linked>(&mut self, table: &mut TaskTable<T>, id: TaskId, links: Links) {
        if let Some(row) = links.before.and_then(|before| table.get_mut(&before)) {
            row.links_mut().after = Some(id);
        }
        if let Some(row) = links.after.and_then(|after| table.get_mut(&after)) {
            row.links_mut().before = Some(id);
        }
        if links.before.is_none() {
            self.head = Some(id);
        }
        if links.after.is_none() {
            self.tail = Some(id);
        }
        if let Some(row) = table.get_mut(&id) {
            *row.links_mut() = links;
        }
        self.len += 1;
    }
}

impl Links {
    /// The tasks in front of this one in its list, from the nearest.
    pub(super) fn before<T: Linked>(self, table: &TaskTable<T>) -> impl Iterator<Item = TaskId> + '_ {
        std::iter::successors(self.before, |id| table.get(id).and_then(|row| row.links().before))
    }
}

/// The number of a task's page.
fn page(id: TaskId) -> u64 {
    id.0 / PAGE
}

/// A task's row in its page.
fn row(id: TaskId) -> usize {
    (id.0 % PAGE) as usize
}

/// The number of rows of a page.
const PAGE: u64 = 512;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    #[derive(Debug, Default)]
    struct Row(Links);

    impl Linked for Row {
        fn links(&self) -> &Links {
            &self.0
        }

        fn links_mut(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    #[test]
    fn a_table_behaves_like_a_map() {
        for seed in 0..20_u64 {
            let mut random = StdRng::seed_from_u64(seed);
            let (mut table, mut model, mut next) = (TaskTable::default(), BTreeMap::new(), 1);
            for _ in 0..3000 {
                // Mostly ascending, as tasks are numbered; sometimes a little late, and some
                // numbers are never used.
                let id = TaskId(next - random.random_range(0..next.min(600)));
                match random.random_range(0..5) {
                    0..2 => assert_eq!(table.insert(id, next).map(|it| *it), model.insert(id, next)),
                    2 => assert_eq!(table.remove(&id).map(|it| *it), model.remove(&id)),
                    3 => {
                        assert_eq!(table.get(&id), model.get(&id));
                        assert_eq!(table.len(), model.len());
                    }
                    _ => assert_eq!(table.next_from(id), model.range(id..).next().map(|(id, _)| *id)),
                }
                next += random.random_range(0..9);
            }
            assert!(table.keys().eq(model.keys().copied()));
            model.keys().for_each(|id| drop(table.remove(id)));
            assert!(table.is_empty() && table.pages.len() == 1, "removed rows take no room");
        }
    }

    #[test]
    fn a_list_is_a_queue_that_allows_removal_from_the_middle() {
        for seed in 0..50_u64 {
            let mut random = StdRng::seed_from_u64(seed);
            let (mut table, mut list, mut model) = (TaskTable::default(), List::default(), VecDeque::new());
            for number in 1..200 {
                let id = TaskId(number);
                table.insert(id, Row::default());
                match random.random_range(0..4) {
                    0 => (list.push_front(&mut table, id), model.push_front(id)).1,
                    1 if !model.is_empty() => {
                        let id = model.remove(random.random_range(0..model.len())).unwrap();
                        list.remove(&mut table, id);
                    }
                    2 => assert_eq!(list.pop_front(&mut table), model.pop_front()),
                    _ => (list.push_back(&mut table, id), model.push_back(id)).1,
                }
                assert!(list.iter(&table).eq(model.iter().copied()));
                assert_eq!(list.len(), model.len());
                assert_eq!(list.front(), model.front().copied());
                if let Some(last) = model.back() {
                    let before = table.get(last).unwrap().links().before(&table);
                    assert!(before.eq(model.iter().rev().skip(1).copied()));
                }
            }
        }
    }
}
