//! Names: the nearest of several, lists of them in messages, and those that Python keeps.

use strsim::osa_distance;

/// The name among `names` that was most likely meant by `name`; `None` if no name is close to it.
///
/// ```
/// use skyward_python::names::nearest;
///
/// assert_eq!(nearest("epoch", ["epochs", "rate"]), Some("epochs"));
/// assert_eq!(nearest("momentum", ["epochs", "rate"]), None);
/// ```
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|candidate| (osa_distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` and `c`, each in backquotes; at most a dozen.
///
/// ```
/// assert_eq!(skyward_python::names::list(["epochs", "rate"]), "`epochs` and `rate`");
/// ```
pub fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if names.len() > MOST_NAMES {
        return format!("{} and {} more", names[..MOST_NAMES].join(", "), names.len() - MOST_NAMES);
    }
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

/// Whether Python keeps the name, so that no function or parameter can have it.
///
/// ```
/// assert!(skyward_python::names::is_keyword("lambda"));
/// ```
pub fn is_keyword(name: &str) -> bool {
    ruff_python_stdlib::keyword::is_keyword(name)
}

const MOST_NAMES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_a_likely_one() {
        let names = ["epochs", "batch_size", "rate"];
        assert_eq!(nearest("epoch", names), Some("epochs"));
        assert_eq!(nearest("batchsize", names), Some("batch_size"));
        assert_eq!(nearest("EPOCSH", names), Some("epochs"));
        assert_eq!(nearest("momentum", names), None);
        assert_eq!(nearest("x", ["abc", "de"]), None);
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
        let many: Vec<String> = (0..20).map(|index| index.to_string()).collect();
        assert!(list(many.iter().map(String::as_str)).ends_with("`11` and 8 more"));
    }
}
