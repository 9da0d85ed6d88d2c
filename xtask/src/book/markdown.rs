//! Links and quoted blocks of a Markdown page, with where they are in its text.

use std::ops::Range;

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser, Tag};

/// A link of a page, or the definition of one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) kind: Kind,
    /// Where it leads; nothing where its name is not defined.
    pub(crate) target: String,
    /// Where the target stands in the text; of a use of a definition, where the link does.
    pub(crate) at: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `[label](target)`
    Inline,
    /// `[label][name]`
    Use { name: String },
    /// `[name]: target`
    Definition { name: String },
}

/// All links and pictures of a page, in their order, then its definitions.
pub(crate) fn links(text: &str) -> Vec<Link> {
    // A name that is not defined would make text of its link.
    let undefined = |link: BrokenLink<'_>| {
        let whole = matches!(link.link_type, LinkType::Reference | LinkType::ReferenceUnknown);
        whole.then_some((CowStr::from(""), CowStr::from("")))
    };
    let parser = Parser::new_with_broken_link_callback(text, Options::ENABLE_TABLES, Some(undefined));
    let mut definitions: Vec<Link> = parser
        .reference_definitions()
        .iter()
        .map(|(name, definition)| {
            let at = within(text, &definition.span, &definition.dest);
            let name = name.to_owned();
            Link { kind: Kind::Definition { name }, target: definition.dest.to_string(), at }
        })
        .collect();
    definitions.sort_by_key(|definition| definition.at.start);
    let mut found = Vec::new();
    for (event, span) in parser.into_offset_iter() {
        let (Event::Start(Tag::Link { link_type, dest_url, id, .. })
        | Event::Start(Tag::Image { link_type, dest_url, id, .. })) = event
        else {
            continue;
        };
        let (kind, at) = match link_type {
            LinkType::Inline => (Kind::Inline, within(text, &span, &dest_url)),
            _ => (Kind::Use { name: id.into_string() }, span),
        };
        found.push(Link { kind, target: dest_url.into_string(), at });
    }
    found.extend(definitions);
    found
}

/// Where a target stands in its link, of which it is the last part.
fn within(text: &str, link: &Range<usize>, target: &str) -> Range<usize> {
    let begin = link.start + text[link.clone()].rfind(target).unwrap_or_default();
    begin..begin + target.len()
}

/// The page with other targets: `replace` says what takes the place of one, if anything does.
pub(crate) fn with_targets(text: &str, mut replace: impl FnMut(&str) -> Option<String>) -> String {
    let mut found: Vec<Link> = links(text).into_iter().filter(|link| !matches!(link.kind, Kind::Use { .. })).collect();
    found.sort_by_key(|link| link.at.start);
    let mut changed = String::with_capacity(text.len());
    let mut copied = 0;
    for link in found {
        if let Some(target) = replace(&link.target) {
            changed.push_str(&text[copied..link.at.start]);
            changed.push_str(&target);
            copied = link.at.end;
        }
    }
    changed.push_str(&text[copied..]);
    changed
}

/// A fenced block under a comment that says where it is from: `<!-- from FILE -->`, `<!-- printed
/// by PROGRAM -->`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Quote<'a> {
    /// The words of the comment.
    pub(crate) source: &'a str,
    /// The line number of its first line.
    pub(crate) line: usize,
    /// What the block shows or hides, without the `# ` before what it hides.
    pub(crate) text: String,
}

/// The blocks of a page that such a comment stands above.
pub(crate) fn quotes(text: &str) -> Vec<Quote<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, pair) in lines.windows(2).enumerate() {
        let comment = pair[0].strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let (Some(source), true) = (comment, pair[1].starts_with("```")) else { continue };
        let block = lines[at + 2..].iter().take_while(|line| !line.starts_with("```"));
        let rust = pair[1].starts_with("```rust");
        let shown = block.filter(|line| !(rust && (line.starts_with("# ") || **line == "#")));
        let text = shown.flat_map(|line| [line, "\n"]).collect();
        found.push(Quote { source, line: at + 3, text });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_where_they_are_no_code() {
        let text = "[a](b.md#c) `[d](e)` [`f`][g] ![p][q] [no][such]\n\n```\n[h](i)\n```\n[two\nlines](j.md) x[0]\n\n\
                    [g]: ../k.rs\n";
        let found: Vec<_> = links(text).into_iter().map(|link| (link.kind, link.target)).collect();
        let used = |name: &str| Kind::Use { name: name.to_owned() };
        let expected = [
            (Kind::Inline, "b.md#c".to_owned()),
            (used("g"), "../k.rs".to_owned()),
            (used("q"), String::new()),
            (used("such"), String::new()),
            (Kind::Inline, "j.md".to_owned()),
            (Kind::Definition { name: "g".to_owned() }, "../k.rs".to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn targets_are_replaced_in_place() {
        let text = "b [b](b) and [c](d) and [e][f]\n\n[f]: b\n";
        let replaced = with_targets(text, |target| (target == "b").then(|| "new".to_owned()));
        assert_eq!(replaced, "b [b](new) and [c](d) and [e][f]\n\n[f]: new\n");
    }

    #[test]
    fn quotes_name_their_source() {
        let text = "<!-- from a.rs -->\n```rust,no_run\n# hidden\nshown\n```\n\n```text\nnone\n```\n";
        assert_eq!(quotes(text), [Quote { source: "from a.rs", line: 3, text: "shown\n".into() }]);
    }
}
