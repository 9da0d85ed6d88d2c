//! Machines whose programs are processes of this host.

use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Mutex;
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::remote::shell::hostile::{self, SHELLS, Sh};
use crate::remote::{Command, CommandOutput, Remote};
use crate::testkit::remote_suite;

/// This host, by one program for each.
#[derive(Debug)]
struct Here;

#[async_trait]
impl Exec for Here {
    fn describe(&self) -> String {
        "this test".into()
    }

    async fn start(&self, argv: &[String], _within: Duration) -> Result<ExecStreams> {
        ExecStreams::spawn(tokio::process::Command::new(&argv[0]).args(&argv[1..]))
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("skyx{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn here() -> ExecRemote<Here> {
    ExecRemote::new(Here)
}

async fn run(command: Command) -> CommandOutput {
    here().run(&command.deadline(COMMAND), &|_| {}).await.unwrap()
}

/// Whether a process exists and is no zombie.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(COMMAND, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_of_remotes_holds() {
    let (folder, mut broken) = (Folder::new(), Vec::new());
    remote_suite::all(&here(), folder.0.to_str().unwrap(), &mut broken).await;
    assert!(broken.is_empty(), "{broken:?}");
}

/// This host, for a user with such settings.
#[derive(Debug)]
struct Hostile(Sh);

#[async_trait]
impl Exec for Hostile {
    fn describe(&self) -> String {
        "this test".into()
    }

    async fn start(&self, argv: &[String], _within: Duration) -> Result<ExecStreams> {
        let mut program = tokio::process::Command::new(format!("{}/{}", self.0.path(), argv[0]));
        ExecStreams::spawn(program.args(&argv[1..]).envs(hostile::environment()).env("PATH", self.0.path()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs dash, busybox"]
async fn the_suite_of_remotes_holds_whatever_the_users_settings_are() {
    for name in SHELLS {
        let (folder, mut broken) = (Folder::new(), Vec::new());
        let remote = ExecRemote::new(Hostile(Sh::new(name).unwrap()));
        remote_suite::all(&remote, folder.0.to_str().unwrap(), &mut broken).await;
        assert!(broken.is_empty(), "{name}: {broken:?}");
    }
}

#[tokio::test]
async fn a_large_input_passes_while_the_command_writes_much_output() {
    let input: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    let script = "dd if=/dev/zero bs=1024 count=4096 2>/dev/null; dd if=/dev/zero bs=1024 count=4096 2>/dev/null >&2; \
                  wc -c; head -c 1000000 /dev/zero >&2; echo end";
    let output = run(Command::script(script).stdin(input)).await;
    assert!(
        output.stdout.ends_with(&format!("{}\nend\n", 3 << 20)),
        "{:?}",
        &output.stdout[output.stdout.len() - 20..]
    );
    assert_eq!(output.status, 0);
    assert_eq!(output.stderr.len(), crate::remote::lines::TAIL);
}

#[tokio::test]
async fn a_command_may_close_its_large_input() {
    let input = b"a line of input\n".repeat(1 << 16);
    let output = run(Command::script("read -r line; exec <&-; echo \"$line\"; exit 3").stdin(input)).await;
    assert_eq!(output, CommandOutput::new(3, "a line of input\n", ""));
}

#[tokio::test]
async fn processes_that_stay_with_the_streams_do_not_delay_the_end() {
    let input = vec![b'\n'; 1 << 20];
    for script in ["sleep 600 & echo $!", "setsid sleep 600 <&0 & echo $!", "setsid sleep 600 3<&0 & echo $!"] {
        let output = run(Command::script(script).stdin(input.clone())).await;
        assert!(output.success() && lives(&output.stdout), "{script}: {output:?}");
        let kill = Command::new(["kill", "-9", output.stdout.trim()]);
        assert!(run(kill).await.success());
    }
}

#[tokio::test]
async fn a_dropped_command_ends_though_it_reads_none_of_its_input() {
    for size in [0, 3 << 20] {
        let folder = Folder::new();
        let file = folder.file("pids");
        let script = "sleep 600 & echo $$ $! >\"$file.new\"; mv \"$file.new\" \"$file\"; wait";
        let command = Command::script(script).env("file", &file).stdin(vec![b'\n'; size]);
        let remote = here();
        let mut run = Box::pin(remote.run(&command, &|_| {}));
        tokio::select! {
            ended = &mut run => panic!("it ended: {ended:?}"),
            () = until("it begins", || std::path::Path::new(&file).exists()) => {}
        }
        drop(run);
        let pids = std::fs::read_to_string(&file).unwrap();
        for pid in pids.split_whitespace() {
            until("it ends", || !lives(pid)).await;
        }
    }
}

#[tokio::test]
async fn a_dropped_put_leaves_the_old_file_and_no_part() {
    let folder = Folder::new();
    let (remote, path) = (here(), folder.file("file"));
    let names = || std::fs::read_dir(&folder.0).unwrap().count();
    remote.put(&path, b"old", 0o600).await.unwrap();
    let bytes = vec![7; 4 << 20];
    {
        let mut put = remote.put(&path, &bytes, 0o600);
        // Once the pipes are full, each further poll comes after a part of the bytes was written.
        let has_part = poll_fn(|context| match put.as_mut().poll(context) {
            Poll::Ready(ended) => panic!("it ended: {ended:?}"),
            Poll::Pending if names() == 2 => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        });
        timeout(COMMAND, has_part).await.unwrap();
    }
    until("the part is gone", || names() == 1).await;
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

#[tokio::test]
async fn lines_arrive_while_the_command_runs() {
    let folder = Folder::new();
    let fifo = folder.file("go");
    let seen = Mutex::new(Vec::new());
    let on_line = |line: &str| {
        if line == "first" {
            // The command can only continue because this line came before its end.
            std::fs::write(&fifo, "between\n").unwrap();
        }
        seen.lock().unwrap().push(line.to_owned());
    };
    let script = Command::script("mkfifo \"$fifo\"; echo first; cat \"$fifo\"; echo last").env("fifo", &fifo);
    here().run(&script.deadline(COMMAND), &on_line).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["first", "between", "last"]);
}

#[tokio::test]
async fn variables_are_on_no_command_line() {
    let look = Command::script("tr '\\0' ' ' </proc/*/cmdline 2>/dev/null; cat /proc/[0-9]*/cmdline 2>/dev/null; true");
    let output = run(look.env("TOKEN", "a-very-secret-value")).await;
    assert!(!output.stdout.contains("a-very-secret-value"));
}

/// Programs that do not start as they should.
#[derive(Debug)]
struct Other(&'static [&'static str]);

#[async_trait]
impl Exec for Other {
    fn describe(&self) -> String {
        "pod box".into()
    }

    async fn start(&self, _: &[String], _: Duration) -> Result<ExecStreams> {
        ExecStreams::spawn(tokio::process::Command::new(self.0[0]).args(&self.0[1..]))
    }
}

#[tokio::test]
async fn the_end_of_what_reaches_the_machine_is_told_with_its_words() {
    let told = async |argv| {
        let remote = ExecRemote::new(Other(argv));
        let run = remote.run(&Command::new(["true"]), &|_| {}).await.unwrap_err();
        (run, remote.open("/s").await.err().unwrap())
    };
    let (run, open) = told(&["sh", "-c", "echo 'no such pod' >&2; exit 1"]).await;
    assert_eq!(
        run.to_string(),
        "cannot run `true` in pod box: it ended with status 1 and told no result (last line: no such pod)"
    );
    assert_eq!(run.kind(), ErrorKind::Bootstrap);
    assert!(run.is_temporary());
    assert_eq!(open.message(), "cannot connect to /s in pod box: no such pod");
    assert_eq!(open.kind(), ErrorKind::Io);
    assert!(open.is_temporary());
    let (run, _) = told(&["sh", "-c", "exit 127"]).await;
    assert!(run.hint().unwrap().contains("POSIX shell") && !run.is_temporary(), "{run}");
    let (run, open) = told(&["/no/kubectl"]).await;
    assert_eq!(run.message(), "cannot run `true` in pod box: cannot run `/no/kubectl` on this host");
    assert_eq!(open.message(), "cannot connect to /s in pod box: cannot run `/no/kubectl` on this host");
    assert_eq!(open.kind(), ErrorKind::Io);
    assert!(!open.is_temporary());
}

#[tokio::test]
async fn a_start_has_the_deadline_of_its_operation() {
    #[derive(Debug)]
    struct Never;
    #[async_trait]
    impl Exec for Never {
        fn describe(&self) -> String {
            "pod box".into()
        }
        async fn start(&self, _: &[String], _: Duration) -> Result<ExecStreams> {
            std::future::pending().await
        }
    }
    let command = Command::new(["true"]).deadline(Duration::from_millis(20));
    let error = ExecRemote::new(Never).run(&command, &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn a_program_that_stays_after_its_streams_is_killed() {
    let mut streams =
        ExecStreams::spawn(tokio::process::Command::new("sh").args(["-c", "echo $$; exec sleep 600"])).unwrap();
    let mut said = [0; 32];
    let count = streams.stdout.read(&mut said).await.unwrap();
    let pid = std::str::from_utf8(&said[..count]).unwrap().to_owned();
    drop(streams);
    // Tokio advances a paused clock when every task waits.
    tokio::time::pause();
    tokio::time::sleep(2 * EXIT_AFTER_INPUT).await;
    tokio::time::resume();
    until("it is killed", || !lives(&pid)).await;
}

#[tokio::test]
async fn what_was_written_last_arrives() {
    let folder = Folder::new();
    let file = folder.file("said");
    let mut streams =
        ExecStreams::spawn(tokio::process::Command::new("sh").args(["-c", "cat >\"$0\"", &file])).unwrap();
    streams.stdin.write_all(b"last").await.unwrap();
    drop(streams);
    until("it arrives", || std::fs::read(&file).is_ok_and(|bytes| bytes == b"last")).await;
}

/// How long a command may take on a busy host.
const COMMAND: Duration = Duration::from_secs(60);
