//! Settings of uv in the metadata of payloads (`[tool.uv]`), and their checks.

use std::fmt;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::image_check::{CREDENTIALS, has_password, invalid};
use super::requirement::{normalised, requirement_name};
use super::{Image, Python};
use crate::error::Result;

/// Settings of uv, as the metadata of a payload has them in `[tool.uv]`.
///
/// uv itself applies them when it builds the environment, as `uv run --script` does. Settings that
/// it cannot apply on a node are refused by [`Image::validate`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UvSettings(Table);

/// Equality is reflexive except for a float that is no number, which no setting of uv takes.
impl Eq for UvSettings {}

impl UvSettings {
    pub(crate) fn new(table: Table) -> Self {
        Self(table)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn table(&self) -> &Table {
        &self.0
    }

    /// Adds the settings of another payload. The sources of each package are a setting of their own.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        for (key, value) in &other.0 {
            match (self.0.get_mut(key), value) {
                (None, _) => drop(self.0.insert(key.clone(), value.clone())),
                (Some(Value::Table(own)), Value::Table(sources)) if key == SOURCES => {
                    for (package, source) in sources {
                        let known = own.entry(package.clone()).or_insert_with(|| source.clone());
                        check_agree(&format!("{SOURCES}.{package}"), known, source)?;
                    }
                }
                (Some(known), _) => check_agree(key, known, value)?,
            }
        }
        Ok(())
    }

    /// The additional indexes, each with its name, or with none.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = (Option<&str>, &Table)> {
        let listed = self.0.get(INDEX).and_then(Value::as_array).into_iter().flatten();
        listed.filter_map(Value::as_table).map(|index| (text(index, "name"), index))
    }

    /// Whether they name the index for all packages that have none of their own.
    pub(crate) fn has_default_index(&self) -> bool {
        self.0.contains_key("index-url") || self.indexes().any(|(_, index)| is_set(index, "default"))
    }

    /// Whether packages may come from an index without being bound to it.
    pub(crate) fn has_open_index(&self) -> bool {
        self.indexes().any(|(_, index)| !is_set(index, "explicit"))
    }

    /// The sources, each with the name of its package.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (String, &Value)> {
        let sources = self.0.get(SOURCES).and_then(Value::as_table);
        sources.into_iter().flatten().map(|(package, source)| (normalised(package), source))
    }
}

/// The settings as TOML.
impl fmt::Display for UvSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks the settings, by themselves and together with the image.
pub(super) fn check(image: &Image) -> Result<()> {
    let settings = &image.uv;
    if settings.is_empty() {
        return Ok(());
    }
    for (key, value) in &settings.0 {
        if strings(value).iter().any(|text| has_password(text)) {
            // The error must not repeat the text, which contains a secret.
            return Err(
                invalid(format!("`{key}` in `[tool.uv]` has a user or password in an address")).with_hint(CREDENTIALS)
            );
        }
        check_key(key)?;
    }
    if let Python::Interpreter(path) = &image.python {
        let message = format!(
            "`[tool.uv]` of a payload decides which packages are installed, and nothing is installed for the interpreter {}",
            path.display()
        );
        return Err(invalid(message).with_hint(
            "remove `[tool.uv]` from the payload, or let Skyward build an environment: `.python(\"auto\")`",
        ));
    }
    check_addresses(settings)?;
    check_indexes(image)?;
    settings.sources().try_for_each(|(package, source)| check_source(image, &package, source))
}

fn check_key(key: &str) -> Result<()> {
    if TAKEN.contains(&key) || [INDEX, SOURCES].contains(&key) {
        return Ok(());
    }
    let refused = REFUSED.iter().find(|(keys, ..)| keys.contains(&key));
    let (why, hint) = refused.map_or((UNKNOWN.0, UNKNOWN.1), |(_, why, hint)| (*why, *hint));
    Err(invalid(format!("`{key}` in `[tool.uv]` of a payload cannot be applied: {why}")).with_hint(hint))
}

/// Checks that no index is a folder of this host.
fn check_addresses(settings: &UvSettings) -> Result<()> {
    let listed =
        ["index-url", "extra-index-url", "find-links"].iter().filter_map(|key| Some((*key, settings.0.get(*key)?)));
    let listed = listed.flat_map(|(key, value)| strings(value).into_iter().map(move |url| (key, url)));
    let indexes = settings.indexes().filter_map(|(_, index)| Some((INDEX, text(index, "url")?)));
    match listed.chain(indexes).find(|(_, url)| !url.contains("://")) {
        Some((key, url)) => {
            Err(invalid(format!("`{key}` in `[tool.uv]` names `{url}`, which is a folder of this host")).with_hint(
                "nodes need an address: `https://host/simple`, or `file:///folder` for a folder that each node has",
            ))
        }
        None => Ok(()),
    }
}

fn check_indexes(image: &Image) -> Result<()> {
    for (name, index) in image.uv.indexes() {
        let same = image.indexes.iter().find(|own| Some(own.name.as_str()) == name);
        if let Some(own) = same.filter(|own| text(index, "url") != Some(own.url.as_str())) {
            let message = format!("the image and `[tool.uv]` of a payload have different indexes `{}`", own.name);
            return Err(invalid(message).with_hint("give one of them another name, or remove it"));
        }
    }
    match &image.default_index {
        Some(url) if image.uv.has_default_index() => {
            Err(invalid(format!("the image has the default index {url}, and `[tool.uv]` of a payload has another one"))
                .with_hint("remove one of them"))
        }
        _ => Ok(()),
    }
}

fn check_source(image: &Image, package: &str, source: &Value) -> Result<()> {
    let parts: Vec<&Table> = match source {
        Value::Array(parts) => parts.iter().filter_map(Value::as_table).collect(),
        source => source.as_table().into_iter().collect(),
    };
    let named = format!("`sources.{package}` in `[tool.uv]` of a payload");
    if let Some(key) = parts.iter().flat_map(|part| part.keys()).find(|key| LOCAL.contains(&key.as_str())) {
        return Err(invalid(format!("{named} has `{key}`, which is a folder of this host that the nodes do not have"))
            .with_hint("give the package by `git`, `url` or `index`, or include its folder: `.include(\"folder\")`"));
    }
    for index in parts.iter().filter_map(|part| text(part, INDEX)) {
        let known = image.uv.indexes().filter_map(|(name, _)| name);
        let known: Vec<_> = known.chain(image.indexes.iter().map(|index| index.name.as_str())).collect();
        if !known.contains(&index) {
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            return Err(invalid(format!(
                "{named} names the index `{index}`, which neither the payload nor the image has"
            ))
            .with_hint(format!("their indexes are: {known}; add `[[tool.uv.index]]` with this name")));
        }
    }
    let owner = image.indexes.iter().find(|index| index.packages.iter().any(|owned| normalised(owned) == package));
    if let Some(owner) = owner.filter(|owner| !parts.iter().all(|part| text(part, INDEX) == Some(&owner.name))) {
        return Err(invalid(format!("{named} is another source than the index `{}` of the image", owner.name))
            .with_hint("keep one of them; a plugin may have added the index"));
    }
    // uv applies a source only to a package that is listed, and leaves out others without a word.
    if image.pip.iter().any(|requirement| requirement_name(requirement).as_deref() == Ok(package)) {
        return Ok(());
    }
    Err(invalid(format!("{named} has no effect: no requirement names `{package}`"))
        .with_hint(format!("list it, also where another package needs it: `dependencies = [\"{package}\"]`")))
}

fn check_agree(key: &str, known: &Value, other: &Value) -> Result<()> {
    if known == other {
        return Ok(());
    }
    let (known, other) = match strings(known).iter().chain(&strings(other)).any(|text| has_password(text)) {
        true => ("…".into(), "…".into()),
        false => (known.to_string(), other.to_string()),
    };
    Err(invalid(format!("two payloads of the pool disagree about `{key}` in `[tool.uv]`: {known} and {other}"))
        .with_hint("all payloads of a pool share one environment: write the same in both, or use two pools"))
}

fn text<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    table.get(key).and_then(Value::as_str)
}

fn is_set(table: &Table, key: &str) -> bool {
    table.get(key).and_then(Value::as_bool) == Some(true)
}

/// All texts in a value.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Table(table) => table.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

const INDEX: &str = "index";
const SOURCES: &str = "sources";

/// What a source names on the host of the client.
const LOCAL: [&str; 4] = ["path", "workspace", "editable", "package"];

/// The other settings that `uv run --script` takes from a script, and uv here too.
const TAKEN: &[&str] = &[
    "allow-insecure-host",
    "build-constraint-dependencies",
    "compile-bytecode",
    "concurrent-builds",
    "concurrent-downloads",
    "concurrent-installs",
    "config-settings",
    "config-settings-package",
    "constraint-dependencies",
    "dependency-metadata",
    "exclude-dependencies",
    "exclude-newer",
    "exclude-newer-package",
    "extra-build-dependencies",
    "extra-build-variables",
    "extra-index-url",
    "find-links",
    "fork-strategy",
    "http-proxy",
    "https-proxy",
    "index-strategy",
    "index-url",
    "keyring-provider",
    "link-mode",
    "native-tls",
    "no-binary",
    "no-binary-package",
    "no-build",
    "no-build-isolation",
    "no-build-isolation-package",
    "no-build-package",
    "no-cache",
    "no-index",
    "no-proxy",
    "offline",
    "override-dependencies",
    "prerelease",
    "prerelease-package",
    "preview",
    "preview-features",
    "python-downloads",
    "python-downloads-json-url",
    "python-install-mirror",
    "python-preference",
    "reinstall",
    "reinstall-package",
    "require-build-hashes",
    "required-version",
    "resolution",
    "system-certs",
    "torch-backend",
    "upgrade",
    "upgrade-package",
];

/// The other settings of uv, with the reason and what to do instead.
const REFUSED: &[(&[&str], &str, &str)] = &[
    (
        &["cache-dir"],
        "it names a folder of this host",
        "remove it; a machine has its own folder: the variable UV_CACHE_DIR there",
    ),
    (
        &["no-sources", "no-sources-package"],
        "it would also disable the indexes to which the image binds packages",
        "remove it, and the sources that must not apply",
    ),
    (&["pip"], "`uv run --script` does not take it", "write its settings directly below `[tool.uv]`"),
    (
        &["cache-keys", "conflicts", "build-backend", "default-groups", "dependency-groups", "dev-dependencies"],
        OF_PROJECT.0,
        OF_PROJECT.1,
    ),
    (
        &["environments", "managed", "minimum-libc-version", "package", "required-environments", "workspace"],
        OF_PROJECT.0,
        OF_PROJECT.1,
    ),
    (
        &["add-bounds", "audit", "check-url", "publish-url", "trusted-publishing"],
        "it is for commands that change or publish a project",
        "remove it",
    ),
    (&["graalpy-install-mirror", "pypy-install-mirror", "pyodide-install-mirror"], "workers run CPython", "remove it"),
];
const OF_PROJECT: (&str, &str) = (
    "it belongs to a project, and `uv run --script` does not take it from a script",
    "remove it; the packages of a payload are its `dependencies`",
);
const UNKNOWN: (&str, &str) = (
    "Skyward knows no such setting of uv",
    "check its spelling in uv's reference of settings; if uv has it, set its variable UV_… on the machines instead",
);

#[cfg(test)]
mod tests;
