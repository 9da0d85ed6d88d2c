//! What the next start of a pool ends of clients that are gone, without a call of `reap`.

use super::*;

/// Takes up what is left at a provider with this name and identity.
async fn taken_up(name: &'static str, identity: &'static str, outlives: bool) -> (Scratch, Arc<Cloud>) {
    let (scratch, _, machines) = left_behind();
    let cloud = Cloud { name, identity: Some(identity), outlives, machines: Mutex::new(machines), ..Cloud::default() };
    let cloud = Arc::new(cloud);
    take_up_in(scratch.0.clone(), Checked::new(Arc::clone(&cloud) as Arc<dyn Provider>)).await;
    (scratch, cloud)
}

#[tokio::test(start_paused = true)]
async fn the_start_of_a_pool_ends_what_a_dead_client_has_left_at_its_provider() {
    let (scratch, cloud) = taken_up("cloud", "here", true).await;
    assert!(cloud.machines.lock().unwrap().is_empty());
    assert!(cloud.torn_down.load(Ordering::Relaxed) > 0);
    assert_eq!(scratch.files(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_at_another_provider_is_left_alone() {
    for (name, identity) in [("cloud", "elsewhere"), ("other", "here")] {
        let (scratch, cloud) = taken_up(name, identity, true).await;
        assert!(cloud.ended.lock().unwrap().is_empty(), "{name} {identity}");
        assert_eq!(cloud.torn_down.load(Ordering::Relaxed), 0, "{name} {identity}");
        assert_eq!(scratch.files(), 1, "{name} {identity}");
        // Its lock is free again, for a reap.
        let at_home = Arc::new(Cloud { name: "cloud", identity: Some("here"), ..Cloud::default() });
        assert_eq!(reap_with(&scratch, &[&at_home]).await.ended.len(), 1, "{name} {identity}");
    }
}
