//! Lines of production code: those on which a token begins or continues. Comments, documentation
//! and blank lines do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens as _;

use super::Lines;
use crate::context::Context;
use crate::environment::Interpreter;
use crate::process::Run;

/// How many lines have a token. A string of several lines is a token on each of them.
pub(super) fn rust(syntax: &syn::File) -> usize {
    let mut lines = BTreeSet::new();
    add_tokens(syntax.to_token_stream(), &mut lines);
    lines.len()
}

fn add_tokens(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    // The place of the last comment of documentation, which is the attribute `doc` here: all tokens
    // of the attribute have the place of the comment.
    let mut comment = None;
    for token in tokens {
        let place = token.span().byte_range();
        if matches!(&token, TokenTree::Punct(sign) if sign.as_char() == '#') && place.len() > 1 {
            comment = Some(place);
        } else if comment.as_ref() != Some(&place) {
            match token {
                TokenTree::Group(group) => {
                    add(group.span_open(), lines);
                    add_tokens(group.stream(), lines);
                    add(group.span_close(), lines);
                }
                other => add(other.span(), lines),
            }
        }
    }
}

/// Adds the lines of a token, unless the parser has added the token itself.
fn add(token: Span, lines: &mut BTreeSet<usize>) {
    if !token.byte_range().is_empty() {
        lines.extend(token.start().line..=token.end().line);
    }
}

/// The lines of the Python files of each package.
pub(super) fn python(context: &Context) -> Result<BTreeMap<String, Vec<Lines>>> {
    let files = Run::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"])
        .dir(&context.root)
        .read()
        .context("cannot list the Python files")?;
    let mut packages: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for package in &context.workspace.packages {
        let folder = package.folder().strip_prefix(&context.root).unwrap_or(package.folder());
        packages.insert(folder.to_owned(), &package.name);
    }
    let owned = files.split_terminator('\0').map(Path::new).filter_map(|file| {
        let (folder, package) = file.ancestors().find_map(|folder| packages.get_key_value(folder))?;
        is_production(file.strip_prefix(folder).ok()?).then_some((file, *package))
    });
    let owners: BTreeMap<&Path, &str> = owned.filter(|(file, _)| context.root.join(file).is_file()).collect();
    let counted = count_python(&context.root, owners.keys().copied())?;
    let mut lines: BTreeMap<String, Vec<Lines>> = BTreeMap::new();
    for (file, count) in counted {
        let package = owners.get(file.as_path()).with_context(|| format!("{SCRIPT} counts {}", file.display()))?;
        lines.entry((*package).to_owned()).or_default().push(Lines { file, lines: count });
    }
    Ok(lines)
}

/// Whether a Python file of a package is production code, by its path in the package.
fn is_production(file: &Path) -> bool {
    !OUTSIDE.iter().any(|folder| file.starts_with(folder))
}

/// The lines of Python files, as Python itself splits them into tokens.
fn count_python<'f>(root: &Path, files: impl Iterator<Item = &'f Path>) -> Result<BTreeMap<PathBuf, usize>> {
    let python = Interpreter::find()?;
    let count = Run::new(&python.path).args([root.join(SCRIPT)]).args(files).dir(root);
    let counted = count.read().context("cannot count the lines of Python")?;
    serde_json::from_str(&counted).with_context(|| format!("cannot read what {SCRIPT} prints"))
}

const SCRIPT: &str = "xtask/count/python_lines.py";
/// Folders of a package whose Python is for tests, measurements, examples or documents.
const OUTSIDE: [&str; 6] = ["tests", "benches", "examples", "docs", "python/tests", "python/bench"];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::parsed;
    use super::*;

    fn lines(text: &str) -> usize {
        rust(&parsed(&[("", text)])[0].syntax)
    }

    #[test]
    fn lines_with_tokens_count() {
        for (text, expected) in [
            ("", 0),
            ("\n\n// a\n/* b\nc */\n", 0),
            ("//! a\n/// b\n/** c\nd */\nfn a() {} // e\n", 1),
            ("/// a\n#[doc(hidden)]\nfn a() {}\n", 2),
            ("fn a() {\n    /* b */ c()\n\n}\n", 3),
            ("const A: &str = \"// no comment\";\nconst B: char = '\"'; // \"\n", 2),
            ("const A: &str = r#\"\n\n// \"no\n/* comment\n\"#;\n", 5),
            ("const A: &str = \"a \\\n    b\";\n", 2),
            ("macro_rules! a {\n    // b\n    () => {\n        c\n    };\n}\n", 5),
            ("struct A {\n    /// B.\n    b: u8,\n    // c\n    c: u8,\n}\n", 4),
            ("fn a() {\n    match b {\n        c => d,\n        e => {}\n    }\n}\n", 6),
            ("enum Ä { // ü\n    Ö,\n}\n", 3),
            ("/* /* a */\nb */ fn a() {}", 1),
        ] {
            assert_eq!(lines(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_of_tests_do_not_count() {
        let text = "\
fn a() {
    #[cfg(test)]
    b();
    c();
}

#[cfg(test)]
mod tests {
    mod inner {
        #[cfg(test)]
        mod deep {}
    }
}

mod d {
    #[cfg(not(test))]
    fn e() {}
    #[cfg(all(test, unix))]
    mod tests {
        fn f() {}
    }
}
";
        assert_eq!(lines(text), 7);
    }

    /// The tokens of the syntax tree are those of the text, so that no line is lost or added.
    #[test]
    fn the_lines_of_this_package_are_those_of_its_text() {
        let context = Context::discover().unwrap();
        for file in crate::files::below(&context.root.join("xtask/src")).unwrap() {
            let text = fs::read_to_string(context.root.join("xtask/src").join(&file)).unwrap();
            let mut expected = BTreeSet::new();
            add_tokens(text.parse().unwrap(), &mut expected);
            assert_eq!(rust(&syn::parse_file(&text).unwrap()), expected.len(), "{}", file.display());
        }
    }

    #[test]
    fn python_counts_without_comments_and_docstrings() {
        let context = Context::discover().unwrap();
        let folder = context.scratch().join("count");
        fs::create_dir_all(&folder).unwrap();
        let text = "\
#!/usr/bin/env python3
\"\"\"A module.

With a docstring.
\"\"\"

import a  # b


class A:
    \"\"\"A class.\"\"\"

    b = 1
    \"\"\"What b is.\"\"\"

    # c
    def d(self) -> str:
        '''A ''' '''function.'''
        return \"\"\"
        # no comment

        \"\"\" + f\"\"\"{self.b}
        e\"\"\"
";
        fs::write(folder.join("counted.py"), text).unwrap();
        let files = [folder.join("counted.py")];
        let counted = count_python(&context.root, files.iter().map(PathBuf::as_path)).unwrap();
        assert_eq!(counted.into_values().collect::<Vec<_>>(), [9]);
        fs::write(folder.join("counted.py"), "def a(:\n").unwrap();
        let error = format!("{:#}", count_python(&context.root, files.iter().map(PathBuf::as_path)).unwrap_err());
        assert!(error.contains("counted.py") && error.contains("line 1"), "{error}");
        fs::remove_file(&files[0]).unwrap();
    }

    #[test]
    fn python_for_tests_examples_and_measurements_is_left_out() {
        for file in ["tests/a.py", "examples/payloads/a.py", "python/tests/test_a.py", "python/bench/call.py"] {
            assert!(!is_production(Path::new(file)), "{file}");
        }
        for file in ["python/skyward/agent.py", "src/remote/bridge.py", "bench/measure.py"] {
            assert!(is_production(Path::new(file)), "{file}");
        }
    }
}
