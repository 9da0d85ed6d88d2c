//! A host whose wall clock is set while a machine has no keeper.

use std::time::{Duration, SystemTime};

use skyward_core::ids::{MachineId, PoolId, Rank};
use skyward_core::payload::Target;
use skyward_core::provider::{MachineState, Provider};

use crate::pool::{builder, work};
use crate::scene::{LONG_LEASE, One, Process, Scene, Tool, batch, kill, lives, place, renew, start, state, wait};
use crate::sshd::Options;

/// Hours by which the clock is set.
const JUMPS: [i64; 2] = [5, -5];

/// A host on which a new file is so many hours younger than the files before it say.
fn host(hours: i64) -> (Tool, Scene) {
    let shift = hours * 3600;
    let script = format!(
        "case \" $* \" in *' %Y '*/now*) /usr/bin/stat \"$@\" | {{ read -r now; echo $((now + {shift})); cat; }} ;; *) exec \
         /usr/bin/stat \"$@\" ;; esac"
    );
    let tool = Tool::new("stat", &script);
    let scene = Scene::with(1, &tool.options());
    (tool, scene)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_pool_without_its_keeper_outlives_a_jump_of_the_clock() {
    for hours in JUMPS {
        let (_tool, scene) = host(hours);
        let pool = builder(&scene, Duration::from_secs(60)).nodes(1).start().await.unwrap();
        let (_, worker, machine) = work(1, "").run(&pool).await.unwrap();
        let (worker, machine) = (Process::of(worker), MachineId::new(machine));
        let lease = scene.machines(0)[0].join("lease");
        wait("the lease was renewed", || lease.metadata().unwrap().modified().unwrap() != SystemTime::UNIX_EPOCH);
        let keeper = Process::of(scene.keeper(0, 0));
        kill("KILL", keeper.id);
        wait("the keeper is gone", || !lives(keeper));
        let other = scene.hosts(1);
        let report = other.inspect(std::slice::from_ref(&machine)).await.unwrap().remove(0);
        assert_eq!(report.state, MachineState::Running, "{hours}: {report}");
        let error = other.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap_err();
        assert!(error.is_temporary(), "{hours}: {error}");
        let record = other.pools().await.unwrap().remove(0);
        assert!(record.expires > SystemTime::now(), "{hours}: {record:?}");
        assert_eq!(work(2, "").run_on(&pool, Target::Rank(Rank(0))).await.unwrap().1, worker.id, "{hours}");
        pool.shutdown(Duration::from_secs(30)).await.unwrap();
        assert_eq!(scene.machines(0).len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, namespaces"]
async fn a_lease_that_nobody_has_renewed_yet_is_as_old_as_its_machine_however_long_the_host_is_up() {
    for uptime in [86_405, 90_000, 1_000_000] {
        let now = std::fs::read_to_string("/proc/uptime").unwrap().split('.').next().unwrap().parse::<i64>().unwrap();
        let offset = (uptime - now).to_string();
        let scene = Scene::with(1, &Options::new().within(&["unshare", "--time", "--boottime", &offset]));
        let hosts = scene.hosts(1);
        let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
        let keeper = Process::of(scene.keeper(0, 0));
        kill("KILL", keeper.id);
        wait("the keeper is gone", || !lives(keeper));
        assert_eq!(state(&hosts, &machine).await, MachineState::Ending, "{uptime}");
        let record = hosts.pools().await.unwrap().remove(0);
        assert!(record.expires > SystemTime::now(), "{uptime}: {record:?}");
        hosts.end(&machine.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_machine_without_its_keeper_expires_whatever_the_clock_is_set_to() {
    for hours in JUMPS {
        let (_tool, scene) = host(hours);
        let hosts = scene.hosts(1);
        let pool = PoolId::random();
        let machine = hosts.launch_one(&batch(&pool, 0, Duration::from_secs(8))).await.unwrap();
        kill("STOP", scene.keeper(0, 0));
        let process = start(&hosts, &machine).await;
        // The last renewal was as many hours ago by the clock before as the clock was set back.
        renew(&place(&hosts, &machine).await.folder, Duration::from_secs(100));
        let keeper = Process::of(scene.keeper(0, 0));
        kill("KILL", keeper.id);
        wait("the keeper is gone", || !lives(keeper));
        assert_eq!(state(&hosts, &machine).await, MachineState::Ending, "{hours}");
        let record = hosts.pools().await.unwrap().remove(0);
        let ago = SystemTime::now().duration_since(record.expires).unwrap_or_default().as_secs();
        assert!((85..600).contains(&ago), "{hours}: its lease was over {ago} s ago");
        let next = scene.hosts(1).launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
        assert!(!lives(process), "{hours}");
        hosts.end(&next.id).await.unwrap();
    }
}
