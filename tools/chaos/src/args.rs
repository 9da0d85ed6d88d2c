//! The command line.

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
    /// The number of rounds.
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
        Self { place: Place::Local, rounds: 200, seed: 1, only: None, jobs: None }
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
    while let Some(flag) = next(&mut line)? {
        let mut number = || {
            let value = value(&mut line);
            value.parse::<u64>().map_err(|_| anyhow!("{flag} needs a number, not {value:?}"))
        };
        match flag.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
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
    Ok(Command::Play(options))
}

pub(crate) const HELP: &str = "\
Rounds of pools under faults, which are drawn from a seed.

cargo xtask chaos local   pools on this host, whose workers, agents and clients are killed and stopped
cargo xtask chaos docker  the same over containers, which are also paused and cut off from their network
cargo xtask chaos ssh     the same over SSH hosts, whose servers are killed and stopped, and whose packets are lost
cargo xtask chaos aws     the same over instances of an EC2 on loopback, which also takes instances back, refuses calls and loses answers

    --rounds 20           20 rounds; 200 without the option
    --seed 7              draws the rounds from this seed; 1 without the option
    --only 13             only round 13
    --jobs 4              four rounds at the same time

The last line of standard output has the counts as JSON.
The exit code is 0 when nothing was lost, doubled, wrong, stuck or left running, and 1 otherwise; 2 for a wrong command line;
69 when this host cannot play rounds at the place.
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
        assert_eq!(options("local").unwrap(), Options { rounds: 200, seed: 1, only: None, jobs: None, ..of(Place::Local) });
        let docker = options("docker --rounds 5 --seed=9 --only 3 --jobs 4").unwrap();
        assert_eq!(docker, Options { rounds: 5, seed: 9, only: Some(3), jobs: Some(4), ..of(Place::Docker) });
        assert_eq!(options("ssh --seed 2").unwrap(), Options { seed: 2, ..of(Place::Ssh) });
        assert_eq!(options("aws --rounds 3").unwrap(), Options { rounds: 3, ..of(Place::Aws) });
    }

    #[test]
    fn a_wrong_command_line_lists_the_alternatives() {
        let message = |line: &str| options(line).unwrap_err().to_string();
        assert!(message("moon").ends_with("the places are: local, docker, ssh, aws"));
        assert!(message("local --rounds many").contains("needs a number"));
        assert!(message("local --rounds 0").contains("above 0"));
        assert!(message("local --jobs 0").contains("above 0"));
        assert!(message("local --fast").contains("--rounds, --seed, --only, --jobs"));
    }

    #[test]
    fn the_help_lists_all_places() {
        for line in ["--help", "help", "local --help"] {
            assert_eq!(parse(line.split(' ').map(str::to_owned)).unwrap(), Command::Help);
        }
        assert!(Place::ALL.iter().all(|place| HELP.contains(&format!("chaos {} ", place.name()))));
    }
}
