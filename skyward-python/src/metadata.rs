//! PEP 723 metadata: TOML in comments between `# /// script` and `# ///`.

use toml::Value;

/// What is wrong with a file's metadata: the line, counted from 1, and a message. Nothing for a
/// file without metadata.
pub(crate) fn check(text: &str) -> Vec<(usize, String)> {
    let (script, mut errors) = find(text);
    if let Some(script) = script {
        check_toml(&script, &mut errors);
    }
    errors.sort();
    errors
}

/// `requires-python` where it is a text, with its line, counted from 1.
pub(crate) fn requires_python(text: &str) -> Option<(usize, String)> {
    let script = find(text).0?;
    let table: toml::Table = toml::from_str(&script.text()).ok()?;
    let value = table.get(REQUIRES_PYTHON)?.as_str()?.to_owned();
    Some((script.line_of(REQUIRES_PYTHON), value))
}

/// The names of the packages among its dependencies, as an import writes them.
pub(crate) fn dependencies(text: &str) -> Vec<String> {
    let table = find(text).0.and_then(|script| toml::from_str::<toml::Table>(&script.text()).ok());
    let listed = table.as_ref().and_then(|table| table.get(DEPENDENCIES)?.as_array());
    let names = listed.into_iter().flatten().filter_map(Value::as_str).map(|requirement| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let end = requirement.find(|c| !is_of_name(c)).unwrap_or(requirement.len());
        requirement[..end].replace(['-', '.'], "_")
    });
    names.collect()
}

/// The lines between `# /// script` and `# ///`.
struct Script<'a> {
    /// The number of its first line, from 1.
    first_line: usize,
    lines: Vec<&'a str>,
}

impl Script<'_> {
    /// The TOML, without the comment signs.
    fn text(&self) -> String {
        let plain = self.lines.iter().map(|line| line.strip_prefix("# ").unwrap_or(&line[1..]));
        plain.flat_map(|line| [line, "\n"]).collect()
    }

    fn line_of(&self, key: &str) -> usize {
        let found = self.lines.iter().position(|line| line[1..].trim_start().starts_with(key));
        self.first_line + found.unwrap_or(0)
    }
}

/// The metadata, and what is wrong with its limits. As in the specification, a block without an end,
/// or with spaces behind one of its limits, is a comment like any other.
fn find(text: &str) -> (Option<Script<'_>>, Vec<(usize, String)>) {
    let lines: Vec<&str> = text.lines().collect();
    let mut errors = Vec::new();
    let mut found: Option<Script<'_>> = None;
    let mut next = 0;
    while let Some(start) = (next..lines.len()).find(|line| opens(lines[*line])) {
        let comments = lines[start + 1..].iter().take_while(|line| is_comment(line)).count();
        let inside = &lines[start + 1..start + 1 + comments];
        // The last closing line of the comment holds: TOML may contain one. A block that begins later
        // in a comment without one has no end either.
        let Some(end) = inside.iter().rposition(|line| *line == CLOSE).filter(|end| *end > 0) else {
            next = start + 1 + comments;
            continue;
        };
        next = start + 1 + end + 1;
        if lines[start] != OPEN {
            continue;
        }
        if let Some(first) = &found {
            let line = first.first_line - 1;
            errors.push((start + 1, format!("there is metadata in line {line} already: keep one of them")));
            continue;
        }
        found = Some(Script { first_line: start + 2, lines: inside[..end].to_vec() });
    }
    (found, errors)
}

fn check_toml(script: &Script<'_>, errors: &mut Vec<(usize, String)>) {
    let text = script.text();
    let table: toml::Table = match toml::from_str(&text) {
        Ok(table) => table,
        Err(error) => {
            let offset = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..offset].matches('\n').count().min(script.lines.len().max(1) - 1);
            let message = error.message().trim().replace('\n', ", ");
            return errors.push((script.first_line + line, format!("the metadata is not TOML: {message}")));
        }
    };
    match table.get(DEPENDENCIES) {
        Some(Value::Array(items)) if items.iter().all(Value::is_str) => {}
        Some(_) => errors.push((
            script.line_of(DEPENDENCIES),
            format!("`{DEPENDENCIES}` is a list of requirements: `{DEPENDENCIES} = [\"numpy>=2\"]`"),
        )),
        None => {}
    }
    if table.get(REQUIRES_PYTHON).is_some_and(|value| !value.is_str()) {
        let message = format!("`{REQUIRES_PYTHON}` is a text: `{REQUIRES_PYTHON} = \">=3.11\"`");
        errors.push((script.line_of(REQUIRES_PYTHON), message));
    }
}

/// Whether a block begins here, of this or another type.
fn opens(line: &str) -> bool {
    let kind = line.strip_prefix("# /// ").unwrap_or_default();
    !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_comment(line: &str) -> bool {
    line == "#" || line.starts_with("# ")
}

const OPEN: &str = "# /// script";
const CLOSE: &str = "# ///";
const DEPENDENCIES: &str = "dependencies";
const REQUIRES_PYTHON: &str = "requires-python";

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::*;

    #[test]
    fn good_metadata_and_none_are_accepted() {
        for text in [
            "",
            "import x\n",
            indoc! {"
                # /// script
                # requires-python = '>=3.11'
                # dependencies = [
                #   'numpy',
                # ]
                #
                # [tool.uv]
                # ///
            "},
            "#!/usr/bin/env python3\n# /// script\r\n# dependencies = []\r\n# ///\r\n",
        ] {
            assert_eq!(check(text), [], "{text}");
        }
    }

    #[test]
    fn what_the_specification_takes_for_no_block_is_a_comment() {
        for text in [
            "import x\n# /// script\n# dependencies = 1\nimport y\n",
            "# /// script\n# dependencies = 1\n",
            "# /// script\n# dependencies = 1\n#\n\n# ///\n",
            "# /// script\n# dependencies = 1\n# /// \n",
            "# /// script \n# dependencies = 1\n# ///\n",
            "# /// script\n#dependencies = 1\n# ///\n",
            "# /// script\n# ///\n",
            "# /// other\n# dependencies = 1\n# /// script\n# dependencies = 1\n# ///\n",
            "# /// script\n# /// script\n# dependencies = 1\n",
        ] {
            assert!(check(text).is_empty(), "{text}");
            assert_eq!(requires_python(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        for (text, line, words) in [
            (
                indoc! {"
                    # /// script
                    # dependencies = [
                    # 'numpy'
                    # ///
                "},
                3,
                "not TOML",
            ),
            (
                indoc! {"

                    # /// script
                    # a = 1
                    # a = 2
                    # ///
                "},
                4,
                "not TOML",
            ),
            (
                indoc! {"
                    # /// script
                    # dependencies = 'numpy'
                    # ///
                "},
                2,
                "list of requirements",
            ),
            (
                indoc! {"
                    # /// script
                    # dependencies = [1]
                    # ///
                "},
                2,
                "list of requirements",
            ),
            (
                indoc! {"
                    # /// script
                    # x = 1
                    # requires-python = 3.11
                    # ///
                "},
                3,
                "is a text",
            ),
            (
                indoc! {"
                    # /// script
                    # x = 1
                    # ///

                    # /// script
                    # x = 1
                    # ///
                "},
                5,
                "in line 1 already",
            ),
        ] {
            let errors = check(text);
            assert_eq!(errors.len(), 1, "{text}: {errors:?}");
            assert_eq!(errors[0].0, line, "{text}: {errors:?}");
            assert!(errors[0].1.contains(words), "{text}: {errors:?}");
        }
    }
}
