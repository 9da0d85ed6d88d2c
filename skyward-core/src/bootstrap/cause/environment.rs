//! Causes in the interpreter or the requested packages.

use std::collections::BTreeSet;

use super::{Cause, Evidence, between};
use crate::spec::{OLDEST, satisfies};

pub(super) fn of_python(evidence: &Evidence<'_>) -> Option<Cause> {
    let (text, plan) = (evidence.text, evidence.plan);
    let has = |signs: &[&str]| evidence.has(signs);
    if has(&["there is no interpreter at"]) {
        let path = between(text, "there is no interpreter at ", &[" "]).unwrap_or_default();
        return Some(Cause::new(
            format!("there is no interpreter at {path}"),
            "give the path that the interpreter has on the machine, or let Skyward find one: `.python(\"auto\")`",
        ));
    }
    if has(&["it is too old: the worker needs"]) {
        return Some(Cause::new(
            "the interpreter is older than Python 3.10",
            "name a newer interpreter, or let Skyward find one: `.python(\"auto\")`",
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
    let found: BTreeSet<_> = evidence
        .output
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("skyward-found cpython-")?.split('-').next())
        .collect();
    let hint = "install a suitable version, ask for a version that the machine has, as in `.python(\"3.12\")`, or name an \
                interpreter by its path";
    if found.is_empty() {
        let why = evidence.marked("no-apt").filter(|why| !why.is_empty());
        let why = why.map(|why| format!("; the system's Python was not installed, because {why}")).unwrap_or_default();
        return Some(Cause::new(
            format!("the machine has no working Python{wanted}, and uv cannot download one{why}"),
            format!(
                "install one: {}; or let uv download it: UV_PYTHON_INSTALL_MIRROR sets the source",
                command(evidence)
            ),
        ));
    }
    let versions = found.iter().copied().collect::<Vec<_>>().join(", ");
    if found.iter().all(|version| satisfies(version, OLDEST) == Some(false)) {
        return Some(Cause::new(
            format!(
                "the Python of the machine is too old: it has {versions}, the worker needs 3.10 or newer, and uv cannot download one"
            ),
            "use a machine with a newer release of its system, or install a newer Python in addition to the old one",
        ));
    }
    Some(Cause::new(
        format!("the machine has no Python that suits{wanted}, and uv cannot download one; it has: {versions}"),
        hint,
    ))
}

/// The command that installs an interpreter on such a system.
fn command(evidence: &Evidence<'_>) -> &'static str {
    match evidence.marked("system").unwrap_or_default() {
        "alpine" => "`sudo apk add python3`",
        "arch" => "`sudo pacman -S python`",
        "fedora" | "rhel" | "centos" | "rocky" | "almalinux" | "amzn" => "`sudo dnf install -y python3.12`",
        _ => "`sudo apt-get install -y python3`",
    }
}

pub(super) fn of_packages(evidence: &Evidence<'_>) -> Option<Cause> {
    let (text, plan) = (evidence.text, evidence.plan);
    let has = |signs: &[&str]| evidence.has(signs);
    if has(&["does not have all that the image asks for"])
        || has(&["packages were unavailable because the network was disabled"])
    {
        let list: Vec<_> = plan.requirements.iter().map(|requirement| format!("'{requirement}'")).collect();
        return Some(Cause::of_packages(
            "the image names an interpreter, which lacks packages that the image requires",
            format!(
                "install them for that interpreter: `python -m pip install {}`; or let Skyward build an environment: \
                 `.python(\"auto\")`",
                list.join(" ")
            ),
        ));
    }
    if let Some(name) = between(text, "uv ignores the settings of the image, because ", &[" is set"]) {
        return Some(Cause::new(
            format!("the machine's variable {name} makes uv ignore the indexes and settings of the image"),
            "unset it on the machine, and put its settings into `~/.config/uv/uv.toml` there",
        ));
    }
    if has(&["cannot read the settings of the image"]) {
        return Some(Cause::new(
            "the machine's uv cannot read `[tool.uv]` of a payload",
            "correct the setting that it names; or, if the machine's own uv is too old for it, update that uv or take it out of PATH",
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
            "check the spelling; if another index has the package, add it: `.index(PackageIndex::new(name, url))`",
        ));
    }
    if has(&["hash mismatch", "do not match the hashes"]) {
        return Some(Cause::of_packages(
            "the hash of a downloaded file differs from the hash in the lock file",
            "update the lock file, or check the index",
        ));
    }
    if has(&["no wheels with a matching", "no usable wheels", "requires-python", "does not satisfy python"]) {
        return Some(Cause::of_packages(
            "a package does not support this Python or machine",
            "ask for another version of Python, such as `.python(\"3.12\")`, or of the package",
        ));
    }
    if has(&["there is no version of"]) {
        let name = between(text, "there is no version of ", &[" "]).unwrap_or_default();
        return Some(Cause::of_packages(format!("there is no version `{name}`"), "ask for a version that exists"));
    }
    has(&["unsatisfiable", "no solution found"]).then(|| {
        Cause::of_packages(
            "no versions satisfy all requirements",
            "loosen one of the requirements that contradict each other",
        )
    })
}
