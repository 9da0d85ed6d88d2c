//! `cargo xtask count`: the size and the shape of the production code, as numbers for comparing two
//! revisions. CONTRIBUTING.md says what each number means.

mod impls;
mod lines;
mod messages;
mod public;
mod report;
mod times;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use self::impls::Spread;
use self::messages::{MESSAGES, Message};
use crate::context::Context;
use crate::metadata;
use crate::sources::names::Names;
use crate::sources::{self, Source};

/// Prints the tables of the counts, or with `list` everything that they count.
///
/// # Errors
///
/// The workspace cannot be read or parsed, an enum of messages does not exist any more, or there is
/// no Python.
pub(crate) fn run(list: bool, context: &Context) -> Result<()> {
    let counts = Counts::of(context)?;
    print!("{}", if list { report::list(&counts) } else { report::tables(&counts) });
    Ok(())
}

/// What is counted.
struct Counts {
    packages: Vec<Package>,
    messages: Vec<Message>,
    /// The types of all packages that have inherent `impl` blocks.
    spread: Vec<Spread>,
}

/// What is counted of a package.
struct Package {
    name: String,
    rust: Vec<Lines>,
    python: Vec<Lines>,
    times: Vec<Found>,
    /// `None` if the package is not published.
    public: Option<Vec<Found>>,
}

/// The production lines of a file.
struct Lines {
    file: PathBuf,
    lines: usize,
}

/// Something that is counted, and where it is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    name: String,
    /// Its value, or its kind.
    what: String,
    file: PathBuf,
    line: usize,
}

/// The production code of a library or of a program.
struct Crate {
    /// As paths in Rust name it.
    name: String,
    sources: Vec<Source>,
    names: Names,
}

impl Counts {
    fn of(context: &Context) -> Result<Self> {
        let mut counts = Self { packages: Vec::new(), messages: Vec::new(), spread: Vec::new() };
        let mut python = lines::python(context)?;
        for package in &context.workspace.packages {
            let crates = Crate::all(package, &context.root)?;
            for one in &crates {
                counts.spread.extend(impls::spread(one));
                if one.name == MESSAGES.of {
                    counts.messages = messages::read(one, &MESSAGES)?;
                }
            }
            let sources = || crates.iter().flat_map(|one| &one.sources);
            let rust = sources().map(|source| Lines { file: source.path.clone(), lines: lines::rust(&source.syntax) });
            let public = package.is_published().then(|| sources().flat_map(public::items).collect());
            counts.packages.push(Package {
                name: package.name.clone(),
                rust: rust.collect(),
                python: python.remove(&package.name).unwrap_or_default(),
                times: sources().flat_map(times::constants).collect(),
                public,
            });
        }
        counts.packages.sort_by(|one, other| one.name.cmp(&other.name));
        anyhow::ensure!(!counts.messages.is_empty(), "no package of the workspace is the crate `{}`", MESSAGES.of);
        Ok(counts)
    }
}

impl Crate {
    /// The crates of a package whose code is production code: its library, its programs and its
    /// build script. A file of several crates belongs to the first.
    fn all(package: &metadata::Package, root: &Path) -> Result<Vec<Self>> {
        let mut seen = BTreeSet::new();
        let mut crates = Vec::new();
        for target in PRODUCTION.into_iter().flat_map(|kind| package.targets(kind)) {
            let sources = sources::read(&target.src_path)
                .with_context(|| format!("cannot read the target `{}` of {}", target.name, package.name))?;
            let mut one = Self::of(target.name.replace('-', "_"), sources);
            one.sources.retain(|source| seen.insert(source.path.clone()));
            for source in &mut one.sources {
                source.path = source.path.strip_prefix(root).unwrap_or(&source.path).to_owned();
            }
            crates.push(one);
        }
        Ok(crates)
    }

    fn of(name: impl Into<String>, sources: Vec<Source>) -> Self {
        Self { name: name.into(), names: Names::of(&sources), sources }
    }
}

impl Found {
    fn new(name: impl Into<String>, what: impl Into<String>, source: &Source, at: proc_macro2::Span) -> Self {
        Self { name: name.into(), what: what.into(), file: source.path.clone(), line: at.start().line }
    }
}

/// The kinds of targets that are production code, as cargo names them.
const PRODUCTION: [&str; 4] = ["lib", "proc-macro", "bin", "custom-build"];

#[cfg(test)]
fn parsed(files: &[(&str, &str)]) -> Vec<Source> {
    let parse = |(module, text): &(&str, &str)| {
        let path = format!("src/{}.rs", if module.is_empty() { "lib".into() } else { module.replace("::", "/") });
        Source::parse(module, Path::new(&path), text).unwrap()
    };
    files.iter().map(parse).collect()
}
