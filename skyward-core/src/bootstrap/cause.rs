//! Why a step failed: the likely cause, the requirement to check, and the tool's own words.

mod environment;
mod network;
mod system;

use std::time::SystemTime;

use super::plan::{Plan, Step};
use super::run::marked;
use crate::error::{Error, ErrorKind};
use crate::remote::CommandOutput;
use crate::spec::{normalised, requirement_name};

/// What the client knows when a step has failed.
#[derive(Debug)]
pub(super) struct Seen {
    /// The client's time.
    pub(super) now: SystemTime,
    /// The client's variables for indexes and certificates that the machine does not have.
    pub(super) settings: Vec<&'static str>,
}

/// The error of a failed step.
pub(super) fn explain(step: &Step, plan: &Plan, output: &CommandOutput, seen: &Seen) -> Error {
    let text = flat(&output.stderr);
    let evidence = Evidence { step: step.name, lower: text.to_lowercase(), text: &text, output, plan, seen };
    let cause = likely(&evidence);
    let mut message = match step.name {
        "environment" | "uv" | "python" | "packages" => format!("the environment cannot be built: {}", cause.summary),
        name => format!("the step `{name}` failed: {}", cause.summary),
    };
    let concerned = concerned(plan, &text);
    if step.name == "environment" && !concerned.is_empty() && cause.packages {
        message.push_str(&format!("\nlook at: {}", concerned.join(", ")));
    }
    let error = with_words(step, output, message);
    let error = if cause.temporary { error.temporary() } else { error };
    let about =
        |key: &'static str, of_it: bool| marked(&output.stdout, key).filter(|_| of_it).map(|value| (key, value));
    let facts = [about("cache", cause.disk), about("disk", cause.disk)];
    let error = facts.into_iter().flatten().fold(error, |error, (key, value)| error.with_context(key, value));
    match cause.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The error of a step with unexpected output.
pub(super) fn output_error(step: &Step, output: &CommandOutput, why: &str) -> Error {
    with_words(step, output, format!("the step `{}` failed: {why}", step.name))
}

fn with_words(step: &Step, output: &CommandOutput, message: String) -> Error {
    let kind = match step.name {
        "environment" | "uv" | "python" | "packages" => ErrorKind::Environment,
        _ => ErrorKind::Bootstrap,
    };
    let words = words(output);
    let message = if words.is_empty() { message } else { format!("{message}\n{}", indented(&words)) };
    Error::new(kind, message)
        .with_context("step", step.name)
        .with_context("command", &step.command)
        .with_context("exit", output.status)
}

/// The last output of a step, and its context.
struct Evidence<'a> {
    step: &'static str,
    text: &'a str,
    /// The same text in lower case.
    lower: String,
    output: &'a CommandOutput,
    plan: &'a Plan,
    seen: &'a Seen,
}

impl Evidence<'_> {
    fn has(&self, signs: &[&str]) -> bool {
        signs.iter().any(|sign| self.lower.contains(sign))
    }

    /// The value that the script printed under this name.
    fn marked(&self, name: &str) -> Option<&str> {
        marked(&self.output.stdout, name)
    }

    /// Whether the step downloads from the mirrors of Debian.
    fn is_of_apt(&self) -> bool {
        matches!(self.step, "packages" | "python")
    }
}

struct Cause {
    summary: String,
    hint: Option<String>,
    temporary: bool,
    /// Whether the folder for environments is involved.
    disk: bool,
    /// Whether the image's requirements are involved.
    packages: bool,
}

impl Cause {
    fn new(summary: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { summary: summary.into(), hint: Some(hint.into()), temporary: false, disk: false, packages: false }
    }

    /// A cause that may pass by itself.
    fn passing(summary: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { temporary: true, ..Self::new(summary, hint) }
    }

    fn unknown(summary: impl Into<String>) -> Self {
        Self { hint: None, ..Self::new(summary, "") }
    }

    fn of_disk(summary: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { disk: true, ..Self::new(summary, hint) }
    }

    fn of_packages(summary: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { packages: true, ..Self::new(summary, hint) }
    }
}

/// The first cause whose signs are in the output; the signs cover several versions of the tools.
fn likely(evidence: &Evidence<'_>) -> Cause {
    let environment = evidence.step == "environment";
    system::of_folder(evidence)
        .or_else(|| system::of_apt(evidence))
        .or_else(|| network::of_network(evidence))
        .or_else(|| system::of_libraries(evidence))
        .or_else(|| {
            environment
                .then(|| environment::of_python(evidence).or_else(|| environment::of_packages(evidence)))
                .flatten()
        })
        .or_else(|| system::of_tools(evidence))
        .unwrap_or_else(|| match environment {
            true => Cause { packages: true, ..Cause::unknown("the installer failed") },
            false => Cause::unknown("its command failed"),
        })
}

/// The image's requirements whose packages the text names.
fn concerned<'a>(plan: &'a Plan, text: &str) -> Vec<&'a str> {
    let named: Vec<_> = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
        .map(|word| normalised(word.trim_matches('.')))
        .collect();
    let concerns = |requirement: &&String| requirement_name(requirement).is_ok_and(|name| named.contains(&name));
    plan.requirements.iter().filter(concerns).map(String::as_str).collect()
}

/// The text as one line, without the frames that some versions draw.
fn flat(text: &str) -> String {
    let plain: String = text.chars().map(|c| if "×╰─▶│├".contains(c) { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text between `start` and the first of `ends`, or up to the end of the text.
fn between<'a>(text: &'a str, start: &str, ends: &[&str]) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    Some(rest[..end].trim().trim_end_matches([',', '.'])).filter(|found| !found.is_empty())
}

/// The last output of the tool, from its first line about an error on. Of long output, the
/// beginning and the end.
pub(super) fn words(output: &CommandOutput) -> String {
    let text = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
    let lines: Vec<_> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with("skyward-")).collect();
    let is_error = |line: &&str| {
        let line = line.trim_start().to_lowercase();
        line.starts_with("error") || line.starts_with("e: ") || line.starts_with('×')
    };
    let first = lines.iter().position(is_error).unwrap_or(lines.len().saturating_sub(MOST));
    let lines = &lines[first..];
    if lines.len() <= MOST {
        return lines.join("\n");
    }
    [&lines[..HEAD], &["…"], &lines[lines.len() - (MOST - HEAD)..]].concat().join("\n")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

const MOST: usize = 24;
const HEAD: usize = 4;

#[cfg(test)]
mod tests;
