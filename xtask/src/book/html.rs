//! Links of built pages: each leads to a file that is there, and to an element of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use html5gum::{DefaultEmitter, Token, Tokenizer};
use percent_encoding::percent_decode_str;

use crate::files;

/// What was found in a folder of pages.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) pages: usize,
    /// Links to files of the folder, or of the one that it lies in.
    pub(crate) links: usize,
    /// Each with its page.
    pub(crate) dead: Vec<String>,
}

/// Looks at all pages below a folder.
pub(crate) fn check(folder: &Path) -> Result<Found> {
    let mut found = Found::default();
    let mut known = BTreeMap::new();
    for page in pages(folder)? {
        found.pages += 1;
        let text = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
        for target in attributes(&text, &["href", "src"]).iter().filter(|target| is_local(target)) {
            found.links += 1;
            if !leads_somewhere(target, &page, &mut known) {
                let page = page.strip_prefix(folder).unwrap_or(&page);
                found.dead.push(format!("{} leads to {target}", page.display()));
            }
        }
    }
    Ok(found)
}

/// The elements of each page that was asked for so far.
type Known = BTreeMap<PathBuf, BTreeSet<String>>;

fn leads_somewhere(target: &str, page: &Path, known: &mut Known) -> bool {
    let (path, element) = target.split_once('#').map_or((target, None), |(path, element)| (path, Some(element)));
    let path = decoded(path.split('?').next().unwrap_or_default());
    let mut file = if path.is_empty() { page.to_owned() } else { page.with_file_name("").join(path) };
    if file.is_dir() {
        file = file.join("index.html");
    }
    if !file.exists() {
        return false;
    }
    let Some(element) = element.filter(|element| !element.is_empty()) else { return true };
    let Ok(file) = file.canonicalize() else { return false };
    let elements = known.entry(file).or_insert_with_key(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        attributes(&text, &["id", "name"]).into_iter().collect()
    });
    elements.contains(&decoded(element))
}

/// Whether it is a link to a file beside this one.
fn is_local(target: &str) -> bool {
    let scheme = target.split(['/', '#', '?']).next().unwrap_or_default();
    !scheme.contains(':') && !target.starts_with('/') && !target.is_empty()
}

/// The values of these attributes, in all tags.
fn attributes(text: &str, names: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    // What a script writes is no tag of the page.
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    for Ok(token) in Tokenizer::new_with_emitter(text, emitter) {
        if let Token::StartTag(tag) = token {
            for name in names {
                let value = tag.attributes.get(name.as_bytes());
                found.extend(value.map(|value| String::from_utf8_lossy(value).into_owned()));
            }
        }
    }
    found
}

/// Without `%20` and the like.
fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// All pages below a folder but the one for what is not found, whose links depend on where it is
/// shown.
fn pages(folder: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let pages = files::below(folder)?.into_iter().filter(|path| files::has_extension(path, "html"));
    let shown = pages.filter(|path| !path.ends_with("404.html"));
    Ok(shown.map(|path| folder.join(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_elements_are_dead() {
        let folder = std::env::temp_dir().join(format!("skyward-html-{}", std::process::id()));
        fs::create_dir_all(folder.join("sub")).unwrap();
        let page = "<h1 id=\"here\">x</h1><a class=\"b\" href=\"sub/two.html#there\">a</a><a href=\"#here\">b</a>\
                    <a href=\"https://example.com/x\">c</a><img src=\"data:image/svg+xml;base64,AA\">\
                    <a href=\"sub/two.html#nowhere\">d</a><a href=\"none.html\">e</a><a href=\"sub\">f</a>\
                    <script>write(`<a href=\"${path}\">`)</script>";
        fs::write(folder.join("one.html"), page).unwrap();
        fs::write(folder.join("sub/two.html"), "<h2 id=\"there\">y</h2><a href=\"../one.html?x=1#%68ere\">g</a>")
            .unwrap();
        let found = check(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let dead = ["one.html leads to sub/two.html#nowhere", "one.html leads to none.html", "one.html leads to sub"];
        assert_eq!(found.dead, dead);
        assert_eq!(found.pages, 2);
        assert_eq!(found.links, 6);
    }
}
