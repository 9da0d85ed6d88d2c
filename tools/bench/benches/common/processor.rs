//! The processor time of this process.

use skyward::error::{Error, ErrorKind};

/// The seconds of all threads, including those that have ended.
pub(crate) fn processor_seconds() -> skyward::Result<f64> {
    let stat = read("/proc/self/stat")?;
    // The program's name, in parentheses, may contain any characters.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).ok_or_else(|| untold("/proc/self/stat"))?;
    Ok((user + system) / TICKS)
}

/// Reads a file of the kernel.
pub(crate) fn read(path: &str) -> skyward::Result<String> {
    std::fs::read_to_string(path).map_err(|error| untold(path).with_source(error))
}

/// The error for a file with unexpected content.
pub(crate) fn untold(path: &str) -> Error {
    Error::new(ErrorKind::Io, format!("{path} has no processor time"))
}

/// Clock ticks per second, which are the same on every known Linux.
const TICKS: f64 = 100.0;
