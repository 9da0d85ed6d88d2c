//! Checks of an image that need no machine and no network.

use std::path::{Component, Path};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::requirement::{check_specifiers, normalised, requirement_name, satisfies};
use super::{Image, PackageIndex, Python, uv};
use crate::error::{Error, ErrorKind, Result};

pub(super) fn check(image: &Image) -> Result<()> {
    check_python(image)?;
    for requirement in &image.pip {
        check_requirement(requirement)?;
    }
    if let Some(url) = &image.default_index {
        check_url(Image::DEFAULT_INDEX, url)?;
    }
    check_indexes(&image.indexes)?;
    uv::check(image)?;
    for name in image.credentials.keys() {
        let of_payloads = || image.uv.indexes().filter_map(|(name, _)| name);
        let known =
            || image.indexes.iter().map(|index| index.name.as_str()).chain(of_payloads()).chain([Image::DEFAULT_INDEX]);
        if !known().any(|index| index == name) {
            let message = format!("there are credentials for the index `{name}`, which the image does not have");
            let hint = format!("its indexes are: {}", known().collect::<Vec<_>>().join(", "));
            return Err(invalid(message).with_hint(hint));
        }
    }
    for package in &image.apt {
        check_apt(package)?;
    }
    for (key, value) in &image.env {
        check_variable(key, value)?;
    }
    for (key, value) in &image.secrets {
        check_variable(key, value.expose())?;
        if image.env.contains_key(key) {
            return Err(invalid(format!("the variable `{key}` is set twice: with `.env` and with `.secret`"))
                .with_hint("set it once, with `.secret` if its value must stay hidden"));
        }
    }
    for file in &image.files {
        check_target(&file.source, &file.target)?;
    }
    patterns(&image.exclude, Path::new(""))?;
    let mut targets: Vec<_> = image.files.iter().map(|file| file.target.trim_end_matches('/')).collect();
    targets.sort_unstable();
    match targets.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(invalid(format!("two files have the same place, `{}`", twice[0]))
            .with_hint("give one of them another path: `.file(source, \"other/name\")`")),
        None => Ok(()),
    }
}

fn check_python(image: &Image) -> Result<()> {
    for specifiers in &image.requires_python {
        check_specifiers(specifiers).map_err(|why| {
            invalid(format!("`{specifiers}` is not a bound on Python's version: {why}"))
                .with_hint("write it as `>=3.10,<3.14`")
        })?;
    }
    match &image.python {
        Python::Interpreter(path) if image.writable => {
            let message = format!("the image is writable, and {} is used as it is", path.display());
            Err(invalid(message).with_hint(
                "leave out `.writable(true)`, or give a version, so that Skyward builds an environment: `.python(\"3.12\")`",
            ))
        }
        Python::Auto => check_bounds_agree(image, (10..64).map(|minor| format!("3.{minor}"))),
        Python::Interpreter(path) if path.is_absolute() => Ok(()),
        Python::Interpreter(path) => Err(invalid(format!("the interpreter's path {} is relative", path.display()))
            .with_hint("give the absolute path that it has on the machine: `/usr/bin/python3`")),
        Python::Version(version) => {
            let parts: Vec<_> = version.split('.').collect();
            let plain = (2..=3).contains(&parts.len()) && parts.iter().all(|part| part.parse::<u16>().is_ok());
            if !plain {
                return Err(invalid(format!("`{version}` is not a version of Python"))
                    .with_hint("write `3.12` or `3.12.1`, `auto`, or the absolute path of an interpreter"));
            }
            if satisfies(version, OLDEST) == Some(false) {
                return Err(invalid(format!("Python {version} is too old: the worker needs {OLDEST}"))
                    .with_hint("ask for a newer version: `.python(\"3.12\")`"));
            }
            // `3.12` is any 3.12.x, so only a bound that none of them meets contradicts it.
            let latest = if parts.len() == 2 { format!("{version}.{}", u32::MAX) } else { version.clone() };
            let unmet =
                |bound: &&String| satisfies(version, bound) == Some(false) && satisfies(&latest, bound) == Some(false);
            match image.requires_python.iter().find(unmet) {
                Some(bound) => {
                    Err(invalid(format!("the image asks for Python {version}, and the payload requires {bound}"))
                        .with_hint("change one of them, or let Skyward find a suitable version: `.python(\"auto\")`"))
                }
                None if parts.len() == 2 => check_bounds_agree(image, [version.clone()]),
                None => Ok(()),
            }
        }
    }
}

/// Checks that one release of these versions (`3.12`) meets all bounds together.
fn check_bounds_agree(image: &Image, versions: impl IntoIterator<Item = String>) -> Result<()> {
    let bounds = &image.requires_python;
    let meets_all = |release: String| bounds.iter().all(|bound| satisfies(&release, bound) != Some(false));
    let mut releases = versions.into_iter().flat_map(|version| (0..64).map(move |patch| format!("{version}.{patch}")));
    if bounds.is_empty() || releases.any(meets_all) {
        return Ok(());
    }
    let bounds: Vec<_> = bounds.iter().map(|bound| format!("`{bound}`")).collect();
    let asked = match &image.python {
        Python::Version(version) => format!("Python {version}"),
        _ => format!("Python {OLDEST}"),
    };
    Err(invalid(format!("no release of {asked} meets {}", bounds.join(" and ")))
        .with_hint("the bounds come from `requires-python` of payloads and from the image; change one of them"))
}

fn check_requirement(requirement: &str) -> Result<()> {
    if has_password(requirement) {
        // The error must not repeat the text, which contains a secret.
        return Err(invalid("a requirement has a user or password in its address").with_hint(CREDENTIALS));
    }
    requirement_name(requirement).map(|_| ()).map_err(|why| {
        invalid(format!("`{requirement}` is not a requirement: {why}"))
            .with_hint("write it as `name`, `name>=1.2,<2` or `name[extra]==1.2`")
    })
}

fn check_indexes(indexes: &[PackageIndex]) -> Result<()> {
    let mut owners: Vec<(String, &str)> = Vec::new();
    for (at, index) in indexes.iter().enumerate() {
        let name = index.name.as_str();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return Err(invalid(format!("`{name}` cannot be an index's name"))
                .with_hint("use letters, digits, `-`, `_` and `.`"));
        }
        if name == Image::DEFAULT_INDEX {
            return Err(invalid(format!("an index cannot have the name `{name}`"))
                .with_hint("give it another name, or set the default index: `.default_index(url)`"));
        }
        if indexes[..at].iter().any(|other| other.name == index.name) {
            return Err(
                invalid(format!("two indexes have the name `{name}`")).with_hint("give one of them another name")
            );
        }
        check_url(name, &index.url)?;
        for package in &index.packages {
            let package = normalised(package);
            if let Some((_, other)) = owners.iter().find(|(owned, _)| *owned == package) {
                let message = format!("`{package}` must come only from `{other}` and only from `{name}`");
                return Err(invalid(message).with_hint("list the package for one of the two indexes alone"));
            }
            owners.push((package, name));
        }
    }
    Ok(())
}

fn check_url(name: &str, url: &str) -> Result<()> {
    if has_password(url) {
        return Err(
            invalid(format!("the address of the index `{name}` has a user or password in it")).with_hint(CREDENTIALS)
        );
    }
    let known =
        ["https://", "http://", "file://"].iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme));
    if known && !url.contains(char::is_whitespace) {
        Ok(())
    } else {
        Err(invalid(format!("`{url}` is not the address of an index")).with_hint("write it as `https://host/simple`"))
    }
}

/// Whether the text contains an http address with a user.
pub(super) fn has_password(text: &str) -> bool {
    text.split("http").skip(1).any(|rest| {
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        let authority = rest.strip_prefix("://").and_then(|rest| rest.split(['/', '?', '#']).next());
        authority.is_some_and(|authority| authority.contains('@'))
    })
}

fn check_apt(package: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.:".contains(c);
    if package.len() > 1 && package.starts_with(|c: char| c.is_ascii_alphanumeric()) && package.chars().all(plain) {
        Ok(())
    } else {
        Err(invalid(format!("`{package}` is not the name of a Debian package"))
            .with_hint("write one name in each string, without a version: `.apt([\"git\", \"libgl1\"])`"))
    }
}

/// The variable by which an image sets the level of Python's `logging`.
const LOG_LEVEL: &str = "SKYWARD_LOG_LEVEL";
const LEVELS: [&str; 5] = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];

fn check_variable(key: &str, value: &str) -> Result<()> {
    let plain = !key.is_empty()
        && !key.starts_with(|c: char| c.is_ascii_digit())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !plain {
        return Err(invalid(format!("`{key}` cannot be the name of an environment variable"))
            .with_hint("use letters, digits and `_`, and no digit first"));
    }
    if key == LOG_LEVEL {
        if LEVELS.contains(&value) {
            return Ok(());
        }
        return Err(invalid(format!("`{value}` is not a level of Python's `logging`"))
            .with_hint(format!("`{LOG_LEVEL}` can be one of {}", LEVELS.join(", "))));
    }
    if key.starts_with("SKYWARD_") {
        return Err(invalid(format!("the variable `{key}` belongs to the worker itself"))
            .with_hint("names that begin with SKYWARD_ are reserved; use another name"));
    }
    if value.contains('\0') {
        return Err(invalid(format!("the value of `{key}` contains a zero byte"))
            .with_hint("an environment variable cannot hold a zero byte"));
    }
    Ok(())
}

/// What these patterns leave out of a folder.
pub(super) fn patterns(patterns: &[String], folder: &Path) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new(folder);
    for pattern in patterns {
        let wrong = |why: String| {
            invalid(format!("`{pattern}` is no pattern of files: {why}"))
                .with_hint("write one in each string, as in a `.gitignore` file: `.exclude([\"*.lock\", \".git\"])`")
        };
        if pattern.trim().is_empty() || pattern.starts_with('#') || pattern.contains(['\n', '\0']) {
            return Err(wrong("it would leave out nothing".into()));
        }
        builder.add_line(None, pattern).map_err(|error| wrong(error.to_string()))?;
    }
    builder.build().map_err(|error| invalid("the patterns of `.exclude` are too large").with_source(error))
}

fn check_target(source: &Path, target: &str) -> Result<()> {
    // `Image::include` takes the name of the source.
    if source.file_name().is_some_and(|name| name.to_str().is_none() && name.to_string_lossy() == target) {
        let message = format!("the name of {} is not UTF-8, so it cannot be written as a target", source.display());
        return Err(invalid(message).with_hint("give it a name on the node: `.file(source, \"name\")`"));
    }
    let inside = !target.is_empty()
        && !target.contains('\0')
        && Path::new(target).components().all(|part| matches!(part, Component::Normal(_)));
    if inside {
        return Ok(());
    }
    let message = format!("{} would be copied to `{target}`, outside the workers' working folder", source.display());
    Err(invalid(message).with_hint("give a relative path without `..`: `.file(source, \"data/digits.csv\")`"))
}

pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidSpec, message)
}

/// The versions of Python that the worker runs on.
pub(crate) const OLDEST: &str = ">=3.10";
pub(super) const CREDENTIALS: &str =
    "addresses are shown in messages; pass user and password apart: `.credentials(\"index name\", user, password)`";

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn an_image_with_all_parts_is_valid() {
        Image::new()
            .python("3.12")
            .pip(["keras[jax]==3.15.1", "numpy >= 2"])
            .default_index("https://example.com/simple")
            .index(PackageIndex::new("pytorch", "https://example.com/whl/cpu").only(["torch"]))
            .credentials("pytorch", "me", "x")
            .credentials(Image::DEFAULT_INDEX, "me", "x")
            .apt(["libgl1", "g++"])
            .env("OMP_NUM_THREADS", "1")
            .file("/data/a.csv", "data/a.csv")
            .requires_python(">=3.10")
            .requires_python("<3.13")
            .validate()
            .unwrap();
        Image::new().python("3.12").requires_python(">=3.12.4").validate().unwrap();
        Image::new().requires_python(">=3.11,!=3.11.*").requires_python("~=3.12").validate().unwrap();
    }

    #[test]
    fn every_mistake_is_named_with_a_hint() {
        let index = |name: &str, url: &str| Image::new().index(PackageIndex::new(name, url));
        for (image, words) in [
            (Image::new().pip(["numpy=2"]), "`numpy=2` is not a requirement"),
            (Image::new().python("three"), "not a version of Python"),
            (Image::new().python("3"), "not a version of Python"),
            (Image::new().python("3.9"), "too old"),
            (Image::new().python("bin/python"), "is relative"),
            (Image::new().python("/usr/bin/python3").writable(true), "/usr/bin/python3 is used as it is"),
            (Image::new().python("3.12").requires_python(">=3.13"), "payload requires >=3.13"),
            (Image::new().python("3.12.1").requires_python(">=3.12.4"), "payload requires >=3.12.4"),
            (Image::new().requires_python("3.12"), "not a bound"),
            (Image::new().requires_python("<3.10"), "no release of Python >=3.10 meets `<3.10`"),
            (Image::new().requires_python(">=3.12").requires_python("<3.12"), "meets `>=3.12` and `<3.12`"),
            (
                Image::new().python("3.12").requires_python(">=3.12.4").requires_python("<3.12.4"),
                "no release of Python 3.12",
            ),
            (index("", "https://x"), "cannot be an index's name"),
            (index("a b", "https://x"), "cannot be an index's name"),
            (index("default", "https://x"), "cannot have the name"),
            (index("a", "example.com/simple"), "not the address of an index"),
            (index("a", "https://me:pw@x/simple"), "user or password"),
            (Image::new().default_index("ftp://x"), "not the address of an index"),
            (Image::new().pip(["x @ https://tok@h/x.whl"]), "user or password"),
            (index("a", "https://x").index(PackageIndex::new("a", "https://y")), "two indexes"),
            (
                index("a", "https://x")
                    .index(PackageIndex::new("b", "https://y").only(["Q"]))
                    .index(PackageIndex::new("c", "https://z").only(["q"])),
                "only from `b` and only from `c`",
            ),
            (Image::new().credentials("nope", "me", "x"), "does not have"),
            (Image::new().apt(["git curl"]), "not the name of a Debian package"),
            (Image::new().apt(["-y"]), "not the name of a Debian package"),
            (Image::new().env("A-B", "1"), "environment variable"),
            (Image::new().env("1A", "1"), "environment variable"),
            (Image::new().env("SKYWARD_LISTEN_FD", "1"), "belongs to the worker"),
            (Image::new().env("SKYWARD_LOG_LEVEL", "loud"), "`loud` is not a level"),
            (Image::new().env("A", "\0"), "zero byte"),
            (Image::new().secret("A-B", "pw@tok@"), "environment variable"),
            (Image::new().secret("SKYWARD_RANK", "pw@tok@"), "belongs to the worker"),
            (Image::new().secret("A", "pw@tok@\0"), "zero byte"),
            (Image::new().env("A", "1").secret("A", "pw@tok@"), "set twice"),
            (Image::new().file("/a", "/etc/passwd"), "outside"),
            (Image::new().file("/a", "x/../../y"), "outside"),
            (Image::new().file("/a", ""), "outside"),
            (Image::new().include("/"), "outside"),
            (Image::new().include(OsStr::from_bytes(b"/data/caf\xe9")), "is not UTF-8"),
            (Image::new().exclude([""]), "leave out nothing"),
            (Image::new().exclude(["# a comment"]), "leave out nothing"),
            (Image::new().exclude(["*.lock\n.git"]), "leave out nothing"),
            (Image::new().exclude(["a[z-a]"]), "`a[z-a]` is no pattern"),
            (Image::new().file("/a", "x").file("/b", "x/"), "two files"),
        ] {
            let error = image.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
            assert!(error.message().contains(words), "{words}: {error}");
            assert!(error.hint().is_some(), "{error}");
            assert!(!format!("{error:#}").contains("pw@"), "{error}");
            assert!(!format!("{error:#}").contains("tok@"), "{error}");
        }
    }
}
