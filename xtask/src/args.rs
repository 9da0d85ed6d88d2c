//! The command line.

use anyhow::{Result, bail};

use crate::step::Step;

/// What is asked for.
pub(crate) enum Command {
    Help,
    List,
    /// The steps to run, in their own order.
    Test(Vec<Step>),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>, all: &[Step]) -> Result<Command> {
    let mut arguments = arguments.into_iter();
    match arguments.next().as_deref() {
        Some("test") => parse_test(arguments, all),
        None | Some("help" | "-h" | "--help") => Ok(Command::Help),
        Some(other) => bail!("there is no command {other:?}; there are: test, help"),
    }
}

fn parse_test(mut arguments: impl Iterator<Item = String>, all: &[Step]) -> Result<Command> {
    let mut only = None;
    let mut skip = Vec::new();
    while let Some(argument) = arguments.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let mut names = || match value.clone().or_else(|| arguments.next()) {
            Some(value) => named(&value, all),
            None => bail!("{flag} needs the names of steps, with commas: {flag} format,clippy"),
        };
        match flag {
            "--list" => return Ok(Command::List),
            "--help" | "-h" => return Ok(Command::Help),
            "--only" => only.get_or_insert_with(Vec::new).extend(names()?),
            "--skip" => skip.extend(names()?),
            other => bail!("`test` does not know {other:?}; it knows --only, --skip, --list"),
        }
    }
    let wanted =
        |step: &&Step| only.as_ref().is_none_or(|only| only.contains(&step.name)) && !skip.contains(&step.name);
    let steps: Vec<Step> = all.iter().filter(wanted).copied().collect();
    if steps.is_empty() {
        bail!("--only and --skip leave no step to run");
    }
    Ok(Command::Test(steps))
}

fn named(list: &str, all: &[Step]) -> Result<Vec<&'static str>> {
    list.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| match all.iter().find(|step| step.name == name) {
            Some(step) => Ok(step.name),
            None => {
                let known: Vec<_> = all.iter().map(|step| step.name).collect();
                bail!("there is no step {name:?}; there are: {}", known.join(", "))
            }
        })
        .collect()
}

pub(crate) const HELP: &str = "\
The project's own commands.

cargo xtask test                      everything that must hold before a change lands
cargo xtask test --list               its steps
cargo xtask test --only format,test   just these steps
cargo xtask test --skip e2e,examples  all steps but these

What a step needs and the machine lacks is installed into the user's cache folder, if a package registry has it.
The exit code is 0 when every step passed or was skipped, 1 when one failed, 2 for a wrong command line.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Outcome;

    fn steps() -> Vec<Step> {
        ["format", "test", "e2e"].map(|name| Step { name, about: "", run: |_| Ok(Outcome::passed("")) }).to_vec()
    }

    fn names(arguments: &[&str]) -> Result<Vec<&'static str>> {
        match parse(arguments.iter().map(|argument| (*argument).to_owned()), &steps())? {
            Command::Test(steps) => Ok(steps.iter().map(|step| step.name).collect()),
            Command::Help | Command::List => bail!("no steps"),
        }
    }

    #[test]
    fn steps_are_chosen_and_left_out_in_their_own_order() {
        assert_eq!(names(&["test"]).unwrap(), ["format", "test", "e2e"]);
        assert_eq!(names(&["test", "--only", "e2e,format"]).unwrap(), ["format", "e2e"]);
        assert_eq!(names(&["test", "--only=e2e", "--only", "test"]).unwrap(), ["test", "e2e"]);
        assert_eq!(names(&["test", "--skip", "e2e"]).unwrap(), ["format", "test"]);
    }

    #[test]
    fn a_wrong_command_line_says_what_there_is() {
        let message = |arguments: &[&str]| names(arguments).unwrap_err().to_string();
        assert!(message(&["tset"]).ends_with("there are: test, help"));
        assert!(message(&["test", "--only", "fromat"]).ends_with("there are: format, test, e2e"));
        assert!(message(&["test", "--only"]).contains("--only format,clippy"));
        assert!(message(&["test", "--fast"]).contains("--only, --skip, --list"));
        assert!(message(&["test", "--only", "e2e", "--skip", "e2e"]).contains("no step"));
    }
}
