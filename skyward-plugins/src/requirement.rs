//! The part of PEP 508 that plugins write and read.

use skyward_core::error::{Error, ErrorKind, Result};

/// A requirement for a package, with an extra, at a version: `3.15.1` means just that one, anything
/// else is a specifier (`>=3.11,<4`).
pub(crate) fn requirement(package: &str, extra: Option<&str>, version: Option<&str>) -> Result<String> {
    let extra = extra.map(|extra| format!("[{extra}]")).unwrap_or_default();
    let Some(version) = version.map(str::trim) else { return Ok(format!("{package}{extra}")) };
    let known = |c: char| c.is_ascii_alphanumeric() || ".*+!,<>=~ -".contains(c);
    if !version.chars().all(known) || !version.contains(|c: char| c.is_ascii_digit()) {
        return Err(Error::new(ErrorKind::InvalidSpec, format!("{version:?} is no version of {package}"))
            .with_hint("write one version (`3.15.1`) or a specifier (`>=3.11,<4`)"));
    }
    let exact = if version.starts_with(|c: char| c.is_ascii_digit()) { "==" } else { "" };
    Ok(format!("{package}{extra}{exact}{version}"))
}

/// Whether requirements ask for a package, in whatever version.
pub(crate) fn asks_for(requirements: &[String], package: &str) -> bool {
    requirements.iter().any(|requirement| name(requirement) == package)
}

/// The name in a requirement, normalised (PEP 503).
fn name(requirement: &str) -> String {
    let part = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    requirement
        .trim()
        .chars()
        .take_while(part)
        .map(|c| if "._".contains(c) { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_become_specifiers() {
        for (extra, version, expected) in [
            (None, None, "jax"),
            (Some("cuda12"), None, "jax[cuda12]"),
            (Some("cuda12"), Some("0.10.2"), "jax[cuda12]==0.10.2"),
            (None, Some(" >=0.10, <0.12"), "jax>=0.10, <0.12"),
            (None, Some("~=0.10"), "jax~=0.10"),
            (None, Some("0.10.*"), "jax==0.10.*"),
            (None, Some("2.9.1+cu126"), "jax==2.9.1+cu126"),
        ] {
            assert_eq!(requirement("jax", extra, version).unwrap(), expected);
        }
        for bad in ["", "latest", "1; python_version < '4'", "1\n--index-url x", "@ file:///x1"] {
            assert_eq!(requirement("jax", None, Some(bad)).unwrap_err().kind(), ErrorKind::InvalidSpec, "{bad:?}");
        }
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        let requirements = ["JAX[cuda12] == 0.10".to_owned(), "scikit_learn>=1".into(), "torch@file:///x".into()];
        for package in ["jax", "scikit-learn", "torch"] {
            assert!(asks_for(&requirements, package), "{package}");
        }
        for package in ["jaxlib", "scikit", "torchvision"] {
            assert!(!asks_for(&requirements, package), "{package}");
        }
    }
}
