//! Calls about single machines at nearly the same moment.

use std::task::{Context, Poll, Waker};

use futures_util::future::{join, join_all};

use super::launch::Market;
use super::*;
use crate::provider::checked::timing::TRY_PAUSE;

const SECOND: Duration = Duration::from_secs(1);

fn market() -> Market {
    Market { batches: true, ..Market::default() }
}

/// A batch for each of these machines of one pool.
fn singles(count: u32) -> Vec<LaunchBatch> {
    let all = batch(count);
    all.requests.iter().map(|request| LaunchBatch::one(all.offer.clone(), request.clone())).collect()
}

async fn launch_one(checked: &Checked, batch: &LaunchBatch) -> Result<Machine> {
    checked.launch(batch).await.remove(0)
}

fn asked(market: &Market) -> Vec<Vec<u32>> {
    market.asked.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_moment_are_one_where_the_provider_takes_many_at_a_time() {
    for (batches, calls) in [(true, 1), (false, 3)] {
        let market = Arc::new(Market { batches, ..Market::default() });
        let checked = Checked::new(market.clone());
        let (batches, ids) = (singles(3), ["a", "b", "c"].map(MachineId::new));
        let launched = join_all(batches.iter().map(|batch| launch_one(&checked, batch))).await;
        let numbers: Vec<u32> = launched.into_iter().map(|machine| machine.unwrap().number.0).collect();
        assert_eq!(numbers, [0, 1, 2], "each caller gets its own machine");
        assert_eq!(asked(&market).len(), calls);
        let ended = checked.terminate(&ids).await;
        assert!(ended.iter().all(Result::is_ok));
        let one = async |id: &MachineId| checked.inspect(std::slice::from_ref(id)).await.unwrap().remove(0);
        let reports = join_all(ids.iter().map(one)).await;
        let words: Vec<_> = reports.iter().map(|report| report.words.clone().unwrap()).collect();
        assert_eq!(words, ["a", "b", "c"]);
        let others = market.others.lock().unwrap().clone();
        let of = |what: &str| others.iter().filter(|(call, _)| *call == what).count();
        assert_eq!(of("terminate"), calls, "{others:?}");
        assert_eq!(of("inspect"), calls, "{others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_caller_has_its_own_result_and_its_own_retries() {
    let final_error = Error::new(ErrorKind::Provider, "forbidden");
    let answers = [(1, vec![Err(busy()), Err(busy()), Ok(())]), (2, vec![Err(final_error)]), (3, vec![Err(busy())])];
    let market = Arc::new(Market { answers: Mutex::new(answers.into()), ..market() });
    let checked = Checked::new(market.clone());
    let started = Instant::now();
    let timed = async |batch: &LaunchBatch| (launch_one(&checked, batch).await, started.elapsed());
    let batches = singles(4);
    let mut launched = join_all(batches.iter().map(timed)).await;
    // The retries of a moment are one call again.
    assert_eq!(asked(&market), [vec![0, 1, 2, 3], vec![1, 3], vec![1]]);
    assert!(launched[0].1 < TRY_PAUSE / 2, "nobody waits for the retries of others: {:?}", launched[0].1);
    let error = launched.remove(2).0.unwrap_err();
    assert!(format!("{error:#}").contains("forbidden") && format!("{error:#}").contains("n2-a1"), "{error}");
    assert!(launched.iter().all(|(machine, _)| machine.is_ok()));

    let ids = ["free", "locked"].map(MachineId::new);
    let ended = checked.deadline(SECOND / 2).terminate(&ids).await;
    assert!(ended[0].is_ok() && ended[1].as_ref().unwrap_err().to_string().contains("machine: locked"), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn each_caller_has_its_own_deadline() {
    let market = Arc::new(Market { takes: 5 * SECOND, ..market() });
    let patient = Checked::new(market.clone());
    let hasty = patient.clone().deadline(SECOND).of_pool(&PoolId::new("p"));
    let (batches, started) = (singles(2), Instant::now());
    let late = async {
        let error = launch_one(&hasty, &batches[0]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(started.elapsed(), SECOND);
        assert_eq!(error.message(), "market did not launch a machine within 1s");
    };
    let (machine, ()) = join(launch_one(&patient, &batches[1]), late).await;
    assert_eq!(machine.unwrap().number, MachineNumber(1));
    assert_eq!(asked(&market), vec![vec![0, 1]]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_before_the_call_is_left_out_and_delays_nobody() {
    let market = Arc::new(Market { takes: 5 * SECOND, ..market() });
    let checked = Checked::new(market.clone());
    let batches = singles(3);
    let timed = |batch: usize, time| tokio::time::timeout(time, launch_one(&checked, &batches[batch]));
    // The first of them drives the call at first.
    let (early, during, stays) =
        tokio::join!(timed(0, SECOND / 1000), timed(1, SECOND), launch_one(&checked, &batches[2]));
    assert!(early.is_err() && during.is_err());
    assert_eq!(stays.unwrap().number, MachineNumber(2));
    assert_eq!(asked(&market), vec![vec![1, 2]]);
    // A call that everybody has left is dropped, and what it held is free.
    assert!(timed(0, SECOND).await.is_err());
    assert!(market.launching.try_lock().is_ok());
    assert_eq!(asked(&market).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_nobody_polls_holds_no_other_up() {
    let market = Arc::new(market());
    let checked = Checked::new(market.clone());
    let batches = singles(3);
    let mut idle = checked.launch(&batches[0]);
    assert!(idle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    launch_one(&checked, &batches[1]).await.unwrap();
    launch_one(&checked, &batches[2]).await.unwrap();
    assert_eq!(asked(&market), [vec![0, 1], vec![2]]);
    idle.await.remove(0).unwrap();
    assert_eq!(asked(&market).len(), 2);
}

#[test]
fn a_caller_on_a_runtime_that_does_not_run_holds_no_other_up() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (stopped, running) = (runtime(), runtime());
    let market = Arc::new(market());
    let checked = Checked::new(market.clone());
    let batches = singles(2);
    let mut idle = checked.launch(&batches[0]);
    let poll = std::future::poll_fn(|context| Poll::Ready(idle.as_mut().poll(context).is_pending()));
    assert!(stopped.block_on(poll));
    running.block_on(launch_one(&checked.clone().deadline(MINUTE), &batches[1])).unwrap();
    assert_eq!(asked(&market), [[1]]);
    stopped.block_on(idle).remove(0).unwrap();
    assert_eq!(asked(&market), [[1], [0]]);
}

#[tokio::test(start_paused = true)]
async fn what_differs_in_offer_or_pool_or_is_all_or_none_is_launched_apart() {
    let market = Arc::new(market());
    let checked = Checked::new(market.clone());
    let (mut whole, mut other, same) = (batch(2), batch(2), batch(2));
    whole.all_or_none = true;
    other.requests = same.requests[..1].to_vec();
    other.offer = Offer::new("other", "p", 1, 1);
    let third = batch(1);
    let all = [&whole, &other, &third].into_iter().map(|batch| checked.launch(batch));
    let parts = same.requests.iter().map(|request| LaunchBatch::one(same.offer.clone(), request.clone()));
    let parts: Vec<LaunchBatch> = parts.collect();
    let (all, parts) = join(join_all(all), join_all(parts.iter().map(|part| launch_one(&checked, part)))).await;
    assert!(all.iter().flatten().all(Result::is_ok) && parts.iter().all(Result::is_ok), "{all:?} {parts:?}");
    let mut asked = asked(&market);
    asked.sort();
    assert_eq!(asked, [vec![0], vec![0], vec![0, 1], vec![0, 1]]);
}

#[tokio::test(start_paused = true)]
async fn launches_join_a_call_that_waits_for_its_turn() {
    let market = Arc::new(Market { batches: false, pace: SECOND, ..Market::default() });
    let checked = Checked::new(market.clone()).deadline(MINUTE);
    let (batches, started) = (singles(4), Instant::now());
    launch_one(&checked, &batches[0]).await.unwrap();
    let later = async |number: u32| {
        tokio::time::sleep(SECOND / 5 * number).await;
        launch_one(&checked, &batches[number as usize]).await
    };
    // It is dropped before its turn, and does not take the turn of the others with it.
    let dropped = tokio::time::timeout(SECOND / 2, later(1));
    let (dropped, second, third) = tokio::join!(dropped, later(2), later(3));
    assert!(dropped.is_err() && second.is_ok() && third.is_ok());
    assert_eq!(asked(&market), [vec![0], vec![2, 3]]);
    assert!((SECOND..SECOND * 2).contains(&started.elapsed()), "{:?}", started.elapsed());
    let hasty = checked.clone().deadline(SECOND / 2);
    let error = launch_one(&hasty, &batches[1]).await.unwrap_err();
    assert!(error.message().starts_with("market was not asked to launch a machine within 500ms"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_machine_delays_nobody_where_each_machine_takes_its_own_time() {
    let market = Arc::new(Market { slow: Some(("slow", 30 * SECOND)), ..Market::default() });
    let (checked, started) = (Checked::new(market.clone()), Instant::now());
    let ids = ["slow", "quick"].map(MachineId::new);
    let timed = async |id: usize| {
        checked.terminate(&ids[id..=id]).await.remove(0).unwrap();
        started.elapsed()
    };
    assert_eq!(join(timed(0), timed(1)).await, (30 * SECOND, Duration::ZERO));
}
