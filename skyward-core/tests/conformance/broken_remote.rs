//! Remotes that break one clause each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::remote::{ByteStream, Command, CommandOutput, OnLine, Process, Remote};
use skyward_core::testkit::remote_suite as suite;

use super::Folder;

/// How a remote is broken.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    FailureIsError,
    SwallowsLines,
    MergesVariables,
    NoDeadline,
    LeavesCommands,
    EndsDaemons,
    WrongMode,
    TornFiles,
    OpensNothing,
    PermanentOpenError,
}

/// This host, with one fault.
#[derive(Debug)]
struct Broken(Fault, AtomicUsize);

#[async_trait]
impl Remote for Broken {
    fn describe(&self) -> String {
        "a broken remote".into()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        let process = Process::new();
        match self.0 {
            Fault::FailureIsError => {
                let output = process.run(command, on_line).await?;
                if output.success() { Ok(output) } else { Err(Error::new(ErrorKind::Bootstrap, "it failed")) }
            }
            Fault::SwallowsLines => process.run(command, &|_| {}).await,
            Fault::MergesVariables => {
                let mut command = command.clone();
                command.env.values_mut().for_each(|value| *value = value.replace('\\', ""));
                process.run(&command, on_line).await
            }
            Fault::NoDeadline => {
                let command = Command::script("sleep 1");
                process.run(&command, on_line).await
            }
            Fault::LeavesCommands if command.argv.last().is_some_and(|script| script.ends_with("wait")) => {
                let command = command.clone();
                tokio::spawn(async move {
                    let _ = Process::new().run(&command.deadline(Duration::from_secs(62)), &|_| {}).await;
                });
                std::future::pending().await
            }
            // Like a batch system that ends the processes of a step.
            Fault::EndsDaemons => {
                let output = process.run(command, on_line).await?;
                process.run(&Command::script(format!("kill -9 {} || true", output.stdout.trim())), &|_| {}).await?;
                Ok(output)
            }
            _ => process.run(command, on_line).await,
        }
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        match self.0 {
            Fault::WrongMode => Process::new().put(path, bytes, 0o600).await,
            Fault::TornFiles => {
                let (first, second) = bytes.split_at(bytes.len() / 2);
                std::fs::write(path, first).unwrap();
                // Long enough for a reader to read in between, on a busy machine.
                tokio::time::sleep(Duration::from_millis(5)).await;
                std::io::Write::write_all(&mut std::fs::OpenOptions::new().append(true).open(path).unwrap(), second)
                    .unwrap();
                Ok(())
            }
            _ => Process::new().put(path, bytes, mode).await,
        }
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        match self.0 {
            Fault::OpensNothing => {
                self.1.fetch_add(1, Ordering::Relaxed);
                Ok(Box::new(tokio::io::duplex(64).0))
            }
            Fault::PermanentOpenError => Err(Error::new(ErrorKind::Io, "no")),
            _ => Process::new().open(socket).await,
        }
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

/// Checks that each clause finds a fault of a remote. They wait most of the time, so all of them run
/// at once.
macro_rules! finds {
    ($($fault:ident => $clause:ident),+ $(,)?) => {
        tokio::join!($(async {
            let folder = Folder::new();
            std::fs::create_dir(&folder.0).unwrap();
            let path = folder.0.to_str().unwrap();
            let violation =
                suite::$clause(&Broken(Fault::$fault, AtomicUsize::new(0)), path).await.expect_err(stringify!($fault));
            assert_eq!(violation.clause, stringify!($clause), "{violation}");
        }),+)
    };
}

#[tokio::test]
async fn each_clause_finds_its_fault() {
    finds! {
        FailureIsError => run_tells_status_and_output,
        SwallowsLines => run_tells_status_and_output,
        MergesVariables => run_passes_variables_and_input,
        LeavesCommands => dropped_run_ends_the_command,
        EndsDaemons => daemons_outlive_their_command,
        NoDeadline => run_ends_at_its_deadline,
        WrongMode => put_writes_the_file,
        TornFiles => put_is_atomic,
        OpensNothing => open_reaches_a_socket,
        OpensNothing => open_fails_for_now_where_nothing_listens,
        PermanentOpenError => open_fails_for_now_where_nothing_listens,
    };
}
