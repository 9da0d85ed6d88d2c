//! Python files, read where the declaration says, and the function among them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use ruff_python_ast::Stmt;

use crate::diagnostic::{Diagnostic, Place, list, nearest};
use crate::python::decorators::{Modules, joins};
use crate::python::function::Function;
use crate::python::metadata;
use crate::python::module::{Binding, Lines, Module};
use crate::python::version::Target;

/// The files of a payload.
pub(crate) struct Files {
    pub(crate) files: Vec<File>,
    /// The index of the file that has the entry.
    pub(crate) main: usize,
}

/// One file of a payload.
pub(crate) struct File {
    pub(crate) module: Module,
    /// Its path, relative to the manifest's folder.
    pub(crate) include: String,
}

/// A file that is not parsed yet.
struct Text {
    text: String,
    /// The path that tracebacks show.
    path: String,
    include: String,
}

/// What is called.
pub(crate) enum Entry {
    Function {
        function: Box<Function>,
        /// The framework whose world its decorator joins.
        joins: Option<&'static str>,
    },
    /// It is there or may be, and its parameters are not known.
    Unknown,
}

type Found<T> = Result<T, Diagnostic>;

impl Files {
    /// Reads a file or a folder below `root`, the manifest's folder.
    pub(crate) fn read(root: &Path, python: &str, main: Option<&str>) -> Found<Self> {
        let at = resolve(root, python)?;
        if at.is_dir() {
            return Self::read_folder(&at, python, main);
        }
        if main.is_some() {
            let message = format!("`main` picks a file of a folder, and `{python}` is a file: remove `main`");
            return Err(Diagnostic::new(Place::Main, message));
        }
        let text = Text { text: read_text(&at, python)?, path: shown(python), include: slashes(python) };
        Ok(Self::parse(vec![text], 0))
    }

    fn read_folder(at: &Path, python: &str, main: Option<&str>) -> Found<Self> {
        let mut paths = Vec::new();
        collect(at, "", DEEPEST, &mut paths).map_err(|error| unreadable(python, &error))?;
        if paths.is_empty() {
            let message = format!("the folder `{python}` has no Python file: nothing in it ends in `.py`");
            return Err(Diagnostic::new(Place::Source, message));
        }
        let name = folder_name(at, python);
        let main = main_of(&paths, python, main)?;
        let written = slashes(python);
        let written = written.trim_end_matches('/');
        let mut texts = Vec::new();
        for path in &paths {
            let include = format!("{written}/{path}");
            let text = read_text(&at.join(path), &include)?;
            texts.push(Text { text, path: format!("{name}/{path}"), include });
        }
        Ok(Self::parse(texts, main))
    }

    /// The metadata of the main file says which Python all of them are for.
    fn parse(texts: Vec<Text>, main: usize) -> Self {
        let Text { text, path, .. } = &texts[main];
        let target = Target::of(text, |line| format!("{path}:{line}"));
        let parse = |Text { text, path, include }| {
            let module = Module::parse(path, text, Lines::Own, target.clone());
            File { module, include }
        };
        Self { files: texts.into_iter().map(parse).collect(), main }
    }

    pub(crate) fn main(&self) -> &Module {
        &self.files[self.main].module
    }

    /// What is wrong in any of the files, whatever is called.
    pub(crate) fn errors(&self) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        for file in &self.files {
            found.extend(file.module.syntax_errors());
            found.extend(file.module.unknown_names());
        }
        let main = self.main();
        found.extend(metadata::check(&main.text).into_iter().map(|(line, message)| {
            let text = main.text.lines().nth(line - 1).unwrap_or("");
            format!("{}:{line}:1: {message}\n{line} | {text}", main.path)
        }));
        found.into_iter().map(|message| Diagnostic::new(Place::Source, message)).collect()
    }

    /// What is of this name in the main file, or where that file has it from. What is `unchecked`
    /// may be anything.
    pub(crate) fn entry(&self, name: &str, unchecked: bool) -> Found<Entry> {
        self.find(self.main, name, unchecked, self.files.len())
    }

    /// Follows imports between the files, at most `hops` times.
    fn find(&self, index: usize, name: &str, unchecked: bool, hops: usize) -> Found<Entry> {
        let module = &self.files[index].module;
        let (binding, stars) = module.look_up(name);
        let mut foreign = false;
        for star in stars.iter().rev() {
            match self.imported(index, star.level, star.module) {
                Some(file) if hops > 0 => {
                    if let Ok(found) = self.find(file, name, unchecked, hops - 1) {
                        return Ok(found);
                    }
                }
                _ => foreign = true,
            }
        }
        let (what, at) = match binding {
            Some(Binding::Function(function)) => {
                let joins = joins(self, index, function);
                return Ok(Entry::Function { function: Box::new(Function::read(module, function)), joins });
            }
            Some(Binding::Import { level, module: from, name: original, at }) => {
                let file = self.imported(index, level, from);
                if let Some(file) = file.filter(|_| hops > 0) {
                    return self.find(file, original, unchecked, hops - 1);
                }
                ("imported from elsewhere", at)
            }
            Some(Binding::Module { at, .. }) => ("a module", at),
            Some(Binding::Other { what, at }) => (what, at),
            // Nobody here knows what is in it.
            None if foreign => return Ok(Entry::Unknown),
            None => return Err(self.no_entry(module, name)),
        };
        if unchecked {
            return Ok(Entry::Unknown);
        }
        let message = format!(
            "`{name}` is {what} ({}), so its parameters cannot be checked: the entry is a `def` of the payload's own\n\
             write a function that calls it, or add the option `unchecked`",
            module.locate(at.start())
        );
        Err(Diagnostic::new(Place::Entry, message))
    }

    fn no_entry(&self, module: &Module, name: &str) -> Diagnostic {
        let names = module.function_names();
        let rest = match nearest(name, names.iter().copied()) {
            Some(close) => format!("did you mean `{close}`? it has {}", list(names)),
            None if names.is_empty() => "it has no function at its top level".to_owned(),
            None => format!("it has {}: name one with `entry = \"…\"`", list(names)),
        };
        Diagnostic::new(Place::Entry, format!("`{}` has no function `{name}` at its top level\n{rest}", module.path))
    }
}

impl Modules for Files {
    fn statements(&self, file: usize) -> &[Stmt] {
        self.files[file].module.statements()
    }

    fn imported(&self, importer: usize, level: u32, from: &str) -> Option<usize> {
        let importer = &self.files[importer].module.path;
        let mut folder: Vec<&str> = importer.split('/').collect();
        folder.pop();
        let inner = from.replace('.', "/");
        let tried = |folder: &[&str]| {
            let parts = folder.iter().copied().chain([&*inner]).filter(|part| !part.is_empty());
            let stem = parts.collect::<Vec<_>>().join("/");
            let paths = [format!("{stem}.py"), format!("{stem}/__init__.py")];
            self.files.iter().position(|file| paths.contains(&file.module.path))
        };
        match level {
            0 => tried(&[]).or_else(|| tried(&folder)),
            _ => tried(folder.get(..folder.len().checked_sub(level as usize - 1)?)?),
        }
    }
}

/// The path on this machine of what the declaration names.
fn resolve(root: &Path, python: &str) -> Found<PathBuf> {
    let path = Path::new(python);
    let message = if python.trim().is_empty() {
        "the path is empty: write one relative to the folder of this crate's Cargo.toml".to_owned()
    } else if path.is_absolute() || python.starts_with('~') {
        format!(
            "`{python}` is not relative, so it holds on one machine only\n\
             write the path relative to the folder of this crate's Cargo.toml"
        )
    } else if root.join(path).exists() {
        return Ok(root.join(path));
    } else {
        not_found(root, path)
    };
    Err(Diagnostic::new(Place::Source, message))
}

/// Names the part that is missing, and what is there instead.
fn not_found(root: &Path, path: &Path) -> String {
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
            format!("\ndid you mean `{}`?", nearby(&there, close, path, &next).display())
        });
        let holds = match names.as_slice() {
            [] => "holds no Python file".to_owned(),
            names => format!("holds {}", list(names.iter().map(String::as_str))),
        };
        return format!(
            "there is no `{}` in the folder of this crate's Cargo.toml{close}\n`{folder}` {holds}",
            path.display()
        );
    }
    format!("`{}` cannot be reached", path.display())
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
    let files = list(paths.iter().map(String::as_str));
    let message = match main {
        None => format!(
            "the folder `{python}` has no `{INIT}`, so say which file has the entry: `main = \"{}\"`\nit has {files}",
            paths[0]
        ),
        Some(main) => {
            let close = nearest(main, paths.iter().map(String::as_str));
            let close = close.map_or_else(String::new, |close| format!("\ndid you mean `{close}`?"));
            format!("the folder `{python}` has no `{main}`{close}\nit has {files}")
        }
    };
    Err(Diagnostic::new(Place::Main, message))
}

fn read_text(at: &Path, written: &str) -> Found<String> {
    let bytes = fs::read(at).map_err(|error| unreadable(written, &error))?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        let message = format!("`{written}` begins with a byte order mark: save it as UTF-8 without one");
        return Err(Diagnostic::new(Place::Source, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Diagnostic::new(Place::Source, format!("`{written}` is not UTF-8, first in line {line}: save it as UTF-8"))
    })
}

fn unreadable(written: &str, error: &std::io::Error) -> Diagnostic {
    Diagnostic::new(Place::Source, format!("`{written}` cannot be read: {error}"))
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
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const DEEPEST: usize = 16;

#[cfg(test)]
mod tests;
