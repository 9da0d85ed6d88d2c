//! What a reap ends and removes: machines that appear late, pools that other reaps work on, and
//! what an interrupted reap has left.

use std::time::Duration;

use std::future::Future;

use super::*;

#[tokio::test]
async fn a_machine_that_the_provider_lists_late_is_ended_too() {
    let (scratch, pool, machines) = left_behind();
    let ids: Vec<_> = machines.iter().map(|machine| machine.id.clone()).collect();
    let cloud = Arc::new(Cloud {
        name: "cloud",
        identity: Some("here"),
        machines: Mutex::new(machines),
        lists_from: 3,
        ..Cloud::default()
    });
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(&reaped.ended[0].pool, &pool);
    assert_eq!(&reaped.ended[0].machines, &ids);
    assert!(cloud.machines.lock().unwrap().is_empty());
    assert!(cloud.torn_down.load(Ordering::Relaxed) > 0);
    assert_eq!(scratch.files(), 0);
    assert_eq!(reap_with(&scratch, &[&cloud]).await.to_string(), "nothing was left behind");
}

#[tokio::test(start_paused = true)]
async fn a_changed_clock_changes_neither_what_is_ended_nor_how_long_it_takes() {
    let now = crate::pool::custody::ledger::now();
    for written in [0, now - 3600, now, now + 3600, u64::MAX] {
        // The second machine appears in the list one second after the first look.
        for lists_from in [3, usize::MAX] {
            let (scratch, pool, machines) = left_behind_at(written);
            let cloud =
                Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), lists_from, ..Cloud::default() });
            let started = Instant::now();
            let given = [&cloud];
            let reaped = tokio::time::timeout(POOL_GONE, reap_with(&scratch, &given)).await.unwrap();
            assert_eq!(reaped.ended.len(), 1, "written at {written}: {reaped}");
            let ended = cloud.ended.lock().unwrap().contains(&MachineId::new(format!("{pool}.n1")));
            assert_eq!(ended, lists_from == 3, "written at {written}: {reaped}");
            assert!(started.elapsed() < Duration::from_secs(10), "written at {written}: {:?}", started.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn resources_that_appear_after_the_death_of_their_client_are_removed() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    scratch.write(&pool, &lines(vec![head(&pool, "cloud", Some("here"))]));
    let cloud = Arc::new(Cloud { name: "cloud", ..Cloud::default() });
    let given = [&cloud];
    let reap = reap_with(&scratch, &given);
    let come = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cloud.torn_down.load(Ordering::Relaxed)
    };
    let (reaped, before) = tokio::join!(reap, come);
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert!(cloud.torn_down.load(Ordering::Relaxed) > before, "what appeared after a second was not removed");
}

#[tokio::test(start_paused = true)]
async fn a_reap_waits_until_released_machines_hold_nothing() {
    let (scratch, _, machines) = left_behind();
    // Each refusal is tried again after half a second or later.
    let held = AtomicUsize::new(600);
    let cloud = Cloud { name: "cloud", machines: Mutex::new(machines), lingers: true, held, ..Cloud::default() };
    let cloud = Arc::new(cloud);
    let started = Instant::now();
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert!(started.elapsed() > POOL_GONE, "{:?}", started.elapsed());
    assert_eq!(cloud.torn_down.load(Ordering::Relaxed), 1);
    assert_eq!(scratch.files(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_not_confirmed_gone_stays_in_the_ledger() {
    let (scratch, pool, machines) = left_behind();
    let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), stuck: true, ..Cloud::default() });
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert!(reaped.ended.is_empty());
    assert_eq!(reaped.unconfirmed[0].pool, pool);
    assert!(format!("{:#}", reaped.unconfirmed[0].error).contains(&format!("{pool}.n1")), "{reaped}");
    assert_eq!(scratch.files(), 1);
    assert_eq!(cloud.torn_down.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_pool_without_its_first_record_is_ended_where_it_is_listed_and_stays_on_record() {
    let (scratch, pool, machines) = left_behind();
    scratch.write(&pool, &[&b"torn\n"[..], &lines(vec![intent(&machines[0], 1)])].concat());
    let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), ..Cloud::default() });
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert!(format!("{:#}", reaped.unconfirmed[0].error).contains("first record is damaged"), "{reaped}");
    assert!(cloud.machines.lock().unwrap().is_empty());
    assert_eq!(scratch.files(), 1);
}

#[tokio::test]
async fn two_concurrent_reaps_end_each_pool_once() {
    let (scratch, _, machines) = left_behind();
    let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), ..Cloud::default() });
    let given = [&cloud];
    let (a, b) = tokio::join!(reap_with(&scratch, &given), reap_with(&scratch, &given));
    assert_eq!(a.ended.len() + b.ended.len(), 1, "{a}\n{b}");
    assert!(a.unconfirmed.is_empty() && b.unconfirmed.is_empty(), "{a}\n{b}");
    assert_eq!(cloud.ended.lock().unwrap().len(), 2);
}

/// Machines that are already ending go on ending, and the next reap ends the rest.
#[tokio::test(start_paused = true)]
async fn after_a_reap_that_is_dropped_at_any_poll_the_next_reap_ends_everything() {
    // The number of polls depends on the threads that read files.
    let mut dropped = 0;
    for polls in 0..MOST_POLLS {
        let (scratch, pool, machines) = left_behind();
        let cloud = Arc::new(Cloud {
            name: "cloud",
            identity: Some("here"),
            machines: Mutex::new(machines),
            ..Cloud::default()
        });
        let clouds = [&cloud];
        let mut reaping = Box::pin(reap_with(&scratch, &clouds));
        let mut polled = 0;
        let reaped = std::future::poll_fn(|context| {
            let drops = polled == polls;
            polled += 1;
            match drops {
                true => std::task::Poll::Ready(None),
                false => match reaping.as_mut().poll(context).map(Some) {
                    std::task::Poll::Pending if polled == polls => std::task::Poll::Ready(None),
                    polled => polled,
                },
            }
        })
        .await;
        drop(reaping);
        // A thread of the dropped reap may still hold the ledger's lock for a moment.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while scratch.files() > 0 {
            assert!(std::time::Instant::now() < deadline, "dropped after {polls} polls");
            reap_with(&scratch, &[&cloud]).await;
        }
        assert!(cloud.machines.lock().unwrap().is_empty(), "dropped after {polls} polls");
        match reaped {
            Some(reaped) => assert_eq!(reaped.ended[0].pool, pool),
            None => dropped += 1,
        }
    }
    // Dropped before the first poll, and after one poll, while it waits for a file or for the list.
    assert!(dropped >= 2, "it was dropped {dropped} times");
}

const MOST_POLLS: usize = 16;
