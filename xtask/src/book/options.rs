//! The page of options: each method of the builder and each limit has a row.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::context::Context;
use crate::files;
use crate::step::Checks;

/// Compares the rows of the page with what the code has.
pub(super) fn check(context: &Context, checks: &mut Checks) -> Result<usize> {
    let page = fs::read_to_string(context.root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut names = BTreeSet::new();
    let core = context.root.join(CORE);
    for file in files::below(&core)?.iter().filter(|path| files::has_extension(path, "rs")) {
        let text = fs::read_to_string(core.join(file))?;
        names.extend(methods(&text, "PoolBuilder").map(str::to_owned));
        names.extend(fields(&text, "Limits").map(|name| format!("Limits::{name}")));
    }
    ensure!(names.len() > 30, "the code of the builder and of the limits was not found in {CORE}");
    let rows = rows(&page);
    for name in names.difference(&rows) {
        checks.fail(format!("{PAGE} has no row for `{name}`"));
    }
    for row in rows.difference(&names) {
        checks.fail(format!("{PAGE} has a row for `{row}`, which is not in {CORE}"));
    }
    Ok(names.len())
}

/// What the first cells of tables name in code style: `nodes` of `nodes(n)`, and nothing of
/// `.timeout(t)`, which is of a call.
fn rows(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|line| line.split_once('`'));
    let names = cells.filter_map(|(cell, _)| cell.split(['(', '<']).next()).map(|name| name.trim_end_matches("::"));
    names.filter(|name| !name.starts_with('.')).map(str::to_owned).collect()
}

/// The public methods in a file's `impl` blocks of a type.
fn methods<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    blocks(text, format!("impl {name} {{")).filter_map(|line| {
        let line = line.strip_prefix("    pub ")?;
        let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        name.split(['(', '<']).next()
    })
}

/// The public fields of a type.
fn fields<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    blocks(text, format!("pub struct {name} {{")).filter_map(|line| {
        let (field, _) = line.strip_prefix("    pub ")?.split_once(':')?;
        Some(field)
    })
}

/// The lines of the items that begin so.
fn blocks(text: &str, begin: String) -> impl Iterator<Item = &str> {
    let mut within = false;
    text.lines().filter(move |line| {
        within = (within && *line != "}") || **line == begin;
        within
    })
}

const PAGE: &str = "docs/options.md";
const CORE: &str = "skyward-core/src";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_fields_and_rows_are_read() {
        let code = "impl Other {\n    pub fn no(self) {}\n}\nimpl PoolBuilder {\n    pub fn nodes(mut self) -> Self {\n    }\n    \
                    pub(crate) fn id(self) {}\n    pub async fn payload<F>(self) {}\n}\npub struct Limits {\n    pub start: Duration,\n}\n";
        assert_eq!(methods(code, "PoolBuilder").collect::<Vec<_>>(), ["nodes", "payload"]);
        assert_eq!(fields(code, "Limits").collect::<Vec<_>>(), ["start"]);
        let page = "| option | x |\n|---|---|\n| `nodes(n)` | y |\n| `payload::<T>()` | y |\n| `.timeout(t)` | z |\n| `Limits::start` | |\n";
        assert_eq!(rows(page).into_iter().collect::<Vec<_>>(), ["Limits::start", "nodes", "payload"]);
    }
}
