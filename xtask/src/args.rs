//! The command line.

use std::ffi::OsString;

use anyhow::{Result, anyhow, bail};
use lexopt::{Parser, ValueExt as _};
use skyward_tools::line::{chosen, next, unknown, value};

use crate::demo::{Demo, MOST_NODES};
use crate::fuzz::Fuzz;
use crate::mutants::{self, Mutants};
use crate::nodes;
use crate::step::{FAST, Step};

/// A command of the project.
pub(crate) enum Command {
    Help,
    List,
    /// The steps to run, in their own order.
    Test(Vec<Step>),
    /// The words of the tool's command line.
    Chaos(Vec<OsString>),
    Bench(Vec<OsString>),
    Demo(Demo),
    Fuzz(Fuzz),
    Mutants(Mutants),
    /// The book; whether the files that are made of its pages are written anew.
    Docs {
        write: bool,
    },
    Image,
    /// The counts of the code; whether everything that is counted is printed.
    Count {
        list: bool,
    },
    /// Checks Python as the macro does; the words go on to the program that does it.
    PythonCheck(Vec<OsString>),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = impl Into<OsString>>, all: &[Step]) -> Result<Command> {
    let mut line = Parser::from_args(arguments);
    match next(&mut line)?.as_deref() {
        Some("test") => parse_test(line, all),
        Some("chaos") => Ok(Command::Chaos(line.raw_args()?.collect())),
        Some("bench") => Ok(Command::Bench(line.raw_args()?.collect())),
        Some("demo") => parse_demo(line),
        Some("fuzz") => parse_fuzz(line),
        Some("mutants") => parse_mutants(line),
        Some("docs") => match (next(&mut line)?.as_deref(), next(&mut line)?) {
            (None, _) => Ok(Command::Docs { write: false }),
            (Some("--write"), None) => Ok(Command::Docs { write: true }),
            (Some("--help" | "-h"), _) => Ok(Command::Help),
            (Some(other), _) => Err(unknown("docs", other, &["--write"])),
        },
        Some("count") => match (next(&mut line)?.as_deref(), next(&mut line)?) {
            (None, _) => Ok(Command::Count { list: false }),
            (Some("--list"), None) => Ok(Command::Count { list: true }),
            (Some("--help" | "-h"), _) => Ok(Command::Help),
            (Some(other), _) => Err(unknown("count", other, &["--list"])),
        },
        Some("image") => match next(&mut line)? {
            None => Ok(Command::Image),
            Some(other) => Err(unknown("image", &other, &[])),
        },
        Some("python-check") => parse_python_check(line),
        None | Some("help" | "-h" | "--help") => Ok(Command::Help),
        Some(other) => {
            bail!("there is no command {other:?}; the commands are: {}", COMMANDS.join(", "))
        }
    }
}

fn parse_test(mut line: Parser, all: &[Step]) -> Result<Command> {
    let mut only = None;
    let mut skip = Vec::new();
    while let Some(argument) = next(&mut line)? {
        let mut names = || match line.value() {
            Ok(value) => named(&value.string()?, all),
            Err(_) => bail!("{argument} needs the names of steps, with commas: {argument} format,clippy"),
        };
        match argument.as_str() {
            "--list" => return Ok(Command::List),
            "--help" | "-h" => return Ok(Command::Help),
            "--fast" => only.get_or_insert_with(Vec::new).extend(FAST),
            "--only" => only.get_or_insert_with(Vec::new).extend(names()?),
            "--skip" => skip.extend(names()?),
            other => return Err(unknown("test", other, &["--fast", "--only", "--skip", "--list"])),
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

fn parse_fuzz(mut line: Parser) -> Result<Command> {
    let mut fuzz = Fuzz::default();
    while let Some(argument) = next(&mut line)? {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--seconds" => {
                let value = value(&mut line);
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                fuzz.seconds = seconds.ok_or_else(|| anyhow!("--seconds needs a number above 0, not {value:?}"))?;
            }
            other if other.starts_with('-') => return Err(unknown("fuzz", other, &["--seconds"])),
            program => fuzz.programs.push(program.to_owned()),
        }
    }
    Ok(Command::Fuzz(fuzz))
}

fn parse_mutants(mut line: Parser) -> Result<Command> {
    match next(&mut line)?.as_deref() {
        Some("aws") => {}
        Some("help" | "-h" | "--help") => return Ok(Command::Help),
        other => {
            bail!("`mutants` needs the provider that they break: mutants aws (not {})", other.unwrap_or("nothing"))
        }
    }
    let mut mutants = Mutants { names: Vec::new(), list: false };
    while let Some(argument) = next(&mut line)? {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--list" => mutants.list = true,
            other if other.starts_with('-') => return Err(unknown("mutants", other, &["--list"])),
            name => mutants.names.extend(chosen("mutant", name, mutants::names())?.into_iter().map(str::to_owned)),
        }
    }
    Ok(Command::Mutants(mutants))
}

fn parse_demo(mut line: Parser) -> Result<Command> {
    let place = match next(&mut line)?.as_deref() {
        Some("docker") => nodes::Place::Docker,
        Some("ssh") => nodes::Place::Ssh,
        Some("aws") => nodes::Place::Aws,
        Some("help" | "-h" | "--help") => return Ok(Command::Help),
        other => {
            bail!(
                "`demo` needs the kind of its nodes: demo ssh, demo docker, demo aws (not {})",
                other.unwrap_or("nothing")
            )
        }
    };
    let mut demo = Demo { place, nodes: 2 };
    while let Some(argument) = next(&mut line)? {
        match argument.as_str() {
            "--nodes" => {
                let value = value(&mut line);
                let nodes = value.parse().ok().filter(|nodes| (1..=MOST_NODES).contains(nodes));
                demo.nodes =
                    nodes.ok_or_else(|| anyhow!("--nodes needs a number from 1 to {MOST_NODES}, not {value:?}"))?;
            }
            other => return Err(unknown("demo", other, &["--nodes"])),
        }
    }
    Ok(Command::Demo(demo))
}

fn parse_python_check(mut line: Parser) -> Result<Command> {
    let words: Vec<OsString> = line.raw_args()?.collect();
    match words.first() {
        Some(word) if word == "--help" || word == "-h" => Ok(Command::Help),
        Some(_) => Ok(Command::PythonCheck(words)),
        None => bail!("`python-check` needs a folder, or files: python-check examples/payloads"),
    }
}

fn named(list: &str, all: &[Step]) -> Result<Vec<&'static str>> {
    chosen("step", list, all.iter().map(|step| step.name))
}

/// The commands, as the error of an unknown one lists them.
const COMMANDS: [&str; 11] =
    ["test", "chaos", "bench", "demo", "docs", "fuzz", "mutants", "image", "count", "python-check", "help"];

pub(crate) const HELP: &str = "\
The project's own commands.

cargo xtask test --fast               format, lints and tests that take a few minutes
cargo xtask test                      all checks that a change must pass
cargo xtask test --list               its steps
cargo xtask test --only format,test   only these steps
cargo xtask test --skip e2e,examples  all steps but these

cargo xtask chaos local               pools on this host under faults; also docker, ssh and aws
cargo xtask chaos --help              its options

cargo xtask bench local               Skyward beside others on this host; also python, ssh, docker and aws
cargo xtask bench --help              its options

cargo xtask demo ssh --nodes 2        makes SSH servers on this host, trains Keras on them, and removes them
cargo xtask demo docker --nodes 2     makes an image, trains Keras in two containers of it, and removes them
cargo xtask demo aws --nodes 2        starts an EC2 on loopback, trains Keras on two instances of it, and ends it

cargo xtask docs                      builds the book of docs/ into the target folder, and checks its links and generated files
cargo xtask docs --write              writes the generated files again: diagrams, and the tables of `skyward::guide`

cargo xtask fuzz                      looks for bytes that break a decoder, a minute for each decoder
cargo xtask fuzz values --seconds 600 only this decoder, for longer

cargo xtask mutants aws               breaks the provider of EC2 in one place after another, and checks that a test fails each time
cargo xtask mutants aws --list        these places, with their tests
cargo xtask mutants aws NAME NAME …   only these

cargo xtask python-check FOLDER       checks each Python file below the folder as the macro checks a payload of one file
cargo xtask python-check FILE FILE …  only these files

cargo xtask image                     makes the images for containers, unless the Docker engine has them, and prints their names

cargo xtask count                     counts lines, messages, `impl` blocks, constants of time and public items of the production code
cargo xtask count --list              everything that is counted, with its file and line

Programs that a step needs are installed into the user's cache folder, if the machine lacks them and a package registry has them.
The exit code is 0 when every step passed or was skipped, and 1 otherwise; 2 for a wrong command line. Chaos, benches and the check of
Python end with the exit codes of their own programs.
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
            Command::Help
            | Command::List
            | Command::Chaos(_)
            | Command::Bench(_)
            | Command::Demo(_)
            | Command::Fuzz(_)
            | Command::Mutants(_)
            | Command::Docs { .. }
            | Command::Count { .. }
            | Command::Image
            | Command::PythonCheck(_) => {
                bail!("no steps")
            }
        }
    }

    #[test]
    fn steps_are_chosen_and_left_out_in_their_own_order() {
        assert_eq!(names(&["test"]).unwrap(), ["format", "test", "e2e"]);
        assert_eq!(names(&["test", "--only", "e2e,format"]).unwrap(), ["format", "e2e"]);
        assert_eq!(names(&["test", "--only=e2e", "--only", "test"]).unwrap(), ["test", "e2e"]);
        assert_eq!(names(&["test", "--skip", "e2e"]).unwrap(), ["format", "test"]);
        assert_eq!(names(&["test", "--fast"]).unwrap(), ["format"]);
        assert_eq!(names(&["test", "--fast", "--only", "test"]).unwrap(), ["format", "test"]);
    }

    #[test]
    fn the_words_after_a_tool_are_its_own() {
        let words = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::Chaos(words) | Command::Bench(words) => Ok(words),
            _ => bail!("no tool"),
        };
        assert_eq!(words("chaos local --seed=7 --fast").unwrap(), ["local", "--seed=7", "--fast"]);
        assert_eq!(words("bench --help").unwrap(), ["--help"]);
        assert!(words("bench").unwrap().is_empty());
    }

    #[test]
    fn a_demo_takes_a_place_and_a_number_of_nodes() {
        let demo = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::Demo(demo) => Ok(demo),
            _ => bail!("no demo"),
        };
        assert_eq!(demo("demo ssh").unwrap(), Demo { place: nodes::Place::Ssh, nodes: 2 });
        assert_eq!(demo("demo docker --nodes 3").unwrap(), Demo { place: nodes::Place::Docker, nodes: 3 });
        let message = |line: &str| demo(line).unwrap_err().to_string();
        assert_eq!(demo("demo aws").unwrap(), Demo { place: nodes::Place::Aws, nodes: 2 });
        assert!(message("demo").contains("demo ssh, demo docker, demo aws (not nothing)"));
        assert!(message("demo ssh --nodes 0").contains("from 1 to"));
        assert!(message("demo ssh --fast").contains("--nodes"));
    }

    #[test]
    fn programs_to_fuzz_are_named_with_their_time() {
        let fuzz = |arguments: &[&str]| {
            let words = ["fuzz"].iter().chain(arguments).map(|word| (*word).to_owned());
            match parse(words, &steps())? {
                Command::Fuzz(fuzz) => Ok(fuzz),
                _ => bail!("something else"),
            }
        };
        assert_eq!(fuzz(&[]).unwrap(), Fuzz::default());
        let wanted = Fuzz { programs: vec!["values".into(), "frames".into()], seconds: 5 };
        assert_eq!(fuzz(&["values", "--seconds", "5", "frames"]).unwrap(), wanted);
        assert!(fuzz(&["--seconds", "0"]).unwrap_err().to_string().contains("above 0"));
        assert!(fuzz(&["--fast"]).unwrap_err().to_string().contains("--seconds"));
    }

    #[test]
    fn mutants_are_those_of_a_provider_and_are_named_or_all() {
        let mutants = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::Mutants(mutants) => Ok(mutants),
            _ => bail!("something else"),
        };
        assert_eq!(mutants("mutants aws").unwrap(), Mutants { names: Vec::new(), list: false });
        assert_eq!(mutants("mutants aws --list").unwrap(), Mutants { names: Vec::new(), list: true });
        let named = Mutants { names: vec!["no-dry-run".into(), "tags-are-not-renewed".into()], list: false };
        assert_eq!(mutants("mutants aws no-dry-run tags-are-not-renewed").unwrap(), named);
        let message = |line: &str| mutants(line).unwrap_err().to_string();
        assert!(message("mutants").contains("mutants aws (not nothing)"));
        assert!(message("mutants aws none").contains("there is no mutant \"none\"; the mutants are: "));
        assert!(message("mutants aws --all").ends_with("its options are: --list"));
    }

    #[test]
    fn the_book_is_checked_unless_it_is_to_be_written() {
        let docs = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::Docs { write } => Ok(write),
            _ => bail!("something else"),
        };
        assert!(!docs("docs").unwrap());
        assert!(docs("docs --write").unwrap());
        assert!(docs("docs --open").unwrap_err().to_string().ends_with("its options are: --write"));
        assert!(docs("docs --write now").is_err());
    }

    #[test]
    fn counts_are_printed_as_tables_or_as_a_list() {
        let count = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::Count { list } => Ok(list),
            _ => bail!("something else"),
        };
        assert!(!count("count").unwrap());
        assert!(count("count --list").unwrap());
        assert!(count("count --lines").unwrap_err().to_string().ends_with("its options are: --list"));
        assert!(count("count --list now").is_err());
    }

    #[test]
    fn the_words_for_the_check_of_python_go_on_to_its_program() {
        let check = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::PythonCheck(words) => Ok(words),
            _ => bail!("something else"),
        };
        assert_eq!(check("python-check a b.py").unwrap(), ["a", "b.py"]);
        assert_eq!(check("python-check --all a").unwrap(), ["--all", "a"], "the program refuses it");
        assert!(check("python-check").unwrap_err().to_string().contains("needs a folder"));
        assert!(matches!(parse(["python-check", "-h"].map(str::to_owned), &steps()), Ok(Command::Help)));
    }

    #[test]
    fn names_of_files_need_not_be_utf_8() {
        use std::os::unix::ffi::OsStringExt as _;
        let name = OsString::from_vec(b"l\xfctzel.py".to_vec());
        match parse([OsString::from("python-check"), name.clone()], &steps()) {
            Ok(Command::PythonCheck(words)) => assert_eq!(words, [name]),
            _ => panic!("the name is not passed on"),
        }
    }

    #[test]
    fn a_wrong_command_line_lists_the_alternatives() {
        let message = |arguments: &[&str]| names(arguments).unwrap_err().to_string();
        assert!(message(&["tset"]).ends_with(
            "the commands are: test, chaos, bench, demo, docs, fuzz, mutants, image, count, python-check, help"
        ));
        for command in COMMANDS {
            let refused = parse([command.to_owned()], &steps()).err().map(|error| error.to_string());
            assert!(!refused.is_some_and(|text| text.contains("there is no command")), "{command}");
        }
        assert!(message(&["test", "--only", "fromat"]).ends_with("the steps are: format, test, e2e"));
        assert!(message(&["test", "--only"]).contains("--only format,clippy"));
        assert!(message(&["test", "--quick"]).contains("--fast, --only, --skip, --list"));
        assert!(message(&["test", "--only", "e2e", "--skip", "e2e"]).contains("no step"));
    }
}
