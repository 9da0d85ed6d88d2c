//! Why a step failed: the likely cause, the requirement to look at, and the tool's own words.

use super::plan::{Plan, Step};
use super::run::marked;
use crate::error::{Error, ErrorKind};
use crate::remote::CommandOutput;
use crate::spec::{normalised, requirement_name};

/// The error of a step that failed.
pub(super) fn explain(step: &Step, plan: &Plan, output: &CommandOutput) -> Error {
    let text = flat(&output.stderr);
    let cause = likely(step, &text, &output.stdout, plan);
    let mut message = match step.name {
        "environment" | "uv" | "packages" => format!("the environment cannot be built: {}", cause.summary),
        name => format!("the step `{name}` failed: {}", cause.summary),
    };
    let concerned = concerned(plan, &text);
    if step.name == "environment" && !concerned.is_empty() && cause.packages {
        message.push_str(&format!("\nlook at: {}", concerned.join(", ")));
    }
    let error = with_words(step, output, message);
    let error = if cause.temporary { error.temporary() } else { error };
    let error = match marked(&output.stdout, "cache").filter(|_| cause.disk) {
        Some(cache) => error.with_context("cache", cache),
        None => error,
    };
    match cause.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The error of a step whose output is not what it should be.
pub(super) fn output_error(step: &Step, output: &CommandOutput, why: &str) -> Error {
    with_words(step, output, format!("the step `{}` failed: {why}", step.name))
}

fn with_words(step: &Step, output: &CommandOutput, message: String) -> Error {
    let kind = match step.name {
        "environment" | "uv" | "packages" => ErrorKind::Environment,
        _ => ErrorKind::Bootstrap,
    };
    let words = words(output);
    let message = if words.is_empty() { message } else { format!("{message}\n{}", indented(&words)) };
    Error::new(kind, message)
        .with_context("step", step.name)
        .with_context("command", &step.command)
        .with_context("exit", output.status)
}

struct Cause {
    summary: String,
    hint: Option<String>,
    temporary: bool,
    /// Whether the folder for environments has to do with it.
    disk: bool,
    /// Whether the image's requirements have to do with it.
    packages: bool,
}

impl Cause {
    fn new(summary: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { summary: summary.into(), hint: Some(hint.into()), temporary: false, disk: false, packages: false }
    }

    fn of_disk(summary: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { disk: true, ..Self::new(summary, hint) }
    }

    fn of_packages(summary: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { packages: true, ..Self::new(summary, hint) }
    }
}

/// The text of the tools, of any version, has these signs; the first that is found counts.
fn likely(step: &Step, text: &str, stdout: &str, plan: &Plan) -> Cause {
    let lower = text.to_lowercase();
    let has = |signs: &[&str]| signs.iter().any(|sign| lower.contains(sign));
    if has(&["no space left on device", "os error 28", "disk quota exceeded", "os error 122"]) {
        return Cause::of_disk(
            "the disk is full",
            "free some space, or set SKYWARD_CACHE_DIR (environments) and UV_CACHE_DIR (downloads) to folders on another disk: `df -h`",
        );
    }
    if has(&["read-only file system", "permission denied", "cannot create", "os error 13", "os error 30"])
        && !has(&["failed to build"])
    {
        return Cause::of_disk(
            "a folder cannot be written to",
            "set SKYWARD_CACHE_DIR to a folder of your own; if it is uv's own cache, UV_CACHE_DIR",
        );
    }
    if has(&["flock: not found", "flock: command not found"]) {
        return Cause::new("the machine has no `flock`", "install util-linux on it");
    }
    if step.name == "packages" {
        let missing = between(text, "not installed:", &[]).unwrap_or_default();
        return Cause::new(
            "Debian packages are missing, and nothing is installed into the client's own system",
            if missing.is_empty() {
                "run the pool on machines with Debian".into()
            } else {
                format!("sudo apt-get install -y {missing}")
            },
        );
    }
    if has(&["neither uv nor python3", "neither pip nor venv"]) {
        return Cause::new(
            "uv is missing and cannot be obtained",
            "install one of them: `sudo apt-get install -y python3-venv`, or put uv 0.7 or newer into PATH",
        );
    }
    if let Some(cause) = of_network(text, &lower) {
        return cause;
    }
    if step.name == "environment" {
        return of_python(text, &lower, stdout, plan).or_else(|| of_packages(text, &lower, plan)).unwrap_or_else(
            || Cause {
                summary: "the installer failed".into(),
                hint: None,
                temporary: false,
                disk: false,
                packages: true,
            },
        );
    }
    if has(&["do not match the hashes", "hash mismatch"]) {
        return Cause::new(
            "the index gives another uv than the one that is pinned",
            "put uv 0.7 or newer into PATH, or use an index that passes files on unchanged",
        );
    }
    Cause { summary: "it did not end well".into(), hint: None, temporary: false, disk: false, packages: false }
}

fn of_network(text: &str, lower: &str) -> Option<Cause> {
    let has = |signs: &[&str]| signs.iter().any(|sign| lower.contains(sign));
    let host = between(text, "https://", ENDS).or_else(|| between(text, "http://", ENDS)).unwrap_or("the index");
    if has(&["invalid peer certificate", "certificate_verify_failed", "certificate verify failed", "unknownissuer"]) {
        return Some(Cause::new(
            format!("the certificate of {host} is not trusted"),
            "if the network has a certificate authority of its own, set SSL_CERT_FILE to a file with it (PEM), or add it to the image: `.certificate(\"ca.pem\")`",
        ));
    }
    if has(&["401 unauthorized", "403 forbidden", "status code: 401", "status code: 403", "407 proxy"])
        && !has(&["python-build-standalone"])
    {
        return Some(Cause::new(
            format!("{host} refuses access"),
            "give user and password of the index: `.credentials(\"index name\", user, password)`",
        ));
    }
    let unreachable = has(&[
        "dns error",
        "failed to lookup address",
        "name or service not known",
        "temporary failure in name resolution",
        "connection refused",
        "network is unreachable",
        "no route to host",
        "connection timed out",
        "operation timed out",
        "timed out",
        "tcp connect error",
        "connection reset",
        "newconnectionerror",
    ]);
    if !unreachable {
        return None;
    }
    if has(&["python-build-standalone", "cpython-3"]) {
        // Not the index: uv found no interpreter and wanted to download one.
        return None;
    }
    let hint = "check the network of the machine, HTTPS_PROXY, and the address of the index: UV_DEFAULT_INDEX, PIP_INDEX_URL or `.default_index(url)`";
    Some(Cause { temporary: true, ..Cause::new(format!("{host} cannot be reached"), hint) })
}

fn of_python(text: &str, lower: &str, stdout: &str, plan: &Plan) -> Option<Cause> {
    let has = |signs: &[&str]| signs.iter().any(|sign| lower.contains(sign));
    if has(&["there is no interpreter at"]) {
        let path = between(text, "there is no interpreter at ", &[" "]).unwrap_or_default();
        return Some(Cause::new(
            format!("there is no interpreter at {path}"),
            "give the path that it has on the machine, or let one be found: `.python(\"auto\")`",
        ));
    }
    if has(&["it is too old: the worker needs"]) {
        return Some(Cause::new(
            "the interpreter is older than Python 3.10",
            "give a newer one, or let one be found: `.python(\"auto\")`",
        ));
    }
    let missing =
        has(&["no interpreter found", "python-build-standalone", "failed to inspect python interpreter", "cpython-3"])
            && !has(&["no solution found", "failed to build"]);
    if !missing {
        return None;
    }
    let wanted = if plan.requires_python.is_empty() {
        String::new()
    } else {
        format!(" (the payload requires {})", plan.requires_python.join(","))
    };
    let found: Vec<_> = stdout
        .lines()
        .filter_map(|line| line.strip_prefix("skyward-found cpython-")?.split('-').next())
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let found = if found.is_empty() { "none that works".to_owned() } else { found.join(", ") };
    Some(Cause::new(
        format!("the machine has no Python that suits{wanted}, and uv cannot download one; it has: {found}"),
        "install one, ask for a version that is there: `.python(\"3.12\")`, or name an interpreter by its path",
    ))
}

fn of_packages(text: &str, lower: &str, plan: &Plan) -> Option<Cause> {
    let has = |signs: &[&str]| signs.iter().any(|sign| lower.contains(sign));
    if has(&["does not have all that the image asks for"])
        || has(&["packages were unavailable because the network was disabled"])
    {
        let list: Vec<_> = plan.requirements.iter().map(|requirement| format!("'{requirement}'")).collect();
        return Some(Cause::of_packages(
            "the interpreter is used as it is, and does not have all that the image asks for",
            format!(
                "install it there: `python -m pip install {}`; or let an environment be built: `.python(\"auto\")`",
                list.join(" ")
            ),
        ));
    }
    if has(&["failed to parse", "expected package name"]) {
        return Some(Cause::of_packages(
            "a requirement cannot be read",
            "write it as `name`, `name>=1.2,<2` or `name[extra]==1.2`",
        ));
    }
    if has(&["failed to build", "build backend returned an error"]) {
        let package = between(text, "Failed to build `", &["`"])
            .map(|package| format!("`{package}`"))
            .unwrap_or("a package".into());
        return Some(Cause::of_packages(
            format!("{package} has no wheel for this Python and machine, and building it failed"),
            "ask for a version that has a wheel (a newer one, or with another `.python(…)`), or add what the build needs: `.apt([\"build-essential\"])`",
        ));
    }
    if has(&["was not found in the package registry", "was not found in the provided package locations"]) {
        let name = between(text, "Because ", &[" was not found"]).unwrap_or_default();
        return Some(Cause::of_packages(
            format!("no index has a package `{name}`"),
            "check its spelling; if it is on an index of its own, add that: `.index(PackageIndex::new(name, url))`",
        ));
    }
    if has(&["hash mismatch", "do not match the hashes"]) {
        return Some(Cause::of_packages("a file is not the one that the lock names", "lock again, or check the index"));
    }
    if has(&["no wheels with a matching", "no usable wheels", "requires-python", "does not satisfy python"]) {
        return Some(Cause::of_packages(
            "a package does not support this Python or machine",
            "ask for another Python: `.python(\"3.12\")`",
        ));
    }
    if has(&["there is no version of"]) {
        let name = between(text, "there is no version of ", &[" "]).unwrap_or_default();
        return Some(Cause::of_packages(format!("there is no version `{name}`"), "ask for one that exists"));
    }
    has(&["unsatisfiable", "no solution found"]).then(|| {
        Cause::of_packages("no versions satisfy all requirements", "loosen one of those that contradict each other")
    })
}

/// The image's requirements whose packages are named in the text.
fn concerned<'a>(plan: &'a Plan, text: &str) -> Vec<&'a str> {
    let named: Vec<_> = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
        .map(|word| normalised(word.trim_matches('.')))
        .collect();
    let concerns = |requirement: &&String| requirement_name(requirement).is_ok_and(|name| named.contains(&name));
    plan.requirements.iter().filter(concerns).map(String::as_str).collect()
}

/// One line, without the frames that some versions draw.
fn flat(text: &str) -> String {
    let plain: String = text.chars().map(|c| if "×╰─▶│├".contains(c) { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is between `start` and the first of `ends`; to the end of the text where there is none.
fn between<'a>(text: &'a str, start: &str, ends: &[&str]) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    Some(rest[..end].trim().trim_end_matches([',', '.'])).filter(|found| !found.is_empty())
}

/// The end of what the tool said, from its first word about an error; of much, the beginning and the end.
fn words(output: &CommandOutput) -> String {
    let said = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
    let lines: Vec<_> =
        said.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with("skyward-")).collect();
    let is_error = |line: &&str| {
        let line = line.trim_start().to_lowercase();
        line.starts_with("error") || line.starts_with('×')
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

/// Where the host ends in an address in running text.
const ENDS: &[&str] = &["/", " ", "`", ")", "'", ":"];
const MOST: usize = 24;
const HEAD: usize = 4;

#[cfg(test)]
mod tests;
