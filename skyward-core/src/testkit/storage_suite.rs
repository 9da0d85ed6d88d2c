//! The contract of [`StoredObjects`], one function for each clause. Each works below a name of its own,
//! and leaves nothing unless the clause does not hold.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use super::provider_suite::{ask, require};
use super::violation::{Violation, report};
use crate::error::ErrorKind;
use crate::storage::{Created, Object, ObjectPath, StoredObjects};

/// Checks every clause, prints a line for each, and adds violations to `broken`.
///
/// # Cancel safety
///
/// Dropping the future may leave objects whose names begin with `suite-`.
pub async fn all(store: &dyn StoredObjects, broken: &mut Vec<Violation>) {
    let subject = store.name();
    macro_rules! check {
        ($($clause:ident),+ $(,)?) => {
            $(report(&subject, stringify!($clause), $clause(store).await, broken);)+
        };
    }
    check!(
        create_replaces_nothing,
        one_of_many_creators_wins,
        objects_appear_whole,
        read_returns_the_range,
        read_of_nothing_is_not_found,
        list_has_all_below_in_order,
        list_has_sizes_and_times_of_one_clock,
        remove_removes_and_again_is_no_error,
        removed_names_are_free,
        creators_and_removers_do_not_disturb_each_other,
    );
}

/// The names of one clause, and what it asks of the store.
struct Trial<'s> {
    clause: &'static str,
    store: &'s dyn StoredObjects,
    root: ObjectPath,
}

impl<'s> Trial<'s> {
    fn begin(clause: &'static str, store: &'s dyn StoredObjects) -> Result<Self, Violation> {
        let root = ObjectPath::new(format!("suite-{:032x}", rand::random::<u128>()));
        Ok(Self { clause, store, root: root.map_err(|error| Violation::new(clause, error.to_string()))? })
    }

    async fn create(&self, name: &str, bytes: impl Into<Bytes>) -> Result<Created, Violation> {
        ask(self.clause, "create", self.store.create(&self.root.with(name), bytes.into())).await
    }

    async fn read(&self, name: &str) -> Result<Bytes, Violation> {
        ask(self.clause, "read", self.store.read(&self.root.with(name), 0..MOST)).await
    }

    async fn list(&self, name: &str) -> Result<Vec<Object>, Violation> {
        let prefix = if name.is_empty() { self.root.clone() } else { self.root.with(name) };
        ask(self.clause, "list", self.store.list(&prefix)).await
    }

    async fn remove(&self, name: &str) -> Result<(), Violation> {
        ask(self.clause, "remove", self.store.remove(&self.root.with(name))).await
    }

    fn require(&self, holds: bool, found: impl FnOnce() -> String) -> Result<(), Violation> {
        require(self.clause, holds, found)
    }

    /// Removes all that the clause has created.
    async fn end(&self) -> Result<(), Violation> {
        for object in self.list("").await? {
            ask(self.clause, "remove", self.store.remove(&object.path)).await?;
        }
        let left = self.list("").await?;
        self.require(left.is_empty(), || format!("after all were removed the list has {left:?}"))
    }
}

/// A second creation of a name says that the object exists, and leaves it as it is.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn create_replaces_nothing(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("create_replaces_nothing", store)?;
    let first = trial.create("a", "first").await?;
    let second = trial.create("a", "second").await?;
    trial.require((first, second) == (Created::New, Created::Exists), || {
        format!("it said {first:?}, then {second:?}")
    })?;
    let content = trial.read("a").await?;
    trial.require(content == "first", || format!("the object then had {content:?}"))?;
    trial.end().await
}

/// Of many creators of one name at the same time, one gets `New`, and the object has the bytes of that
/// one.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn one_of_many_creators_wins(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("one_of_many_creators_wins", store)?;
    for round in 0..ROUNDS {
        let name = format!("{round}");
        let creators = (0..CREATORS).map(|creator| trial.create(&name, vec![creator; 1000]));
        let created = join_all(creators).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let winners: Vec<u8> =
            (0..).zip(&created).filter(|(_, it)| **it == Created::New).map(|(creator, _)| creator).collect();
        let content = trial.read(&name).await?;
        let is_winners = winners.len() == 1 && content == vec![winners[0]; 1000];
        trial.require(is_winners, || format!("the creators {winners:?} of {CREATORS} were told that it is new"))?;
    }
    trial.end().await
}

/// While an object is created, it is whole or not there.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn objects_appear_whole(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("objects_appear_whole", store)?;
    let path = trial.root.with("a/b/c");
    let content = Bytes::from(vec![7; 4 << 20]);
    let mut creation = std::pin::pin!(trial.create("a/b/c", content.clone()));
    let mut created = None;
    while created.is_none() {
        let look = store.read(&path, 0..MOST);
        let (done, looked) = tokio::join!(tokio::time::timeout(Duration::from_millis(1), &mut creation), look);
        created = done.ok();
        match looked {
            Ok(found) => trial.require(found == content, || format!("it was read with {} bytes", found.len()))?,
            Err(error) => trial.require(error.kind() == ErrorKind::NotFound, || format!("`read` failed: {error:#}"))?,
        }
    }
    created.transpose()?;
    let listed = trial.list("").await?;
    trial.require(listed.len() == 1, || format!("the list then had {listed:?}"))?;
    trial.end().await
}

/// `read` returns the bytes of the range: fewer at the end of the object, and none after it.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn read_returns_the_range(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("read_returns_the_range", store)?;
    trial.create("a", "0123456789").await?;
    trial.create("empty", "").await?;
    let cases =
        [("a", 0..10, "0123456789"), ("a", 2..5, "234"), ("a", 8..20, "89"), ("a", 10..20, ""), ("a", 30..40, "")];
    for (name, range, wanted) in cases.into_iter().chain([("a", 5..5, ""), ("empty", 0..10, "")]) {
        let read = ask(trial.clause, "read", store.read(&trial.root.with(name), range.clone())).await?;
        trial.require(read == wanted, || format!("the bytes {range:?} of `{name}` were {read:?}"))?;
    }
    trial.end().await
}

/// An object that does not exist is `NotFound`, also a name below which objects are, or that is below
/// an object.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn read_of_nothing_is_not_found(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("read_of_nothing_is_not_found", store)?;
    trial.create("a/b", "x").await?;
    for name in ["c", "a", "a/c", "c/d"] {
        let read = store.read(&trial.root.with(name), 0..MOST).await.map_err(|error| error.kind());
        trial.require(read == Err(ErrorKind::NotFound), || format!("`read` of `{name}` returned {read:?}"))?;
    }
    trial.end().await
}

/// A list has all objects below the name, sorted by their names, and no other one.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn list_has_all_below_in_order(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("list_has_all_below_in_order", store)?;
    for name in ["x/b", "x/a/2", "x/a/1/0", "x/a.b/1", "x/a-b", "xy/a", "w", "x/.a"] {
        trial.create(name, "x").await?;
    }
    let below = trial.list("x").await?;
    let names: Vec<_> = below.iter().filter_map(|it| it.path.below(&trial.root)).collect();
    let wanted = ["x/.a", "x/a-b", "x/a.b/1", "x/a/1/0", "x/a/2", "x/b"];
    trial.require(names == wanted, || format!("below `x` it listed {names:?} and not {wanted:?}"))?;
    for name in ["nothing", "w", "x/a/1/0", "nothing/below"] {
        let nothing = trial.list(name).await?;
        trial.require(nothing.is_empty(), || format!("below `{name}` it listed {nothing:?}"))?;
    }
    trial.end().await
}

/// A list has the size of each object, and when it was created: a later one is not older.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn list_has_sizes_and_times_of_one_clock(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("list_has_sizes_and_times_of_one_clock", store)?;
    for (name, size) in [("a", 0), ("b", 1), ("c", 100_000)] {
        trial.create(name, vec![0; size]).await?;
    }
    // Exists already, and keeps its time.
    trial.create("a", "again").await?;
    let listed = trial.list("").await?;
    let sizes: Vec<u64> = listed.iter().map(|it| it.size).collect();
    trial.require(sizes == [0, 1, 100_000], || format!("the sizes were {sizes:?}"))?;
    let is_sorted = listed.is_sorted_by_key(|it| it.modified);
    trial.require(is_sorted, || format!("the objects were created one after another, at {listed:?}"))?;
    trial.end().await
}

/// A removed object is gone, others stay, and a removal of nothing is no error.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn remove_removes_and_again_is_no_error(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("remove_removes_and_again_is_no_error", store)?;
    trial.create("a/b", "x").await?;
    trial.create("a/c", "x").await?;
    for _ in 0..2 {
        trial.remove("a/b").await?;
        let listed = trial.list("").await?;
        trial.require(listed.len() == 1, || format!("after `a/b` of two objects was removed, it listed {listed:?}"))?;
    }
    trial.remove("nothing/at/all").await?;
    trial.remove("a").await?;
    let content = trial.read("a/c").await?;
    trial.require(content == "x", || format!("the other object then had {content:?}"))?;
    trial.end().await
}

/// A name that was removed can be created anew, with other bytes, also when it is a part of a name.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn removed_names_are_free(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("removed_names_are_free", store)?;
    for name in ["a/b", "a/b", "a", "a/b/c", "a"] {
        let created = trial.create(name, name.to_owned()).await?;
        let content = trial.read(name).await?;
        trial
            .require(created == Created::New && content == name, || format!("`{name}` was {created:?}: {content:?}"))?;
        trial.remove(name).await?;
    }
    trial.end().await
}

/// Objects of one folder are created while others of it are removed.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Objects may be left.
pub async fn creators_and_removers_do_not_disturb_each_other(store: &dyn StoredObjects) -> Result<(), Violation> {
    let trial = Trial::begin("creators_and_removers_do_not_disturb_each_other", store)?;
    let one = |creator: u8| {
        let trial = &trial;
        async move {
            let name = format!("a/b/{creator}");
            for _ in 0..ROUNDS {
                let created = trial.create(&name, "x").await?;
                trial.require(created == Created::New, || format!("`{name}` was {created:?}"))?;
                trial.remove(&name).await?;
            }
            trial.create(&name, "last").await
        }
    };
    join_all((0..CREATORS).map(one)).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let listed = trial.list("a").await?;
    trial.require(listed.len() == CREATORS as usize, || format!("of {CREATORS} objects it listed {}", listed.len()))?;
    trial.end().await
}

/// More bytes than any object of the suite has.
const MOST: u64 = 64 << 20;
/// How often something is tried that may go wrong by chance.
const ROUNDS: usize = 20;
/// How many create at the same time.
const CREATORS: u8 = 16;
