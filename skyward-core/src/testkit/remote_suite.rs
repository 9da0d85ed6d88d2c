//! The contract of [`Remote`], one function for each clause. `folder` is a folder on the machine
//! that the suite may write to.
//!
//! The machine needs a POSIX shell, its usual tools, and `python3`.

use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use super::provider_suite::{ask, require};
use super::timing::{DROPPED_COMMAND_END, LOOK_PAUSE, REMOTE_ANSWER};
use super::violation::{Violation, report};
use crate::error::ErrorKind;
use crate::remote::{Command, Remote};

/// Checks every clause, prints a line for each, and adds violations to `broken`.
///
/// # Cancel safety
///
/// Dropping the future may leave files in the folder.
pub async fn all(remote: &dyn Remote, folder: &str, broken: &mut Vec<Violation>) {
    let subject = remote.describe();
    macro_rules! check {
        ($($clause:ident),+ $(,)?) => {
            $(report(&subject, stringify!($clause), $clause(remote, folder).await, broken);)+
        };
    }
    check!(
        run_tells_status_and_output,
        run_passes_variables_and_input,
        run_ends_at_its_deadline,
        dropped_run_ends_the_command,
        daemons_outlive_their_command,
        put_writes_the_file,
        put_is_atomic,
        open_reaches_a_socket,
        open_fails_for_now_where_nothing_listens,
    );
}

/// `run` returns the exit status and both outputs, and passes on each line as it comes; a command
/// that fails is no error.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The command ends.
pub async fn run_tells_status_and_output(remote: &dyn Remote, _: &str) -> Result<(), Violation> {
    let clause = "run_tells_status_and_output";
    let lines = Mutex::new(Vec::new());
    let on_line = |line: &str| {
        if let Ok(mut lines) = lines.lock() {
            lines.push(line.to_owned());
        }
    };
    let command = Command::script("echo out; echo err >&2; exit 3");
    let output = ask(clause, "run", remote.run(&command, &on_line)).await?;
    let told = (output.status, output.stdout.as_str(), output.stderr.as_str());
    require(clause, told == (3, "out\n", "err\n"), || format!("it returned {output:?}"))?;
    let mut lines = lines.into_inner().unwrap_or_default();
    lines.sort();
    require(clause, lines == ["err", "out"], || format!("the lines were {lines:?}"))
}

/// `run` passes the command's variables and its standard input unchanged.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The command ends.
pub async fn run_passes_variables_and_input(remote: &dyn Remote, _: &str) -> Result<(), Violation> {
    let clause = "run_passes_variables_and_input";
    let value = "it's \"$HOME\" \\ and\n more";
    let command = Command::script("printf '%s' \"$SKYWARD_SUITE\"; cat").env("SKYWARD_SUITE", value).stdin("input");
    let output = ask(clause, "run", remote.run(&command, &|_| {})).await?;
    require(clause, output.stdout == format!("{value}input"), || format!("it returned {output:?}"))
}

/// `run` ends with a timeout at the command's deadline.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The command ends.
pub async fn run_ends_at_its_deadline(remote: &dyn Remote, _: &str) -> Result<(), Violation> {
    let clause = "run_ends_at_its_deadline";
    let command = Command::script("sleep 600").deadline(Duration::from_millis(200));
    let started = Instant::now();
    let kind = match timeout(REMOTE_ANSWER, remote.run(&command, &|_| {})).await {
        Ok(answer) => answer.map_err(|error| error.kind()),
        Err(_) => return require(clause, false, || format!("it was not done after {:?}", started.elapsed())),
    };
    require(clause, matches!(kind, Err(ErrorKind::Timeout)), || format!("it ended with {kind:?}"))
}

/// Dropping the future of `run` ends the command and its children.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The command ends.
pub async fn dropped_run_ends_the_command(remote: &dyn Remote, folder: &str) -> Result<(), Violation> {
    let clause = "dropped_run_ends_the_command";
    let file = format!("{folder}/suite-pids");
    let command =
        Command::script("sleep 600 & echo $! $$ >\"$file.new\"; mv \"$file.new\" \"$file\"; wait").env("file", &file);
    let look = Command::script("cat \"$file\" 2>/dev/null || true").env("file", &file);
    let end = Instant::now() + REMOTE_ANSWER;
    let pids = {
        let mut run = std::pin::pin!(remote.run(&command, &|_| {}));
        loop {
            let seen = tokio::select! {
                ended = &mut run => return require(clause, false, || format!("the command ended by itself: {ended:?}")),
                seen = ask(clause, "run", remote.run(&look, &|_| {})) => seen?.stdout,
            };
            if !seen.is_empty() {
                break seen;
            }
            require(clause, Instant::now() < end, || "the command did not begin".into())?;
        }
    };
    let look = Command::script(
        "for pid in $pids; do [ ! -e \"/proc/$pid/stat\" ] || sed 's/.*) //' \"/proc/$pid/stat\" | cut -c1 | grep -v Z || true; done",
    )
    .env("pids", pids.trim());
    let end = Instant::now() + DROPPED_COMMAND_END;
    loop {
        let left = ask(clause, "run", remote.run(&look, &|_| {})).await?.stdout;
        if left.trim().is_empty() {
            return Ok(());
        }
        require(clause, Instant::now() < end, || format!("some of its processes {} still run", pids.trim()))?;
        sleep(LOOK_PAUSE).await;
    }
}

/// A process that a command starts in the background, in a session of its own, outlives the
/// command.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The process may run on for a minute.
pub async fn daemons_outlive_their_command(remote: &dyn Remote, _: &str) -> Result<(), Violation> {
    let clause = "daemons_outlive_their_command";
    let start = Command::script("setsid sleep 60 >/dev/null 2>&1 </dev/null & echo $!");
    let started = ask(clause, "run", remote.run(&start, &|_| {})).await?;
    let pid = started.stdout.trim();
    require(clause, started.success() && !pid.is_empty(), || format!("it returned {started:?}"))?;
    // Long enough for a remote that would end the process after its command.
    sleep(Duration::from_millis(500)).await;
    // A process that has ended may still wait to be reaped.
    let lives = format!("grep -q '^State:.[^Z]' /proc/{pid}/status 2>/dev/null && echo lives");
    let look = Command::script(format!("{lives}; kill -9 {pid} 2>/dev/null; true"));
    let looked = ask(clause, "run", remote.run(&look, &|_| {})).await?;
    require(clause, looked.stdout.trim() == "lives", || {
        "a process that the command started in the background ended with the command".to_owned()
    })
}

/// `put` writes the bytes unchanged, with the mode, and makes missing folders.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The file may stay in the folder.
pub async fn put_writes_the_file(remote: &dyn Remote, folder: &str) -> Result<(), Violation> {
    let clause = "put_writes_the_file";
    let path = format!("{folder}/suite a/b'c/file");
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    ask(clause, "put", remote.put(&path, &bytes, 0o640)).await?;
    let command = Command::script("stat -c %a \"$path\"; od -An -v -tu1 \"$path\" | tr -s ' \\n' '\\n\\n' | grep . | head -n 600 | tr '\\n' ' '; wc -c <\"$path\"")
        .env("path", &path);
    let output = ask(clause, "run", remote.run(&command, &|_| {})).await?;
    let first: Vec<String> = bytes.iter().take(600).map(u8::to_string).collect();
    let words: Vec<&str> = output.stdout.split_whitespace().collect();
    let wanted: Vec<&str> = std::iter::once("640").chain(first.iter().map(String::as_str)).chain(["100000"]).collect();
    require(clause, words == wanted, || {
        format!("a file of 100000 bytes with mode 640 became {:?}…", words.iter().take(8).collect::<Vec<_>>())
    })
}

/// `put` is atomic: a reader sees the old content or the new, never a part of either.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The file may stay in the folder.
pub async fn put_is_atomic(remote: &dyn Remote, folder: &str) -> Result<(), Violation> {
    let clause = "put_is_atomic";
    let path = format!("{folder}/suite-atomic");
    let contents = ["a\n", "b\n"].map(|line| line.repeat(LINES));
    ask(clause, "put", remote.put(&path, contents[0].as_bytes(), 0o600)).await?;
    let script = "for i in $(seq 30); do uniq -c <\"$path\" | tr '\\n' ';'; echo; done";
    let reading = Command::script(script).env("path", &path);
    let mut read = std::pin::pin!(ask(clause, "run", remote.run(&reading, &|_| {})));
    let mut turn = 0;
    let output = loop {
        turn += 1;
        tokio::select! {
            output = &mut read => break output?,
            put = ask(clause, "put", remote.put(&path, contents[turn % 2].as_bytes(), 0o600)) => put?,
        }
    };
    let whole = |line: &str| {
        let line: Vec<&str> = line.split_whitespace().collect();
        line == [LINES.to_string().as_str(), "a;"] || line == [LINES.to_string().as_str(), "b;"]
    };
    let torn = output.stdout.lines().find(|line| !whole(line));
    require(clause, torn.is_none(), || format!("a reader saw {torn:?} lines, where all {LINES} are alike"))
}

/// `open` returns a byte stream to a Unix socket, in both directions.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The socket may stay in the folder.
pub async fn open_reaches_a_socket(remote: &dyn Remote, folder: &str) -> Result<(), Violation> {
    let clause = "open_reaches_a_socket";
    let socket = format!("{folder}/s");
    let server = Command::new(["python3", "-c", ECHO, &socket]).deadline(REMOTE_ANSWER);
    let mut server = std::pin::pin!(remote.run(&server, &|_| {}));
    let end = Instant::now() + REMOTE_ANSWER;
    let exchange = async {
        let mut stream = loop {
            match remote.open(&socket).await {
                Ok(stream) => break stream,
                Err(error) => {
                    require(clause, Instant::now() < end, || format!("`open` failed: {error:#}"))?;
                    sleep(LOOK_PAUSE).await;
                }
            }
        };
        let mut back = [0; 4];
        let echoed = async {
            stream.write_all(b"ping").await?;
            stream.flush().await?;
            stream.read_exact(&mut back).await
        };
        let echoed = timeout(REMOTE_ANSWER, echoed).await;
        require(clause, matches!(echoed, Ok(Ok(_))) && &back == b"gnip", || {
            format!("`ping`, sent to a socket that reverses it, returned {back:?} ({echoed:?})")
        })
    };
    tokio::select! {
        ended = &mut server => require(clause, false, || format!("the server ended before it was reached: {ended:?}")),
        exchanged = exchange => exchanged,
    }
}

/// `open` of a socket on which nothing listens fails with a temporary error.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// No connection is left.
pub async fn open_fails_for_now_where_nothing_listens(remote: &dyn Remote, folder: &str) -> Result<(), Violation> {
    let clause = "open_fails_for_now_where_nothing_listens";
    match timeout(REMOTE_ANSWER, remote.open(&format!("{folder}/nobody"))).await {
        Ok(Err(error)) => {
            let told = (error.kind(), error.is_temporary());
            require(clause, told == (ErrorKind::Io, true), || format!("it failed with {told:?}: {error:#}"))
        }
        Ok(Ok(_)) => require(clause, false, || "it returned a stream".into()),
        Err(_) => require(clause, false, || format!("it was not done after {REMOTE_ANSWER:?}")),
    }
}

const ECHO: &str = "
import socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
peer, _ = server.accept()
peer.sendall(peer.recv(4)[::-1])
time.sleep(600)
";
const LINES: usize = 1 << 18;
