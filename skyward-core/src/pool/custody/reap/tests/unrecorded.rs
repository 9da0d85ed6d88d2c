//! Pools without a ledger: a reap ends the pools that the provider lists as expired.

use std::time::Duration;

use super::*;

/// The record of a pool that expires `seconds` from now; a negative number is a time in the past.
fn listed(pool: &PoolId, seconds: i64) -> PoolRecord {
    let now = SystemTime::now();
    let by = Duration::from_secs(seconds.unsigned_abs());
    PoolRecord::new(pool.clone(), if seconds < 0 { now - by } else { now + by }).owner("ada")
}

async fn reap_expired_with(scratch: &Scratch, cloud: &Arc<Cloud>) -> Reaped {
    expired::reap_expired_in(scratch.0.clone(), Arc::clone(cloud) as Arc<dyn Provider>).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_a_ledger_is_ended_when_it_has_expired_and_the_provider_has_settled() {
    // The limit is a minute and the five seconds in which this provider settles.
    for (seconds, is_over) in [(60, false), (-30, false), (-62, false), (-70, true), (-86_400, true)] {
        let (scratch, pool) = (Scratch::new(), PoolId::random());
        let cloud = Arc::new(Cloud { name: "cloud", ..Cloud::default() });
        *cloud.machines.lock().unwrap() = vec![machine(&pool, 0)];
        *cloud.pools.lock().unwrap() = vec![listed(&pool, seconds)];
        let reaped = reap_expired_with(&scratch, &cloud).await;
        assert_eq!(cloud.machines.lock().unwrap().is_empty(), is_over, "{seconds}: {reaped}");
        assert_eq!(cloud.torn_down.load(Ordering::Relaxed) > 0, is_over, "{seconds}: {reaped}");
        match is_over {
            true => {
                assert_eq!(&reaped.ended[0].pool, &pool);
                assert_eq!(reaped.ended[0].machines.len(), 1);
            }
            false => {
                let other = &reaped.elsewhere[0];
                assert_eq!(&other.pool, &pool);
                assert_eq!(other.owner.as_str(), "ada");
                assert_eq!(other.process, None);
                assert!(other.expires.is_some() && reaped.to_string().contains("ada started it"), "{reaped}");
            }
        }
    }
}

#[tokio::test]
async fn an_expired_pool_that_a_live_client_of_this_ledger_holds_is_not_ended() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let cloud = Arc::new(Cloud { name: "cloud", ..Cloud::default() });
    let ledger = crate::pool::custody::ledger::PoolLedger::default();
    ledger.open(scratch.0.clone(), &pool, cloud.as_ref()).await.unwrap();
    *cloud.machines.lock().unwrap() = vec![machine(&pool, 0)];
    *cloud.pools.lock().unwrap() = vec![listed(&pool, -86_400)];
    let reaped = reap_expired_with(&scratch, &cloud).await;
    assert_eq!(reaped.elsewhere[0].process, Some(std::process::id()), "{reaped}");
    assert!(cloud.ended.lock().unwrap().is_empty() && cloud.torn_down.load(Ordering::Relaxed) == 0, "{reaped}");
    // After its client is gone, the pool is ended and its record removed.
    drop(ledger);
    let reaped = reap_expired_with(&scratch, &cloud).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(scratch.files(), 0, "{reaped}");
}

#[tokio::test]
async fn a_record_of_another_provider_stays_in_the_ledger() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let written = lines(vec![head(&pool, "cloud", Some("there")), intent(&machine(&pool, 1), 1)]);
    scratch.write(&pool, &written);
    let cloud = Arc::new(Cloud { name: "cloud", ..Cloud::default() });
    *cloud.pools.lock().unwrap() = vec![listed(&pool, -86_400)];
    let reaped = reap_expired_with(&scratch, &cloud).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(scratch.read(&pool), written, "{reaped}");
}

#[tokio::test]
async fn a_pool_that_has_a_live_machine_again_is_left_alone() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let cloud = Arc::new(Cloud { name: "cloud", revives: true, ..Cloud::default() });
    *cloud.machines.lock().unwrap() = vec![machine(&pool, 0)];
    *cloud.pools.lock().unwrap() = vec![listed(&pool, -86_400)];
    let reaped = reap_expired_with(&scratch, &cloud).await;
    assert_eq!(reaped.ended.len(), 0, "{reaped}");
    assert_eq!(reaped.elsewhere.len(), 1, "{reaped}");
    assert!(cloud.ended.lock().unwrap().is_empty() && cloud.torn_down.load(Ordering::Relaxed) == 0, "{reaped}");
}

#[tokio::test]
async fn nothing_is_ended_if_the_provider_cannot_list_its_pools() {
    let scratch = Scratch::new();
    let cloud = Arc::new(Cloud { name: "cloud", silent: true, ..Cloud::default() });
    *cloud.pools.lock().unwrap() = vec![listed(&PoolId::random(), -86_400)];
    let error = expired::reap_expired_in(scratch.0.clone(), Arc::clone(&cloud) as _).await.unwrap_err();
    assert!(format!("{error:#}").contains("it is down"), "{error}");
    assert!(cloud.ended.lock().unwrap().is_empty());
}
