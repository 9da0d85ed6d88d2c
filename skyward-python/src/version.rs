//! The version of Python that a payload is checked against: the oldest one that may run it.

use ruff_python_ast::PythonVersion;

use super::metadata;

/// A version of Python, and why it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) version: PythonVersion,
    declared: Option<Declared>,
}

/// `requires-python`, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Declared {
    place: String,
    specifiers: String,
}

impl Target {
    /// The oldest Python that nodes run.
    pub(crate) fn oldest() -> Self {
        Self { version: OLDEST, declared: None }
    }

    /// The oldest Python that the metadata of a payload's main file allows; `place` shows a line of
    /// that file.
    pub(crate) fn of(text: &str, place: impl FnOnce(usize) -> String) -> Self {
        let Some((line, specifiers)) = metadata::requires_python(text) else { return Self::oldest() };
        let version = oldest_allowed(&specifiers);
        Self { version, declared: Some(Declared { place: place(line), specifiers }) }
    }

    /// What to do about syntax that only `needed` has.
    pub(super) fn advice(&self, needed: &str) -> String {
        let version = self.version;
        match &self.declared {
            None => format!(
                "nodes may have Python {version}, the oldest that payloads run on: write it for {version}, or say \
                 `# requires-python = \">={needed}\"` in the metadata (PEP 723) at the top of the Python"
            ),
            Some(Declared { place, specifiers }) => format!(
                "`requires-python = \"{specifiers}\"` ({place}) allows Python {version}: write it for {version}, or \
                 raise that to \">={needed}\""
            ),
        }
    }
}

/// The oldest version of Python 3 that meets all specifiers (PEP 440) and that nodes can run. For
/// specifiers that cannot be read, or that no known release meets, it is the newest version of the
/// parser, so that the payload is not refused for them.
fn oldest_allowed(specifiers: &str) -> PythonVersion {
    let clauses: Option<Vec<Clause>> =
        specifiers.split(',').map(str::trim).filter(|it| !it.is_empty()).map(Clause::parse).collect();
    let Some(clauses) = clauses else { return PythonVersion::latest() };
    let newest = PythonVersion::latest_preview().minor;
    (OLDEST.minor..=newest)
        .find(|minor| {
            // A release of this minor version that all of them allow.
            (0..=LAST_PATCH).any(|patch| clauses.iter().all(|clause| clause.allows([3, u64::from(*minor), patch])))
        })
        .map_or(PythonVersion::latest(), |minor| PythonVersion { major: 3, minor })
}

/// One of the specifiers: `>=3.11`.
struct Clause {
    operator: &'static str,
    /// The numbers of the version, as many as are written.
    version: Vec<u64>,
    /// Whether the version ends in `.*`.
    prefix: bool,
}

impl Clause {
    fn parse(text: &str) -> Option<Self> {
        let operator = OPERATORS.into_iter().find(|operator| text.starts_with(operator))?;
        let written = text[operator.len()..].trim();
        let (numbers, prefix) = match written.strip_suffix(".*") {
            Some(numbers) => (numbers, true),
            None => (written, false),
        };
        let mut version = Vec::new();
        for part in numbers.split('.').take(3) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            version.push(digits.parse().ok()?);
            // A pre-release such as `3.12.0rc1` counts as its release, which is close enough.
            if digits.len() < part.len() {
                break;
            }
        }
        Some(Self { operator, version, prefix })
    }

    fn allows(&self, release: [u64; 3]) -> bool {
        let mut full = [0; 3];
        full[..self.version.len()].copy_from_slice(&self.version);
        let begins = release.starts_with(&self.version);
        match self.operator {
            ">=" => release >= full,
            "<=" => release <= full,
            "~=" => release >= full && release.starts_with(&self.version[..self.version.len().saturating_sub(1)]),
            "==" | "===" if self.prefix => begins,
            "==" | "===" => release == full,
            "!=" if self.prefix => !begins,
            "!=" => release != full,
            ">" => release > full,
            _ => release < full,
        }
    }
}

/// As in the image of a pool.
pub(super) const OLDEST: PythonVersion = PythonVersion::PY310;

/// Longer ones come before those that they begin with.
const OPERATORS: [&str; 8] = ["===", "==", "!=", "~=", ">=", "<=", ">", "<"];

/// No minor version has had as many releases.
const LAST_PATCH: u64 = 40;

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::*;

    #[test]
    fn the_oldest_python_that_is_allowed_counts() {
        for (specifiers, minor) in [
            (">=3.11", 11),
            (">=3", 10),
            (">=3.9", 10),
            (">=3.9,<3.13", 10),
            (">= 3.12 , < 3.14", 12),
            (">3.11", 11),
            (">3.11.99", 12),
            ("~=3.12", 12),
            ("~=3.12.4", 12),
            ("==3.13.*", 13),
            ("==3.12", 12),
            ("==3.12.3", 12),
            ("===3.12.3", 12),
            ("!=3.10.*", 11),
            (">=3.10,!=3.10.*,!=3.11.*", 12),
            (">=3.12rc1", 12),
            (">=3.13.0a1,<4", 13),
            (">=3.14", 14),
            (">=3.15", 15),
            ("<3.12", 10),
            // Nothing meets them, and the pool says so.
            ("<3.10", 14),
            ("==3.12.400", 14),
            // Not understood.
            ("three", 14),
            (">=x", 14),
            ("", 10),
        ] {
            assert_eq!(oldest_allowed(specifiers).minor, minor, "{specifiers}");
        }
    }

    #[test]
    fn the_advice_says_what_was_assumed_and_why() {
        let place = |line| format!("a.py:{line}");
        let advice = Target::of("import x\n", place).advice("3.12");
        assert!(advice.contains("nodes may have Python 3.10"), "{advice}");
        assert!(advice.contains("`# requires-python = \">=3.12\"`"), "{advice}");
        let metadata = indoc! {"
            # /// script
            # requires-python = '>=3.11'
            # ///
        "};
        let advice = Target::of(metadata, place).advice("3.12");
        assert!(advice.contains("`requires-python = \">=3.11\"` (a.py:2) allows Python 3.11"), "{advice}");
        assert!(advice.contains("raise that to \">=3.12\""), "{advice}");
    }
}
