//! Pools that a reap reports and does not end, because their ledger cannot be read or their
//! provider is another one or is down.

use super::*;

#[tokio::test]
async fn a_pool_of_a_newer_version_is_reported_and_keeps_no_other_from_being_ended() {
    let (scratch, _, machines) = left_behind();
    let newer = PoolId::random();
    let Record::Pool(mut first) = head(&newer, "cloud", Some("here")) else { unreachable!() };
    first.version += 1;
    let written = lines(vec![Record::Pool(first), intent(&machine(&newer, 0), 1)]);
    scratch.write(&newer, &written);
    let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), ..Cloud::default() });
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(reaped.unconfirmed.len(), 1, "{reaped}");
    assert_eq!(reaped.unconfirmed[0].pool, newer);
    let text = format!("{:#}", reaped.unconfirmed[0].error);
    assert!(text.contains("written by a newer version: 4, but this client knows 3"), "{text}");
    assert!(text.contains("`reap` with the newer version"), "{text}");
    assert_eq!(scratch.read(&newer), written);
    assert_eq!(scratch.files(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_ledger_is_cut_off_at_any_byte_is_ended_or_reported() {
    let (_, pool, machines) = left_behind();
    let now = crate::pool::custody::ledger::now();
    let first = lines(vec![head(&pool, "cloud", Some("here"))]);
    let whole = [
        &first[..],
        &lines(vec![
            intent(&machines[0], now),
            intent(&machines[1], now),
            crate::pool::custody::ledger::tests::fact(&machines[0]),
        ]),
    ]
    .concat();
    let play = async |cut: usize| {
        let scratch = Scratch::new();
        scratch.write(&pool, &whole[..cut]);
        let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines.clone()), ..Cloud::default() });
        let reaped = reap_with(&scratch, &[&cloud]).await;
        assert!(cloud.machines.lock().unwrap().is_empty(), "cut at {cut}: {reaped}");
        if cut < first.len() {
            // The owner is not known for sure, so the file is kept for people to look at.
            assert!(
                format!("{:#}", reaped.unconfirmed[0].error).contains("first record is damaged"),
                "cut at {cut}: {reaped}"
            );
            assert_eq!(scratch.read(&pool), whole[..cut], "cut at {cut}");
        } else {
            assert_eq!(reaped.ended.len(), 1, "cut at {cut}: {reaped}");
            assert_eq!(scratch.files(), 0, "cut at {cut}: {reaped}");
        }
    };
    // Each run reads all processes of this host several times, on threads of its own.
    futures_util::stream::iter(0..=whole.len()).for_each_concurrent(32, play).await;
}

#[tokio::test]
async fn a_pool_of_another_provider_or_identity_is_left_alone_and_the_error_names_it() {
    let (scratch, _, machines) = left_behind();
    let other = Arc::new(Cloud { name: "cloud", identity: Some("there"), ..Cloud::default() });
    let reaped = reap_with(&scratch, &[&other]).await;
    let error = &reaped.unconfirmed[0].error;
    assert_eq!(error.kind(), ErrorKind::Identity);
    assert!(
        format!("{error:#}").contains("`cloud` (here)") && format!("{error:#}").contains("`cloud` (there)"),
        "{error}"
    );
    assert!(other.ended.lock().unwrap().is_empty());
    assert_eq!(other.looks.load(Ordering::Relaxed), 0);
    assert_eq!(scratch.files(), 1, "its record is kept");
    let unlike = Arc::new(Cloud { name: "fog", identity: Some("here"), ..Cloud::default() });
    let error = &reap_with(&scratch, &[&unlike]).await.unconfirmed[0].error;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(format!("{error:#}").contains("`cloud` (here)") && format!("{error:#}").contains("`fog`"), "{error}");
    let right =
        Arc::new(Cloud { name: "cloud", identity: Some("here"), machines: Mutex::new(machines), ..Cloud::default() });
    assert_eq!(reap_with(&scratch, &[&other, &right]).await.ended.len(), 1);
    assert!(other.ended.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_provider_that_is_down_keeps_no_pool_of_another_one_from_being_ended() {
    let (scratch, pool, machines) = left_behind();
    let down = Arc::new(Cloud { name: "cloud", silent: true, ..Cloud::default() });
    let up = |machines| {
        Arc::new(Cloud { name: "cloud", identity: Some("here"), machines: Mutex::new(machines), ..Cloud::default() })
    };
    let reaped = reap_with(&scratch, &[&down, &up(Vec::new())]).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(scratch.files(), 0, "{reaped}");
    // It may be the provider that has the machines.
    let (scratch, ..) = left_behind();
    let reaped = reap_with(&scratch, &[&down]).await;
    assert!(reaped.unconfirmed[0].error.message().contains("it is down"), "{reaped}");
    assert_eq!(scratch.files(), 1);
    // Without its first record, a pool may be at any of the providers.
    scratch.write(&pool, b"torn\n");
    let up = up(machines);
    let reaped = reap_with(&scratch, &[&down, &up]).await;
    assert!(up.machines.lock().unwrap().is_empty(), "{reaped}");
    assert!(reaped.unconfirmed.iter().any(|left| left.pool == pool), "{reaped}");
}

/// The state folder may be on a disk that several machines share.
#[tokio::test]
async fn pools_of_the_local_provider_on_another_machine_are_left_alone() {
    let scratch = Scratch::new();
    let here = Local::new().identity().await.unwrap();
    let (folder, machine) = here.rsplit_once(" on ").unwrap();
    assert!(machine.starts_with("machine "), "{here}");
    // Also a record without the machine.
    for elsewhere in [format!("{folder} on machine 0000000000000000"), folder.to_owned()] {
        let pool = PoolId::random();
        let written = lines(vec![head(&pool, "local", Some(&elsewhere))]);
        scratch.write(&pool, &written);
        let reaped = reap_with(&scratch, &[]).await;
        let error = &reaped.unconfirmed[0].error;
        assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
        assert!(error.message().contains(&elsewhere) && error.message().contains(&here), "{error}");
        assert_eq!(scratch.read(&pool), written);
        std::fs::remove_file(scratch.path(&pool)).unwrap();
    }
    let pool = PoolId::random();
    let folder = std::env::temp_dir().join(format!("sky-other-{:08x}", rand::random::<u32>()));
    let other = Local::new().runtime_dir(folder).identity().await.unwrap();
    scratch.write(&pool, &lines(vec![head(&pool, "local", Some(&other))]));
    assert_eq!(reap_with(&scratch, &[]).await.ended.len(), 1, "another folder of this machine is found");
}

#[cfg(feature = "docker")]
#[tokio::test]
async fn a_pool_of_another_engine_at_the_same_path_is_left_alone() {
    use crate::provider::Docker;
    use crate::remote::docker::tests::Pretended;
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let first = Pretended::with_id("AAAA");
    let docker = Arc::new(Docker::new("image").engine(&first.url()));
    let ledger = crate::pool::custody::ledger::PoolLedger::default();
    ledger.open(scratch.0.clone(), &pool, docker.as_ref()).await.unwrap();
    let written = scratch.read(&pool);
    // The client is gone, so no process holds the file.
    drop(ledger);
    let second = first.replaced_by("BBBB");
    let reaped =
        reap_in(scratch.0.clone(), vec![Arc::new(Docker::new("image").engine(&second.url())) as _]).await.unwrap();
    let error = &reaped.unconfirmed[0].error;
    assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
    assert!(error.message().contains("engine AAAA") && error.message().contains("engine BBBB"), "{error}");
    assert_eq!(scratch.read(&pool), written);
    let again = second.replaced_by("AAAA");
    let reaped =
        reap_in(scratch.0.clone(), vec![Arc::new(Docker::new("image").engine(&again.url())) as _]).await.unwrap();
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(scratch.files(), 0, "{reaped}");
}
