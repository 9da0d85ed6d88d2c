//! Claims of slots on hosts: which client has a slot, and what happens to a claim when its client,
//! keeper or host is gone.

use std::sync::Arc;
use std::time::Duration;

use skyward_core::error::ErrorKind;
use skyward_core::ids::PoolId;
use skyward_core::provider::{Checked, Host, Hosts, MachineState, PoolRequest, Provider, Requirements};
use skyward_core::remote::ssh::{HostKeys, Key, Target};
use skyward_core::spec::Accelerator;

use crate::scene::{
    LONG_LEASE, One, Process, SHORT_LEASE, Scene, Tool, batch, kill, lives, place, renew, start, state, tear_down, wait,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn one_of_several_clients_that_race_for_a_slot_gets_it() {
    let scene = Scene::new(1);
    let clients: Vec<_> = (0..4).map(|_| (scene.hosts(1), PoolId::random())).collect();
    let launches =
        clients.iter().map(|(hosts, pool)| async move { hosts.launch_one(&batch(pool, 0, LONG_LEASE)).await });
    let results = futures_util::future::join_all(launches).await;
    let winners: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert_eq!(error.kind(), ErrorKind::Provider, "{error}");
        assert!(error.is_temporary(), "{error}");
        assert!(error.message().contains(&format!("slot 0 is taken by pool {}", winners[0].pool)), "{error}");
    }
    // A client without a free slot gets an error from `offers`, before anything else happens; when
    // the slot is free, the client gets an offer again.
    let error = clients[0].0.offers(&Requirements::default()).await.unwrap_err();
    assert!(error.message().contains("slot 0 is taken by pool"), "{error}");
    clients[0].0.end(&winners[0].id).await.unwrap();
    assert_eq!(clients[0].0.offers(&Requirements::default()).await.unwrap().len(), 1);
    let next = PoolId::random();
    let machine = clients[1].0.launch_one(&batch(&next, 0, LONG_LEASE)).await.unwrap();
    clients[1].0.end(&machine.id).await.unwrap();
    assert_eq!(scene.machines(0).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn nodes_fill_the_slots_of_all_hosts_and_no_more() {
    let scene = Scene::new(2);
    let hosts = scene.hosts(2);
    let pool = PoolId::random();
    hosts.prepare(&PoolRequest::new(pool.clone(), LONG_LEASE)).await.unwrap();
    let requests: Vec<_> = (0..5).map(|node| batch(&pool, node, LONG_LEASE)).collect();
    let results = futures_util::future::join_all(requests.iter().map(|request| hosts.launch_one(request))).await;
    let machines: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(machines.len(), 4, "{results:?}");
    assert_eq!(scene.machines(0).len(), 2);
    assert_eq!(scene.machines(1).len(), 2);
    assert_eq!(hosts.list(&pool).await.unwrap().len(), 4);
    tear_down(&hosts, &pool).await;
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(1).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn the_claim_of_a_dead_client_ends_with_its_lease() {
    let scene = Scene::new(1);
    let hosts = scene.hosts(1);
    let machine = hosts.launch_one(&batch(&PoolId::random(), 0, SHORT_LEASE)).await.unwrap();
    let process = start(&hosts, &machine).await;
    drop(hosts);
    wait("the process ended", || !lives(process));
    wait("the folder is gone", || scene.machines(0).is_empty());
    let again = scene.hosts(1);
    assert_eq!(state(&again, &machine).await, MachineState::Gone);
    let next = again.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    again.end(&next.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn the_next_claim_ends_what_a_killed_keeper_left() {
    let scene = Scene::new(1);
    let hosts = scene.hosts(1);
    let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    let process = start(&hosts, &machine).await;
    let keeper = Process::of(scene.keeper(0, 0));
    kill("KILL", keeper.id);
    wait("the keeper is gone", || !lives(keeper));
    assert_eq!(state(&hosts, &machine).await, MachineState::Ending);
    let other = scene.hosts(1);
    let next = other.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    assert!(!lives(process), "a process of the machine before outlived it");
    assert_eq!(state(&other, &machine).await, MachineState::Gone);
    assert_eq!(state(&other, &next).await, MachineState::Running);
    other.end(&next.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_machine_without_its_keeper_keeps_its_slot_while_its_lease_is_renewed() {
    let scene = Scene::new(1);
    let hosts = scene.hosts(1);
    let pool = PoolId::random();
    // It lives for twelve seconds after a renewal.
    let lease = Duration::from_secs(8);
    let machine = hosts.launch_one(&batch(&pool, 0, lease)).await.unwrap();
    kill("STOP", scene.keeper(0, 0));
    let process = start(&hosts, &machine).await;
    let folder = place(&hosts, &machine).await.folder;
    let keeper = Process::of(scene.keeper(0, 0));
    kill("KILL", keeper.id);
    wait("the keeper is gone", || !lives(keeper));
    let other = scene.hosts(1);
    renew(&folder, Duration::ZERO);
    let error = other.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert!(error.message().contains(&format!("slot 0 is taken by pool {pool}")), "{error}");
    renew(&folder, Duration::ZERO);
    assert_eq!(state(&other, &machine).await, MachineState::Running);
    assert!(lives(process));
    renew(&folder, Duration::from_secs(13));
    assert_eq!(state(&other, &machine).await, MachineState::Ending);
    // No time of a clock that somebody may set is a renewal.
    let file = std::fs::File::options().write(true).open(format!("{folder}/lease")).unwrap();
    for time in
        [std::time::SystemTime::now(), std::time::SystemTime::now() + LONG_LEASE * 2, std::time::SystemTime::UNIX_EPOCH]
    {
        file.set_modified(time).unwrap();
        assert_eq!(state(&other, &machine).await, MachineState::Ending, "{time:?}");
    }
    let next = other.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    assert!(!lives(process), "a process of the machine before outlived it");
    other.end(&next.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_file_system_without_working_locks_is_refused() {
    // The type of the file system, and locks that always succeed, are simulated.
    let tools = Tool::new("flock", "exit 0");
    tools.add("stat", "case $1 in -f) echo nfs ;; *) exec /usr/bin/stat \"$@\" ;; esac");
    let scene = Scene::with(1, &tools.options());
    let error = scene.hosts(1).launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap_err();
    assert!(error.message().contains("(nfs) has no working locks"), "{error}");
    assert_eq!(scene.machines(0).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_record_with_a_wrong_keeper_ends_no_other_process() {
    let scene = Scene::new(1);
    let hosts = scene.hosts(1);
    let mut bystander = std::process::Command::new("setsid").args(["sleep", "600"]).spawn().unwrap();
    let decoy = bystander.id().to_string();
    for number in ["1", "0", "007", "x", "", decoy.as_str()] {
        // The keeper checks its lease all the time, and ends without it.
        let machine = hosts.launch_one(&batch(&PoolId::random(), 0, Duration::from_secs(8))).await.unwrap();
        let record = std::fs::read_to_string(scene.claim(0, 0)).unwrap();
        let (kept, _) = record.split_once("keeper ").unwrap();
        std::fs::write(scene.claim(0, 0), format!("{kept}keeper {number}\n")).unwrap();
        hosts.end(&machine.id).await.unwrap();
        assert_eq!(state(&hosts, &machine).await, MachineState::Gone);
        assert!(bystander.try_wait().unwrap().is_none(), "keeper {number}: another process got a signal");
    }
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn terminate_ends_a_machine_whose_keeper_is_killed_or_stopped() {
    let scene = Scene::new(1);
    let hosts = scene.hosts(1);
    for signal in ["KILL", "STOP"] {
        let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
        let process = start(&hosts, &machine).await;
        kill(signal, scene.keeper(0, 0));
        hosts.end(&machine.id).await.unwrap();
        assert!(!lives(process));
        assert_eq!(state(&hosts, &machine).await, MachineState::Gone);
        assert_eq!(scene.machines(0).len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn an_unreachable_host_is_skipped_and_its_machines_are_not_reported_as_gone() {
    let mut scene = Scene::new(2);
    let hosts = scene.hosts(1);
    let pool = PoolId::random();
    hosts.prepare(&PoolRequest::new(pool.clone(), LONG_LEASE)).await.unwrap();
    let machine = hosts.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    scene.servers[0].stop();

    assert_eq!(state(&hosts, &machine).await, MachineState::Unknown);
    assert_eq!(hosts.list(&pool).await.unwrap(), std::slice::from_ref(&machine));
    let error = hosts.end(&machine.id).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    // A client that did not launch the machine cannot know of it.
    let stranger = scene.hosts(1);
    stranger.list(&pool).await.unwrap_err();
    assert_eq!(stranger.offers(&Requirements::default()).await.unwrap().len(), 1);
    let second = hosts.launch_one(&batch(&pool, 2, LONG_LEASE)).await.unwrap();
    assert_eq!(scene.machines(1).len(), 1, "the slot of the reachable host is used");
    let error = hosts.launch_one(&batch(&pool, 1, LONG_LEASE)).await.unwrap_err();
    let (gone, taken) = (scene.host(0).to_string(), format!("slot 0 is taken by pool {pool}"));
    assert!(error.message().contains(&gone) && error.message().contains(&taken), "{error}");

    scene.servers[0].listen().unwrap();
    hosts.end(&machine.id).await.unwrap();
    hosts.end(&second.id).await.unwrap();
    assert_eq!(hosts.list(&pool).await.unwrap(), []);
    assert_eq!(scene.machines(0).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn an_adopted_pool_is_listed_when_each_host_has_answered_once() {
    let mut scene = Scene::new(2);
    let hosts = scene.hosts(1);
    let pool = PoolId::random();
    let request = PoolRequest::new(pool.clone(), LONG_LEASE);
    hosts.prepare(&request).await.unwrap();
    let mut machines = Vec::new();
    for number in 0..2 {
        machines.push(hosts.launch_one(&batch(&pool, number, LONG_LEASE)).await.unwrap());
    }
    scene.servers[0].stop();
    let second = scene.hosts(1);
    second.adopt(&request).await.unwrap();
    // The silent host may have machines that the second client does not know.
    second.list(&pool).await.unwrap_err();
    scene.servers[0].listen().unwrap();
    assert_eq!(second.list(&pool).await.unwrap(), machines);
    // From now on the second client knows what each host has.
    scene.servers[0].stop();
    assert_eq!(state(&second, &machines[0]).await, MachineState::Unknown);
    assert_eq!(second.list(&pool).await.unwrap(), machines);
    scene.servers[1].stop();
    scene.hosts(1).adopt(&request).await.unwrap_err();
    for server in &mut scene.servers {
        server.listen().unwrap();
    }
    for machine in &machines {
        second.end(&machine.id).await.unwrap();
    }
    assert_eq!(second.list(&pool).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_host_that_does_not_answer_does_not_hold_up_other_nodes() {
    let scene = Scene::new(2);
    // The client does not notice that this host is away before a request to it times out.
    let sshd = &scene.servers[0];
    let first = Target::new(sshd.address()).port(sshd.port()).user(sshd.user()).key(Key::file(sshd.client_key()));
    let first = first.host_keys(HostKeys::pinned(sshd.host_key())).silence(LONG_LEASE).connect_within(LONG_LEASE);
    let first = Host::from(first).folder(scene.base(0).to_str().unwrap());
    let hosts = Hosts::new([first, scene.host(1)].map(|host| host.slots(2)));
    let pool = PoolId::random();
    hosts.prepare(&PoolRequest::new(pool.clone(), LONG_LEASE)).await.unwrap();
    hosts.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    let of_first = |signal| {
        scene.servers[0].signal_listener(signal);
        scene.servers[0].signal_sessions(signal);
    };
    of_first("STOP");
    // Like a pool whose deadline is shorter than that of a request; node 2 starts with the same
    // host as node 0.
    let patient = Checked::new(Arc::new(hosts.clone())).deadline(Duration::from_secs(40));
    patient.launch_one(&batch(&pool, 2, LONG_LEASE)).await.unwrap();
    assert_eq!(scene.machines(1).len(), 1);
    of_first("CONT");
    tear_down(&hosts, &pool).await;
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(1).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_client_that_only_reads_a_slot_does_not_hold_it() {
    let scene = Scene::new(1);
    let hosts = scene.hosts(1);
    let pool = PoolId::random();
    let machine = hosts.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    hosts.end(&machine.id).await.unwrap();
    // Reads the slot as a request of another client does.
    let looks = std::fs::File::open(scene.claim(0, 0)).unwrap();
    looks.lock_shared().unwrap();
    assert_eq!(hosts.offers(&Requirements::default()).await.unwrap().len(), 1);
    let (client, request) = (hosts.clone(), batch(&pool, 1, LONG_LEASE));
    let launch = tokio::spawn(async move { client.launch_one(&request).await });
    wait("the claim waits for the reader", || scene.is_waited_for(0, 0));
    drop(looks);
    let machine = launch.await.unwrap().unwrap();
    hosts.end(&machine.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_stopped_keeper_is_ended_on_a_host_whose_sleep_takes_no_fractions() {
    let sleep = Tool::new("sleep", "case $1 in *.*) exit 1 ;; esac\nexec /bin/sleep \"$@\"");
    let scene = Scene::with(1, &sleep.options());
    let hosts = scene.hosts(1);
    let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    let process = start(&hosts, &machine).await;
    kill("STOP", scene.keeper(0, 0));
    hosts.end(&machine.id).await.unwrap();
    assert!(!lives(process));
    assert_eq!(state(&hosts, &machine).await, MachineState::Gone);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn accelerators_are_given_to_one_node_each() {
    let scene = Scene::new(1);
    let hosts = Hosts::new([scene.host(0).slots(2).accelerator(Accelerator::new("H100", 4))]);
    let wants = |count| Requirements::default().accelerator(Accelerator::new("h100", count));
    assert_eq!(hosts.offers(&wants(3)).await.unwrap(), [], "a slot's share is two");
    let offer = hosts.offers(&wants(2)).await.unwrap().remove(0);
    let pool = PoolId::random();
    let mut given = Vec::new();
    for node in 0..2 {
        let mut request = batch(&pool, node, LONG_LEASE);
        request.offer = offer.clone();
        let machine = hosts.launch_one(&request).await.unwrap();
        let remote = hosts.connect(&machine, &place(&hosts, &machine).await).await.unwrap();
        let script = skyward_core::remote::Command::script("echo $CUDA_VISIBLE_DEVICES");
        given.push(remote.run(&script, &|_| {}).await.unwrap().stdout.trim().to_owned());
    }
    assert_eq!(given, ["0,1", "2,3"]);
    tear_down(&hosts, &pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_list_of_hosts_is_refused_before_any_connection() {
    let refused = |hosts: Vec<skyward_core::provider::Host>| async {
        let error = Hosts::new(hosts).offers(&Requirements::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
        error.message().to_owned()
    };
    let host = skyward_core::provider::Host::new;
    assert_eq!(refused(vec![]).await, "the list of hosts is empty");
    assert_eq!(refused(vec![host("a"), host("a")]).await, "the host a:22 is listed twice");
    assert_eq!(refused(vec![host("a").slots(0)]).await, "the host a:22 has no slot");
    assert_eq!(refused(vec![host("a b")]).await, "`a b:22` is not the address of a host");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_launch_whose_session_is_killed_leaves_only_listed_machines() {
    let scene = Scene::new(1);
    for kills in [0, 2, 5_u32] {
        let hosts = scene.hosts(1);
        let pool = PoolId::random();
        hosts.prepare(&PoolRequest::new(pool.clone(), LONG_LEASE)).await.unwrap();
        hosts.offers(&Requirements::default()).await.unwrap();
        let request = batch(&pool, 0, SHORT_LEASE);
        let launch = hosts.launch_one(&request);
        let break_it = async {
            for _ in 0..kills * 8 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_millis(4 * u64::from(kills))).await;
            scene.servers[0].signal_sessions("KILL");
        };
        let (launched, ()) = tokio::join!(launch, break_it);
        drop(hosts);
        // The lease of any machine that was made is not renewed.
        let again = scene.hosts(1);
        let next = PoolId::random();
        wait("nothing is left", || scene.machines(0).is_empty());
        let machine = again.launch_one(&batch(&next, 0, LONG_LEASE)).await.unwrap();
        assert_eq!(again.list(&pool).await.unwrap(), [], "{launched:?}");
        again.end(&machine.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_claim_whose_session_is_killed_half_way_is_ended_with_its_pool() {
    // Programs that a claim runs between its record and its keeper, by their arguments.
    for (program, arguments) in [("mkdir", "*/s/??????????"), ("head", "*urandom"), ("touch", "-m*lease")] {
        let begun = std::env::temp_dir().join(format!("skyward-claim-{}", PoolId::random()));
        let wait_once = format!(
            "case \"$*\" in {arguments}) if /usr/bin/mkdir '{}' 2>/dev/null; then sleep 60; fi ;; esac\nexec /usr/bin/{program} \"$@\"",
            begun.display()
        );
        let tool = Tool::new(program, &wait_once);
        let scene = Scene::with(2, &tool.options());
        let hosts = scene.hosts(1);
        let pool = PoolId::random();
        hosts.prepare(&PoolRequest::new(pool.clone(), LONG_LEASE)).await.unwrap();
        hosts.offers(&Requirements::default()).await.unwrap();
        let (client, request) = (hosts.clone(), batch(&pool, 0, LONG_LEASE));
        let launch = tokio::spawn(async move { client.launch_one(&request).await });
        wait("the claim is half made", || begun.exists() || launch.is_finished());
        assert!(begun.exists(), "{program} {:?}", launch.await);
        scene.servers[0].signal_sessions("KILL");
        let machine = launch.await.unwrap().unwrap();
        assert_eq!(machine.number.0, 0, "{program}: the other host is used");
        assert_eq!(scene.machines(1).len(), 1, "{program}: the other host is used");
        hosts.teardown(&pool).await.unwrap();
        assert_eq!(scene.machines(0).len(), 0, "{program}");
        assert_eq!(scene.machines(1).len(), 0, "{program}");
        std::fs::remove_dir(begun).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_host_that_got_no_claim_does_not_keep_a_pool_from_its_end() {
    let mut scene = Scene::new(2);
    let hosts = scene.hosts(1);
    let pool = PoolId::random();
    hosts.prepare(&PoolRequest::new(pool.clone(), LONG_LEASE)).await.unwrap();
    hosts.offers(&Requirements::default()).await.unwrap();
    scene.servers[0].stop();
    let machine = hosts.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    assert_eq!(hosts.list(&pool).await.unwrap(), [machine]);
    hosts.teardown(&pool).await.unwrap();
    assert_eq!(scene.machines(1).len(), 0);
}
