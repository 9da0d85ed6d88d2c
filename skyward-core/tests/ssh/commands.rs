//! Commands: their environment, what other processes see of them, and how they end.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use skyward_core::error::ErrorKind;
use skyward_core::remote::{Command, Remote};

use crate::site::{TEST_STEP, connect, lives, server, shell, until};
use crate::sshd::Options;

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_variable_is_in_the_environment_of_its_command_but_in_no_command_line() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let secret = format!("hunter2-{:016x}", rand::random::<u64>());
    let ready = sshd.path("ready");
    let script = "printf '%s' \"$TOKEN\" >\"$ready\"; exec sleep 600";
    let command = Command::script(script).env("TOKEN", &secret).env("ready", ready.display().to_string());
    let mut run = std::pin::pin!(remote.run(&command, &|_| {}));
    let seen = async {
        until("the command has its variable", || fs::read_to_string(&ready).is_ok_and(|text| text == secret)).await;
        let read = |file: &str| {
            let entries = fs::read_dir("/proc").unwrap().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let ids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
            let has = |id: &String| {
                let text = fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
                text.windows(secret.len()).any(|window| window == secret.as_bytes())
            };
            ids.filter(has).collect::<Vec<_>>()
        };
        (read("cmdline"), read("environ"))
    };
    let (lines, environments) = tokio::select! {
        ended = &mut run => panic!("the command ended: {ended:?}"),
        seen = seen => seen,
    };
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(environments.len(), 1, "the command alone: {environments:?}");
    assert!(!format!("{remote:?}").contains(&secret));
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn all_kinds_of_exits_are_reported() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    for (script, status) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143), ("exit 127", 127)]
    {
        let output = remote.run(&Command::script(script), &|_| {}).await.unwrap();
        assert_eq!(output.status, status, "{script}");
    }
    let error = remote.run(&Command::new(["no-such-program"]), &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bootstrap);
    assert!(
        error.message().contains("cannot run `no-such-program`") && error.message().contains(sshd.address()),
        "{error}"
    );
    for command in [Command::new(Vec::<String>::new()), Command::new(["true"]).env("A B", ""), Command::new(["a\0b"])] {
        assert_eq!(remote.run(&command, &|_| {}).await.unwrap_err().kind(), ErrorKind::Bootstrap);
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn input_of_any_bytes_and_size_arrives_and_may_be_left_unread() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(20 << 20).collect();
    let path = sshd.path("expected");
    fs::write(&path, &bytes).unwrap();
    let command = Command::script("cmp - \"$file\" && wc -c <\"$file\"").env("file", path.display().to_string());
    let output = remote.run(&command.stdin(bytes.clone()), &|_| {}).await.unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    assert_eq!(output.stdout.trim(), "20971520", "{output:?}");
    let output = remote.run(&Command::script("echo done").stdin(bytes), &|_| {}).await.unwrap();
    assert_eq!(output.stdout, "done\n");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn lines_arrive_while_the_command_runs_and_large_output_is_complete() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let (fifo, opened) = (sshd.path("fifo"), Mutex::new(false));
    let script = format!("mkfifo {0}; echo first; cat {0}; seq 200000", fifo.display());
    let lines = Mutex::new(0);
    let on_line = |line: &str| {
        if line == "first" {
            // The command can only continue because this line arrived before its end.
            fs::write(&fifo, "between\n").unwrap();
            *opened.lock().unwrap() = true;
        }
        *lines.lock().unwrap() += 1;
    };
    let output = remote.run(&Command::script(script).deadline(TEST_STEP), &on_line).await.unwrap();
    assert!(*opened.lock().unwrap() && output.stdout.ends_with("\n200000\n"));
    assert_eq!(*lines.lock().unwrap(), 200_002);
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_command_can_be_interrupted_and_its_daemon_outlives_it() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    // A shell that starts a process in the background makes it ignore interrupts, and Python then
    // raises no KeyboardInterrupt.
    for stdin in ["", "input"] {
        let command = Command::script("grep SigIgn /proc/self/status").stdin(stdin);
        let output = remote.run(&command, &|_| {}).await.unwrap().stdout;
        let ignored = u64::from_str_radix(output.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(ignored & 0b110, 0, "SIGINT and SIGQUIT: {output}");
    }
    let pid = shell(&remote, "setsid sleep 600 & echo $!").await;
    assert!(lives(pid.trim()), "a process that outlives its command was killed");
    shell(&remote, &format!("kill {pid}")).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn the_output_of_a_startup_file_is_not_output_of_the_command() {
    let options = Options::new().line("ForceCommand echo Welcome; echo to all >&2; eval \"$SSH_ORIGINAL_COMMAND\"");
    let sshd = server(&options.without_streams());
    let remote = connect(&sshd).await;
    let output = remote.run(&Command::script("echo ours; echo too >&2"), &|_| {}).await.unwrap();
    assert_eq!(output.stdout.as_str(), "ours\n");
    assert_eq!(output.stderr.as_str(), "too\n");
    let path = sshd.path("file");
    remote.put(path.to_str().unwrap(), b"bytes", 0o600).await.unwrap();
    assert_eq!(fs::read(path).unwrap(), b"bytes");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_dropped_command_ends_with_its_children_even_if_the_server_sends_no_signals() {
    // With a forced command OpenSSH refuses signals.
    for options in [Options::new(), Options::new().line("ForceCommand eval \"$SSH_ORIGINAL_COMMAND\"")] {
        for stdin in [&b""[..], b"input", &vec![b'\n'; 3 << 20]] {
            let sshd = server(&options);
            let remote = connect(&sshd).await;
            let file = sshd.path("pids");
            let script = "sleep 600 & echo $! $$ >\"$file.new\"; mv \"$file.new\" \"$file\"; wait";
            let command = Command::script(script).env("file", file.display().to_string()).stdin(stdin);
            {
                let mut run = std::pin::pin!(remote.run(&command, &|_| {}));
                tokio::select! {
                    ended = &mut run => panic!("ended by itself: {ended:?}"),
                    () = until("the command runs", || file.exists()) => {}
                }
            }
            let pids = fs::read_to_string(&file).unwrap();
            until("its processes are gone", || !pids.split_whitespace().any(lives)).await;
            assert_eq!(shell(&remote, "echo on").await, "on\n");
        }
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn more_commands_run_at_once_than_a_connection_allows() {
    let sshd = server(&Options::new().line("MaxSessions 2").without_streams());
    let remote = connect(&sshd).await;
    let script = format!("mkfifo {0}/go$n; echo up; cat {0}/go$n", sshd.folder().display());
    let commands: Vec<_> =
        (0..7).map(|n| Command::script(&script).env("n", n.to_string()).deadline(TEST_STEP)).collect();
    let up = Mutex::new(0);
    let on_line = |line: &str| *up.lock().unwrap() += usize::from(line == "up");
    let all = futures_util::future::join_all(commands.iter().map(|command| remote.run(command, &on_line)));
    let release = async {
        until("all run at once", || *up.lock().unwrap() == 7).await;
        for n in 0..7 {
            fs::write(sshd.path(&format!("go{n}")), "gone\n").unwrap();
        }
    };
    let (outputs, ()) = tokio::join!(all, release);
    assert!(outputs.into_iter().all(|output| output.unwrap().stdout == "up\ngone\n"));
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_command_is_ended_at_its_deadline_and_its_last_line_reported() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let command = Command::script("echo $$; exec sleep 600").deadline(Duration::from_secs(1));
    let error = remote.run(&command, &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(!error.is_temporary());
    let pid = &error.context()[0].1;
    until("the command is gone", || !lives(pid)).await;
}
