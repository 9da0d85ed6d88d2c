//! A storage in memory whose calls fail as those of real ones do.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::error::Result;
use crate::storage::{Created, Object, ObjectPath, StoredObjects, missing, refused};

/// A storage in memory. Clones share their objects; the faults are those of the clone.
///
/// Its clock is that of the runtime, so a test with a paused clock moves it. A call that changes
/// something takes effect also if its caller has dropped it, as one that is on its way does.
#[derive(Debug, Clone)]
pub struct FakeStorage {
    state: Arc<Mutex<State>>,
    began: Instant,
    faults: Faults,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<ObjectPath, (Bytes, Duration)>,
    draws: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    lost_replies: u64,
    failures: u64,
    latency: Duration,
    is_stalled: bool,
    ignores_conditions: bool,
}

impl FakeStorage {
    /// An empty storage without faults, whose draws follow from this seed. Call it within a runtime.
    pub fn new(seed: u64) -> Self {
        let state = State { draws: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), began: Instant::now(), faults: Faults::default() }
    }

    /// Of this many calls that change something, one takes effect and fails all the same, for now; 0 for
    /// none.
    #[must_use]
    pub fn losing_replies(mut self, one_in: u64) -> Self {
        self.faults.lost_replies = one_in;
        self
    }

    /// Of this many calls, one fails for now, without effect; 0 for none.
    #[must_use]
    pub fn failing(mut self, one_in: u64) -> Self {
        self.faults.failures = one_in;
        self
    }

    /// Each call takes effect after a random time below this one, and answers after another one.
    #[must_use]
    pub fn slow(mut self, latency: Duration) -> Self {
        self.faults.latency = latency;
        self
    }

    /// No call takes effect or answers.
    #[must_use]
    pub fn stalled(mut self) -> Self {
        self.faults.is_stalled = true;
        self
    }

    /// A creation replaces what is there, and says that it is new.
    #[must_use]
    pub fn ignoring_conditions(mut self) -> Self {
        self.faults.ignores_conditions = true;
        self
    }

    /// The names of all objects, sorted.
    pub fn objects(&self) -> Vec<ObjectPath> {
        self.lock().objects.keys().cloned().collect()
    }

    /// The bytes of an object; `None` if it is not there.
    pub fn content(&self, path: &ObjectPath) -> Option<Bytes> {
        self.lock().objects.get(path).map(|(bytes, _)| bytes.clone())
    }

    /// Replaces an object behind the back of its users; `None` removes it.
    pub fn tear(&self, path: &ObjectPath, content: Option<Bytes>) {
        let now = self.began.elapsed();
        let mut state = self.lock();
        match content {
            Some(bytes) => drop(state.objects.insert(path.clone(), (bytes, now))),
            None => drop(state.objects.remove(path)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn below(&self, bound: u64) -> u64 {
        let mut state = self.lock();
        state.draws = state.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut draw = state.draws;
        draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (draw ^ (draw >> 31)) % bound.max(1)
    }

    async fn travel(&self) {
        let latency = self.faults.latency.as_millis() as u64;
        if latency > 0 {
            sleep(Duration::from_millis(self.below(latency))).await;
        }
    }

    /// One call: `act` takes effect at one moment.
    async fn call<T>(&self, act: impl FnOnce(&mut State, Duration) -> Result<T>) -> Result<T> {
        if self.faults.is_stalled {
            std::future::pending::<()>().await;
        }
        self.travel().await;
        if self.is_once_in(self.faults.failures) {
            return Err(refused("the fake storage is busy").temporary());
        }
        let done = act(&mut self.lock(), self.began.elapsed());
        self.travel().await;
        done
    }

    /// A call that changes something. It takes effect also if its caller has dropped it.
    async fn change<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut State, Duration) -> T + Send + 'static,
    ) -> Result<T> {
        let (own, is_lost) = (self.clone(), self.is_once_in(self.faults.lost_replies));
        let done = tokio::spawn(async move { own.call(|state, now| Ok(act(state, now))).await }).await;
        let done = done.unwrap_or_else(|error| Err(refused("the fake storage has ended").with_source(error)));
        if is_lost { Err(refused("the answer of the fake storage was lost").temporary()) } else { done }
    }

    fn is_once_in(&self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }
}

#[async_trait]
impl StoredObjects for FakeStorage {
    fn name(&self) -> String {
        "a storage in memory".to_owned()
    }

    async fn create(&self, path: &ObjectPath, bytes: Bytes) -> Result<Created> {
        let (path, ignores_conditions) = (path.clone(), self.faults.ignores_conditions);
        self.change(move |state, now| {
            if state.objects.contains_key(&path) && !ignores_conditions {
                return Created::Exists;
            }
            state.objects.insert(path, (bytes, now));
            Created::New
        })
        .await
    }

    async fn read(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes> {
        self.call(|state, _| {
            let (bytes, _) = state.objects.get(path).ok_or_else(|| missing(path, "a storage in memory"))?;
            let at = |offset: u64| bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
            Ok(bytes.slice(at(range.start)..at(range.end).max(at(range.start))))
        })
        .await
    }

    async fn list(&self, prefix: &ObjectPath) -> Result<Vec<Object>> {
        self.call(|state, _| {
            let after = state
                .objects
                .range(prefix.clone()..)
                .take_while(|(path, _)| path.as_str().starts_with(prefix.as_str()));
            let below = after.filter(|(path, _)| path.below(prefix).is_some());
            let object = |(path, (bytes, at)): (&ObjectPath, &(Bytes, Duration))| {
                Object::new(path.clone(), bytes.len() as u64, SystemTime::UNIX_EPOCH + YEARS + *at)
            };
            Ok(below.map(object).collect())
        })
        .await
    }

    async fn remove(&self, path: &ObjectPath) -> Result<()> {
        let path = path.clone();
        self.change(move |state, _| drop(state.objects.remove(&path))).await
    }
}

/// When its clock begins, after 1970.
const YEARS: Duration = Duration::from_secs(1_700_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::storage_suite;

    #[tokio::test(start_paused = true)]
    async fn a_fake_fulfils_the_contract() {
        let mut broken = Vec::new();
        storage_suite::all(&FakeStorage::new(1), &mut broken).await;
        storage_suite::all(&FakeStorage::new(2).slow(Duration::from_millis(50)), &mut broken).await;
        assert_eq!(broken, []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_suite_sees_a_store_that_replaces_objects() {
        let mut broken = Vec::new();
        storage_suite::all(&FakeStorage::new(1).ignoring_conditions(), &mut broken).await;
        let clauses: Vec<_> = broken.iter().map(|violation| violation.clause).collect();
        let wanted = ["create_replaces_nothing", "one_of_many_creators_wins", "list_has_sizes_and_times_of_one_clock"];
        assert_eq!(clauses, wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_an_error_of_a_call_that_took_effect() {
        let (store, path) = (FakeStorage::new(1).losing_replies(1), ObjectPath::new("a").unwrap());
        assert!(store.create(&path, "x".into()).await.unwrap_err().is_temporary());
        assert_eq!(store.content(&path).unwrap(), "x");
        assert!(store.clone().failing(1).losing_replies(0).remove(&path).await.unwrap_err().is_temporary());
        assert_eq!(store.objects(), [path]);
    }
}
