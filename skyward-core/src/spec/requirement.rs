//! Parses a simple part of PEP 508, enough to find mistakes before a machine is launched. The
//! installer on the machine does the complete check.

/// The normalised name (PEP 503) of the package that a requirement names.
///
/// # Errors
///
/// The mistake, as a clause that can end a sentence.
pub(crate) fn requirement_name(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.starts_with('-') {
        return Err("it is an option of pip; indexes and requirement files have their own methods: `.index(…)`, `.requirements(…)`".into());
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if rest.trim_start().starts_with("://") || (name.is_empty() && rest.starts_with('/')) || rest.starts_with("+") {
        return Err(format!("an address needs the package's name before it: `name @ {text}`"));
    }
    if !(name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.ends_with(|c: char| c.is_ascii_alphanumeric())) {
        return Err("it does not begin with a package's name".into());
    }
    let rest = extras(rest.trim_start())?.trim_start();
    if let Some(address) = rest.strip_prefix('@') {
        return match address.trim() {
            "" => Err("there is no address after `@`".into()),
            path if !path.contains("://") => Err(format!("`{path}` is a path of this host, which nodes do not have")),
            _ => Ok(normalised(name)),
        };
    }
    let (versions, marker) = rest.split_once(';').map_or((rest, None), |(versions, marker)| (versions, Some(marker)));
    if marker.is_some_and(|marker| marker.trim().is_empty()) {
        return Err("there is no marker after `;`".into());
    }
    let versions = versions.trim();
    let versions = versions.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(versions);
    if !versions.is_empty() {
        check_specifiers(versions)?;
    }
    Ok(normalised(name))
}

/// The name as package indexes compare it: in lower case, with each run of `-`, `_` and `.`
/// replaced by one `-`.
pub(crate) fn normalised(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            c => normal.push(c.to_ascii_lowercase()),
        }
    }
    normal
}

/// Checks version specifiers (PEP 440): `>=3.10,<4`.
pub(crate) fn check_specifiers(text: &str) -> Result<(), String> {
    split_specifiers(text).map(|_| ())
}

/// Whether a plain version such as `3.12.1` satisfies the specifiers. `None` if only a complete
/// implementation of PEP 440 can decide.
pub(crate) fn satisfies(version: &str, specifiers: &str) -> Option<bool> {
    let version = numbers(version)?;
    let mut all = true;
    for (operator, bound) in split_specifiers(specifiers).ok()? {
        all &= match (operator, bound.strip_suffix(".*")) {
            ("==", Some(prefix)) => starts_with(&version, &numbers(prefix)?),
            ("!=", Some(prefix)) => !starts_with(&version, &numbers(prefix)?),
            (_, Some(_)) => return None,
            (operator, None) => {
                let bound = numbers(bound)?;
                let order = compare(&version, &bound);
                match operator {
                    "==" | "===" => order.is_eq(),
                    "!=" => order.is_ne(),
                    "<=" => order.is_le(),
                    ">=" => order.is_ge(),
                    "<" => order.is_lt(),
                    ">" => order.is_gt(),
                    _ => order.is_ge() && starts_with(&version, &bound[..bound.len().saturating_sub(1)]),
                }
            }
        };
    }
    Some(all)
}

fn extras(rest: &str) -> Result<&str, String> {
    let Some(inner) = rest.strip_prefix('[') else { return Ok(rest) };
    let (names, rest) = inner.split_once(']').ok_or("the bracket of its extras is not closed")?;
    let fits = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if names.trim().is_empty() || names.split(',').all(|name| fits(name.trim())) {
        Ok(rest)
    } else {
        Err(format!("`[{names}]` are not extras"))
    }
}

fn split_specifiers(text: &str) -> Result<Vec<(&'static str, &str)>, String> {
    text.split(',').map(|clause| specifier(clause.trim())).collect()
}

fn specifier(clause: &str) -> Result<(&'static str, &str), String> {
    let operator = OPERATORS.iter().find(|operator| clause.starts_with(**operator));
    let Some((operator, version)) = operator.map(|operator| (*operator, clause[operator.len()..].trim())) else {
        return Err(match clause.strip_prefix('=') {
            Some(version) => format!("`={version}` is not a comparison; an exact version is `=={version}`"),
            None if clause.is_empty() => "there is nothing after a comma".into(),
            None => format!("`{clause}` does not begin with one of {}", OPERATORS.join(" ")),
        });
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || ".*+!-_".contains(c);
    match version.find(|c| !plain(c)) {
        None if version.is_empty() => Err(format!("there is no version after `{operator}`")),
        None => Ok((operator, version)),
        Some(at) if version[at..].trim_start().starts_with(['<', '>', '=', '!', '~']) => {
            Err(format!("a comma is missing before `{}`", version[at..].trim()))
        }
        Some(_) => Err(format!("`{version}` is not a version")),
    }
}

fn numbers(version: &str) -> Option<Vec<u64>> {
    version.split('.').map(|part| part.parse().ok()).collect()
}

fn starts_with(version: &[u64], prefix: &[u64]) -> bool {
    (0..prefix.len()).all(|at| version.get(at).unwrap_or(&0) == &prefix[at])
}

fn compare(a: &[u64], b: &[u64]) -> std::cmp::Ordering {
    let digit = |version: &[u64], at: usize| version.get(at).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .map(|at| digit(a, at).cmp(&digit(b, at)))
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}

/// The operators, each before the shorter operators that it begins with.
const OPERATORS: [&str; 8] = ["===", "~=", "==", "!=", "<=", ">=", "<", ">"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_that_installers_accept_are_accepted() {
        for (text, name) in [
            ("numpy", "numpy"),
            ("numpy>=2,<3", "numpy"),
            ("numpy >= 2, != 2.1.*", "numpy"),
            ("Scikit_Learn~=1.5", "scikit-learn"),
            ("keras[jax]==3.15.1", "keras"),
            ("jax[cuda12_pip, k8s] ; python_version < '3.13'", "jax"),
            ("torch==2.9.0+cpu", "torch"),
            ("pkg @ https://example.com/pkg-1.0-py3-none-any.whl", "pkg"),
            ("pkg @ git+https://example.com/pkg.git@v1", "pkg"),
            ("a (>=1)", "a"),
            ("zope.interface===5", "zope-interface"),
            ("x<1!2.0.dev1", "x"),
        ] {
            assert_eq!(requirement_name(text).as_deref(), Ok(name), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("", "empty"),
            ("numpy=2", "`==2`"),
            ("numpy>1 <2", "comma is missing before `<2`"),
            ("numpy>=2,", "nothing after a comma"),
            ("numpy>=", "no version after `>=`"),
            ("-r other.txt", "option of pip"),
            ("--index-url https://x", "option of pip"),
            ("https://example.com/x.whl", "name @ https"),
            ("git+https://example.com/x", "name @ git+https"),
            ("keras[jax", "not closed"),
            ("keras[a b]", "not extras"),
            ("numpy 2", "does not begin with one of"),
            ("pkg @ ", "no address"),
            ("pkg @ ../pkg", "`../pkg` is a path of this host"),
            ("pkg @ wheels/pkg-1.0-py3-none-any.whl", "path of this host"),
            ("pkg @ /srv/pkg", "path of this host"),
            ("pkg;", "no marker"),
            ("/local/x", "name @ /local"),
            ("_x", "does not begin with a package's name"),
        ] {
            let error = requirement_name(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (version, specifiers, expected) in [
            ("3.12.1", ">=3.10", Some(true)),
            ("3.9.18", ">=3.10", Some(false)),
            ("3.12", ">=3.10,<3.12", Some(false)),
            ("3.12", "==3.12.*", Some(true)),
            ("3.12", "!=3.12.*", Some(false)),
            ("3.12.0", "==3.12", Some(true)),
            ("3.13.2", "~=3.12", Some(true)),
            ("4.0", "~=3.12", Some(false)),
            ("3.13.2", "~=3.12.1", Some(false)),
            ("3.13.2", ">3.13,!=3.13.1", Some(true)),
            ("3.13", "<=3.13.0", Some(true)),
            ("3.13", ">=3.13rc1", None),
        ] {
            assert_eq!(satisfies(version, specifiers), expected, "{version} {specifiers}");
        }
    }
}
