//! The files of a payload, and the function among them that is called.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ruff_python_ast::{Stmt, StmtFunctionDef};
use ruff_text_size::TextRange;

use super::bindings::{Binding, Bindings};
use super::cache::Kept;
use super::decorators::{Modules, joins};
use super::encoding::Decoded;
use super::fields::{Structure, returned};
use super::finding::{Finding, Kind, Location};
use super::function::Function;
use super::imports::{name_the_folder, outside, unreachable};
use super::module::Module;
use super::names::{list, nearest};
use super::reading::{self, Text, modules_in};
use super::tree::deep;
use super::version::Target;

/// A file, or the files of a folder, parsed.
///
/// A file that does not parse is part of the payload, too: its errors are among the
/// [findings](Self::findings).
#[derive(Debug)]
pub struct Payload {
    files: Vec<File>,
    /// The index of the file that has the entry.
    main: usize,
    /// The folder that the file, or the folder of the files, lies in, where that is known.
    beside: Option<PathBuf>,
}

/// Python's files and folders beside a payload that its text names, and that are no part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Neighbours {
    /// Their names, as an import writes them.
    pub modules: Vec<String>,
    /// What to write so that they are a part of the payload.
    pub advice: String,
}

/// A file of a payload.
pub struct File {
    pub(super) module: Arc<Module>,
    source: String,
    is_verbatim: bool,
}

/// What stands behind the name of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entry {
    /// A `def` of the payload.
    #[non_exhaustive]
    Function {
        /// The function.
        function: Box<Function>,
        /// The framework whose world its decorator joins: `jax`, `torch`, or `unknown` if that is
        /// decided at run time.
        joins: Option<&'static str>,
    },
    /// The entry exists or may exist, and its parameters are not known.
    Unknown,
}

impl Payload {
    /// Reads what `#[compute(python = "…", main = "…")]` names below `root`, the folder of the
    /// crate's manifest: a file, or all `.py` files of a folder.
    ///
    /// # Errors
    ///
    /// If the file or folder does not exist, cannot be read or is not in the encoding of Python's
    /// files; if the path is not relative; and if `main` names no file of the folder. The finding lists
    /// what there is instead.
    pub fn read(root: &Path, python: &str, main: Option<&str>) -> Result<Self, Finding> {
        let (texts, main) = reading::read(root, python, main)?;
        let beside = root.join(python).parent().map(Path::to_owned);
        Ok(Self { beside, ..Self::parse(texts, main) })
    }

    /// Reads one file, which messages show as `path`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not in the encoding that it names, or else in UTF-8.
    pub fn read_file(at: &Path, path: &str) -> Result<Self, Finding> {
        let text = Kept::of(reading::read_text(at, path)?);
        let payload = Self::parse(vec![Text { text, source: path.to_owned(), path: path.to_owned() }], 0);
        Ok(Self { beside: at.parent().map(Path::to_owned), ..payload })
    }

    /// The payload of one file with this text, which messages show as `path`.
    pub fn from_text(path: impl Into<String>, text: impl Into<String>) -> Self {
        let path = path.into();
        let text = Kept::of(Decoded { text: text.into(), is_verbatim: true });
        Self::parse(vec![Text { text, source: path.clone(), path }], 0)
    }

    /// The metadata of the main file says which Python all of them are for.
    fn parse(texts: Vec<Text>, main: usize) -> Self {
        let Text { text, path, .. } = &texts[main];
        let target = Target::of(&text.decoded().text, |line| format!("{path}:{line}"));
        let parse = |Text { text, path, source }: Text| File {
            is_verbatim: text.decoded().is_verbatim,
            module: text.module(path, &target),
            source,
        };
        Self { files: texts.into_iter().map(parse).collect(), main, beside: None }
    }

    /// All files, in order.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The file that has the entry.
    pub fn main(&self) -> &File {
        &self.files[self.main]
    }

    /// The problems of all files that do not depend on the entry: what Python's grammar and compiler
    /// refuse, for the oldest Python that `requires-python` allows, or else for 3.10; names of the
    /// package `skyward` that do not exist; imports of files that are no part of the payload; and the
    /// metadata of the main file. This and each other check reports at most 100 findings of a file, and
    /// then how many more there are.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for file @ File { module, .. } in &self.files {
            deep(|| {
                found.extend_from_slice(module.syntax_errors());
                found.extend_from_slice(module.unknown_names());
                found.extend(self.lost_imports(file));
            });
        }
        found.extend_from_slice(self.main().module.metadata_errors());
        found
    }

    fn lost_imports(&self, File { module, source, .. }: &File) -> Vec<Finding> {
        match (&*self.files, &self.beside) {
            ([_], beside) => unreachable(module, source, beside.as_deref()),
            _ => outside(module),
        }
    }

    /// What lies beside the payload and is no part of it, as far as the payload's text has its name:
    /// in an import, or in a text that it imports by. `None` if that is nothing.
    pub fn neighbours(&self) -> Option<Neighbours> {
        let folder = self.beside.as_deref()?;
        let path = self.main().path();
        // The paths of the files of a folder begin with its name.
        let (own, depth) = match folder.join(path).is_file() {
            true => (path.split('/').next(), path.split('/').count()),
            false => (path.rsplit('/').next(), 1),
        };
        let own = own.unwrap_or_default();
        let mut modules = modules_in(folder);
        modules.remove(own.strip_suffix(".py").unwrap_or(own));
        let texts = self.files.iter().map(File::text);
        let words = texts.flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '_')));
        let words: BTreeSet<&str> = words.collect();
        modules.retain(|module| words.contains(&**module));
        let advice = name_the_folder(self.main().source_path(), depth);
        (!modules.is_empty()).then(|| Neighbours { modules: modules.into_iter().collect(), advice })
    }

    /// The names in all files that neither their file nor Python defines. Names that may be defined
    /// in a hidden way, such as by `exec` or `import *`, count as defined.
    ///
    /// They are no errors of `#[skyward::compute]`, which checks names in a [body](crate::Body) only.
    pub fn undefined_names(&self) -> Vec<Finding> {
        deep(|| self.files.iter().flat_map(|file| file.module.undefined_names(None)).collect())
    }

    /// What keeps functions at the top level of the main file from being entries, however they are
    /// declared: the [obstacles](Function::obstacles) of each. A name that means something else at the
    /// end of the file, as after `train = jit(train)`, gives no finding: a declaration with `unchecked`
    /// can name it.
    pub fn entry_findings(&self) -> Vec<Finding> {
        deep(|| {
            let meanings = Meanings::of(self);
            let names = meanings.bindings(self.main).function_names();
            let obstacles = names.iter().map(|name| match meanings.find(self.main, name, true) {
                Meaning::Function { file, function } => Function::read(meanings.bindings(file), function).obstacles(),
                Meaning::Unknown | Meaning::Other { .. } | Meaning::Nothing { .. } => Vec::new(),
            });
            Finding::first(obstacles.flatten(), |found| found)
        })
    }

    /// The function of this name in the main file, or in the file that the main file imports it
    /// from. With `unchecked`, the entry may be anything that has this name.
    ///
    /// # Errors
    ///
    /// If the main file has nothing of this name, or, without `unchecked`, something that is no
    /// `def` of the payload. The finding lists the functions of the file.
    pub fn entry(&self, name: &str, unchecked: bool) -> Result<Entry, Finding> {
        deep(|| {
            let meanings = Meanings::of(self);
            match meanings.find(self.main, name, unchecked) {
                Meaning::Function { file, function } => {
                    let joins = joins(self, file, function);
                    let function = Box::new(Function::read(meanings.bindings(file), function));
                    Ok(Entry::Function { function, joins })
                }
                Meaning::Unknown => Ok(Entry::Unknown),
                Meaning::Other { file, what, at } => Err(self.no_function(name, file, what, at)),
                Meaning::Nothing { file } => Err(no_entry(meanings.bindings(file), name)),
            }
        })
    }

    /// The fields of the class that the annotation of a function's result names; `None` if it names
    /// no class of the payload whose fields are certain.
    pub fn returned(&self, function: &Function) -> Option<Structure> {
        deep(|| returned(self.files.iter().map(|file| &*file.module), function))
    }

    fn no_function(&self, name: &str, file: usize, what: &str, at: TextRange) -> Finding {
        let location = self.files[file].module.location(at.start());
        let message = format!(
            "`{name}` is {what} ({location}), so its parameters cannot be checked: the entry is a `def` of the payload's own"
        );
        let found = Finding::new(Kind::Entry, location, message).naming_its_location();
        found.with_help("write a function that calls it, or add the option `unchecked`")
    }
}

impl File {
    /// The path that messages and tracebacks show: of a file in a folder, from the name of the folder
    /// on.
    pub fn path(&self) -> &str {
        &self.module.path
    }

    /// The path that the file was read from, relative to the root.
    pub fn source_path(&self) -> &str {
        &self.source
    }

    /// Its text, in which an encoding other than UTF-8 is named no more.
    pub fn text(&self) -> &str {
        &self.module.text
    }

    /// Whether the text is what the file holds, byte for byte.
    pub fn is_verbatim(&self) -> bool {
        self.is_verbatim
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path()).field("source", &self.source).finish_non_exhaustive()
    }
}

impl Modules for Payload {
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

/// What a name of a file stands for, however many imports away.
enum Meaning<'a> {
    Function {
        file: usize,
        function: &'a StmtFunctionDef,
    },
    /// It exists or may exist.
    Unknown,
    /// Something that is no function of the payload.
    Other {
        file: usize,
        what: &'static str,
        at: TextRange,
    },
    /// This file, and what it imports of the payload, has nothing of this name.
    Nothing {
        file: usize,
    },
}

/// What names of the files stand for. Each file is read once, for all names.
struct Meanings<'a> {
    payload: &'a Payload,
    files: Vec<OnceCell<Names<'a>>>,
}

/// The names of a file.
struct Names<'a> {
    bindings: Bindings<'a>,
    /// The files of the payload that `import *` means, each with the last `import *` of it, in the order
    /// of these.
    stars: Vec<(usize, usize)>,
    /// How many `import *` stand before the last one that means something else, and that one.
    foreign: usize,
}

impl<'a> Meanings<'a> {
    fn of(payload: &'a Payload) -> Self {
        Self { payload, files: payload.files.iter().map(|_| OnceCell::new()).collect() }
    }

    fn names(&self, file: usize) -> &Names<'a> {
        self.files[file].get_or_init(|| {
            let bindings = self.payload.files[file].module.bindings();
            let mut last = BTreeMap::new();
            let mut foreign = 0;
            for (index, star) in bindings.stars().iter().enumerate() {
                match self.payload.imported(file, star.level, star.module) {
                    Some(home) => {
                        last.insert(home, index);
                    }
                    None => foreign = index + 1,
                }
            }
            let mut stars: Vec<_> = last.into_iter().map(|(home, index)| (index, home)).collect();
            stars.sort_unstable();
            Names { bindings, stars, foreign }
        })
    }

    fn bindings(&self, file: usize) -> &Bindings<'a> {
        &self.names(file).bindings
    }

    /// Follows imports between the files. With `unchecked`, the name may stand for anything.
    fn find(&self, file: usize, name: &str, unchecked: bool) -> Meaning<'a> {
        let meaning = self.follow(file, name, unchecked, self.files.len(), &mut BTreeSet::new());
        match meaning {
            Meaning::Other { .. } if unchecked => Meaning::Unknown,
            meaning => meaning,
        }
    }

    /// Follows at most as many imports of the name, one after another, as there are hops. Each
    /// `import *` leads to a name of a file once: what is `seen` has nothing, or is looked at further
    /// out.
    fn follow(
        &self,
        file: usize,
        name: &str,
        unchecked: bool,
        hops: usize,
        seen: &mut BTreeSet<(usize, String)>,
    ) -> Meaning<'a> {
        let Names { bindings, stars, foreign } = self.names(file);
        let before = bindings.stars_before(name);
        for (_, home) in stars.iter().rev().take_while(|(index, _)| *index >= before) {
            if seen.insert((*home, name.to_owned())) {
                match self.follow(*home, name, unchecked, hops.saturating_sub(1), seen) {
                    Meaning::Nothing { .. } => {}
                    Meaning::Other { .. } if !unchecked => {}
                    found => return found,
                }
            }
        }
        let (what, at) = match bindings.find(name) {
            Some(Binding::Function(function)) => return Meaning::Function { file, function },
            Some(Binding::Import { level, module, name: original, at }) => {
                let home = self.payload.imported(file, level, module);
                if let Some(home) = home.filter(|_| hops > 0) {
                    return self.follow(home, original, unchecked, hops - 1, seen);
                }
                ("imported from elsewhere", at)
            }
            Some(Binding::Module { at, .. }) => ("a module", at),
            Some(Binding::Other { what, at }) => (what, at),
            // Nobody here knows what is in it.
            None if *foreign > before => return Meaning::Unknown,
            None => return Meaning::Nothing { file },
        };
        Meaning::Other { file, what, at }
    }
}

fn no_entry(bindings: &Bindings<'_>, name: &str) -> Finding {
    let (names, path) = (bindings.function_names(), &*bindings.module.path);
    let listed = || list(names.iter().copied());
    let rest = match nearest(name, names.iter().copied()) {
        Some(close) => format!("did you mean `{close}`? it has {}", listed()),
        None if names.is_empty() => "it has no function at its top level".to_owned(),
        None => format!("it has {}: name one with `entry = \"…\"`", listed()),
    };
    let message = format!("`{path}` has no function `{name}` at its top level");
    Finding::new(Kind::Entry, Location::file(path), message).with_help(rest)
}

#[cfg(test)]
mod tests;
