//! Files of nodes on the client's host: artifacts, copies and followed files, with real Python.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{limits, pool, processes_of, python, signal, soon, until};
use indoc::indoc;
use serde::Deserialize;
use skyward::compute::{Artifact, PendingCompute};
use skyward::error::ErrorKind;
use skyward::payload::{Payload, Reports};
use skyward::pool::Pool;
use skyward::provider::Local;
use skyward::testkit::cuttable::Cuttable;
use tokio::io::AsyncReadExt;

/// A folder of one test, which is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("skyward-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Repeats the numbers from 0 to 250, so that a shifted or missing piece shows.
fn content(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

/// Writes a file of this length into the working folder of the worker, and returns it.
fn model(length: usize) -> PendingCompute<Artifact> {
    let text = indoc! {"
        import skyward as sky

        def f(length):
            with open('model.bin', 'wb') as file:
                file.write((bytes(range(251)) * (length // 251 + 1))[:length])
            return sky.artifact('model.bin')
    "};
    python(text).arg("length", length).into()
}

#[derive(Debug, Deserialize)]
struct Report {
    loss: f64,
    model: Artifact,
    folder: Artifact,
    note: Artifact,
}

#[tokio::test]
async fn artifacts_reach_the_client_as_they_were_when_they_were_made() {
    let train: PendingCompute<Report> = python(indoc! {"
        import os
        import skyward as sky

        def f():
            with open('model.bin', 'wb') as file:
                file.write((bytes(range(251)) * 30000)[:5_000_001])
            os.makedirs('run/empty')
            os.makedirs('run/sub')
            for name, text in (('run/a', 'one'), ('run/sub/b', ''), ('run/sub/go.sh', '#!/bin/sh')):
                with open(name, 'w') as file:
                    file.write(text)
            os.chmod('run/sub/go.sh', 0o755)
            os.symlink('sub/go.sh', 'run/go')
            model, folder = sky.artifact('model.bin', name='best.pt'), sky.artifact('run')
            # A writer that overwrites in place changes no artifact.
            with open('model.bin', 'r+b') as file:
                file.write(b'xxxx')
            os.unlink('run/a')
            return {'loss': 0.5, 'model': model, 'folder': folder, 'note': sky.artifact(b'done', name='note')}
    "})
    .into();
    let here = Folder::new("artifacts");
    pool(1)
        .scope(async |pool| {
            let Report { loss, model, folder, note } = train.run(pool).await?;
            assert_eq!((loss, model.name(), model.size(), model.files()), (0.5, "best.pt", 5_000_001, None));
            assert_eq!((folder.name(), folder.size(), folder.files()), ("run", 12, Some(3)));
            model.save_to(pool, here.at("new/model.pt")).await?;
            assert!(std::fs::read(here.at("new/model.pt")).unwrap() == content(5_000_001));
            folder.save_to(pool, here.at("run")).await?;
            assert_eq!(std::fs::read_to_string(here.at("run/a")).unwrap(), "one");
            assert_eq!(std::fs::read_to_string(here.at("run/go")).unwrap(), "#!/bin/sh");
            assert_eq!(std::fs::read_to_string(here.at("run/sub/b")).unwrap(), "");
            assert!(here.at("run/empty").is_dir());
            assert_eq!(&note.bytes(pool, 100).await?[..], b"done");
            let mut read = Vec::new();
            model.open(pool)?.read_to_end(&mut read).await.unwrap();
            assert!(read == content(5_000_001));
            assert_eq!(model.bytes(pool, 5_000_000).await.unwrap_err().kind(), ErrorKind::InvalidSpec);
            assert_eq!(folder.open(pool).unwrap_err().kind(), ErrorKind::InvalidSpec);
            model.discard(pool).await?;
            model.discard(pool).await?;
            let error = model.save_to(pool, here.at("late")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ArtifactLost, "{error}");
            assert!(!here.at("late").exists());
            assert_eq!(&note.bytes(pool, 4).await?[..], b"done", "the others stay");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_transfer_goes_on_through_cuts_and_deaths_of_the_mover() {
    let here = Folder::new("cuts");
    let provider = Cuttable::new(Local::default());
    let length = 96 << 20;
    Pool::builder()
        .provider(provider.clone())
        .limits(limits())
        .scope(async |pool| {
            let model = model(length).run(pool).await?;
            let target = here.at("model.bin");
            let part = || {
                let entries = std::fs::read_dir(&here.0).unwrap().flatten();
                entries.map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).sum::<u64>()
            };
            let disturb = async {
                for reached in 1..=3 {
                    until("a further part has arrived", || part() >= reached * (16 << 20)).await;
                    assert!(provider.cut() > 0);
                }
                until("a further part has arrived", || part() >= 72 << 20).await;
                signal("KILL", mover_of(pool)).await;
            };
            let (saved, ()) = tokio::join!(model.save_to(pool, &target), disturb);
            saved?;
            assert!(std::fs::read(&target).unwrap() == content(length));
            Ok(())
        })
        .await
        .unwrap();
}

/// The process id of the mover of a pool with one node.
pub(crate) fn mover_of(pool: &Pool) -> u32 {
    let processes = processes_of(pool.id());
    let mover = processes.iter().find(|process| process.contains("skyward.mover")).unwrap();
    mover.split('"').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn files_of_a_task_that_has_failed_are_there() {
    let here = Folder::new("failed");
    let fail: PendingCompute<()> = python(indoc! {"
        import os

        def f():
            os.makedirs('outputs/deep')
            with open('outputs/log.csv', 'w') as file:
                file.write('step,loss\\n1,0.5\\n')
            with open('outputs/deep/large', 'wb') as file:
                file.write((bytes(range(251)) * 30000)[:5_000_000])
            os._exit(7)
    "})
    .into();
    pool(1)
        .scope(async |pool| {
            let error = fail.run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WorkerExited, "{error}");
            let node = pool.node(0);
            node.fetch("outputs/log.csv", here.at("log.csv")).await?;
            assert_eq!(std::fs::read_to_string(here.at("log.csv")).unwrap(), "step,loss\n1,0.5\n");
            node.fetch("outputs", here.at("all")).await?;
            assert!(std::fs::read(here.at("all/deep/large")).unwrap() == content(5_000_000));
            let error = node.fetch("outputs/none", here.at("none")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains("outputs/none"), "{error}");
            let error = pool.node(3).fetch("outputs", here.at("none")).await.unwrap_err();
            assert!(error.kind() == ErrorKind::NotFound && error.message().contains("has no node 3"), "{error}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn what_is_no_file_and_what_leads_out_is_refused_by_name() {
    let here = Folder::new("refused");
    let make: PendingCompute<()> = python(indoc! {"
        import os

        def f():
            os.makedirs('pipes')
            os.mkfifo('pipes/fifo')
            os.makedirs('links')
            os.symlink('/etc/passwd', 'links/out')
            os.makedirs(b'names/\\xff\\xfe')
            with open(b'names/\\xff\\xfe/\\n', 'w') as file:
                file.write('x')
    "})
    .into();
    pool(1)
        .scope(async |pool| {
            make.run(pool).await?;
            let refused = [
                ("pipes", "fifo"),
                ("pipes/fifo", "fifo"),
                ("links", "/etc/passwd"),
                ("/proc/cpuinfo", "no size"),
                ("/dev/null", "/dev/null"),
            ];
            for (path, words) in refused {
                let fetched = soon("a refusal", pool.node(0).fetch(path, here.at("none"))).await;
                let error = fetched.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
                assert!(error.to_string().contains(words) && error.hint().is_some(), "{error}");
            }
            pool.node(0).fetch("names", here.at("names")).await?;
            let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff\xfe/\n");
            assert_eq!(std::fs::read_to_string(here.at("names").join(Path::new(name))).unwrap(), "x");
            assert_eq!(std::fs::read_dir(&here.0).unwrap().count(), 1, "nothing else is left");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_is_followed_while_a_task_writes_it_and_to_the_end_of_the_pool() {
    let write: Payload<u32> = python(indoc! {"
        import time
        import skyward as sky

        def f(lines):
            with open('train.log', 'w') as log:
                for line in range(lines):
                    log.write(f'line {line}\\n')
                    log.flush()
                    time.sleep(0.002)
            return lines
    "});
    let write: PendingCompute<u32> = write.arg("lines", 200).into();
    let mut tail = None;
    let mut text = String::new();
    pool(1)
        .scope(async |pool| {
            let follow = tail.insert(pool.node(0).tail("train.log"));
            let wanted: String = (0..200).map(|line| format!("line {line}\n")).collect();
            let read = async {
                while text.len() < wanted.len() {
                    text.push_str(std::str::from_utf8(&follow.next().await.unwrap().unwrap()).unwrap());
                }
            };
            let (written, ()) = tokio::join!(write.run(pool), soon("all lines", read));
            assert_eq!((written?, &text), (200, &wanted));
            Ok(())
        })
        .await
        .unwrap();
    assert!(soon("the end", tail.unwrap().next()).await.is_none());
}

#[tokio::test]
async fn an_artifact_of_a_machine_that_is_gone_is_lost_and_says_so() {
    let here = Folder::new("lost");
    pool(1)
        .scope(async |pool| {
            let model = model(1000).run(pool).await?;
            let processes = processes_of(pool.id());
            let agent = processes.iter().find(|process| process.contains("skyward.agent")).unwrap();
            signal("KILL", agent.split('"').nth(1).unwrap().parse().unwrap()).await;
            let saved = soon("the loss", async {
                loop {
                    match model.save_to(pool, here.at("model")).await {
                        Err(error) if error.kind() == ErrorKind::ArtifactLost => break error,
                        // The loss is not noticed yet, or the next machine is not there yet.
                        _ => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
            });
            let error = saved.await;
            assert!(error.message().contains("`model.bin`") && error.hint().is_some(), "{error}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn files_of_a_pool_that_has_ended_are_refused() {
    let here = Folder::new("ended");
    let started = pool(1).start().await.unwrap();
    let model = model(1000).run(&started).await.unwrap();
    started.shutdown(Duration::from_secs(30)).await.unwrap();
    let error = model.save_to(&started, here.at("model")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let error = started.node(0).fetch("model.bin", here.at("model")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

#[tokio::test]
async fn artifacts_are_reported_streamed_and_returned_by_calls() {
    let train: PendingCompute<Vec<Artifact>> = python(indoc! {"
        import skyward as sky

        def part(number):
            return sky.artifact(str(number).encode(), name=f'part-{number}')

        def f():
            sky.report(sky.artifact(b'first', name='report'))
            return list(sky.map(part, range(3)))
    "})
    .into();
    pool(2)
        .scope(async |pool| {
            let (train, mut reports): (_, Reports<Artifact>) = train.reports();
            let parts = train.run(pool).await?;
            let report = reports.next().await.unwrap()?.value;
            assert_eq!(&report.bytes(pool, 10).await?[..], b"first");
            for (number, part) in parts.iter().enumerate() {
                assert_eq!(&part.bytes(pool, 10).await?[..], number.to_string().as_bytes());
            }
            Ok(())
        })
        .await
        .unwrap();
}
