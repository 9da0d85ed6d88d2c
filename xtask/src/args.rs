//! The command line.

use std::ffi::OsString;

use anyhow::{Result, anyhow, bail};
use lexopt::{Arg, Parser, ValueExt as _};

use crate::bench::Bench;
use crate::bench::rows::SUITES;
use crate::chaos::{Options, Place};
use crate::demo::{Demo, MOST_NODES};
use crate::fuzz::Fuzz;
use crate::nodes;
use crate::step::Step;

/// A command of the project.
pub(crate) enum Command {
    Help,
    List,
    /// The steps to run, in their own order.
    Test(Vec<Step>),
    Chaos(Options),
    Bench(Bench),
    Demo(Demo),
    Fuzz(Fuzz),
    /// The book; whether the files that are made of its pages are written anew.
    Docs {
        write: bool,
    },
    Image,
    /// Checks Python as the macro does; the words go on to the program that does it.
    PythonCheck(Vec<OsString>),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>, all: &[Step]) -> Result<Command> {
    let mut line = Parser::from_args(arguments);
    match next(&mut line)?.as_deref() {
        Some("test") => parse_test(line, all),
        Some("chaos") => parse_chaos(line),
        Some("bench") => parse_bench(line),
        Some("demo") => parse_demo(line),
        Some("fuzz") => parse_fuzz(line),
        Some("docs") => match (next(&mut line)?.as_deref(), next(&mut line)?) {
            (None, _) => Ok(Command::Docs { write: false }),
            (Some("--write"), None) => Ok(Command::Docs { write: true }),
            (Some("--help" | "-h"), _) => Ok(Command::Help),
            (Some(other), _) => Err(unknown("docs", other, &["--write"])),
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
            "--only" => only.get_or_insert_with(Vec::new).extend(names()?),
            "--skip" => skip.extend(names()?),
            other => return Err(unknown("test", other, &["--only", "--skip", "--list"])),
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

fn parse_chaos(mut line: Parser) -> Result<Command> {
    let name = next(&mut line)?.unwrap_or_default();
    if matches!(name.as_str(), "--help" | "-h") {
        return Ok(Command::Help);
    }
    let Some(place) = Place::ALL.into_iter().find(|place| place.name() == name) else {
        let known = Place::ALL.map(Place::name).join(", ");
        bail!("`chaos` needs the place of the pools, not {name:?}; the places are: {known}");
    };
    let mut options = Options { place, ..Options::default() };
    while let Some(flag) = next(&mut line)? {
        let mut number = || {
            let value = value(&mut line);
            value.parse::<u64>().map_err(|_| anyhow!("{flag} needs a number, not {value:?}"))
        };
        match flag.as_str() {
            "--rounds" => options.rounds = number()?,
            "--seed" => options.seed = number()?,
            "--only" => options.only = Some(number()?),
            "--jobs" => options.jobs = Some(number()?.try_into()?),
            other => return Err(unknown("chaos", other, &["--rounds", "--seed", "--only", "--jobs"])),
        }
    }
    if options.rounds == 0 || options.jobs == Some(0) {
        bail!("--rounds and --jobs need a number above 0");
    }
    Ok(Command::Chaos(options))
}

fn parse_bench(mut line: Parser) -> Result<Command> {
    let named = next(&mut line)?;
    if matches!(named.as_deref(), Some("help" | "-h" | "--help")) {
        return Ok(Command::Help);
    }
    let Some(suite) = SUITES.iter().find(|suite| Some(suite.name) == named.as_deref()) else {
        let all: Vec<_> = SUITES.iter().map(|suite| format!("bench {}", suite.name)).collect();
        bail!("`bench` needs the name of a suite: {} (not {})", all.join(", "), named.as_deref().unwrap_or("nothing"));
    };
    let (mut only, mut quick, mut ours) = (Vec::new(), false, false);
    while let Some(argument) = next(&mut line)? {
        match argument.as_str() {
            "--quick" => quick = true,
            // The other suites measure both sides in the same program.
            "--ours" if suite.has_peers() => ours = true,
            "--only" => {
                only.extend(chosen("row", &value(&mut line), suite.rows.iter().map(|row| row.name))?);
            }
            other => {
                let options: &[_] =
                    if suite.has_peers() { &["--only", "--quick", "--ours"] } else { &["--only", "--quick"] };
                return Err(unknown(&format!("bench {}", suite.name), other, options));
            }
        }
    }
    let rows: Vec<_> = suite.rows.iter().filter(|row| only.is_empty() || only.contains(&row.name)).collect();
    Ok(Command::Bench(Bench { suite, rows, quick, ours }))
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

/// The error of an argument that the command does not take.
fn unknown(command: &str, argument: &str, options: &[&str]) -> anyhow::Error {
    match options {
        [] => anyhow!("`{command}` takes no arguments, but got {argument:?}"),
        _ => anyhow!("`{command}` takes no {argument:?}; its options are: {}", options.join(", ")),
    }
}

/// The next word or option, an option without its value.
fn next(line: &mut Parser) -> Result<Option<String>> {
    Ok(match line.next()? {
        Some(Arg::Long(name)) => Some(format!("--{name}")),
        Some(Arg::Short(letter)) => Some(format!("-{letter}")),
        Some(Arg::Value(word)) => Some(word.string()?),
        None => None,
    })
}

/// The value of an option, as `--option value` or `--option=value`; empty where the line has none.
fn value(line: &mut Parser) -> String {
    line.value().map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
}

fn named(list: &str, all: &[Step]) -> Result<Vec<&'static str>> {
    chosen("step", list, all.iter().map(|step| step.name))
}

/// The names in a list with commas, each of which must exist.
fn chosen(what: &str, list: &str, all: impl Iterator<Item = &'static str> + Clone) -> Result<Vec<&'static str>> {
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

/// The commands, as the error of an unknown one lists them.
const COMMANDS: [&str; 9] = ["test", "chaos", "bench", "demo", "docs", "fuzz", "image", "python-check", "help"];

pub(crate) const HELP: &str = "\
The project's own commands.

cargo xtask test                      all checks that a change must pass
cargo xtask test --list               its steps
cargo xtask test --only format,test   only these steps
cargo xtask test --skip e2e,examples  all steps but these

cargo xtask chaos local               200 rounds of pools on this host, whose workers, agents and clients are killed and stopped
cargo xtask chaos docker              the same over containers, which are also paused and cut off from their network
cargo xtask chaos ssh                 the same over SSH hosts, whose servers are killed and stopped, and whose packets are lost
cargo xtask chaos aws                 the same over instances of an EC2 on loopback, which also takes instances back, refuses calls and loses answers
    --rounds 20 --seed 7              20 rounds, drawn from this seed
    --seed 7 --only 13                only round 13 of this seed
    --jobs 4                          four rounds at the same time

cargo xtask bench local               Skyward beside Ray, Dask and a process pool on this host; the last line is JSON
cargo xtask bench local --only ROW,…  only these rows
cargo xtask bench local --quick       one round, fewer repetitions
cargo xtask bench local --ours        without the peers
cargo xtask bench python              calls and joblib in a payload, beside loky, Dask and Ray; takes the same options
cargo xtask bench ssh                 nodes that are reached by SSH, beside `ssh` and beside processes started by hand
cargo xtask bench docker              nodes that are containers, beside bare exec streams and `docker run`
cargo xtask bench aws                 instances of an EC2 on loopback: calls, starts and offers, beside processes started by hand

cargo xtask demo ssh --nodes 2        makes SSH servers on this host, trains Keras on them, and removes them
cargo xtask demo docker --nodes 2     makes an image, trains Keras in two containers of it, and removes them
cargo xtask demo aws --nodes 2        starts an EC2 on loopback, trains Keras on two instances of it, and ends it

cargo xtask docs                      builds the book of docs/ into the target folder, and checks its links and generated files
cargo xtask docs --write              writes the generated files again: diagrams, and the tables of `skyward::guide`

cargo xtask fuzz                      looks for bytes that break a decoder, a minute for each decoder
cargo xtask fuzz values --seconds 600 only this decoder, for longer

cargo xtask python-check FOLDER       checks each Python file below the folder as the macro checks a payload of one file
cargo xtask python-check FILE FILE …  only these files

cargo xtask image                     makes the images for containers, unless the Docker engine has them, and prints their names

Programs that a step needs are installed into the user's cache folder, if the machine lacks them and a package registry has them.
The exit code is 0 when every step passed or was skipped, when chaos lost nothing, and when all Python files are accepted; 1 otherwise; 2 for a wrong command line.
No figure makes a benchmark fail.
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
            | Command::Docs { .. }
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
    }

    #[test]
    fn rows_are_chosen_in_their_own_order() {
        let arguments = ["bench", "local", "--only", "calls_per_s,call_p50_us", "--quick"].map(str::to_owned);
        let Ok(Command::Bench(bench)) = parse(arguments, &[]) else { panic!("no bench") };
        assert_eq!(bench.rows.iter().map(|row| row.name).collect::<Vec<_>>(), ["call_p50_us", "calls_per_s"]);
        assert!(bench.quick && !bench.ours);
        let arguments = ["bench", "local", "--only=calls_per_s", "--ours"].map(str::to_owned);
        let Ok(Command::Bench(bench)) = parse(arguments, &[]) else { panic!("no bench") };
        assert!(bench.rows.len() == 1 && bench.ours);
        let refused = parse(["bench", "local", "--quick=no"].map(str::to_owned), &[]);
        assert!(refused.is_err_and(|error| error.to_string().contains("--quick")));
    }

    #[test]
    fn rows_belong_to_their_suite() {
        let bench = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::Bench(bench) => Ok(bench.rows.iter().map(|row| row.name).collect::<Vec<_>>()),
            _ => bail!("no bench"),
        };
        assert_eq!(bench("bench ssh --only ssh_bulk_mib_s").unwrap(), ["ssh_bulk_mib_s"]);
        assert_eq!(bench("bench docker").unwrap().len(), 5);
        let message = |line: &str| bench(line).unwrap_err().to_string();
        assert!(message("bench docker --only call_p50_us").contains("docker_call_p50_us"));
        assert!(message("bench ssh --ours").ends_with("its options are: --only, --quick"));
        assert!(
            message("bench moon").contains("bench local, bench python, bench ssh, bench docker, bench aws (not moon)")
        );
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
    fn a_wrong_command_line_lists_the_alternatives() {
        let message = |arguments: &[&str]| names(arguments).unwrap_err().to_string();
        assert!(message(&["tset"]).ends_with("the commands are: test, chaos, bench, demo, docs, fuzz, image, python-check, help"));
        for command in COMMANDS {
            let refused = parse([command.to_owned()], &steps()).err().map(|error| error.to_string());
            assert!(!refused.is_some_and(|text| text.contains("there is no command")), "{command}");
        }
        assert!(message(&["test", "--only", "fromat"]).ends_with("the steps are: format, test, e2e"));
        assert!(message(&["test", "--only"]).contains("--only format,clippy"));
        assert!(message(&["test", "--fast"]).contains("--only, --skip, --list"));
        assert!(message(&["test", "--only", "e2e", "--skip", "e2e"]).contains("no step"));
        assert!(message(&["bench"]).contains("bench local"));
        assert!(message(&["bench", "local", "--only", "speed"]).contains("call_p50_us"));
        assert!(message(&["bench", "local", "--only"]).contains("call_p50_us"));
        assert!(message(&["bench", "local", "--fast"]).contains("--only, --quick, --ours"));
    }

    #[test]
    fn chaos_takes_a_place_a_number_of_rounds_and_a_seed() {
        let chaos = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::Chaos(options) => Ok((options.place, options.rounds, options.seed, options.only)),
            _ => bail!("no chaos"),
        };
        assert_eq!(chaos("chaos local").unwrap(), (Place::Local, 200, 1, None));
        assert_eq!(chaos("chaos docker --rounds 5 --seed=9 --only 3").unwrap(), (Place::Docker, 5, 9, Some(3)));
        assert_eq!(chaos("chaos ssh --seed 2").unwrap(), (Place::Ssh, 200, 2, None));
        assert_eq!(chaos("chaos aws --rounds 3").unwrap(), (Place::Aws, 3, 1, None));
        let message = |line: &str| chaos(line).unwrap_err().to_string();
        assert!(message("chaos moon").ends_with("the places are: local, docker, ssh, aws"));
        assert!(message("chaos local --rounds many").contains("needs a number"));
        assert!(message("chaos local --rounds 0").contains("above 0"));
        assert!(message("chaos local --fast").contains("--rounds, --seed, --only, --jobs"));
    }
}
