//! Checks the guide and the other documents: their links, and the code in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::book::{self, quotes};
use crate::context::Context;
use crate::environment::Environment;
use crate::process::Run;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "documents",
        about: "links lead somewhere, and the code in the pages is checked",
        run: documents,
    }]
}

/// A fenced piece of code in a page.
#[derive(Debug, PartialEq, Eq)]
struct Snippet {
    /// What follows the opening fence: `rust,no_run`.
    info: String,
    /// The line number of its first line.
    line: usize,
    text: String,
}

fn documents(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let tested = [DOCTESTS, book::MODULES]
        .map(|file| fs::read_to_string(context.root.join(file)).with_context(|| format!("cannot read {file}")));
    let tested = tested.into_iter().collect::<Result<Vec<_>>>()?.concat();
    let folder = context.scratch().join("snippets");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let mut python = Vec::new();
    let pages = pages(context)?;
    for page in &pages {
        let text = fs::read_to_string(context.root.join(page))?;
        let shown = page.display();
        for link in dead_links(&text, context.root.join(page).parent().unwrap_or(&context.root)) {
            checks.fail(format!("{shown} links to {link}, which does not exist"));
        }
        quotes::check(&context.root, &shown.to_string(), &text, &mut checks)?;
        for snippet in snippets(&text) {
            let words: Vec<&str> = snippet.info.split(',').map(str::trim).collect();
            let is_rust = words.contains(&"rust") || words.contains(&"no_run");
            if words.contains(&"ignore") {
                checks.fail(format!("{shown}:{} is code that nothing checks (`ignore`)", snippet.line));
            }
            if is_rust && !tested.contains(&format!("\"../{shown}\"")) {
                checks.fail(format!(
                    "{shown}:{} is Rust, and neither {DOCTESTS} nor {} includes the page",
                    snippet.line,
                    book::MODULES
                ));
            }
            if words.contains(&"python") {
                let name = shown.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
                let path = folder.join(format!("{name}_line_{}.py", snippet.line));
                fs::write(&path, &snippet.text)?;
                python.push(path);
            }
        }
    }
    check_python(context, &python, &mut checks)?;
    checks.outcome(format!("{} pages, {} pieces of Python", pages.len(), python.len()))
}

fn check_python(context: &Context, files: &[PathBuf], checks: &mut Checks) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let tools = Environment::tools(context)?;
    let config = context.root.join("ruff.toml");
    for arguments in [&["check"][..], &["format", "--check"]] {
        checks.run(&tools.run("ruff", context).args(arguments).args(["--config"]).args([&config]).args(files))?;
    }
    checks.run(&tools.run("mypy", context).args(["--strict", "--ignore-missing-imports"]).args(files))
}

/// Every page that git knows or would take, relative to the root.
fn pages(context: &Context) -> Result<Vec<PathBuf>> {
    let list = Run::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
        .dir(&context.root)
        .read()
        .context("cannot list the documents")?;
    Ok(list.lines().map(PathBuf::from).filter(|page| context.root.join(page).exists()).collect())
}

fn snippets(text: &str) -> Vec<Snippet> {
    let mut found = Vec::new();
    let mut open: Option<Snippet> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let line = text[..range.start].matches('\n').count() + 2;
                open = Some(Snippet { info: info.trim().to_owned(), line, text: String::new() });
            }
            Event::Text(part) => {
                if let Some(snippet) = &mut open {
                    snippet.text.push_str(&part);
                }
            }
            Event::End(TagEnd::CodeBlock) => found.extend(open.take()),
            _ => {}
        }
    }
    found
}

/// Targets of links and images that do not exist: files of the repository, headings of its pages,
/// and what a link in code style names in a source file.
fn dead_links(text: &str, folder: &Path) -> Vec<String> {
    let mut events = Parser::new_ext(text, Options::ENABLE_TABLES);
    let mut dead = Vec::new();
    while let Some(event) = events.next() {
        let Event::Start(Tag::Link { dest_url: target, .. } | Tag::Image { dest_url: target, .. }) = event else {
            continue;
        };
        let label = events.by_ref().take_while(|event| !matches!(event, Event::End(TagEnd::Link | TagEnd::Image)));
        let code = match label.collect::<Vec<_>>().as_slice() {
            [Event::Code(name)] => Some(name.to_string()),
            _ => None,
        };
        if !target.contains("://") && !exists(code.as_deref(), &target, text, folder) {
            dead.push(target.to_string());
        }
    }
    dead
}

/// Whether the target of a link exists. `code` is the label, if the label is code alone.
fn exists(code: Option<&str>, target: &str, page: &str, folder: &Path) -> bool {
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = folder.join(file);
    if !path.exists() {
        return false;
    }
    let read = || if file.is_empty() { page.to_owned() } else { fs::read_to_string(&path).unwrap_or_default() };
    let ends_in = |endings: &[&str]| path.extension().is_some_and(|it| endings.iter().any(|ending| it == *ending));
    if let Some(heading) = heading.filter(|_| file.is_empty() || ends_in(&["md"])) {
        return anchors(&read()).iter().any(|anchor| anchor == heading);
    }
    match code {
        Some(name) if ends_in(&["rs", "py"]) => target.contains(name) || read().contains(name),
        _ => true,
    }
}

/// The anchors of the headings in a page, as links write them.
fn anchors(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for event in Parser::new_ext(page, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => open = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut open {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => found.extend(open.take().map(|heading| anchor(&heading))),
            _ => {}
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let words = heading.trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|it| it.is_alphanumeric() || matches!(it, '-' | '_')).collect()
}

/// Where the pages become doc tests.
const DOCTESTS: &str = "src/doctests.rs";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippets_have_their_language_and_line() {
        let text = "# A\n\n```rust,no_run\nlet a = 1;\nlet b = 2;\n```\ntext\n```\nplain\n```\n";
        assert_eq!(
            snippets(text),
            [
                Snippet { info: "rust,no_run".into(), line: 4, text: "let a = 1;\nlet b = 2;\n".into() },
                Snippet { info: String::new(), line: 9, text: "plain\n".into() },
            ]
        );
    }

    #[test]
    fn only_links_to_what_is_missing_are_dead() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = "# Here and `there`!\n[a](src/main.rs#x) [b](https://example.com) [c](#here-and-there) [d](no/such.md) \
                    [e](Cargo.toml) [f](#nowhere) [g](../README.md#licence) [h](../README.md#license) \
                    [`main`](src/main.rs) [`fn main`](src/main.rs) [`no_such_name`](src/main.rs)";
        assert_eq!(dead_links(text, folder), ["no/such.md", "#nowhere", "../README.md#license", "src/main.rs"]);
        let text = "`[a](in/code.md)` [b] ![c](no/picture.png)\n\n```text\n# Nowhere\n[d](in/a/block.md)\n```\n\n\
                    [b]: no/reference.md\n[e](#nowhere)\n";
        assert_eq!(dead_links(text, folder), ["no/reference.md", "no/picture.png", "#nowhere"]);
    }
}
