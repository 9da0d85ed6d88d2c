//! How often a provider is asked.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use super::*;

const PACE: Duration = Duration::from_secs(1);

/// A provider with a pace, and an identity that no other test has.
fn paced() -> Scripted {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let identity = format!("of test {}", LAST.fetch_add(1, Ordering::Relaxed));
    Scripted { pace: PACE, identity: Some(identity), ..Scripted::default() }
}

/// The times of the lists that the provider was asked for, in seconds since then.
fn seconds(scripted: &Scripted, since: Instant) -> Vec<f64> {
    let round = |time: &Instant| ((*time - since).as_secs_f64() * 100.0).round() / 100.0;
    scripted.listed.lock().unwrap().iter().map(round).collect()
}

#[tokio::test(start_paused = true)]
async fn pools_of_one_provider_share_its_pace_and_are_served_in_turn() {
    let (scripted, started) = (Arc::new(paced()), Instant::now());
    let (a, b) = (Checked::new(scripted.clone()), Checked::new(scripted.clone()));
    let ended = Mutex::new(Vec::new());
    let list = async |checked: &Checked, name: &'static str| {
        checked.list(&PoolId::new("p")).await.unwrap();
        ended.lock().unwrap().push(name);
    };
    tokio::join!(list(&a, "a1"), list(&b, "b1"), list(&a, "a2"), list(&b, "b2"), async {
        // Another kind of call, and the calls of another provider, do not wait for lists.
        a.pools().await.unwrap();
        Checked::new(Arc::new(paced())).list(&PoolId::new("p")).await.unwrap();
        assert_eq!(started.elapsed(), Duration::ZERO);
    });
    assert_eq!(*ended.lock().unwrap(), ["a1", "b1", "a2", "b2"]);
    assert_eq!(seconds(&scripted, started), [0.0, 1.0, 2.0, 3.0]);
    // The pace holds for a pool that comes later, and costs nothing when nobody has asked for long.
    Checked::new(scripted.clone()).list(&PoolId::new("p")).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    b.list(&PoolId::new("p")).await.unwrap();
    assert_eq!(seconds(&scripted, started)[4..], [4.0, 64.0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_in_the_line_gives_its_turn_to_the_next() {
    let (scripted, started) = (Arc::new(paced()), Instant::now());
    let (checked, pool) = (Checked::new(scripted.clone()), PoolId::new("p"));
    let (first, dropped, next) =
        tokio::join!(checked.list(&pool), tokio::time::timeout(PACE / 2, checked.list(&pool)), checked.list(&pool),);
    assert!(first.is_ok() && dropped.is_err() && next.is_ok());
    assert_eq!(seconds(&scripted, started), [0.0, 1.0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_polls_keeps_no_other_waiting() {
    let (scripted, started) = (Arc::new(paced()), Instant::now());
    let checked = Checked::new(scripted.clone());
    let pool = PoolId::new("p");
    checked.list(&pool).await.unwrap();
    let mut idle = checked.list(&pool);
    assert!(idle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    checked.list(&pool).await.unwrap();
    checked.list(&pool).await.unwrap();
    idle.await.unwrap();
    assert_eq!(seconds(&scripted, started), [0.0, 2.0, 3.0, 4.0]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_holds_while_a_call_waits_for_its_turn() {
    let (scripted, started) = (Arc::new(paced()), Instant::now());
    let checked = Checked::new(scripted.clone()).deadline(5 * PACE / 2).of_pool(&PoolId::new("p"));
    let pool = PoolId::new("p");
    let all = futures_util::future::join_all((0..10).map(|_| checked.list(&pool))).await;
    assert_eq!(started.elapsed(), 5 * PACE / 2);
    assert_eq!(all.iter().filter(|listed| listed.is_ok()).count(), 3);
    let error = all.into_iter().find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.is_temporary());
    let what = "scripted was not asked to list its machines within 2.5s: its calls of one kind are 1s apart, and \
                others came first";
    assert_eq!(error.message(), what);
    assert_eq!(error.hint(), Some("`Limits::start` gives more time"));
}

#[tokio::test(start_paused = true)]
async fn machines_join_an_inspection_that_waits_for_its_turn() {
    let states = vec![Ok(MachineState::Starting), Ok(MachineState::Gone)];
    let scripted = Arc::new(Scripted { states: Mutex::new(states), ..paced() });
    let checked = Checked::new(scripted.clone());
    let ids: Vec<_> = (0..3).map(|number| MachineId::new(format!("m-{number}"))).collect();
    checked.inspect(&ids[..1]).await.unwrap();
    let later = |number: u32| {
        let (checked, id) = (&checked, &ids[number as usize]);
        async move { checked.until_gone(id, PACE / 5 * number).await }
    };
    tokio::join!(later(0), later(1), later(2));
    assert_eq!(*scripted.inspected.lock().unwrap(), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_cannot_be_asked_is_the_error_of_the_call() {
    let scripted = Arc::new(Scripted { identity: None, ..paced() });
    let error = Checked::new(scripted.clone()).list(&PoolId::new("p")).await.unwrap_err();
    assert!(error.message().contains("who it is") && seconds(&scripted, Instant::now()).is_empty(), "{error}");
}
