//! What the modules of a Python package import, as Python's own parser reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};

use super::imports::Imports;
use crate::environment::Interpreter;
use crate::process::Run;

/// The imports between the modules of the package in this folder, by their names in the package.
pub(super) fn imports(root: &Path, package: &Path) -> Result<Imports> {
    let python = Interpreter::find()?;
    let read = Run::new(&python.path).args([root.join(SCRIPT)]).args([package]).dir(root);
    let printed = read.read().context("cannot read the imports of Python")?;
    let imports: BTreeMap<String, BTreeSet<String>> =
        serde_json::from_str(&printed).with_context(|| format!("cannot read what {SCRIPT} prints"))?;
    let named = |module: String| module.replace('.', "::");
    Ok(imports.into_iter().map(|(from, to)| (named(from), to.into_iter().map(named).collect())).collect())
}

const SCRIPT: &str = "xtask/modules/python_imports.py";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::context::Context;

    /// The imports of a package of these files, `from>to`.
    fn read(name: &str, files: &[(&str, &str)]) -> Result<Vec<String>> {
        let context = Context::discover().unwrap();
        let folder = context.scratch().join("modules").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        for (file, text) in files {
            let path = folder.join("p").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let imports = imports(&context.root, &folder.join("p"))?;
        let circles = imports.circles("").into_iter().map(|circle| format!("circle {}", circle.join(" ")));
        Ok(imports.edges().map(|(from, to)| format!("{from}>{to}")).chain(circles).collect())
    }

    #[test]
    fn each_form_of_import_is_found() {
        for (number, text) in [
            "from . import b",
            "from .b import Thing",
            "from .b import *",
            "from ..room import b as other",
            "from p.room import b",
            "from p.room.b import Thing",
            "import os, p.room.b as b",
            "def f():\n    from .b import Thing",
            "if TYPE_CHECKING:\n    from .b import Thing",
            "class A:\n    try:\n        from . import b\n    except ImportError:\n        pass",
        ]
        .into_iter()
        .enumerate()
        {
            let files =
                [("__init__.py", ""), ("room/__init__.py", ""), ("room/a.py", text), ("room/b.py", "Thing = 1")];
            assert_eq!(read(&format!("form{number}"), &files).unwrap(), ["room::a>room::b"], "{text}");
        }
    }

    #[test]
    fn what_is_no_module_belongs_to_the_module_that_has_it() {
        let files = [
            ("__init__.py", "from .a import f"),
            ("a.py", "import json\nfrom os import path\nimport pp.b"),
            ("room/__init__.py", "from .. import f, a\nfrom ..a import f"),
        ];
        assert_eq!(read("names", &files).unwrap(), [">a", "room>", "room>a"]);
    }

    #[test]
    fn an_import_within_a_function_closes_a_circle() {
        let files = [
            ("__init__.py", ""),
            ("a.py", "from . import b"),
            ("b.py", "def f():\n    from .room import c"),
            ("room/__init__.py", ""),
            ("room/c.py", "if TYPE_CHECKING:\n    from ..a import Thing"),
            ("room/d.py", "from . import c"),
        ];
        let found = read("circle", &files).unwrap();
        assert_eq!(found, ["a>b", "b>room::c", "room::c>a", "room::d>room::c", "circle a b room::c"]);
    }

    #[test]
    fn a_file_that_is_no_python_is_named() {
        for text in ["def f(:\n", "from ... import a\n"] {
            let error = format!("{:#}", read("broken", &[("__init__.py", ""), ("a.py", text)]).unwrap_err());
            assert!(error.contains("a.py cannot be read"), "{error}");
        }
    }
}
