//! Files in and out of a node on an SSH server of this host, and the saves of a training.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use skyward::data::Data;
use skyward::prelude::*;
use skyward::storage::Storage;
use skyward_tools::sshd::Sshd;

use super::copies::Copier;
use super::ssh::{options, pool};
use super::{beside, blocking};
use crate::common::calls::SHUTDOWN;
use crate::common::{Table, timed};

/// Returns the path of the data set.
#[skyward::compute]
fn arrive(name: &str) -> String {
    "
    import skyward as sky

    return str(sky.data(name))
    "
}

/// Writes a file, and gives it to the caller.
#[skyward::compute]
fn make(mib: u64) -> (Artifact, String) {
    r#"
    import os
    import skyward as sky

    with open("model.bin", "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
    return sky.artifact("model.bin"), os.path.abspath("model.bin")
    "#
}

#[derive(Debug, Deserialize)]
struct Waited {
    alone: f64,
    save: f64,
    committed: f64,
}

/// Writes the same bytes alone and as a save, some times.
#[skyward::compute]
fn save(name: &str, mib: u64, times: usize) -> Vec<Waited> {
    r#"
    import os
    from time import monotonic
    import skyward as sky

    piece = os.urandom(1 << 20)

    def write(path):
        with open(path, "wb") as file:
            for _ in range(mib):
                file.write(piece)

    waited = []
    with sky.checkpoints(name, keep=1) as ckpt:
        for step in range(1, times + 1):
            ckpt.due(step)
            began = monotonic()
            write("alone.bin")
            alone = monotonic() - began
            os.unlink("alone.bin")
            began = monotonic()
            with ckpt.save(step) as folder:
                write(folder / "state.bin")
            save = monotonic() - began
            ckpt.wait()
            waited.append({"alone": alone, "save": save, "committed": monotonic() - began})
    return waited
    "#
}

pub(crate) async fn measure(mut table: Table) -> skyward::Result<()> {
    let sshd = Arc::new(Sshd::start(&options()).map_err(beside)?);
    let (mib, files) = if table.options.quick { (128, 1_000) } else { (1024, 10_000) };
    let scratch = Scratch::new().map_err(beside)?;
    let large = [("data_1_file_in_s", "data_1_file_again_s"), ("data_10000_files_in_s", "data_10000_files_again_s")];
    for (at, (row, again)) in large.into_iter().enumerate() {
        if !table.wants(row) && !table.wants(again) {
            continue;
        }
        let folder = scratch.path().join(row);
        let content = folder.clone();
        let write = move || if at == 0 { write_one(&content, mib) } else { write_many(&content, files) };
        blocking(write).await?;
        // Digests of files that were written just now are not kept.
        tokio::time::sleep(SETTLED).await;
        inupload(&mut table, &sshd, &folder, row, again).await?;
    }
    if table.wants("artifact_out_s") {
        out_of_host(&mut table, &sshd, &scratch, mib).await?;
    }
    if ["save_wait_s", "save_committed_s"].iter().any(|row| table.wants(row)) {
        let storage = Storage::folder(scratch.path().join("storage"));
        let times = table.times(5);
        let waited = pool(std::slice::from_ref(&sshd))
            .storage(storage)
            .scope(async |pool| save("bench", mib, times).run(pool).await)
            .await?;
        let of = |part: fn(&Waited) -> f64| crate::common::median(waited.iter().map(part).collect());
        table.row("save_wait_s", async { Ok(of(|it| it.save)) }).await?;
        table.beside("alone", "save_wait_s", async { Ok(of(|it| it.alone)) }).await?;
        table.row("save_committed_s", async { Ok(of(|it| it.committed)) }).await?;
    }
    table.print();
    Ok(())
}

/// A folder goes to a host that has none of it, and to another pool on the host.
async fn inupload(table: &mut Table, sshd: &Arc<Sshd>, folder: &Path, row: &str, again: &str) -> skyward::Result<()> {
    let pool = || pool(std::slice::from_ref(sshd)).data("set", Data::folder(folder).lazily());
    let (first, path) = timed_arrival(pool()).await?;
    table.row(row, async { Ok(first) }).await?;
    let (second, _) = timed_arrival(pool()).await?;
    table.row(again, async { Ok(second) }).await?;
    let kept = Path::new(&path).parent().map(Path::to_owned);
    for copier in Copier::ALL {
        let (sshd, from, to) = (Arc::clone(sshd), folder.to_owned(), sshd.path("copied"));
        let copied = move || {
            let seconds = copier.upload(&sshd, &from, &to)?;
            std::fs::remove_dir_all(&to)?;
            Ok(seconds)
        };
        table.beside(copier.name(), row, blocking(copied)).await?;
    }
    // Only what this bench has put into the user's cache.
    kept.map_or(Ok(()), std::fs::remove_dir_all).map_err(beside)
}

async fn timed_arrival(builder: skyward::pool::PoolBuilder) -> skyward::Result<(f64, String)> {
    let pool = builder.start().await?;
    let (path, took) = timed(arrive("set").run(&pool)).await?;
    pool.shutdown(SHUTDOWN).await?;
    Ok((took.as_secs_f64(), path))
}

/// A file of a host comes here.
async fn out_of_host(table: &mut Table, sshd: &Arc<Sshd>, scratch: &Scratch, mib: u64) -> skyward::Result<()> {
    let pool = pool(std::slice::from_ref(sshd)).start().await?;
    let (model, path) = make(mib).run(&pool).await?;
    let target = scratch.path().join("model.bin");
    let begin = Instant::now();
    model.save_to(&pool, &target).await?;
    let took = begin.elapsed().as_secs_f64();
    table.row("artifact_out_s", async { Ok(took) }).await?;
    for copier in Copier::ALL {
        let (sshd, from, to) = (Arc::clone(sshd), PathBuf::from(&path), target.clone());
        let copied = move || {
            std::fs::remove_file(&to)?;
            copier.download(&sshd, &from, &to)
        };
        table.beside(copier.name(), "artifact_out_s", blocking(copied)).await?;
    }
    pool.shutdown(SHUTDOWN).await.map(drop)
}

fn write_one(folder: &Path, mib: u64) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut file = std::fs::File::create(folder.join("data.bin"))?;
    std::io::copy(&mut std::io::Read::take(std::fs::File::open("/dev/urandom")?, mib << 20), &mut file).map(drop)
}

fn write_many(folder: &Path, files: usize) -> std::io::Result<()> {
    let mut random = std::fs::File::open("/dev/urandom")?;
    for number in 0..files {
        let folder = folder.join(format!("{:02}", number % 100));
        std::fs::create_dir_all(&folder)?;
        let mut file = std::fs::File::create(folder.join(format!("{number:06}.bin")))?;
        std::io::copy(&mut std::io::Read::take(&mut random, SMALL), &mut file)?;
    }
    Ok(())
}

/// A folder of this bench.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("skyward-bench-data-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// After this time, a file is known to have been written before.
const SETTLED: Duration = Duration::from_secs(3);
/// The bytes of a small file.
const SMALL: u64 = 10_000;
