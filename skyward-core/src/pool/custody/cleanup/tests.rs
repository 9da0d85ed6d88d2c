//! The end of a pool's machines, round by round.

use super::*;
use crate::ids::OfferId;
use crate::pool::custody::reap::tests::Cloud;
use crate::provider::{Facts, Offer};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn the_hint_names_reap_where_the_pool_is_on_record() {
    for outlives in [true, false] {
        let mut provider = Cloud::default();
        (provider.outlives, provider.silent) = (outlives, true);
        let cleanup = Cleanup::new(Checked::new(Arc::new(provider)), PoolId::random());
        let error = cleanup.end_all(Instant::now() + LEAST_END, |_| ()).await.unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.starts_with("the lease of the machines ends them;"), "{hint}");
        assert_eq!(hint.contains("skyward::reap()"), outlives, "{hint}");
    }
}

#[tokio::test]
async fn machines_that_end_with_the_client_are_not_put_into_the_ledger() {
    for outlives in [true, false] {
        let mut provider = Cloud::default();
        provider.outlives = outlives;
        let cleanup = Cleanup::new(Checked::new(Arc::new(provider)), PoolId::random());
        assert_eq!(cleanup.ledger.is_some(), outlives);
        if !outlives {
            cleanup.arm().await.unwrap();
            assert!(!cleanup.is_done());
            cleanup.end_all(Instant::now() + LEAST_END, |_| ()).await.unwrap();
            assert!(cleanup.is_done());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_look_does_not_hide_why_a_machine_could_not_be_ended() {
    let pool = PoolId::random();
    let mut cloud = Cloud::default();
    cloud.protects = true;
    let cleanup = Cleanup::new(Checked::new(Arc::new(cloud)), pool.clone());
    let (id, launch, offer) = (MachineId::new("m"), LaunchId::new("l"), OfferId::new("m"));
    cleanup.add(Machine { id, launch, pool, number: MachineNumber(0), offer, facts: Facts::new() }).await.unwrap();
    let error = cleanup.end_all(Instant::now() + Duration::from_secs(20), |_| ()).await.unwrap_err();
    let told = format!("{error:?}");
    assert!(told.contains("it is protected") && told.contains("remove the protection"), "{told}");
}

/// A cleanup with one machine at a cloud whose machines are released, and not gone, and where what
/// they share is held for so many tries.
async fn with_machine(lingers: bool, held: usize) -> (Cleanup, Arc<Cloud>) {
    let pool = PoolId::random();
    let mut cloud = Cloud::default();
    cloud.lingers = lingers;
    cloud.held = held.into();
    let cloud = Arc::new(cloud);
    let cleanup = Cleanup::new(Checked::new(Arc::clone(&cloud) as Arc<dyn Provider>), pool.clone());
    cleanup.arm().await.unwrap();
    let (id, launch, offer) = (MachineId::new("m"), LaunchId::new("l"), OfferId::new("m"));
    cleanup.add(Machine { id, launch, pool, number: MachineNumber(0), offer, facts: Facts::new() }).await.unwrap();
    (cleanup, cloud)
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_over_when_its_machines_are_released_and_hold_nothing() {
    let (cleanup, _) = with_machine(true, 0).await;
    cleanup.end_all(Instant::now() + MINUTE, |_| ()).await.unwrap();
    assert!(cleanup.is_done());
}

#[tokio::test(start_paused = true)]
async fn what_released_machines_hold_for_minutes_is_removed_after_the_pool_has_ended() {
    let (cleanup, cloud) = with_machine(true, 600).await;
    let began = Instant::now();
    cleanup.end_all(began + MINUTE * 30, |_| ()).await.unwrap();
    assert!(began.elapsed() < MINUTE && !cleanup.is_done(), "{:?}", began.elapsed());
    cleanup.remove_rest().await;
    assert!(cleanup.is_done());
    assert_eq!(cloud.held.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn what_remains_although_no_machine_holds_it_is_an_error() {
    let (cleanup, _) = with_machine(false, usize::MAX).await;
    let error = cleanup.end_all(Instant::now() + MINUTE, |_| ()).await.unwrap_err();
    assert!(error.message().contains("resources that they shared may remain"), "{error}");
    assert!(!cleanup.is_done());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_ended_while_the_client_was_suspended_is_charged_until_its_reported_end() {
    for (lived, minutes) in [(Some(MINUTE * 2), 2.0), (None, 8.0 * 60.0)] {
        let (pool, number) = (PoolId::random(), MachineNumber(0));
        let launch = LaunchId::new("l");
        let account = Arc::new(Mutex::new(Account::default()));
        lock(&account).admit(&launch, number, &Offer::new("m", "p", 1, 1), 1, clock::now()).unwrap();
        let (id, offer) = (MachineId::new("m"), OfferId::new("m"));
        let machine = Machine { id, launch, pool: pool.clone(), number, offer, facts: Facts::new() };
        let mut cloud = Cloud::default();
        cloud.lived = lived;
        let cleanup = Cleanup::new(Checked::new(Arc::new(cloud)), pool).charging(Arc::clone(&account));
        cleanup.add(machine).await.unwrap();
        clock::SUSPENDED.set(clock::SUSPENDED.get() + MINUTE * 60 * 8);
        cleanup.end_all(Instant::now() + LEAST_END, |_| ()).await.unwrap();
        let hours = lock(&account).spent(clock::now()).machine_hours;
        assert!((hours * 60.0 - minutes).abs() < 0.1, "{lived:?}: {hours}");
    }
}
