//! The production code of a crate: the files that its modules lead to, without the parts that are
//! compiled only for tests or for the fuzzer.

pub(crate) mod names;
mod paths;
mod production;

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use syn::{Expr, Item, ItemMod, Lit, Meta};

/// A file of production code.
pub(crate) struct Source {
    /// The module that the file holds: `pool::tasks`, and nothing for the root of a crate.
    pub(crate) module: String,
    pub(crate) path: PathBuf,
    /// The syntax of its production code.
    pub(crate) syntax: syn::File,
}

impl Source {
    pub(crate) fn parse(module: &str, path: &Path, text: &str) -> Result<Self> {
        let mut syntax = syn::parse_file(text)
            .map_err(|error| anyhow!("cannot parse {}:{}: {error}", path.display(), error.span().start().line))?;
        production::keep(&mut syntax);
        Ok(Self { module: module.to_owned(), path: path.to_owned(), syntax })
    }
}

/// The files of the crate with this root, `lib.rs` or `main.rs`, in the order of their paths.
///
/// # Errors
///
/// A file cannot be read or parsed, or a module has no file.
pub(crate) fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    follow(Module { name: String::new(), file: root.to_owned(), owns_folder: true }, &mut sources)?;
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(sources)
}

/// A module with a file of its own.
struct Module {
    name: String,
    file: PathBuf,
    /// Whether the modules in it lie beside the file, as with `mod.rs`, and not in a folder with
    /// its name.
    owns_folder: bool,
}

/// Where the files of the modules lie that a module declares.
struct Place<'p> {
    module: &'p str,
    /// What the attribute `path` is relative to.
    beside: &'p Path,
    below: &'p Path,
}

/// Adds the file of a module, and those that it leads to.
fn follow(module: Module, sources: &mut Vec<Source>) -> Result<()> {
    let text = fs::read_to_string(&module.file).with_context(|| format!("cannot read {}", module.file.display()))?;
    let source = Source::parse(&module.name, &module.file, &text)?;
    let beside = module.file.parent().unwrap_or(Path::new(""));
    let below = if module.owns_folder { beside.to_owned() } else { module.file.with_extension("") };
    let mut declared = Vec::new();
    declarations(&source.syntax.items, &Place { module: &module.name, beside, below: &below }, &mut declared)
        .with_context(|| format!("cannot follow the modules of {}", module.file.display()))?;
    sources.push(source);
    declared.into_iter().try_for_each(|module| follow(module, sources))
}

/// Adds the modules with files that these items declare.
fn declarations(items: &[Item], place: &Place<'_>, declared: &mut Vec<Module>) -> Result<()> {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let ident = module.ident.to_string();
        let ident = ident.strip_prefix("r#").unwrap_or(&ident);
        let name = if place.module.is_empty() { ident.to_owned() } else { format!("{}::{ident}", place.module) };
        match &module.content {
            Some((_, items)) => {
                let below = place.below.join(ident);
                declarations(items, &Place { module: &name, beside: &below, below: &below }, declared)?;
            }
            None => declared.push(file_of(name, ident, module, place)?),
        }
    }
    Ok(())
}

fn file_of(name: String, ident: &str, module: &ItemMod, place: &Place<'_>) -> Result<Module> {
    if let Some(path) = path_attribute(module) {
        return Ok(Module { name, file: without_dots(&place.beside.join(path)), owns_folder: true });
    }
    let (plain, folder) = (place.below.join(format!("{ident}.rs")), place.below.join(ident).join("mod.rs"));
    if plain.is_file() {
        return Ok(Module { name, file: plain, owns_folder: false });
    }
    if folder.is_file() {
        return Ok(Module { name, file: folder, owns_folder: true });
    }
    bail!("the module `{name}` has no file: neither {} nor {} exists", plain.display(), folder.display())
}

/// The value of `#[path = "…"]`.
fn path_attribute(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(path) => Some(path.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

/// A path without `..`, so that a file has one path.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;

    #[test]
    fn a_file_that_is_no_rust_is_named_with_the_line() {
        let error = Source::parse("a", Path::new("src/a.rs"), "fn a() {}\nfn (").err().unwrap().to_string();
        assert!(error.starts_with("cannot parse src/a.rs:2: "), "{error}");
    }

    #[test]
    fn modules_lead_to_files_but_not_to_those_of_tests() {
        let context = Context::discover().unwrap();
        let folder = context.scratch().join("sources");
        let _ = fs::remove_dir_all(&folder);
        for (path, text) in [
            ("src/lib.rs", "mod a; mod b { mod c; } #[path = \"../support/d.rs\"] mod d; #[cfg(test)] mod gone;"),
            ("src/a.rs", "mod inner; #[cfg(test)] #[path = \"a_tests.rs\"] mod tests;"),
            ("src/a/inner/mod.rs", "mod deep;"),
            ("src/a/inner/deep.rs", "pub struct Deep;"),
            ("src/b/c.rs", "pub struct C;"),
            ("src/unused.rs", "not Rust"),
            ("support/d.rs", "#[cfg(feature = \"test\")] fn kept() {}"),
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let sources = read(&folder.join("src/lib.rs")).unwrap();
        let found = sources.iter().map(|source| {
            (source.path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned(), source.module.as_str())
        });
        let expected = [
            ("src/a/inner/deep.rs", "a::inner::deep"),
            ("src/a/inner/mod.rs", "a::inner"),
            ("src/a.rs", "a"),
            ("src/b/c.rs", "b::c"),
            ("src/lib.rs", ""),
            ("support/d.rs", "d"),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected.map(|(path, module)| (path.to_owned(), module)));
        fs::write(folder.join("src/a.rs"), "mod nowhere;").unwrap();
        let error = format!("{:#}", read(&folder.join("src/lib.rs")).err().unwrap());
        assert!(error.contains("`a::nowhere` has no file") && error.contains("src/a/nowhere.rs"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
