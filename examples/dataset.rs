//! 10 000 files of this host go to the machines of two nodes, once to each machine, and each node reads
//! its own part of them. A second pool finds the files there.
//!
//! ```sh
//! cargo run --release --example dataset                       # two nodes on this host
//! cargo run --release --example dataset -- --provider docker  # two containers
//! cargo run --release --example dataset -- --files 100 --json # the last line is JSON
//! ```

mod machines;

use machines::{Machines, read_words};

use serde::Deserialize;
use skyward::data::Data;
use skyward::event::{EventItem, PoolEvent, TransferState};
use skyward::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Deserialize)]
struct Counted {
    node: u32,
    files: usize,
    words: usize,
    seconds: f64,
}

#[skyward::compute(python = "examples/payloads/dataset.py")]
fn count(name: &str) -> Counted;

/// What one pool has done.
struct Round {
    counted: Vec<Counted>,
    /// The files that were sent, over all machines.
    sent: u64,
    ready_s: f64,
}

struct Options {
    machines: Machines,
    files: usize,
    json: bool,
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let Options { machines, files, json } = options();
    let provider = machines.provider();
    let folder = std::env::temp_dir().join(format!("skyward-dataset-{}", std::process::id()));
    let words = write(&folder, files).expect("the folder of temporary files can be written");
    let rounds = both(&provider, &folder, json).await;
    // Of a failed example nothing is left either.
    let _ = std::fs::remove_dir_all(&folder);
    let (first, second) = rounds?;
    for Round { counted, .. } in [&first, &second] {
        assert_eq!(counted.iter().map(|node| node.files).sum::<usize>(), files, "each file is read once");
        assert_eq!(counted.iter().map(|node| node.words).sum::<usize>(), words, "the files have their content");
        assert!(counted.iter().all(|node| node.files.abs_diff(files / 2) <= 1), "the nodes share the files");
    }
    assert!(first.sent <= 2 * files as u64 && second.sent <= first.sent, "no machine gets a file twice");
    for (which, Round { counted, sent, ready_s }) in [("first", &first), ("second", &second)] {
        if json {
            println!("{}", serde_json::json!({"pool": which, "files": files, "sent": sent, "ready_s": ready_s}));
            continue;
        }
        println!("{which} pool: {sent} files sent, ready after {ready_s:.2} s");
        for Counted { node, files, words, seconds } in counted {
            println!("  node {node}: {files} files, {words} words; the folder was there after {seconds:.3} s");
        }
    }
    Ok(())
}

/// Two pools, one after the other.
async fn both(provider: &Arc<dyn Provider>, folder: &Path, json: bool) -> skyward::Result<(Round, Round)> {
    let first = round(provider, folder, json).await?;
    Ok((first, round(provider, folder, json).await?))
}

/// A pool of two nodes, each of which reads its part of the files.
async fn round(provider: &Arc<dyn Provider>, folder: &Path, json: bool) -> skyward::Result<Round> {
    let builder = Pool::builder()
        .shared_provider(Arc::clone(provider))
        .nodes(2)
        .data("texts", Data::folder(folder))
        .terminal(Terminal::auto().output(!json));
    let mut events = builder.events();
    let began = Instant::now();
    let (counted, ready_s) = builder
        .scope(async |pool| {
            let ready_s = began.elapsed().as_secs_f64();
            Ok((count("texts").broadcast(pool).await?, ready_s))
        })
        .await?;
    let mut sent = 0;
    while let Some(item) = events.next().await {
        if let EventItem::Event(event) = item
            && let PoolEvent::Transfer(transfer) = &*event
            && transfer.state == TransferState::Done
        {
            sent += transfer.files;
        }
    }
    Ok(Round { counted, sent, ready_s })
}

/// Writes text files into folders. Returns the number of their words.
fn write(folder: &Path, files: usize) -> std::io::Result<usize> {
    let mut words = 0;
    for number in 0..files {
        let folder = folder.join(format!("{:02}", number % 100));
        std::fs::create_dir_all(&folder)?;
        let count = 10 + number % 90;
        std::fs::write(folder.join(format!("{number:06}.txt")), format!("word{number} ").repeat(count))?;
        words += count;
    }
    Ok(words)
}

fn options() -> Options {
    let mut options = Options { machines: Machines::default(), files: 10_000, json: false };
    read_words("dataset [--files N] [--json]", |word, words| {
        match word {
            "--files" => options.files = words.next()?.parse().ok().filter(|files| *files >= 2)?,
            "--json" => options.json = true,
            other => return options.machines.read(other, words),
        }
        Some(())
    });
    options
}
