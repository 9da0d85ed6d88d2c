//! The same pages in the crate's documentation, as `skyward::guide`: what their links lead to
//! there.
//!
//! A page names its links, `[pools][pools.md#size]`, and says at its end where they lead. Of two
//! definitions of a name the first counts, so a table before the page has them lead elsewhere: to
//! the module of a page, to the repository, and for a picture to the picture itself, since the
//! documentation holds no files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::generated::Generated;
use super::markdown::{Kind, links};
use super::repository::Repository;
use crate::context::Context;
use crate::step::Checks;

/// The modules of the guide, by the page that each one shows.
pub(super) struct Guide(BTreeMap<String, String>);

impl Guide {
    pub(super) fn read(context: &Context) -> Result<Self> {
        let text = fs::read_to_string(context.root.join(MODULES)).with_context(|| format!("cannot read {MODULES}"))?;
        let mut modules = BTreeMap::new();
        let mut page = None;
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("include_str!(\"../docs/") {
                page = rest.split_once('"').map(|(page, _)| page.to_owned());
            } else if let Some(module) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(" {}"))
                && let Some(page) = page.take()
            {
                modules.insert(page, module.to_owned());
            }
        }
        ensure!(!modules.is_empty(), "{MODULES} shows no page");
        Ok(Self(modules))
    }

    /// The tables that are put before the pages.
    pub(super) fn tables(&self, context: &Context, checks: &mut Checks) -> Result<[Generated; 2]> {
        let repository = Repository::of(context)?;
        let mut names = BTreeSet::new();
        for page in self.0.keys() {
            let path = context.root.join("docs").join(page);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let found = links(&text);
            let used =
                |wanted: &str| found.iter().any(|link| matches!(&link.kind, Kind::Use { name } if name == wanted));
            for link in &found {
                let outside = link.target.contains("://") || link.target.starts_with('#');
                match &link.kind {
                    Kind::Inline if !outside => checks.fail(format!(
                        "docs/{page} is shown in the crate's documentation, where its link to {0} leads nowhere; \
                         write `[…][{0}]` and define it at the end of the page",
                        link.target
                    )),
                    Kind::Use { name } if link.target.is_empty() => {
                        checks.fail(format!("docs/{page} uses {name}, and does not define it"));
                    }
                    Kind::Definition { name } if *name != link.target => {
                        checks.fail(format!("docs/{page} calls {} by another name, {name}", link.target));
                    }
                    Kind::Definition { name } if !used(name) => {
                        checks.fail(format!("docs/{page} defines {name}, and does not use it"));
                    }
                    Kind::Definition { name } => drop(names.insert(name.clone())),
                    _ => {}
                }
            }
        }
        let (mut table, mut pictures) = (String::new(), String::new());
        for name in names {
            let (file, heading) = name.split_once('#').map_or((&*name, ""), |(file, heading)| (file, heading));
            if let Some(module) = self.0.get(file) {
                let heading = if heading.is_empty() { String::new() } else { format!("#{heading}") };
                writeln!(table, "[{name}]: crate::guide::{module}{heading}")?;
            } else if file.ends_with(".svg") {
                let picture = fs::read_to_string(context.root.join("docs").join(file))?;
                writeln!(pictures, "[{name}]: data:image/svg+xml,{}", encoded(&picture))?;
            } else {
                writeln!(table, "[{name}]: {}", repository.address("docs", &name))?;
            }
        }
        Ok([(TABLE, table), (PICTURES, pictures)]
            .map(|(path, text)| Generated { path: context.root.join(path), text: text + "\n" }))
    }
}

/// A picture as part of an address.
fn encoded(picture: &str) -> String {
    utf8_percent_encode(picture.trim_end(), UNSAFE).to_string()
}

/// What an address in angle brackets or in an attribute cannot hold.
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'(').add(b')');
/// The modules of the guide.
pub(crate) const MODULES: &str = "src/guide.rs";
const TABLE: &str = "src/guide/links.md";
const PICTURES: &str = "src/guide/pictures.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_encoded_as_an_address_needs_it() {
        assert_eq!(encoded("<a b='#'/>\n"), "%3Ca%20b='%23'/%3E");
    }

    #[test]
    fn modules_are_named_by_their_pages() {
        let guide = Guide::read(&Context::discover().unwrap()).unwrap();
        assert_eq!(guide.0["ssh-hosts.md"], "ssh_hosts");
    }
}
