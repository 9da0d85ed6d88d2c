//! The command line.

use anyhow::{Result, anyhow, bail};

use crate::bench::Bench;
use crate::bench::rows::SUITES;
use crate::chaos::{Options, Place};
use crate::demo::{Demo, MOST_NODES};
use crate::fuzz::Fuzz;
use crate::nodes;
use crate::step::Step;

/// What is asked for.
pub(crate) enum Command {
    Help,
    List,
    /// The steps to run, in their own order.
    Test(Vec<Step>),
    Chaos(Options),
    Bench(Bench),
    Demo(Demo),
    Fuzz(Fuzz),
    Image,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>, all: &[Step]) -> Result<Command> {
    let mut arguments = arguments.into_iter();
    match arguments.next().as_deref() {
        Some("test") => parse_test(arguments, all),
        Some("chaos") => parse_chaos(arguments),
        Some("bench") => parse_bench(arguments),
        Some("demo") => parse_demo(arguments),
        Some("fuzz") => parse_fuzz(arguments),
        Some("image") => match arguments.next() {
            None => Ok(Command::Image),
            Some(other) => bail!("`image` takes no {other:?}"),
        },
        None | Some("help" | "-h" | "--help") => Ok(Command::Help),
        Some(other) => bail!("there is no command {other:?}; there are: test, chaos, bench, demo, fuzz, image, help"),
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

fn parse_fuzz(mut arguments: impl Iterator<Item = String>) -> Result<Command> {
    let mut fuzz = Fuzz::default();
    while let Some(argument) = arguments.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        match flag {
            "--help" | "-h" => return Ok(Command::Help),
            "--seconds" => {
                let value = value.or_else(|| arguments.next()).unwrap_or_default();
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                fuzz.seconds = seconds.ok_or_else(|| anyhow!("--seconds needs a number above 0, and not {value:?}"))?;
            }
            other if other.starts_with('-') => bail!("`fuzz` does not know {other:?}; it knows --seconds"),
            program => fuzz.programs.push(program.to_owned()),
        }
    }
    Ok(Command::Fuzz(fuzz))
}

fn parse_chaos(mut arguments: impl Iterator<Item = String>) -> Result<Command> {
    let name = arguments.next().unwrap_or_default();
    if matches!(name.as_str(), "--help" | "-h") {
        return Ok(Command::Help);
    }
    let Some(place) = Place::ALL.into_iter().find(|place| place.name() == name) else {
        let known = Place::ALL.map(Place::name).join(", ");
        bail!("`chaos` needs to know where the pools are, and not {name:?}; it knows: {known}");
    };
    let mut options = Options { place, ..Options::default() };
    while let Some(argument) = arguments.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut number = || {
            let value = value.clone().or_else(|| arguments.next()).unwrap_or_default();
            value.parse::<u64>().map_err(|_| anyhow!("{flag} needs a number, and not {value:?}"))
        };
        match flag.as_str() {
            "--rounds" => options.rounds = number()?,
            "--seed" => options.seed = number()?,
            "--only" => options.only = Some(number()?),
            "--jobs" => options.jobs = Some(number()?.try_into()?),
            other => bail!("`chaos` does not know {other:?}; it knows --rounds, --seed, --only, --jobs"),
        }
    }
    if options.rounds == 0 || options.jobs == Some(0) {
        bail!("without rounds, or without one at a time, nothing is played");
    }
    Ok(Command::Chaos(options))
}

fn parse_bench(mut arguments: impl Iterator<Item = String>) -> Result<Command> {
    let named = arguments.next();
    if matches!(named.as_deref(), Some("help" | "-h" | "--help")) {
        return Ok(Command::Help);
    }
    let Some(suite) = SUITES.iter().find(|suite| Some(suite.name) == named.as_deref()) else {
        let all: Vec<_> = SUITES.iter().map(|suite| format!("bench {}", suite.name)).collect();
        bail!("`bench` needs to know what: {} (not {})", all.join(", "), named.as_deref().unwrap_or("nothing"));
    };
    let name = suite.name;
    let (mut only, mut quick, mut ours) = (Vec::new(), false, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            // The others measure what theirs is measured beside in the same program.
            "--ours" if suite.has_peers() => ours = true,
            "--only" => {
                let list = arguments.next().unwrap_or_default();
                only.extend(chosen("row", &list, suite.rows.iter().map(|row| row.name))?);
            }
            other if suite.has_peers() => {
                bail!("`bench {name}` does not know {other:?}; it knows --only, --quick, --ours")
            }
            other => bail!("`bench {name}` does not know {other:?}; it knows --only, --quick"),
        }
    }
    let rows: Vec<_> = suite.rows.iter().filter(|row| only.is_empty() || only.contains(&row.name)).collect();
    Ok(Command::Bench(Bench { suite, rows, quick, ours }))
}

fn parse_demo(mut arguments: impl Iterator<Item = String>) -> Result<Command> {
    let place = match arguments.next().as_deref() {
        Some("docker") => nodes::Place::Docker,
        Some("ssh") => nodes::Place::Ssh,
        Some("aws") => nodes::Place::Aws,
        Some("help" | "-h" | "--help") => return Ok(Command::Help),
        other => {
            bail!("`demo` needs to know where: demo ssh, demo docker, demo aws (not {})", other.unwrap_or("nothing"))
        }
    };
    let mut demo = Demo { place, nodes: 2 };
    while let Some(argument) = arguments.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        match flag {
            "--nodes" => {
                let value = value.or_else(|| arguments.next()).unwrap_or_default();
                let nodes = value.parse().ok().filter(|nodes| (1..=MOST_NODES).contains(nodes));
                demo.nodes =
                    nodes.ok_or_else(|| anyhow!("--nodes needs a number from 1 to {MOST_NODES}, and not {value:?}"))?;
            }
            other => bail!("`demo` does not know {other:?}; it knows --nodes"),
        }
    }
    Ok(Command::Demo(demo))
}

fn named(list: &str, all: &[Step]) -> Result<Vec<&'static str>> {
    chosen("step", list, all.iter().map(|step| step.name))
}

/// The names in a list with commas, all of which there have to be.
fn chosen(what: &str, list: &str, all: impl Iterator<Item = &'static str> + Clone) -> Result<Vec<&'static str>> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let chosen = names.map(|name| match all.clone().find(|known| *known == name) {
        Some(known) => Ok(known),
        None => bail!("there is no {what} {name:?}; there are: {}", all.clone().collect::<Vec<_>>().join(", ")),
    });
    let chosen = chosen.collect::<Result<Vec<_>>>()?;
    if chosen.is_empty() {
        bail!("--only needs names, with commas; there are: {}", all.collect::<Vec<_>>().join(", "));
    }
    Ok(chosen)
}

pub(crate) const HELP: &str = "\
The project's own commands.

cargo xtask test                      everything that must hold before a change lands
cargo xtask test --list               its steps
cargo xtask test --only format,test   just these steps
cargo xtask test --skip e2e,examples  all steps but these

cargo xtask chaos local               200 rounds of pools on this host, whose workers, agents and clients are killed and stopped
cargo xtask chaos docker              the same over containers, which are also paused, and cut off from their network
cargo xtask chaos ssh                 the same over SSH hosts, whose servers are killed and stopped, and whose packets are lost
cargo xtask chaos aws                 the same over instances of an EC2 on loopback, which takes them back, refuses calls and loses answers
    --rounds 20 --seed 7              so many, drawn from this number
    --seed 7 --only 13                round 13 of these alone
    --jobs 4                          so many rounds at the same time

cargo xtask bench local               ours beside Ray, Dask and a process pool on this host; the last line is JSON
cargo xtask bench local --only ROW,…  just these rows
cargo xtask bench local --quick       one round, fewer repetitions
cargo xtask bench local --ours        without the peers
cargo xtask bench python              calls and joblib in a payload, beside loky, Dask and Ray; takes the same options
cargo xtask bench ssh                 nodes that are reached by SSH, beside `ssh` and beside processes started by hand
cargo xtask bench docker              nodes that are containers, beside what the engine does alone
cargo xtask bench aws                 instances of an EC2 on loopback: calls, starts and offers, beside processes started by hand

cargo xtask demo ssh --nodes 2        makes SSH servers on this host, trains Keras on them, and removes them
cargo xtask demo docker --nodes 2     makes an image, trains Keras in two containers of it, and removes them
cargo xtask demo aws --nodes 2        starts an EC2 on loopback, trains Keras on two instances of it, and ends it

cargo xtask fuzz                      looks for bytes that a decoder does not stand, a minute for each
cargo xtask fuzz values --seconds 600 just this one, longer

cargo xtask image                     makes the images of nodes that are containers, unless the Docker engine has them; prints their names

What a step needs and the machine lacks is installed into the user's cache folder, if a package registry has it.
The exit code is 0 when every step passed or was skipped, and when chaos cost nothing; 1 otherwise; 2 for a wrong command line.
A benchmark fails by no figure.
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
            | Command::Image => {
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
        assert!(message("bench ssh --ours").ends_with("it knows --only, --quick"));
        assert!(
            message("bench moon").contains("bench local, bench python, bench ssh, bench docker, bench aws (not moon)")
        );
    }

    #[test]
    fn a_demo_is_told_where_and_on_how_many_nodes() {
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
    fn a_wrong_command_line_says_what_there_is() {
        let message = |arguments: &[&str]| names(arguments).unwrap_err().to_string();
        assert!(message(&["tset"]).ends_with("there are: test, chaos, bench, demo, fuzz, image, help"));
        assert!(message(&["test", "--only", "fromat"]).ends_with("there are: format, test, e2e"));
        assert!(message(&["test", "--only"]).contains("--only format,clippy"));
        assert!(message(&["test", "--fast"]).contains("--only, --skip, --list"));
        assert!(message(&["test", "--only", "e2e", "--skip", "e2e"]).contains("no step"));
        assert!(message(&["bench"]).contains("bench local"));
        assert!(message(&["bench", "local", "--only", "speed"]).contains("call_p50_us"));
        assert!(message(&["bench", "local", "--only"]).contains("call_p50_us"));
        assert!(message(&["bench", "local", "--fast"]).contains("--only, --quick, --ours"));
    }

    #[test]
    fn chaos_is_told_where_how_long_and_from_which_seed() {
        let chaos = |line: &str| match parse(line.split(' ').map(str::to_owned), &steps())? {
            Command::Chaos(options) => Ok((options.place, options.rounds, options.seed, options.only)),
            _ => bail!("no chaos"),
        };
        assert_eq!(chaos("chaos local").unwrap(), (Place::Local, 200, 1, None));
        assert_eq!(chaos("chaos docker --rounds 5 --seed=9 --only 3").unwrap(), (Place::Docker, 5, 9, Some(3)));
        assert_eq!(chaos("chaos ssh --seed 2").unwrap(), (Place::Ssh, 200, 2, None));
        assert_eq!(chaos("chaos aws --rounds 3").unwrap(), (Place::Aws, 3, 1, None));
        let message = |line: &str| chaos(line).unwrap_err().to_string();
        assert!(message("chaos moon").ends_with("it knows: local, docker, ssh, aws"));
        assert!(message("chaos local --rounds many").contains("needs a number"));
        assert!(message("chaos local --rounds 0").contains("nothing is played"));
        assert!(message("chaos local --fast").contains("--rounds, --seed, --only, --jobs"));
    }
}
