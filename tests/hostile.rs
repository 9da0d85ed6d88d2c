//! Hostile payloads, run for real: the error reports what happened, the pool goes on, and nothing
//! is left.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::disk::Disk;
use common::{PID, limits, pool, processes_of, python, soon, until};
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::{ErrorKind, WorkerExit};
use skyward::event::{EventItem, OutputStream, PoolEvent};
use skyward::payload::Payload;
use skyward::pool::Pool;
use skyward::provider::Local;

/// A payload in `tests/payloads/hostile.py`.
fn hostile<T: skyward::payload::Output>(entry: &'static str) -> Payload<T> {
    Payload::python("hostile.py", include_str!("payloads/hostile.py"), entry)
}

fn pid() -> PendingCompute<u32> {
    python(PID).into()
}

/// Kills its worker.
const KILL: &str = indoc! {"
    import os
    def f():
        os.kill(os.getpid(), 9)
"};

/// The live children of a payload, by their ids: some have cleared their environment, so they carry
/// no mark.
fn living(children: &[u32]) -> Vec<u32> {
    let is_sleeping = |pid: &&u32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| command.starts_with(b"sleep\x003600"))
    };
    children.iter().filter(is_sleeping).copied().collect()
}

#[tokio::test]
async fn fifty_children_in_any_session_end_with_the_pool_and_with_their_worker() {
    let breed: PendingCompute<Vec<u32>> = hostile("breed").arg("count", 50).into();
    let die: PendingCompute<()> = python(KILL).into();
    let mut last = Vec::new();
    pool(1)
        .scope(async |pool| {
            let children = breed.clone().run(pool).await?;
            assert_eq!(living(&children).len(), 50);
            assert_eq!(die.run(pool).await.unwrap_err().exit(), Some(&WorkerExit::Signal(9)));
            // A worker is reported as gone only when everything that it left has ended.
            assert_eq!(living(&children), Vec::<u32>::new());
            last = breed.run(pool).await?;
            assert_eq!(living(&last).len(), 50);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(living(&last), Vec::<u32>::new());
}

#[tokio::test]
async fn a_payload_that_ignores_signals_is_killed_on_cancellation_and_when_the_pool_ends() {
    for entry in
        ["ignore_signals", "mask_signals", "swallow_interrupts", "block_in_native_code", "hold_the_interpreter"]
    {
        let deaf: PendingCompute<()> = hostile(entry).into();
        let handle = pool(1).start().await.unwrap();
        let before = pid().run(&handle).await.unwrap();
        let error = deaf.clone().timeout(Duration::from_millis(200)).run(&handle).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{entry}: {error}");
        let next = soon("the next task runs", pid().run(&handle)).await.unwrap();
        assert_ne!(next, before, "{entry}: the worker is killed and replaced");
        let run = tokio::spawn({
            let handle = handle.clone();
            async move { deaf.run(&handle).await }
        });
        until("the task runs", || handle.status().running > 0).await;
        handle.shutdown(Duration::from_secs(20)).await.unwrap();
        assert_eq!(processes_of(handle.id()), Vec::<String>::new(), "{entry}");
        assert_eq!(run.await.unwrap().unwrap_err().kind(), ErrorKind::Closed, "{entry}");
    }
}

#[tokio::test]
async fn a_payload_that_closes_all_descriptors_is_told_so_and_its_worker_replaced() {
    // Daemons close the descriptors above the standard three and below the worker's own.
    let polite: PendingCompute<bool> = python(indoc! {"
        import os
        def f():
            os.closerange(3, 512)
            return True
    "})
    .into();
    let rude: PendingCompute<()> = python(indoc! {"
        import os
        def f():
            os.closerange(0, 1 << 16)
    "})
    .into();
    pool(1)
        .scope(async |pool| {
            let before = pid().run(pool).await?;
            assert!(polite.run(pool).await?);
            assert_eq!(pid().run(pool).await?, before);
            let error = rude.run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WorkerExited, "{error}");
            assert_eq!(error.exit(), Some(&WorkerExit::Code(4)), "{error}");
            assert!(error.hint().is_some_and(|hint| hint.contains("descriptors")), "{error}");
            assert_ne!(pid().run(pool).await?, before);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn garbage_on_the_workers_connection_costs_the_connection_but_no_result() {
    // Bytes that are no frame, the start of a frame, a result that claims to be the last of
    // millions, and the end of the stream.
    for garbage in ["noise", "cut", "forged", "shut"] {
        let spoil: PendingCompute<String> = hostile("spoil_connection").arg("garbage", garbage).into();
        pool(1)
            .scope(async |pool| {
                let before = pid().run(pool).await?;
                assert_eq!(soon(garbage, spoil.run(pool)).await?, garbage);
                assert_eq!(soon(garbage, pid().run(pool)).await?, before, "the worker lives on");
                Ok(())
            })
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn output_of_any_bytes_arrives_unchanged() {
    let all: PendingCompute<()> = hostile("write_all_bytes").into();
    let handle = pool(1).start().await.unwrap();
    let mut events = handle.events();
    all.run(&handle).await.unwrap();
    handle.shutdown(Duration::from_secs(20)).await.unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else { panic!("no event is missed: {item:?}") };
        if let PoolEvent::Output(output) = &*event {
            let kept = if output.stream == OutputStream::Stdout { &mut stdout } else { &mut stderr };
            kept.extend_from_slice(&output.bytes);
        }
    }
    let every: Vec<u8> = (0..=255).collect();
    assert_eq!(stdout, [every.repeat(1000), b"caf\\udce9 \xe2\x82\xac\n".to_vec()].concat());
    // UTF-16, and a sequence that UTF-8 forbids, without a newline at the end.
    assert_eq!(stderr, b"\xff\xfeh\0i\0\xc0\x80\xed\xa0\x80");
}

#[tokio::test]
async fn a_memory_error_in_python_is_an_exception() {
    let hungry: PendingCompute<()> = hostile("eat_up_to_a_limit").into();
    pool(1)
        .scope(async |pool| {
            let before = pid().run(pool).await?;
            let error = hungry.run(pool).await.unwrap_err();
            assert_eq!(error.exception().unwrap().type_name, "MemoryError", "{error}");
            assert_eq!(pid().run(pool).await?, before);
            Ok(())
        })
        .await
        .unwrap();
}

#[test]
#[ignore = "needs cgroups"]
fn an_out_of_memory_kill_is_distinguished_from_other_kills() {
    let group = SmallGroup::new();
    // A separate program, so that the agent and the workers start in the group.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["in_a_small_group", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(GROUP, &group.0)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("all checks passed"), "{said}");
}

/// The role in which the test above starts this program.
#[test]
#[ignore = "a role that another test plays"]
fn in_a_small_group() {
    let group = PathBuf::from(std::env::var(GROUP).unwrap());
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let eat: PendingCompute<()> = hostile("eat").into();
    let feed_child: PendingCompute<i32> = hostile("eat_in_a_child").into();
    let kill: PendingCompute<()> = python(KILL).into();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scope = pool(1).workers_per_node(2).scope(async |pool| {
        assert_eq!(kill.clone().run(pool).await.unwrap_err().exit(), Some(&WorkerExit::Signal(9)));
        let error = eat.clone().run(pool).await.unwrap_err();
        assert_eq!(error.exit(), Some(&WorkerExit::OutOfMemory), "{error}");
        assert!(format!("{error:#}").contains("out of memory"), "{error}");
        // The other worker lived when the kernel killed; a later kill has another cause.
        for rank in [0, 1] {
            let target = skyward::payload::Target::Rank(skyward::ids::Rank(rank));
            let error = kill.clone().run_on(pool, target).await.unwrap_err();
            assert_eq!(error.exit(), Some(&WorkerExit::Signal(9)), "{error}");
        }
        // If the kernel kills a child, the payload must notice, and its worker lives.
        assert_eq!(feed_child.run(pool).await?, -9);
        let error = eat.run(pool).await.unwrap_err();
        assert_eq!(error.exit(), Some(&WorkerExit::OutOfMemory), "{error}");
        Ok(())
    });
    runtime.block_on(scope).unwrap();
    println!("\nall checks passed");
}

#[tokio::test]
#[ignore = "needs mount"]
async fn a_payload_that_fills_the_disk_gets_an_error_and_the_pool_goes_on() {
    let disk = SmallDisk::new();
    let fill: PendingCompute<()> = hostile("fill_disk").into();
    let shout: PendingCompute<()> = hostile("print_much").into();
    let say: PendingCompute<bool> = python(indoc! {"
        def f():
            print('a word')
            return True
    "})
    .into();
    let free: PendingCompute<()> = hostile("free_disk").into();
    let die = |end: bool| -> PendingCompute<()> {
        python(indoc! {"
            import os
            def f(end):
                if end:
                    os._exit(1)
        "})
        .arg("end", end)
        .into()
    };
    let handle =
        Pool::builder().provider(Local::new().runtime_dir(&disk.folder)).limits(limits()).start().await.unwrap();
    let before = pid().run(&handle).await.unwrap();
    // A full disk takes no files of payloads, so those that must run then are loaded now.
    die(false).run(&handle).await.unwrap();
    say.clone().run(&handle).await.unwrap();
    shout.clone().run(&handle).await.unwrap();
    let _ = free.clone().run(&handle).await;
    let error = fill.clone().run(&handle).await.unwrap_err();
    assert_eq!(error.exception().unwrap().type_name, "OSError", "{error}");
    assert!(error.message().contains("No space left"), "{error}");
    // Nothing can be written; printed output is lost, and costs no task.
    assert_eq!(pid().run(&handle).await.unwrap(), before);
    assert!(say.clone().run(&handle).await.unwrap());
    shout.clone().run(&handle).await.unwrap();
    assert_eq!(pid().run(&handle).await.unwrap(), before);
    // A worker that ends while the disk is full starts again.
    assert_eq!(die(true).run(&handle).await.unwrap_err().exit(), Some(&WorkerExit::Code(1)));
    assert_ne!(pid().run(&handle).await.unwrap(), before);
    free.clone().run(&handle).await.unwrap();
    assert!(say.clone().run(&handle).await.unwrap());
    // Output alone does not fill the disk for good.
    shout.run(&handle).await.unwrap();
    assert!(say.run(&handle).await.unwrap());
    handle.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_eq!(processes_of(handle.id()), Vec::<String>::new());
    let left: Vec<_> = std::fs::read_dir(&disk.folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("p-")), "{left:?}");
}

#[tokio::test]
#[ignore = "needs mount"]
async fn a_disk_that_is_full_before_the_start_is_reported() {
    let disk = SmallDisk::new();
    let mut file = std::fs::File::create(disk.folder.join("filler")).unwrap();
    while std::io::Write::write_all(&mut file, &[0; 512]).is_ok() {}
    let error =
        Pool::builder().provider(Local::new().runtime_dir(&disk.folder)).limits(limits()).start().await.unwrap_err();
    let told = format!("{error:?}");
    assert!(told.contains("No space left"), "{told}");
    let left: Vec<_> = std::fs::read_dir(&disk.folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("p-")), "{left:?}");
}

/// A control group with little memory.
struct SmallGroup(PathBuf);

impl SmallGroup {
    fn new() -> Self {
        let v1 = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
        let root = Path::new(if v1 { "/sys/fs/cgroup/memory" } else { "/sys/fs/cgroup" });
        let group = root.join(format!("skyward-hostile-{}", std::process::id()));
        let limit = group.join(if v1 { "memory.limit_in_bytes" } else { "memory.max" });
        let advice = "run this test as root, on a host that delegates the control of memory";
        std::fs::create_dir(&group)
            .unwrap_or_else(|error| panic!("cannot make the control group {}: {error}; {advice}", group.display()));
        let made = Self(group);
        // More than all processes of the pool need together, and far less than the payload takes.
        std::fs::write(&limit, (256 << 20).to_string())
            .unwrap_or_else(|error| panic!("cannot limit memory by {}: {error}; {advice}", limit.display()));
        made
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A disk of two mebibytes in a folder of its own.
struct SmallDisk {
    folder: PathBuf,
    disk: Option<Disk>,
}

impl SmallDisk {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("sh{}-{}", std::process::id(), common::unique()));
        std::fs::create_dir_all(&folder).unwrap();
        let disk = Some(Disk::mount(&folder, 2 << 20));
        Self { folder, disk }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmounts the disk, so that the folder can be removed.
        self.disk = None;
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// The variable that names the control group of the program.
const GROUP: &str = "SKYWARD_TEST_GROUP";
