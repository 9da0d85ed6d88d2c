//! The list of the decisions on their index page, which is generated from the summary of the book.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::generated::Generated;
use super::{PAGES, SUMMARY};
use crate::context::Context;

/// The index page with a list of all decisions, in the order of the summary.
pub(super) fn index(context: &Context) -> Result<Generated> {
    let read = |page: &str| {
        let path = context.root.join(PAGES).join(page);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let list = list(&read(SUMMARY)?);
    ensure!(!list.is_empty(), "{PAGES}/{SUMMARY} lists no decision");
    Ok(Generated { path: context.root.join(PAGES).join(INDEX), text: with_list(&read(INDEX)?, &list) })
}

/// The lines of the summary that list decisions, with targets relative to the index page.
fn list(summary: &str) -> String {
    let entries = summary.lines().filter_map(|line| {
        let (title, target) = line.trim_start().strip_prefix("- [")?.split_once("](")?;
        let target = target.strip_suffix(')').filter(|target| *target != INDEX)?;
        Some(format!("- [{title}]({})\n", target.strip_prefix(FOLDER)?))
    });
    entries.collect()
}

/// The page with this list in the place of its present one, after its text.
fn with_list(page: &str, list: &str) -> String {
    let text = page.split_once("\n- [").map_or(page, |(text, _)| text);
    format!("{}\n\n{list}", text.trim_end())
}

/// The index page, below the folder of pages.
const INDEX: &str = "decisions/index.md";
/// The folder of the decisions, below the folder of pages.
const FOLDER: &str = "decisions/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_lists_the_decisions_of_the_summary() {
        let summary = "# Summary\n\n- [Pools](pools.md)\n- [Decisions](decisions/index.md)\n  \
                       - [`a` is b](decisions/01-a.md)\n  - [c](decisions/02-c.md)\n";
        let list = list(summary);
        assert_eq!(list, "- [`a` is b](01-a.md)\n- [c](02-c.md)\n");
        let page = with_list("# Decisions\n\nNotes.\n", &list);
        assert_eq!(page, "# Decisions\n\nNotes.\n\n- [`a` is b](01-a.md)\n- [c](02-c.md)\n");
        assert_eq!(with_list(&page, &list), page);
        assert_eq!(with_list(&page, "- [d](03-d.md)\n"), "# Decisions\n\nNotes.\n\n- [d](03-d.md)\n");
    }
}
