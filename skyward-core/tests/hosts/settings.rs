//! Hosts whose user has changed all that shells and their tools take from the environment.

use std::time::Duration;

use skyward_core::ids::PoolId;
use skyward_core::provider::{MachineState, Provider, Requirements};
use skyward_core::remote::Command;

use crate::hostile::{self, SHELLS, Sh};
use crate::scene::{One, SHORT_LEASE, Scene, batch, lives, place, report, start, state, wait};
use crate::sshd::Options;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, dash, busybox"]
async fn a_users_settings_change_nothing_of_a_machines_life() {
    for name in SHELLS {
        let sh = Sh::new(name).unwrap();
        let settings = hostile::environment();
        let options = settings.iter().fold(Options::new(), |options, (name, value)| options.env(name, value));
        let scene = Scene::with(1, &options.env("PATH", sh.path()));
        let (hosts, pool) = (scene.hosts(2), PoolId::random());
        let offers = hosts.offers(&Requirements::default().disk_gib(1)).await.unwrap();
        assert_eq!(offers.len(), 1, "{name}: the facts have been read");
        let first = hosts.launch_one(&batch(&pool, 0, Duration::from_secs(600))).await.unwrap();
        let brief = hosts.launch_one(&batch(&pool, 1, SHORT_LEASE)).await.unwrap();
        let process = start(&hosts, &first).await;
        let forgotten = start(&hosts, &brief).await;
        wait("the machine whose lease nobody renews has ended", || !lives(forgotten));
        assert!(lives(process), "{name}");
        assert_eq!(state(&hosts, &first).await, MachineState::Running, "{name}");
        let remote = hosts.connect(&first, &place(&hosts, &first).await).await.unwrap();
        let output =
            remote.run(&Command::script("pwd; echo \"${SKYWARD_MACHINE_KEY:+a key}\""), &|_| {}).await.unwrap();
        let folder = report(&hosts, &first).await.place.unwrap().folder;
        assert_eq!(output.stdout, format!("{folder}\na key\n"), "{name}: {output:?}");
        let listed: Vec<_> = hosts.list(&pool).await.unwrap().into_iter().map(|machine| machine.id).collect();
        assert!(listed.contains(&first.id), "{name}: {listed:?}");
        assert!(hosts.pools().await.unwrap().iter().any(|record| record.pool == pool), "{name}");
        hosts.teardown(&pool).await.unwrap();
        assert!(!lives(process) && hosts.list(&pool).await.unwrap().is_empty(), "{name}");
    }
}
