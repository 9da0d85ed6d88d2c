//! Imports that no worker can do: of files that are no part of the payload.

use std::path::Path;

use ruff_python_ast::Stmt;
use ruff_python_ast::visitor::Visitor;
use ruff_text_size::{Ranged as _, TextRange};

use super::branches::{walk_certain_stmt, walk_reached};
use super::finding::{Finding, Kind};
use super::libraries::is_library;
use super::metadata::dependencies;
use super::module::Module;

/// An import that a worker may run and that the code around it does not expect to fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    /// The dots before the name.
    level: u32,
    /// The module, with all parts of its name.
    module: String,
    range: TextRange,
}

/// The imports of a module, in the order of the text.
pub(super) fn imports(statements: &[Stmt]) -> Vec<Import> {
    let mut reader = Reader(Vec::new());
    reader.visit_body(statements);
    reader.0
}

/// The imports of a payload's only file that fail: relative ones, because it is in no package, and
/// those of what lies beside the file, if `folder`, where it lies, is known. `source` is the path that a
/// declaration writes.
pub(super) fn unreachable(module: &Module, source: &str, folder: Option<&Path>) -> Vec<Finding> {
    let own = stem(&module.path);
    let declared = dependencies(&module.text);
    let is_beside = |name: &str| {
        folder.is_some_and(|folder| {
            folder.join(format!("{name}.py")).is_file() || folder.join(name).join("__init__.py").is_file()
        })
    };
    let package = package_depth(module, folder);
    let found = module.imports().iter().filter_map(|import| {
        if import.level > 0 {
            let written = format!("{}{}", ".".repeat(import.level as usize), import.module);
            let message = format!("`{written}` is a relative import, and a payload of one file is in no package");
            return Some((import, message, package, ""));
        }
        let name = import.module.split('.').next().unwrap_or_default();
        let is_package = || name == own || is_library(name) || declared.iter().any(|declared| declared == name);
        if name.is_empty() || is_package() || !is_beside(name) {
            return None;
        }
        let message = format!("`{name}` is a file or folder beside `{}`, and no part of this payload", module.path);
        Some((import, message, 1, "; if a package of this name is meant, declare it in the metadata (PEP 723)"))
    });
    Finding::first(found, |(import, message, depth, otherwise)| {
        let found = module.finding(Kind::Import, import.range, message);
        found.with_help(format!("{}{otherwise}", name_the_folder(source, depth)))
    })
}

/// How many folders above the file its relative imports reach, or its outermost package is if that is
/// more.
fn package_depth(module: &Module, folder: Option<&Path>) -> usize {
    let levels = module.imports().iter().map(|import| import.level as usize).max().unwrap_or_default();
    let ancestors = folder.into_iter().flat_map(Path::ancestors);
    levels.max(ancestors.take_while(|folder| folder.join("__init__.py").is_file()).count())
}

/// The imports of a file in a folder that lead out of it.
pub(super) fn outside(module: &Module) -> Vec<Finding> {
    let depth = module.path.split('/').count() - 1;
    let package = module.path.split('/').next().unwrap_or_default();
    let found = module.imports().iter().filter(|import| import.level as usize > depth);
    Finding::first(found, |import| {
        let message = format!("this relative import leads out of `{package}`, the package that the payload is");
        let found = module.finding(Kind::Import, import.range, message);
        found.with_help("name a folder that holds both, or import with fewer dots")
    })
}

/// What to do about a file that needs others of the folder that is so many levels above it.
pub(super) fn name_the_folder(path: &str, depth: usize) -> String {
    match path.rmatch_indices('/').nth(depth - 1).map(|(at, _)| (&path[..at], &path[at + 1..])) {
        Some((folder, file)) if !folder.ends_with("..") => {
            format!("name the folder: `python = \"{folder}\", main = \"{file}\"`")
        }
        _ => format!("put the files into a folder, and name the folder: `python = \"…\", main = \"{}\"`", last(path)),
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn stem(path: &str) -> &str {
    let file = last(path);
    file.strip_suffix(".py").unwrap_or(file)
}

struct Reader(Vec<Import>);

impl<'a> Visitor<'a> for Reader {
    fn visit_body(&mut self, body: &'a [Stmt]) {
        walk_reached(self, body);
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(import) => self.0.extend(import.names.iter().map(|alias| Import {
                level: 0,
                module: alias.name.to_string(),
                range: alias.name.range(),
            })),
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or_else(String::new, ToString::to_string);
                let range = if import.level == 0 {
                    import.module.as_ref().map_or(import.range, |module| module.range())
                } else {
                    import.range
                };
                self.0.push(Import { level: import.level, module, range });
            }
            _ => walk_certain_stmt(self, statement, &ABSENCE),
        }
    }
}

/// What an import of something that is not there raises.
const ABSENCE: [&str; 6] =
    ["BaseException", "Exception", "ImportError", "ModuleNotFoundError", "SystemError", "ValueError"];

#[cfg(test)]
mod tests {
    use super::super::module::Lines;
    use super::super::version::Target;
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let module = Module::parse("jobs/train.py", text, Lines::Own, Target::oldest());
        unreachable(&module, "jobs/train.py", None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn relative_imports_of_a_single_file_fail() {
        for text in [
            "from . import model\n",
            "from .model import Net\n",
            "def f():\n    from .model import Net\n",
            "try:\n    from .model import Net\nexcept KeyError:\n    pass\n",
        ] {
            let found = messages(text);
            assert!(found.len() == 1 && found[0].contains("in no package"), "{text}: {found:?}");
            assert!(found[0].ends_with("`python = \"jobs\", main = \"train.py\"`"), "{text}: {found:?}");
        }
    }

    #[test]
    fn the_folder_to_name_holds_all_that_the_file_imports() {
        let named = |path: &str, text: &str, folder: Option<&Path>| {
            let module = Module::parse(path, text, Lines::Own, Target::oldest());
            unreachable(&module, path, folder)[0].to_string()
        };
        let text = "from .a import b\nfrom ..model import c\n";
        assert!(named("x/jobs/fit/train.py", text, None).ends_with("`python = \"x/jobs\", main = \"fit/train.py\"`"));
        assert!(named("jobs/train.py", text, None).contains("put the files into a folder"));
        // The outermost package counts as well: its other files may import from further up.
        let root = std::env::temp_dir().join(format!("skyward-imports-{}", std::process::id()));
        let inner = root.join("outer/inner");
        std::fs::create_dir_all(&inner).unwrap();
        for folder in [&inner, &root.join("outer")] {
            std::fs::write(folder.join("__init__.py"), "").unwrap();
        }
        let found = named("outer/inner/train.py", "from .a import b\n", Some(&inner));
        assert!(found.ends_with("`python = \"outer\", main = \"inner/train.py\"`"), "{found}");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn imports_that_may_fail_or_never_run_are_left_alone() {
        for text in [
            "import model\n",
            "try:\n    from .model import Net\nexcept ImportError:\n    Net = None\n",
            "if TYPE_CHECKING:\n    from .model import Net\n",
            "if __name__ == '__main__':\n    from .model import Net\n",
        ] {
            assert_eq!(messages(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn imports_lead_no_further_out_than_the_folder() {
        let outside = |path: &str, text: &str| outside(&Module::parse(path, text, Lines::Own, Target::oldest())).len();
        assert_eq!(outside("p/__init__.py", "from .a import b\n"), 0);
        assert_eq!(outside("p/__init__.py", "from ..a import b\n"), 1);
        assert_eq!(outside("p/q/r.py", "from ..a import b\n"), 0);
        assert_eq!(outside("p/q/r.py", "from ...a import b\n"), 1);
    }
}
