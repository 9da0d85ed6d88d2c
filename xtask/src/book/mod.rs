//! `cargo xtask docs`: the pages of `docs/` as a book, with what is made of them for the crate's
//! documentation.

mod decisions;
mod diagrams;
mod generated;
mod guide;
pub(crate) mod html;
pub(crate) mod markdown;
mod mdbook;
mod options;
pub(crate) mod quotes;
mod repository;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use self::guide::Guide;
pub(crate) use self::guide::MODULES;
use self::markdown::links;
use self::repository::{Repository, normal};
use crate::context::Context;
use crate::files;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "book",
        about: "the book builds, its links lead somewhere, and what is made of its pages is up to date",
        run: |context| build(context, false),
    }]
}

/// Builds the book; `true` when all of it holds. With `write` the files that are made of others are
/// made anew first.
pub(crate) fn run(write: bool, context: &Context) -> Result<bool> {
    match build(context, write) {
        Ok(Outcome::Passed(note)) => println!("{note}"),
        Ok(Outcome::Skipped(reason)) => println!("SKIPPED: {reason}"),
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(false);
        }
    }
    Ok(true)
}

fn build(context: &Context, write: bool) -> Result<Outcome> {
    let mut checks = Checks::default();
    // The tables of the guide hold the diagrams.
    for picture in diagrams::pictures(context)? {
        picture.settle(write, context, &mut checks)?;
    }
    for table in Guide::read(context)?.tables(context, &mut checks)? {
        table.settle(write, context, &mut checks)?;
    }
    decisions::index(context)?.settle(write, context, &mut checks)?;
    let options = options::check(context, &mut checks)?;
    let pages = check_summary(context, &mut checks)?;
    let source = stage(context)?;
    let book = context.workspace.target_directory.join("book");
    if book.exists() {
        fs::remove_dir_all(&book)?;
    }
    checks.run_without_warnings(&mdbook::program(context)?.args(["build", "--dest-dir"]).args([&book, &source]))?;
    let found = html::check(&book)?;
    found.dead.iter().for_each(|dead| checks.fail(format!("in the book, {dead}")));
    if !fs::read_dir(&book)?.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("searchindex")) {
        checks.fail("the book cannot be searched: it has no index");
    }
    checks.outcome(format!(
        "{pages} pages, {options} options, {} links: {}",
        found.links,
        book.join("index.html").display()
    ))
}

/// Every page is in the navigation, once.
fn check_summary(context: &Context, checks: &mut Checks) -> Result<usize> {
    let folder = context.root.join(PAGES);
    let summary = fs::read_to_string(folder.join(SUMMARY)).with_context(|| format!("cannot read {PAGES}/{SUMMARY}"))?;
    let mut listed = BTreeSet::new();
    for link in links(&summary) {
        if !listed.insert(PathBuf::from(&link.target)) {
            checks.fail(format!("{SUMMARY} lists {} twice", link.target));
        }
    }
    let pages = files::below(&folder)?.into_iter().filter(|file| files::has_extension(file, "md"));
    for page in pages.filter(|page| *page != Path::new(SUMMARY) && !listed.contains(page)) {
        checks.fail(format!("{SUMMARY} does not list {}", page.display()));
    }
    Ok(listed.len())
}

/// A copy of the pages in which what lies outside of the book is linked to in the repository.
fn stage(context: &Context) -> Result<PathBuf> {
    let (from, to) = (context.root.join(PAGES), context.scratch().join("book"));
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    let repository = Repository::of(context)?;
    for file in files::below(&from)? {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().unwrap_or(&to))?;
        if !files::has_extension(&file, "md") {
            fs::copy(from.join(&file), target)?;
            continue;
        }
        let folder = Path::new(PAGES).join(file.parent().unwrap_or(Path::new("")));
        let text = markdown::with_targets(&fs::read_to_string(from.join(&file))?, |target| {
            let own = target.contains("://") || normal(&folder.join(target)).starts_with(PAGES);
            (!own).then(|| repository.address(&folder, target))
        });
        fs::write(target, text)?;
    }
    Ok(to)
}

const PAGES: &str = "docs";
const SUMMARY: &str = "SUMMARY.md";
