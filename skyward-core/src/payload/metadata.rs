//! PEP 723 script metadata in a payload.

use std::borrow::Cow;

use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Image, UvSettings};

/// The requirements that a payload declares itself, in a block `# /// script`.
///
/// ```
/// # use skyward_core as skyward;
/// use indoc::indoc;
/// use skyward::payload::metadata::Metadata;
/// use skyward::spec::Image;
///
/// let metadata = Metadata::read(indoc! {r#"
///     ## /// script
///     ## requires-python = ">=3.11"
///     ## dependencies = ["scikit-learn>=1.5"]
///     ## ///
///
///     def train(): ...
/// "#})?;
/// let image = metadata.merge_into(Image::new().pip(["numpy"]))?;
/// assert_eq!(image.pip, ["numpy", "scikit-learn>=1.5"]);
/// assert_eq!(image.requires_python, [">=3.11"]);
/// # Ok::<(), skyward::Error>(())
/// ```
///
/// `[tool.uv]` counts as for `uv run --script`: its sources, indexes, constraints, overrides and
/// `exclude-newer` decide where packages come from, and a setting that cannot be applied on nodes is
/// refused by its name. Credentials of indexes belong to the image, by the name of the index. Other
/// tables below `[tool]` are for other tools, and other keys are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// `dependencies`: requirements (PEP 508).
    pub dependencies: Vec<String>,
    /// `requires-python`.
    pub requires_python: Option<String>,
    /// `[tool.uv]`.
    pub uv: UvSettings,
}

impl Metadata {
    /// Reads the metadata of a Python source. Without a script block the metadata is empty. As in
    /// PEP 723, blocks of other types and blocks without an end do not count.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Payload`], with the line in the source, if there are two blocks or the block is
    /// not TOML of the correct shape.
    pub fn read(text: &str) -> Result<Self> {
        let text = normalised(text);
        let mut scripts = blocks(&text).into_iter().filter(|block| block.kind == "script");
        let Some(script) = scripts.next() else { return Ok(Self::default()) };
        if let Some(second) = scripts.next() {
            let message = format!(
                "the payload has two blocks of script metadata, at line {} and at line {}",
                script.line, second.line
            );
            return Err(
                Error::new(ErrorKind::Payload, message).with_hint("put all of it into one `# /// script` block")
            );
        }
        let parsed: Script = toml::from_str(&script.content()).map_err(|error| {
            let offset = error.span().map_or(0, |span| script.content()[..span.start].matches('\n').count());
            let message = format!(
                "the payload's script metadata cannot be read: line {}: {}",
                script.line + 1 + offset,
                error.message().trim_end()
            );
            Error::new(ErrorKind::Payload, message).with_hint(
                "write TOML between `# /// script` and `# ///`: `# dependencies = [\"numpy>=2\"]`, \
                 `# requires-python = \">=3.11\"`",
            )
        })?;
        let uv = UvSettings::new(parsed.tool.uv);
        Ok(Self { dependencies: parsed.dependencies, requires_python: parsed.requires_python, uv })
    }

    /// Adds the metadata to an image: new requirements after the existing ones, the bound on
    /// Python's version in addition to the existing bounds, and the settings of uv.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] if a requirement is malformed, if no Python that the image allows
    /// is within all bounds, if a setting of uv cannot be applied, or if it contradicts the image or
    /// the metadata that was added before.
    pub fn merge_into(&self, mut image: Image) -> Result<Image> {
        for requirement in &self.dependencies {
            if !image.pip.contains(requirement) {
                image.pip.push(requirement.clone());
            }
        }
        if let Some(bound) = &self.requires_python
            && !image.requires_python.contains(bound)
        {
            image.requires_python.push(bound.clone());
        }
        image.uv.merge(&self.uv)?;
        if *self != Self::default() {
            image.validate()?;
        }
        Ok(image)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Script {
    #[serde(default)]
    dependencies: Vec<String>,
    requires_python: Option<String>,
    #[serde(default)]
    tool: Tool,
}

#[derive(Default, Deserialize)]
struct Tool {
    #[serde(default)]
    uv: toml::Table,
}

/// An embedded block: the lines between `# /// type` and `# ///`.
#[derive(Debug, PartialEq, Eq)]
struct Block<'a> {
    kind: &'a str,
    /// The number of the block's first line, from 1.
    line: usize,
    lines: Vec<&'a str>,
}

impl Block<'_> {
    /// The lines without the comment signs.
    fn content(&self) -> String {
        let plain = |line: &&str| format!("{}\n", line.strip_prefix("# ").unwrap_or(&line[1..]));
        self.lines.iter().map(plain).collect()
    }
}

/// The blocks of a text, as the reference implementation of PEP 723 finds them: the successive
/// matches of `(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$`. The
/// content is greedy: a block ends at the last `# ///` of the comment that contains it.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let lines: Vec<_> = text.split('\n').collect();
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(kind) = opening(lines[at]) else {
            at += 1;
            continue;
        };
        let first = at + 1;
        let comment = lines[first..].iter().take_while(|line| **line == "#" || line.starts_with("# ")).count();
        // A block has at least one line of content.
        let end = (first + 1..first + comment).rev().find(|end| lines[*end] == END);
        match end {
            Some(end) => {
                blocks.push(Block { kind, line: at + 1, lines: lines[first..end].to_vec() });
                at = end + 1;
            }
            // A block that begins later in this comment has no end either.
            None => at = first + comment,
        }
    }
    blocks
}

fn opening(line: &str) -> Option<&str> {
    let kind = line.strip_prefix("# /// ")?;
    let fits = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    fits.then_some(kind)
}

/// The text with `\n` as its only line end, as Python reads a file, and without a byte order mark.
fn normalised(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n").into() } else { text.into() }
}

const END: &str = "# ///";

#[cfg(test)]
mod tests {
    use indoc::{formatdoc, indoc};
    use proptest::prelude::*;

    use super::*;

    const REFERENCE: &str = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$";

    fn read(text: &str) -> Metadata {
        Metadata::read(text).unwrap()
    }

    fn refusal(text: &str) -> String {
        let error = Metadata::read(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Payload);
        assert!(error.hint().is_some());
        error.message().to_owned()
    }

    #[test]
    fn dependencies_and_python_are_read() {
        let text = indoc! {r#"
            #!/usr/bin/env python
            # /// script
            # requires-python = ">=3.11"
            # dependencies = [
            #   "numpy>=2",
            #
            #   "x # y",
            # ]
            # [tool.uv]
            # index-url = "x"
            # [tool.ruff]
            # line-length = 3
            # ///
            import numpy
        "#};
        let metadata = read(text);
        assert_eq!(metadata.uv.to_string(), "index-url = \"x\"\n");
        assert_eq!(metadata.requires_python.as_deref(), Some(">=3.11"));
        assert_eq!(metadata.dependencies, ["numpy>=2", "x # y"]);
        assert_eq!(read(&text.replace('\n', "\r\n")), metadata);
        assert_eq!(read(&format!("\u{feff}{}", text.split_once('\n').unwrap().1)), metadata);
    }

    #[test]
    fn texts_without_a_script_block_have_no_metadata() {
        for text in [
            "",
            "def f(): ...",
            indoc! {r#"
                # /// script
                # dependencies = ["a"]

                def f(): ...
            "#},
            indoc! {"
                # /// script
                # ///
            "},
            indoc! {r#"
                # /// pyproject
                # dependencies = ["a"]
                # ///
            "#},
            "    # /// script\n    # dependencies = [\"a\"]\n    # ///\n",
            indoc! {r#"
                # ///  script
                # dependencies = ["a"]
                # ///
            "#},
            indoc! {r#"
                # /// script
                #dependencies = ["a"]
                # ///
            "#},
            indoc! {"
                # /// script
                #
                # ///
            "},
        ] {
            assert_eq!(read(text), Metadata::default(), "{text}");
        }
    }

    #[test]
    fn a_comment_with_many_openings_is_scanned_once() {
        // One scan for each opening would take minutes.
        assert_eq!(read(&"# /// script\n".repeat(400_000)), Metadata::default());
    }

    #[test]
    fn an_error_has_the_line_in_the_source() {
        let block = indoc! {r#"
            # /// script
            # dependencies = ["a"]
            # ///
        "#};
        assert_eq!(
            refusal(&format!("x = 1\n{block}\n{block}")),
            "the payload has two blocks of script metadata, at line 2 and at line 6"
        );
        let message = refusal(indoc! {r#"


            # /// script
            # requires-python = ">=3.11"
            # dependencies = "numpy"
            # ///
        "#});
        assert!(message.contains("line 5:") && message.contains("sequence"), "{message}");
        let message = refusal(indoc! {r#"
            # /// script
            # dependencies = ["a"]
            # requires_python = ">=3.11"
            # ///
        "#});
        assert!(message.contains("line 3:") && message.contains("`requires_python`"), "{message}");
        let message = refusal("# /// script\n# [tool]\n# uv = 1\n# ///\n");
        assert!(message.contains("line 3:"), "{message}");
        let message = refusal(indoc! {"
            # /// script
            # dependencies = [
            # ///
        "});
        assert!(message.contains("line "), "{message}");
    }

    #[test]
    fn merging_adds_nothing_twice() {
        let block = indoc! {r#"
            # /// script
            # requires-python = ">=3.11"
            # dependencies = ["b", "a", "b"]
            # ///
        "#};
        let image = read(block).merge_into(Image::new().pip(["a"]).requires_python(">=3.11")).unwrap();
        assert_eq!(image.pip, ["a", "b"]);
        assert_eq!(image.requires_python, [">=3.11"]);
    }

    #[test]
    fn contradictory_bounds_are_refused() {
        let metadata = |bound: &str| Metadata { requires_python: Some(bound.to_owned()), ..Metadata::default() };
        let refused = |bound: &str, image: Image| {
            let error = metadata(bound).merge_into(image).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            error.message().to_owned()
        };
        assert!(refused(">=3.11", Image::new().python("3.10")).contains("Python 3.10"));
        assert!(refused("<3.11", Image::new().requires_python(">=3.12")).contains("`>=3.12` and `<3.11`"));
        assert!(refused("three", Image::new()).contains("`three`"));
        metadata(">=3.11,<3.14").merge_into(Image::new().python("3.12")).unwrap();
        let broken = Metadata { dependencies: vec!["numpy=2".to_owned()], ..Metadata::default() };
        assert!(broken.merge_into(Image::new()).unwrap_err().message().contains("`numpy=2`"));
    }

    fn lines() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            3 => prop::sample::select(vec!["# /// script", "# ///", "# /// test-1", "#", "# ", "", "# a = 1", "#x", "# /// scr ipt", " # ///", "# /// "]),
            1 => prop::sample::select(vec!["dependencies = []", "# \u{b}", "# \u{2028}", "#\t", "# ///\t", "# /// script "]),
        ];
        prop::collection::vec(line, 0..14).prop_map(|lines| lines.join("\n"))
    }

    proptest! {
        #[test]
        fn blocks_are_those_of_the_reference(text in lines()) {
            let reference = regex::Regex::new(REFERENCE).unwrap();
            let expected: Vec<_> = reference
                .captures_iter(&text)
                .map(|found| (found["type"].to_owned(), found["content"].to_owned()))
                .collect();
            let found: Vec<_> = blocks(&text)
                .iter()
                .map(|block| (block.kind.to_owned(), block.lines.iter().map(|line| format!("{line}\n")).collect()))
                .collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>(), block in any::<String>()) {
            let _ = Metadata::read(&text);
            let _ = Metadata::read(&formatdoc! {"
                # /// script
                # {block}
                # ///
            "});
        }
    }
}
