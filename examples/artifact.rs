//! A model of 1 GiB comes back to this host as a file, in memory that does not depend on its size,
//! while the log of the training is followed.
//!
//! ```sh
//! cargo run --release --example artifact                              # 1 GiB, on this host
//! cargo run --release --example artifact -- --mib 64 --provider docker # 64 MiB, in a container
//! cargo run --release --example artifact -- --json                    # the last line is JSON
//! ```

mod machines;

use machines::{Machines, read_words};

use serde::Deserialize;
use skyward::prelude::*;
use std::path::Path;
use std::time::Instant;

#[derive(Debug, Deserialize)]
struct Report {
    loss: f64,
    model: Artifact,
}

/// Writes a model of this size, and a line of its log for each tenth of it.
#[skyward::compute]
fn train(mib: u64) -> Report {
    r#"
    import skyward as sky

    piece = bytes(range(256)) * 4096
    with open("model.bin", "wb") as model, open("train.log", "w") as log:
        for step in range(mib):
            model.write(step.to_bytes(8, "little") + piece[8:])
            if step * 10 % mib < 10:
                print(f"step {step} of {mib}", file=log, flush=True)
    return {"loss": 0.25, "model": sky.artifact("model.bin", move=True)}
    "#
}

struct Options {
    machines: Machines,
    mib: u64,
    json: bool,
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let Options { machines, mib, json } = options();
    let folder = std::env::temp_dir().join(format!("skyward-artifact-{}", std::process::id()));
    let target = folder.join("model.bin");
    let builder = Pool::builder().shared_provider(machines.provider()).terminal(Terminal::auto().output(!json));
    let saved = builder
        .scope(async |pool| {
            let mut log = pool.node(0).tail("train.log");
            let follow = async {
                let mut lines = 0;
                while lines < 10 {
                    // `None` would be the end of the pool.
                    let Some(bytes) = log.next().await.transpose()? else { break };
                    lines += bytes.iter().filter(|byte| **byte == b'\n').count();
                }
                Ok(lines)
            };
            let (Report { loss, model }, lines) = tokio::try_join!(train(mib).run(pool), follow)?;
            let (before, began) = (peak_mib(), Instant::now());
            model.save_to(pool, &target).await?;
            let seconds = began.elapsed().as_secs_f64();
            Ok((loss, model, lines, seconds, peak_mib() - before))
        })
        .await;
    let checked = saved.map(|saved| (saved, check(&target, mib)));
    // Of a failed example nothing is left either.
    let _ = std::fs::remove_dir_all(&folder);
    let ((loss, model, lines, seconds, memory_mib), is_whole) = checked?;
    assert!(is_whole, "the file has the bytes that the payload has written");
    assert!(lines >= 10 && loss == 0.25 && model.size() == mib << 20);
    assert!(memory_mib < 100.0, "saving took {memory_mib:.0} MiB of memory");
    if json {
        println!("{}", serde_json::json!({"mib": mib, "seconds": seconds, "memory_mib": memory_mib}));
    } else {
        let rate = mib as f64 / seconds;
        println!("{mib} MiB in {seconds:.2} s ({rate:.0} MiB/s), with {memory_mib:.0} MiB of memory");
        println!("SHA-256 {}", model.sha256());
    }
    Ok(())
}

/// Whether each MiB of the file begins with its number, and the file ends after the last one.
fn check(path: &Path, mib: u64) -> bool {
    use std::os::unix::fs::FileExt;
    let read = |number: u64| {
        let mut first = [0; 8];
        let file = std::fs::File::open(path)?;
        file.read_exact_at(&mut first, number << 20)?;
        std::io::Result::Ok(u64::from_le_bytes(first) == number)
    };
    (0..mib).all(|number| read(number).unwrap_or(false))
        && std::fs::metadata(path).is_ok_and(|file| file.len() == mib << 20)
}

/// The most memory that this process has had, in MiB.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn options() -> Options {
    let mut options = Options { machines: Machines::default(), mib: 1024, json: false };
    read_words("artifact [--mib N] [--json]", |word, words| {
        match word {
            "--mib" => options.mib = words.next()?.parse().ok().filter(|mib| *mib >= 10)?,
            "--json" => options.json = true,
            other => return options.machines.read(other, words),
        }
        Some(())
    });
    options
}
