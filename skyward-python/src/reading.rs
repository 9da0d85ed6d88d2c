//! Files and folders of Python, as a declaration names them: where they are, and their texts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::cache::{Kept, kept};
use super::encoding::{Decoded, decode};
use super::finding::{Finding, Kind, Location};
use super::names::{list, nearest};

/// A file that is not parsed yet.
pub(super) struct Text {
    pub(super) text: Arc<Kept>,
    /// The path that tracebacks show.
    pub(super) path: String,
    /// The path that it was read from.
    pub(super) source: String,
}

pub(super) type Found<T> = Result<T, Finding>;

/// The file or all files of the folder that `python` names below `root`, and the index of the main
/// file.
pub(super) fn read(root: &Path, python: &str, main: Option<&str>) -> Found<(Vec<Text>, usize)> {
    let at = resolve(root, python)?;
    if at.is_dir() {
        return read_folder(&at, python, main);
    }
    if main.is_some() {
        let message = format!("`main` picks a file of a folder, and `{python}` is a file: remove `main`");
        return Err(Finding::new(Kind::Main, Location::file(python), message));
    }
    Ok((vec![Text { text: kept(&at, python)?, path: shown(python), source: slashes(python) }], 0))
}

fn read_folder(at: &Path, python: &str, main: Option<&str>) -> Found<(Vec<Text>, usize)> {
    let mut paths = Vec::new();
    collect(at, "", DEEPEST, &mut paths).map_err(|error| unreadable(python, &error))?;
    if paths.is_empty() {
        let message = format!("the folder `{python}` has no Python file: nothing in it ends in `.py`");
        return Err(Finding::new(Kind::File, Location::file(python), message));
    }
    let name = folder_name(at, python);
    let main = main_of(&paths, python, main)?;
    let written = slashes(python);
    let written = written.trim_end_matches('/');
    let mut texts = Vec::new();
    for path in &paths {
        let source = format!("{written}/{path}");
        let text = kept(&at.join(path), &source)?;
        texts.push(Text { text, path: format!("{name}/{path}"), source });
    }
    Ok((texts, main))
}

/// The text of the file at this path, which messages show as `written`.
pub(super) fn read_text(at: &Path, written: &str) -> Found<Decoded> {
    let bytes = fs::read(at).map_err(|error| unreadable(written, &error))?;
    decode(bytes).map_err(|why| Finding::new(Kind::Encoding, Location::file(written), format!("`{written}` {why}")))
}

/// The path on this machine of what the declaration names.
fn resolve(root: &Path, python: &str) -> Found<PathBuf> {
    let path = Path::new(python);
    let refused = |message: String| Finding::new(Kind::File, Location::file(python), message);
    if python.trim().is_empty() {
        let message = "the path is empty: write one relative to the folder of this crate's Cargo.toml";
        Err(refused(message.to_owned()))
    } else if path.is_absolute() || python.starts_with('~') {
        let found = refused(format!("`{python}` is not relative, so it holds on one machine only"));
        Err(found.with_help("write the path relative to the folder of this crate's Cargo.toml"))
    } else if root.join(path).exists() {
        Ok(root.join(path))
    } else {
        Err(not_found(root, path, refused))
    }
}

/// Names the part that is missing, and what is there instead.
fn not_found(root: &Path, path: &Path, refused: impl Fn(String) -> Finding) -> Finding {
    let mut there = PathBuf::new();
    for component in path.components() {
        let next = there.join(component);
        if root.join(&next).exists() {
            there = next;
            continue;
        }
        let name = component.as_os_str().to_string_lossy().into_owned();
        let folder = if there.as_os_str().is_empty() { ".".to_owned() } else { there.display().to_string() };
        let names = listing(&root.join(&there));
        let close = nearest(&name, names.iter().map(|name| name.trim_end_matches('/')));
        let close = close.map_or_else(String::new, |close| {
            format!("did you mean `{}`?\n", nearby(&there, close, path, &next).display())
        });
        let holds = match names.as_slice() {
            [] => "holds no Python file".to_owned(),
            names => format!("holds {}", list(names.iter().map(String::as_str))),
        };
        let found = refused(format!("there is no `{}` in the folder of this crate's Cargo.toml", path.display()));
        return found.with_help(format!("{close}`{folder}` {holds}"));
    }
    refused(format!("`{}` cannot be reached", path.display()))
}

/// `path` with the last component of `wrong`, its beginning, replaced.
fn nearby(folder: &Path, name: &str, path: &Path, wrong: &Path) -> PathBuf {
    let rest = path.strip_prefix(wrong).ok().filter(|rest| !rest.as_os_str().is_empty());
    let right = folder.join(name);
    rest.map_or_else(|| right.clone(), |rest| right.join(rest))
}

/// The Python files and folders of a folder, in order; a folder ends in `/`.
fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.path().is_dir();
            let fits = !is_hidden(&name) && (is_folder || name.ends_with(".py"));
            fits.then(|| if is_folder { format!("{name}/") } else { name })
        })
        .collect();
    names.sort();
    names
}

/// The names of the modules and packages that lie in a folder, as an import writes them. A folder is a
/// package if it has a Python file, whatever its name.
pub(super) fn modules_in(folder: &Path) -> BTreeSet<String> {
    let names = listing(folder).into_iter().filter_map(|name| match name.strip_suffix('/') {
        Some(inner) => {
            let has_file = || listing(&folder.join(inner)).iter().any(|name| name.ends_with(".py"));
            has_file().then(|| inner.to_owned())
        }
        None => name.strip_suffix(".py").map(str::to_owned),
    });
    names.collect()
}

/// Adds the paths of all Python files below a folder, relative to it, in order.
fn collect(folder: &Path, prefix: &str, depth: usize, paths: &mut Vec<String>) -> std::io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_hidden(&name) {
            continue;
        }
        if entry.path().is_dir() {
            // A link that leads back would never end.
            if depth > 0 {
                collect(&entry.path(), &format!("{prefix}{name}/"), depth - 1, paths)?;
            }
        } else if name.ends_with(".py") {
            paths.push(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name == "__pycache__"
}

fn main_of(paths: &[String], python: &str, main: Option<&str>) -> Found<usize> {
    let name = main.unwrap_or(INIT);
    if let Some(index) = paths.iter().position(|path| path == name) {
        return Ok(index);
    }
    let files = format!("it has {}", list(paths.iter().map(String::as_str)));
    let (message, help) = match main {
        None => (
            format!(
                "the folder `{python}` has no `{INIT}`, so say which file has the entry: `main = \"{}\"`",
                paths[0]
            ),
            files,
        ),
        Some(main) => {
            let close = nearest(main, paths.iter().map(String::as_str));
            let close = close.map_or_else(String::new, |close| format!("did you mean `{close}`?\n"));
            (format!("the folder `{python}` has no `{main}`"), format!("{close}{files}"))
        }
    };
    Err(Finding::new(Kind::Main, Location::file(python), message).with_help(help))
}

fn unreadable(written: &str, error: &std::io::Error) -> Finding {
    Finding::new(Kind::File, Location::file(written), format!("`{written}` cannot be read: {error}"))
}

/// The path that tracebacks show: without what leads out of the crate.
fn shown(python: &str) -> String {
    let mut parts: Vec<_> = Vec::new();
    for component in Path::new(python).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

/// The package's name.
fn folder_name(at: &Path, python: &str) -> String {
    match Path::new(python).components().next_back() {
        Some(Component::Normal(name)) => name.to_string_lossy().into_owned(),
        _ => at
            .canonicalize()
            .ok()
            .and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
            .unwrap_or_else(|| "payload".to_owned()),
    }
}

fn slashes(path: &str) -> String {
    if cfg!(windows) { path.replace('\\', "/") } else { path.to_owned() }
}

const INIT: &str = "__init__.py";
const DEEPEST: usize = 16;
