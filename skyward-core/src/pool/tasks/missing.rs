//! The hint for a module that code on a node imports and that the node does not have.
//!
//! It names a package to install only if the worker's table or a list of the user's own has the
//! package: another name may belong to no package, or to somebody else's.

use crate::payload::Source;
use crate::payload::metadata::Metadata;
use crate::spec::requirement::{normalised, requirement_name};
use crate::worker::message::Missing;

/// What to do about the module. `source` is that of the payload; a hook has none. `image` has the
/// requirements of the image.
pub(super) fn hint(missing: &Missing, source: Option<&Source>, image: &[String]) -> String {
    let Missing { module, package, there, lies, installed, standard } = missing;
    let top = module.split('.').next().unwrap_or_default();
    let names = [Some(top), package.as_deref()].map(|name| name.map(normalised));
    let is_meant = |requirement: &&String| requirement_name(requirement).is_ok_and(|name| names.contains(&Some(name)));
    if let Some(files) = source.and_then(|source| own_files(source, top)) {
        return format!(
            "the payload has no module `{module}`; its files are {files}. Cargo embeds a new file when another one \
             changes"
        );
    }
    if let (Some(there), None) = (there, package) {
        return format!(
            "`{top}` is on the node, in `{there}`, and has no module `{module}`: compare its version with the one \
             that the code was written for"
        );
    }
    if let Some(requirement) = image.iter().find(is_meant) {
        return match installed {
            Some(installed) => format!(
                "the image lists `{requirement}`, and `{installed}` is installed, but has no module `{module}`: look \
                 up which modules the package has"
            ),
            None => format!(
                "the image lists `{requirement}`, and the node has no package of this name: see whether its marker \
                 excludes the node, and whether the payload has changed `sys.path`"
            ),
        };
    }
    if let Some(listed) = source.and_then(|source| listed(source, is_meant)) {
        return listed;
    }
    let add = package.as_ref().map(|package| {
        let metadata = if source.is_some() { ", or to the payload's PEP 723 `dependencies`" } else { "" };
        format!("add the package to the pool's image, `.image(Image::new().pip([\"{package}\"]))`{metadata}")
    });
    match (source.and_then(|source| source.beside(top)), add) {
        (Some(advice), None) => return format!("`{top}` lies beside the payload, and is no part of it: {advice}"),
        (Some(advice), Some(add)) => {
            return format!(
                "`{top}` lies beside the payload, and is no part of it: {advice}; if the package is meant, {add}"
            );
        }
        (None, Some(add)) => return add,
        (None, None) => {}
    }
    if let Some(lies) = lies {
        let importable = lies.trim_end_matches(".py").replace('/', ".");
        let folder = lies.split('/').next().unwrap_or_default();
        return format!(
            "the working folder of the node has `{lies}`: import it as `{importable}`, or add the folder to Python's \
             path, `.env(\"PYTHONPATH\", \"{folder}\")`"
        );
    }
    if let Some(installed) = installed {
        return format!(
            "`{installed}` is installed, but has no module `{module}`: look up which modules the package has"
        );
    }
    if standard.is_some() {
        return format!(
            "`{top}` belongs to Python's own library, and the Python of the node is built without it: choose another \
             one, `.python(\"3.12\")`, unless the module is for another operating system"
        );
    }
    let files = source.map(|source| format!("no file of the payload ({}), ", shown_files(source))).unwrap_or_default();
    let own = if source.is_some() {
        "name its folder, `python = \"…\"`, or copy it to the node"
    } else {
        "copy it to the node"
    };
    format!(
        "{files}no file in the node's working folder and no installed package has the name `{top}`: if it is a file of \
         your own, {own}, `.include(\"…\")`; otherwise add the package that contains it to the image"
    )
}

/// The files of a payload of several files, if the module is one that they would have.
fn own_files(source: &Source, top: &str) -> Option<String> {
    let is_own = |path: &str| path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'));
    let is_package = source.files().len() > 1 && source.files().iter().any(|file| is_own(&file.path));
    is_package.then(|| shown_files(source))
}

/// What to do if the metadata of a file lists the package. The pool reads that of the main file, and
/// only of a payload that is declared.
fn listed(source: &Source, is_meant: impl Fn(&&String) -> bool) -> Option<String> {
    source.files().iter().find_map(|file| {
        let metadata = Metadata::read(&file.text).ok()?;
        let requirement = metadata.dependencies.iter().find(&is_meant)?;
        let path = &file.path;
        Some(if file.path == source.main() {
            format!(
                "the `# /// script` block of `{path}` lists `{requirement}`, and the pool has not read it: declare the \
                 payload on the builder, `.payload::<…>()` or `.payload_of(&call)`"
            )
        } else {
            format!(
                "the `# /// script` block of `{path}` lists `{requirement}`, and only that of the file with the entry \
                 counts: move it to `{}`",
                source.main()
            )
        })
    })
}

fn shown_files(source: &Source) -> String {
    let files = source.files();
    let mut shown: Vec<_> = files.iter().take(MOST_FILES).map(|file| format!("`{}`", file.path)).collect();
    if files.len() > MOST_FILES {
        shown.push(format!("{} more", files.len() - MOST_FILES));
    }
    shown.join(", ")
}

const MOST_FILES: usize = 8;

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::*;
    use crate::payload::SourceFile;

    const LISTED: &str = indoc! {r#"
        # /// script
        # dependencies = ["scikit-learn>=1.5", "my.tool"]
        # ///
    "#};

    fn missing(module: &str) -> Missing {
        Missing { module: module.into(), ..Missing::default() }
    }

    fn of_table(module: &str, package: &str) -> Missing {
        Missing { package: Some(package.into()), ..missing(module) }
    }

    fn one(text: &'static str) -> Source {
        Source::file("train.py", text, "train")
    }

    fn folder(text: &'static str) -> Source {
        let file = |path: &'static str, text: &'static str| SourceFile { path: path.into(), text: text.into() };
        Source::package("jobs/fit.py", vec![file("jobs/fit.py", ""), file("jobs/model.py", text)], "fit")
    }

    #[test]
    fn a_package_that_nobody_has_checked_is_never_named() {
        for module in ["no_such_thing", "modle", "a.b"] {
            for source in [Some(one("")), None] {
                let hint = hint(&missing(module), source.as_ref(), &["numpy".to_owned()]);
                assert!(!hint.contains(".pip(") && !hint.contains("no-such-thing"), "{hint}");
                assert!(hint.contains("no installed package has the name"), "{hint}");
                assert_eq!(hint.contains("no file of the payload (`train.py`)"), source.is_some(), "{hint}");
            }
        }
        let known = hint(&of_table("sklearn", "scikit-learn"), Some(&one("")), &[]);
        assert!(known.contains(".pip([\"scikit-learn\"])") && known.contains("PEP 723"), "{known}");
        let hook = hint(&of_table("sklearn", "scikit-learn"), None, &[]);
        assert!(hook.contains(".pip([\"scikit-learn\"])") && !hook.contains("PEP 723"), "{hook}");
    }

    #[test]
    fn a_list_of_a_payload_that_is_not_declared_is_named() {
        for found in [of_table("sklearn", "scikit-learn"), missing("my_tool"), missing("my_tool.part")] {
            let hint = hint(&found, Some(&one(LISTED)), &[]);
            assert!(hint.contains("block of `train.py` lists `") && hint.contains(".payload::<…>()"), "{hint}");
        }
        let other = hint(&missing("other"), Some(&one(LISTED)), &[]);
        assert!(!other.contains("lists"), "{other}");
        let second = hint(&missing("my_tool"), Some(&folder(LISTED)), &[]);
        assert!(second.contains("`jobs/model.py` lists `my.tool`") && second.contains("to `jobs/fit.py`"), "{second}");
    }

    #[test]
    fn a_list_that_the_pool_has_read_is_not_advised_again() {
        let image = ["My-Tool>1; sys_platform == 'win32'".to_owned()];
        let excluded = hint(&missing("my_tool"), Some(&one(LISTED)), &image);
        assert!(excluded.contains("the image lists `My-Tool>1;") && excluded.contains("marker"), "{excluded}");
        let found = Missing { installed: Some("my_tool 1.2".into()), ..missing("my_tool") };
        let installed = hint(&found, Some(&one(LISTED)), &image);
        assert!(installed.contains("`my_tool 1.2` is installed, but has no module `my_tool`"), "{installed}");
        let unlisted = hint(&found, None, &[]);
        assert!(unlisted.starts_with("`my_tool 1.2` is installed, but"), "{unlisted}");
    }

    #[test]
    fn what_lies_beside_the_payload_is_named_before_a_package() {
        let source = one("").lying_beside(&["model", "evaluate"], "name the folder");
        let own = hint(&missing("model.net"), Some(&source), &[]);
        assert_eq!(own, "`model` lies beside the payload, and is no part of it: name the folder");
        let either = hint(&of_table("evaluate", "evaluate"), Some(&source), &[]);
        assert!(either.contains(": name the folder; if the package is meant, add the package"), "{either}");
        let neither = hint(&missing("models"), Some(&source), &[]);
        assert!(!neither.contains("beside"), "{neither}");
    }

    #[test]
    fn what_the_node_has_is_told() {
        let there = Missing { there: Some("/env/numpy".into()), ..missing("numpy.nothere") };
        let text = hint(&there, Some(&one("")), &["numpy".to_owned()]);
        assert!(
            text.starts_with("`numpy` is on the node, in `/env/numpy`, and has no module `numpy.nothere`"),
            "{text}"
        );
        let namespace = Missing { package: Some("protobuf".into()), module: "google.protobuf".into(), ..there };
        assert!(hint(&namespace, None, &[]).contains("\"protobuf\""));
        let lies = Missing { lies: Some("src/helper.py".into()), ..missing("helper") };
        let text = hint(&lies, Some(&one("")), &[]);
        assert!(text.contains("import it as `src.helper`") && text.contains("\"PYTHONPATH\", \"src\""), "{text}");
        let standard = Missing { standard: Some("yes".into()), ..missing("_tkinter") };
        assert!(hint(&standard, Some(&one("")), &[]).contains("Python's own library"));
    }

    #[test]
    fn a_missing_file_of_the_payload_itself_lists_its_files() {
        let text = hint(&missing("jobs.nothere"), Some(&folder("")), &[]);
        assert!(text.contains("no module `jobs.nothere`; its files are `jobs/fit.py`, `jobs/model.py`"), "{text}");
        let many = (0..12).map(|at| SourceFile { path: format!("p/{at}.py").into(), text: "".into() }).collect();
        let text = hint(&missing("p.nothere"), Some(&Source::package("p/0.py", many, "f")), &[]);
        assert!(text.contains("`p/7.py`, 4 more") && !text.contains("p/8.py"), "{text}");
    }
}
