//! Clients that are processes of their own: this test program, started again with a role.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use skyward_aws::{Addressing, Aws};
use skyward_core::error::ErrorKind;
use skyward_core::pool::{Pool, interrupted};
use skyward_core::provider::Provider;
use skyward_core::spec::Budget;

use crate::scene::{PATIENCE, Scene, limits, until};

/// A client with records of its own. It is killed at the end.
pub(crate) struct Client {
    child: Child,
    output: BufReader<ChildStdout>,
    state: PathBuf,
}

impl Client {
    pub(crate) fn start(scene: &Scene, role: &str) -> Self {
        let state = folder(role);
        let mut child = command(scene, role, &state).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output, state }
    }

    /// Another process with the same records ends what this one has left; how many machines.
    pub(crate) fn reap(&self, scene: &Scene) -> String {
        ended(command(scene, "reap", &self.state))
    }

    /// Waits for the line that says that the pool is up.
    pub(crate) fn until_ready(&mut self) {
        let mut lines = self.output.by_ref().lines().map_while(Result::ok);
        let ready = tokio::task::block_in_place(|| lines.any(|line| line == "ready"));
        assert!(ready, "the client ended before its pool was up");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{sent}");
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the client has ended", async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

/// A process without any records, as on another host, ends what has expired; how many machines, and
/// how many pools it leaves alone.
pub(crate) fn reap_expired(scene: &Scene) -> String {
    let state = folder("reap-expired");
    let ended = ended(command(scene, "reap-expired", &state));
    let _ = std::fs::remove_dir_all(&state);
    ended
}

/// A folder for the records of a client.
fn folder(role: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(format!("skyward-e2e-{process}-{count}-{role}"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a process says that it has ended.
fn ended(mut command: Command) -> String {
    let output = tokio::task::block_in_place(|| command.output()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.lines().find(|line| line.starts_with("ended ")).map(str::to_owned);
    said.unwrap_or_else(|| panic!("{text}"))
}

/// This test program in a role, with records in this folder.
fn command(scene: &Scene, role: &str, state: &Path) -> Command {
    let subnets: Vec<&str> = scene.cloud.subnets().values().map(String::as_str).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["client::role", "--exact", "--ignored", "--nocapture"])
        .envs(scene.cloud.environment())
        .env("SKYWARD_STATE_DIR", state)
        .env(ROLE, role)
        .env(SUBNETS, subnets.join(" "))
        .env(PORT, scene.cloud.ssh_port().to_string());
    command
}

/// What the tests start this program for.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a role that other tests play"]
async fn role() {
    let (subnets, port) = (std::env::var(SUBNETS).unwrap(), std::env::var(PORT).unwrap());
    let aws = Aws::new()
        .subnets(subnets.split(' '))
        .addressing(Addressing::Private)
        .ssh_port(port.parse().unwrap())
        .cache_folder(env!("CARGO_TARGET_TMPDIR"));
    let pool = Pool::builder().provider(aws.clone()).limits(limits());
    let mut long = limits();
    long.lease = Duration::from_secs(3600);
    let pool = match std::env::var(ROLE).unwrap().as_str() {
        "reap" => {
            let reaped = skyward_core::reap([Arc::new(aws) as Arc<dyn Provider>]).await.unwrap();
            println!("\nended {}", reaped.ended.iter().map(|ended| ended.machines.len()).sum::<usize>());
            return;
        }
        "reap-expired" => {
            let reaped = skyward_core::reap_expired(Arc::new(aws)).await.unwrap();
            let machines: usize = reaped.ended.iter().map(|ended| ended.machines.len()).sum();
            assert!(reaped.unconfirmed.is_empty(), "{reaped:?}");
            println!("\nended {machines}, {} elsewhere", reaped.elsewhere.len());
            return;
        }
        "signal" => return heed_ctrl_c(pool).await,
        "budget" => pool.limits(long).budget(Budget::default().hours(60.0 / 3600.0)),
        "long-lease" => pool.limits(long),
        _ => pool,
    };
    let pool = pool.start().await.unwrap();
    println!("\nready");
    tokio::time::sleep(10 * PATIENCE).await;
    drop(pool.status());
}

/// As `docs/embedding.md` has it.
async fn heed_ctrl_c(pool: skyward_core::pool::PoolBuilder) {
    let waits = async |_: &Pool| {
        println!("\nready");
        std::future::pending::<skyward_core::Result<()>>().await
    };
    let error = pool.until(interrupted()).scope(waits).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error:?}");
}

const ROLE: &str = "SKYWARD_E2E_ROLE";
const SUBNETS: &str = "SKYWARD_E2E_SUBNETS";
const PORT: &str = "SKYWARD_E2E_PORT";
