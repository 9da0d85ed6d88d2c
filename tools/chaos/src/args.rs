//! The command line.

use std::fmt;
use std::ops::Range;

use anyhow::{Result, anyhow, bail};
use lexopt::Parser;
use skyward_tools::line::{next, unknown, value};

use crate::place::Place;

/// What the program does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Play(Options),
}

/// The rounds to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// The place of the pools.
    pub(crate) place: Place,
    /// The first round.
    pub(crate) from: u64,
    /// The end of the rounds, which are counted from 0.
    pub(crate) rounds: u64,
    /// The seed from which all rounds are drawn.
    pub(crate) seed: u64,
    /// Plays only this round.
    pub(crate) only: Option<u64>,
    /// How many rounds run at the same time. The default depends on the place and this host.
    pub(crate) jobs: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { place: Place::Local, from: 0, rounds: 200, seed: 1, only: None, jobs: None }
    }
}

impl Options {
    /// The numbers of the rounds.
    pub(crate) fn range(&self) -> Range<u64> {
        match self.only {
            Some(round) => round..round + 1,
            None => self.from..self.rounds,
        }
    }
}

/// The command that plays these rounds.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, from, rounds, seed, only, jobs } = self;
        write!(f, "cargo xtask chaos {} --seed {seed}", place.name())?;
        match only {
            Some(round) => write!(f, " --only {round}")?,
            None => write!(f, " --from {from} --rounds {rounds}")?,
        }
        jobs.iter().try_for_each(|jobs| write!(f, " --jobs {jobs}"))
    }
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command> {
    let mut line = Parser::from_args(arguments);
    let name = next(&mut line)?.unwrap_or_default();
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        return Ok(Command::Help);
    }
    let Some(place) = Place::ALL.into_iter().find(|place| place.name() == name) else {
        let known = Place::ALL.map(Place::name).join(", ");
        bail!("`chaos` needs the place of the pools, not {name:?}; the places are: {known}");
    };
    let mut options = Options { place, ..Options::default() };
    let mut from = None;
    while let Some(flag) = next(&mut line)? {
        let mut number = || {
            let value = value(&mut line);
            value.parse::<u64>().map_err(|_| anyhow!("{flag} needs a number, not {value:?}"))
        };
        match flag.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--rounds" => options.rounds = number()?,
            "--seed" => options.seed = number()?,
            "--from" => from = Some(number()?),
            "--only" => options.only = Some(number()?),
            "--jobs" => options.jobs = Some(number()?.try_into()?),
            other => return Err(unknown("chaos", other, &["--rounds", "--seed", "--from", "--only", "--jobs"])),
        }
    }
    if options.rounds == 0 || options.jobs == Some(0) {
        bail!("--rounds and --jobs need a number above 0");
    }
    match (from, options.only) {
        (Some(_), Some(_)) => bail!("--only plays one round, and takes no --from"),
        (Some(from), None) if from >= options.rounds => {
            bail!("--from {from} leaves no round, because --rounds {} ends the run before it", options.rounds)
        }
        (from, _) => options.from = from.unwrap_or_default(),
    }
    Ok(Command::Play(options))
}

pub(crate) const HELP: &str = "\
Rounds of pools under faults, which are drawn from a seed.

cargo xtask chaos local   pools on this host, whose workers, agents and clients are killed and stopped
cargo xtask chaos docker  the same over containers, which are also paused and cut off from their network
cargo xtask chaos ssh     the same over SSH hosts, whose servers are killed and stopped, and whose packets are lost
cargo xtask chaos aws     the same over instances of an EC2 on loopback, which also takes instances back, refuses calls and loses answers

    --rounds 20           the rounds 0 to 19; 200 rounds without the option
    --seed 7              draws the rounds from this seed; 1 without the option
    --from 120            begins with round 120 of the seed, for a run that was interrupted
    --only 13             only round 13 of the seed
    --jobs 4              four rounds at the same time

A round is the same draw whichever rounds are played with it. Ctrl-C gives up the rounds that run, and cleans up after them; the
program then prints the command that continues the run.
The last line of standard output has the counts and seconds as JSON.
The exit code is 0 when nothing was lost, doubled, wrong, stuck or left running, and 1 otherwise; 2 for a wrong command line;
69 when this host cannot play rounds at the place; 130 when the run was interrupted.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options> {
        match parse(line.split(' ').map(str::to_owned))? {
            Command::Play(options) => Ok(options),
            Command::Help => bail!("the help"),
        }
    }

    #[test]
    fn a_place_a_number_of_rounds_and_a_seed_are_read() {
        let of = |place| Options { place, ..Options::default() };
        let local = Options { place: Place::Local, from: 0, rounds: 200, seed: 1, only: None, jobs: None };
        assert_eq!(options("local").unwrap(), local);
        let docker = options("docker --rounds 5 --seed=9 --only 3 --jobs 4").unwrap();
        assert_eq!(docker, Options { rounds: 5, seed: 9, only: Some(3), jobs: Some(4), ..of(Place::Docker) });
        assert_eq!(options("ssh --seed 2").unwrap(), Options { seed: 2, ..of(Place::Ssh) });
        assert_eq!(options("aws --rounds 3").unwrap(), Options { rounds: 3, ..of(Place::Aws) });
    }

    #[test]
    fn rounds_begin_where_a_run_was_interrupted() {
        let from = |line: &str| options(line).unwrap().range();
        assert_eq!(from("local --seed 1 --from 120 --rounds 500"), 120..500);
        assert_eq!(from("local --rounds=500 --from=499"), 499..500);
        assert_eq!(from("local --rounds 20"), 0..20);
        assert_eq!(from("local --only 700"), 700..701);
        let message = |line: &str| options(line).unwrap_err().to_string();
        assert!(message("local --from 200").contains("--rounds 200 ends the run before it"));
        assert!(message("local --from 3 --only 4").contains("takes no --from"));
        assert!(message("local --from").contains("--from needs a number"));
    }

    #[test]
    fn options_are_shown_as_the_command_that_has_them() {
        for line in [
            "local --seed 1 --from 120 --rounds 500",
            "ssh --seed 9 --from 0 --rounds 2 --jobs 4",
            "aws --seed 7 --only 13",
        ] {
            assert_eq!(options(line).unwrap().to_string(), format!("cargo xtask chaos {line}"));
        }
    }

    #[test]
    fn a_wrong_command_line_lists_the_alternatives() {
        let message = |line: &str| options(line).unwrap_err().to_string();
        assert!(message("moon").ends_with("the places are: local, docker, ssh, aws"));
        assert!(message("local --rounds many").contains("needs a number"));
        assert!(message("local --rounds 0").contains("above 0"));
        assert!(message("local --jobs 0").contains("above 0"));
        assert!(message("local --fast").contains("--rounds, --seed, --from, --only, --jobs"));
    }

    #[test]
    fn the_help_lists_all_places() {
        for line in ["--help", "help", "local --help"] {
            assert_eq!(parse(line.split(' ').map(str::to_owned)).unwrap(), Command::Help);
        }
        assert!(Place::ALL.iter().all(|place| HELP.contains(&format!("chaos {} ", place.name()))));
    }
}
