//! The command line.

use anyhow::{Result, bail};
use lexopt::Parser;
use skyward_tools::line::{chosen, next, unknown, value};

use crate::bench::Bench;
use crate::rows::SUITES;

/// What the program does.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    Measure(Bench),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command> {
    let mut line = Parser::from_args(arguments);
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
            "--help" | "-h" => return Ok(Command::Help),
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
    Ok(Command::Measure(Bench { suite, rows, quick, ours }))
}

pub(crate) const HELP: &str = "\
Skyward beside other systems, in one run on one machine.

cargo xtask bench local   calls, values and starts on this host, beside Ray, Dask and a process pool
cargo xtask bench python  calls and joblib in a payload, beside loky, Dask and Ray
cargo xtask bench macro   `cargo check` of crates with many payloads, beside the same crates without payloads
cargo xtask bench ssh     nodes that are reached by SSH, beside `ssh` and beside processes started by hand
cargo xtask bench data    files in and out of a node that is reached by SSH, and saves, beside rsync, scp and tar
cargo xtask bench docker  nodes that are containers, beside bare exec streams and `docker run`
cargo xtask bench aws     instances of an EC2 on loopback: calls, starts and offers, beside processes started by hand

    --only ROW,…          only these rows
    --quick               one round, fewer repetitions
    --ours                without the peers; for local and python

The last line of standard output has the table as JSON. No figure makes a benchmark fail: the exit code is 0 when all rows were
measured, and 2 otherwise.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(line: &str) -> Result<Bench> {
        match parse(line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned))? {
            Command::Measure(bench) => Ok(bench),
            Command::Help => bail!("the help"),
        }
    }

    fn rows(line: &str) -> Vec<&'static str> {
        bench(line).unwrap().rows.iter().map(|row| row.name).collect()
    }

    #[test]
    fn rows_are_chosen_in_their_own_order() {
        let line = "local --only calls_per_s,call_p50_us --quick";
        assert_eq!(rows(line), ["call_p50_us", "calls_per_s"]);
        let quick = bench(line).unwrap();
        assert!(quick.quick && !quick.ours);
        let ours = bench("local --only=calls_per_s --ours").unwrap();
        assert!(ours.rows.len() == 1 && ours.ours);
        assert!(bench("local --quick=no").is_err_and(|error| error.to_string().contains("--quick")));
    }

    #[test]
    fn rows_belong_to_their_suite() {
        assert_eq!(rows("ssh --only ssh_bulk_mib_s"), ["ssh_bulk_mib_s"]);
        assert_eq!(rows("docker").len(), 5);
        let message = |line: &str| bench(line).unwrap_err().to_string();
        assert!(message("docker --only call_p50_us").contains("docker_call_p50_us"));
        assert!(message("ssh --ours").ends_with("its options are: --only, --quick"));
        assert!(message("moon").contains(
            "bench local, bench python, bench macro, bench ssh, bench data, bench docker, bench aws (not moon)"
        ));
    }

    #[test]
    fn a_wrong_command_line_lists_the_alternatives() {
        let message = |line: &str| bench(line).unwrap_err().to_string();
        assert!(message("").contains("bench local"));
        assert!(message("local --only speed").contains("call_p50_us"));
        assert!(message("local --only").contains("call_p50_us"));
        assert!(message("local --fast").contains("--only, --quick, --ours"));
    }

    #[test]
    fn the_help_lists_all_suites() {
        for line in ["--help", "help", "local --help"] {
            assert_eq!(parse(line.split(' ').map(str::to_owned)).unwrap(), Command::Help);
        }
        assert!(SUITES.iter().all(|suite| HELP.contains(&format!("bench {} ", suite.name))));
    }
}
