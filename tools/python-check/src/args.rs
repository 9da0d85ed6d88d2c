//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};
use lexopt::{Arg, Parser};

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    /// The folders and files to check.
    Check(Vec<PathBuf>),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let mut line = Parser::from_args(arguments);
    let mut paths = Vec::new();
    while let Some(argument) = line.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            Arg::Value(path) => paths.push(PathBuf::from(path)),
            other => bail!("{}; the only option is --help", other.unexpected()),
        }
    }
    if paths.is_empty() {
        bail!("nothing to check: give a folder, or files, as in `python-check payloads`");
    }
    Ok(Command::Check(paths))
}

pub(crate) const HELP: &str = "\
Checks each Python file as `#[skyward::compute]` would check it as a payload of one file.

python-check FOLDER        all .py files below the folder, except in hidden folders and __pycache__
python-check FILE FILE …   these files

A file that is named twice, or by a link, counts once.
It prints `accepted` or `refused` for each file, with the reasons, and then the counts. A file is accepted if
  - it is in UTF-8, or in the encoding that a comment at its top names, and of no more than 16 MiB;
  - it is valid for the oldest Python that its `requires-python` allows, or else for 3.10;
  - its metadata (PEP 723) is well-formed;
  - it imports nothing by a relative name, and no file or folder that lies beside it;
  - the names of the package `skyward` that it uses exist, and its functions take the keywords that they get;
  - Python or the file defines each name that it reads (the macro checks this in inline bodies only);
  - each function at its top level can be declared as an entry with its own parameters: it is no asynchronous
    generator, and each parameter without a default can be passed by name. A name that means something else at
    the end of the file, as after `train = jit(train)`, can be declared with `unchecked`.
A file without functions is accepted if the other checks pass.

The exit code is 0 if all files are accepted, 1 if a file is refused, and 2 if it cannot do the check.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn folders_and_files_are_read() {
        assert_eq!(parsed("a b.py").unwrap(), Command::Check(vec!["a".into(), "b.py".into()]));
        assert_eq!(parsed("-- --help").unwrap(), Command::Check(vec!["--help".into()]));
        assert_eq!(parsed("a --help").unwrap(), Command::Help);
        assert_eq!(parsed("-h").unwrap(), Command::Help);
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        assert!(parsed("").unwrap_err().to_string().contains("give a folder"));
        assert!(parsed("--json a").unwrap_err().to_string().contains("--json"));
        assert!(parsed("-x").unwrap_err().to_string().contains("the only option is --help"));
    }
}
