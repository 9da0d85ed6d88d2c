//! `cargo xtask bench macro`: what `#[skyward::compute]` adds to `cargo check` of crates with many
//! payloads, beside the same crates without any.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Map, json};
use skyward_tools::context::Context;

use crate::bench::Bench;
use crate::rows::Measured;

pub(crate) fn measure(bench: &Bench, context: &Context, measured: &mut Measured) -> Result<()> {
    let folder = context.scratch().join("bench-macro");
    let cases = CASES.iter().filter(|case| bench.rows.iter().any(|row| row.name == case.row));
    for case in cases {
        for (system, payloads) in [("skyward", PAYLOADS), ("empty", 0)] {
            let package = Package::write(&folder.join(case.row).join(system), context, case, payloads)?;
            // Compiles what it depends on.
            package.check(context)?;
            for _ in 0..bench.rounds() {
                fs::write(package.source(), package.declarations.as_bytes())?;
                let begin = Instant::now();
                package.check(context)?;
                measured.add(system, &Map::from_iter([(case.row.to_owned(), json!(begin.elapsed().as_secs_f64()))]));
            }
        }
    }
    Ok(())
}

/// The files that a crate's payloads are functions of.
struct Case {
    row: &'static str,
    /// The name of the file or folder in the declarations.
    python: &'static str,
    /// How many files the folder has beside the one with the entries.
    others: usize,
}

/// A crate with payloads.
struct Package {
    folder: PathBuf,
    declarations: String,
}

impl Package {
    fn write(folder: &Path, context: &Context, case: &Case, payloads: usize) -> Result<Self> {
        let declare = |text: &mut String, number: usize| {
            let _ = writeln!(
                text,
                "#[skyward::compute(python = \"{}\", entry = \"f{number}\")]\nfn f{number}(epochs: u32) -> f64;",
                case.python
            );
        };
        let mut declarations = "#![allow(dead_code)]\n".to_owned();
        (0..payloads).for_each(|number| declare(&mut declarations, number));
        let package = Self { folder: folder.to_owned(), declarations };
        put(&package.source(), &package.declarations)?;
        let root = context.root.display();
        let manifest = format!(
            "[package]\nname = \"payloads\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nskyward = {{ path = {:?}, \
             default-features = false, features = [\"macros\"] }}\n",
            root.to_string()
        );
        put(&folder.join("Cargo.toml"), &manifest)?;
        fs::copy(context.root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        let main =
            if case.others == 0 { folder.join(case.python) } else { folder.join(case.python).join("__init__.py") };
        put(&main, &python(PAYLOADS))?;
        for other in 0..case.others {
            put(&folder.join(case.python).join(format!("other{other}.py")), &python(PAYLOADS / 10))?;
        }
        Ok(package)
    }

    fn source(&self) -> PathBuf {
        self.folder.join("src/lib.rs")
    }

    fn check(&self, context: &Context) -> Result<()> {
        // One folder, so that what all depend on is compiled once.
        let target = context.scratch().join("bench-macro/target");
        let run = context.cargo(["check", "--quiet"]).dir(&self.folder).env("CARGO_TARGET_DIR", target);
        run.check().map(drop)
    }
}

/// A file with so many functions, of half a kilobyte each.
fn python(functions: usize) -> String {
    let mut text = "import skyward as sky\n".to_owned();
    for number in 0..functions {
        let _ = write!(
            text,
            "

def f{number}(epochs: int, rate: float = 0.1) -> float:
    \"\"\"Train for some epochs.\"\"\"
    total = 0.0
    history = [rate * step for step in range(epochs) if step % 3]
    for epoch, loss in enumerate(history):
        if loss > total and epoch != {number}:
            total += loss * len(str(epoch)) / max(1, epoch)
        else:
            total = total - sum(history[:epoch]) * (rate ** 2)
    for sample in sky.shard(list(range(epochs)), shuffle=True):
        total += sample
    return total / max(1, len(history))
"
        );
    }
    text
}

fn put(at: &Path, text: &str) -> Result<()> {
    let folder = at.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(at, text))
        .with_context(|| format!("cannot write {}", at.display()))
}

const PAYLOADS: usize = 200;

const CASES: &[Case] = &[
    Case { row: "macro_file_s", python: "train.py", others: 0 },
    Case { row: "macro_folder_s", python: "train", others: 99 },
];
