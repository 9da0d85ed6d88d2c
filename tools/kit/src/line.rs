//! Words of a command line, and the errors of those that a command does not take.

use anyhow::{Result, anyhow, bail};
use lexopt::{Arg, Parser, ValueExt as _};

/// The next word or option, an option without its value.
///
/// # Errors
///
/// The option before has a value that nobody has read, or a word is not UTF-8.
pub fn next(line: &mut Parser) -> Result<Option<String>> {
    Ok(match line.next()? {
        Some(Arg::Long(name)) => Some(format!("--{name}")),
        Some(Arg::Short(letter)) => Some(format!("-{letter}")),
        Some(Arg::Value(word)) => Some(word.string()?),
        None => None,
    })
}

/// The value of an option, as `--option value` or `--option=value`; empty where the line has none.
pub fn value(line: &mut Parser) -> String {
    line.value().map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The error of an argument that the command does not take.
pub fn unknown(command: &str, argument: &str, options: &[&str]) -> anyhow::Error {
    match options {
        [] => anyhow!("`{command}` takes no arguments, but got {argument:?}"),
        _ => anyhow!("`{command}` takes no {argument:?}; its options are: {}", options.join(", ")),
    }
}

/// The names in a list with commas, each of which must exist.
///
/// # Errors
///
/// A name does not exist, or the list is empty.
pub fn chosen(what: &str, list: &str, all: impl Iterator<Item = &'static str> + Clone) -> Result<Vec<&'static str>> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let chosen = names.map(|name| match all.clone().find(|known| *known == name) {
        Some(known) => Ok(known),
        None => bail!("there is no {what} {name:?}; the {what}s are: {}", all.clone().collect::<Vec<_>>().join(", ")),
    });
    let chosen = chosen.collect::<Result<Vec<_>>>()?;
    if chosen.is_empty() {
        bail!(
            "--only needs the names of {what}s, with commas; the {what}s are: {}",
            all.collect::<Vec<_>>().join(", ")
        );
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_options_and_values_come_one_by_one() {
        let mut line = Parser::from_args(["local", "--rounds", "5", "--seed=9", "-h", "--only"]);
        let mut word = || next(&mut line).unwrap();
        assert_eq!(word().as_deref(), Some("local"));
        assert_eq!(word().as_deref(), Some("--rounds"));
        assert_eq!(value(&mut line), "5");
        assert_eq!(next(&mut line).unwrap().as_deref(), Some("--seed"));
        assert_eq!(value(&mut line), "9");
        assert_eq!(next(&mut line).unwrap().as_deref(), Some("-h"));
        assert_eq!(next(&mut line).unwrap().as_deref(), Some("--only"));
        assert_eq!(value(&mut line), "");
        assert_eq!(next(&mut line).unwrap(), None);
    }

    #[test]
    fn names_keep_the_order_of_the_list_and_must_exist() {
        let known = || ["a", "b", "c"].into_iter();
        assert_eq!(chosen("row", "c, a,", known()).unwrap(), ["c", "a"]);
        assert!(chosen("row", "d", known()).unwrap_err().to_string().ends_with("the rows are: a, b, c"));
        assert!(chosen("row", ",", known()).unwrap_err().to_string().contains("needs the names of rows"));
    }

    #[test]
    fn an_unknown_argument_is_refused_with_the_known_ones() {
        assert!(
            unknown("chaos", "--fast", &["--rounds", "--seed"]).to_string().ends_with("options are: --rounds, --seed")
        );
        assert!(unknown("image", "now", &[]).to_string().contains("takes no arguments"));
    }
}
