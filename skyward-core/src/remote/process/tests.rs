use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncBufReadExt;
use tokio::sync::mpsc;

use super::*;
use crate::remote::lines::TAIL;

/// How long a command may take on a busy host.
const COMMAND: Duration = Duration::from_secs(20);

async fn run(script: &str) -> (CommandOutput, Vec<String>) {
    let lines = Mutex::new(Vec::new());
    let output =
        Process::new().run(&Command::script(script), &|line| lines.lock().unwrap().push(line.to_owned())).await;
    (output.unwrap(), lines.into_inner().unwrap())
}

/// Whether a process exists and is no zombie.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

async fn ended(pid: &str) {
    timeout(COMMAND, async {
        while lives(pid) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("process {pid} is still running"));
}

#[tokio::test]
async fn status_output_and_lines_of_both_streams_are_returned() {
    let (output, lines) = run("echo one; echo two >&2; printf 'no newline'; exit 3").await;
    assert_eq!(output, CommandOutput::new(3, "one\nno newline", "two\n"));
    let mut lines = lines;
    lines.sort();
    assert_eq!(lines, ["no newline", "one", "two"]);
}

#[tokio::test]
async fn a_line_is_passed_on_while_the_command_runs() {
    let folder = tempdir();
    let fifo = folder.0.join("go");
    let script = format!("mkfifo {0}; echo first; cat {0}; echo second", fifo.display());
    let opened = AtomicBool::new(false);
    let on_line = |line: &str| {
        if line == "first" {
            // The command can only continue because this line came before its end.
            std::fs::write(&fifo, "between\n").unwrap();
            opened.store(true, Ordering::SeqCst);
        }
    };
    let output = Process::new().run(&Command::script(script).deadline(COMMAND), &on_line).await.unwrap();
    assert!(opened.load(Ordering::SeqCst));
    assert_eq!(output.stdout, "first\nbetween\nsecond\n");
}

#[tokio::test]
async fn a_signal_is_reported_as_by_a_shell() {
    assert_eq!(run("kill -9 $$").await.0.status, 137);
}

#[tokio::test]
async fn output_that_is_not_utf8_is_kept_lossily() {
    let (output, lines) = run(r"printf 'a\377b\r\n'").await;
    assert_eq!(output.stdout, "a\u{fffd}b\r\n");
    assert_eq!(lines, ["a\u{fffd}b"]);
}

#[tokio::test]
async fn the_last_part_of_long_output_is_kept() {
    let (output, lines) = run("i=0; while [ $i -lt 30000 ]; do echo line-of-some-length-$i; i=$((i+1)); done").await;
    assert_eq!(lines.len(), 30000);
    assert_eq!(output.stdout.len(), TAIL);
    assert!(output.stdout.ends_with("line-of-some-length-29999\n"));
}

#[tokio::test]
async fn standard_input_variables_and_folder_reach_the_command() {
    let folder = tempdir();
    let process = Process::new().env("A", "machine").env("B", "machine").folder(&folder.0);
    let command = Command::script("cat; echo $A $B; pwd").stdin("in\n").env("B", "command");
    let output = process.run(&command, &|_| {}).await.unwrap();
    assert_eq!(output.stdout, format!("in\nmachine command\n{}\n", folder.0.canonicalize().unwrap().display()));
}

#[tokio::test]
async fn a_command_that_does_not_read_its_input_is_no_error() {
    let output = Process::new().run(&Command::script("exec true").stdin(vec![0; 1 << 20]), &|_| {}).await.unwrap();
    assert!(output.success());
}

#[tokio::test]
async fn a_missing_program_and_a_missing_folder_have_different_errors() {
    let error = Process::new().run(&Command::new(["no-such-program"]), &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bootstrap);
    assert_eq!(error.message(), "cannot run `no-such-program` on this host");
    let error = Process::new().folder("/no/such").run(&Command::new(["true"]), &|_| {}).await.unwrap_err();
    assert!(error.message().contains("the folder /no/such of the machine is gone"), "{error}");
}

#[tokio::test]
async fn dropping_the_future_kills_the_whole_group() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let command = Command::script("sleep 600 & echo $!; echo $$; wait").deadline(COMMAND);
    let process = Process::new();
    let on_line = move |line: &str| sender.send(line.to_owned()).unwrap();
    let mut pids = Vec::new();
    {
        let run = process.run(&command, &on_line);
        tokio::pin!(run);
        while pids.len() < 2 {
            tokio::select! {
                output = &mut run => panic!("ended by itself: {output:?}"),
                line = receiver.recv() => pids.push(line.unwrap()),
            }
        }
        assert!(pids.iter().all(|pid| lives(pid)));
    }
    for pid in &pids {
        ended(pid).await;
    }
}

#[tokio::test]
async fn the_deadline_kills_the_whole_group_and_the_error_has_the_last_line() {
    let pids = Mutex::new(Vec::new());
    let command = Command::script("sleep 600 & echo $!; wait").deadline(Duration::from_millis(300));
    let error = Process::new().run(&command, &|line| pids.lock().unwrap().push(line.to_owned())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let pid = pids.into_inner().unwrap().remove(0);
    assert_eq!(error.context(), [("last line", pid.clone())]);
    ended(&pid).await;
}

#[tokio::test]
async fn a_daemon_that_holds_the_pipes_does_not_hold_the_command() {
    let started = Instant::now();
    let (output, _) = run("setsid sleep 600 & echo $!").await;
    assert!(started.elapsed() < COMMAND);
    let pid = output.stdout.trim();
    assert!(lives(pid), "a process that outlives its command was killed");
    rustix::process::kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn put_creates_folders_sets_the_mode_and_leaves_no_temporary_file() {
    let folder = tempdir();
    let path = folder.0.join("a/b/file");
    let text = path.to_str().unwrap();
    Process::new().put(text, b"old", 0o600).await.unwrap();
    Process::new().put(text, b"new", 0o755).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_reader_during_put_sees_the_old_or_the_new_content_and_never_a_part() {
    let folder = tempdir();
    let path = folder.0.join("file");
    let text = path.to_str().unwrap().to_owned();
    let process = Process::new();
    process.put(&text, &[b'0'; 1 << 20], 0o600).await.unwrap();
    let done = std::sync::Arc::new(AtomicBool::new(false));
    let reader = {
        let done = done.clone();
        std::thread::spawn(move || {
            while !done.load(Ordering::SeqCst) {
                let bytes = std::fs::read(&path).unwrap();
                assert!(bytes.len() == 1 << 20 && bytes.iter().all(|byte| *byte == bytes[0]));
            }
        })
    };
    for digit in b'1'..=b'9' {
        process.put(&text, &vec![digit; 1 << 20], 0o600).await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    reader.join().unwrap();
}

#[tokio::test]
async fn the_error_of_put_below_a_file_system_without_folders_names_the_path() {
    let error = Process::new().put("/proc/none/file", b"", 0o600).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bootstrap);
    assert!(error.message().starts_with("cannot write /proc/none/file: "), "{error}");
}

#[tokio::test]
async fn open_connects_to_a_unix_socket_and_fails_where_nobody_listens() {
    let folder = tempdir();
    let path = folder.0.join("socket");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let mut stream = Process::new().open(path.to_str().unwrap()).await.unwrap();
    stream.write_all(b"ping\n").await.unwrap();
    let mut line = String::new();
    tokio::io::BufReader::new(listener.accept().await.unwrap().0).read_line(&mut line).await.unwrap();
    assert_eq!(line, "ping\n");
    drop(listener);
    let error = Process::new().open(path.to_str().unwrap()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.is_temporary());
}

struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tempdir() -> TempDir {
    let path = std::env::temp_dir().join(format!("sky-{:08x}", rand::random::<u32>()));
    std::fs::create_dir(&path).unwrap();
    TempDir(path)
}
