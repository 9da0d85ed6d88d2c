//! Disks that are too small for environments or nodes: the start fails with an error that names the
//! disk and what to do, leaves nothing, and works when there is room.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::disk::Disk;
use common::user::{User, finish};
use common::{pool, python};
use indoc::indoc;
use skyward::compute::PendingCompute;

#[tokio::test]
#[ignore = "needs mount"]
async fn an_environment_that_does_not_fit_is_reported_and_built_when_there_is_room() {
    let uv = uv().await;
    let user = User::new();
    let cache = user.root.join("cache");
    // In small steps at the sizes at which only the worker's package does not fit any more.
    let grow = |size: u64| if size < 512 << 10 { size * 2 } else { size + (96 << 10) };
    let errors = until_it_fits(&user, &cache, grow, &[("SKYWARD_CACHE_DIR", &cache), ("PATH", &path_with(uv))]);
    for error in &errors {
        assert!(
            error.contains("failed: the disk is full") || error.contains("cannot be built: the disk is full"),
            "{error}"
        );
        assert!(error.contains("free some space, or set SKYWARD_CACHE_DIR"), "{error}");
        assert!(error.contains(cache.to_str().unwrap()), "which disk: {error}");
    }
    for (step, kind) in [("environment", "Environment: "), ("worker", "Bootstrap: ")] {
        let of_step = |error: &&String| error.contains(&format!("step: {step},")) && error.starts_with(kind);
        assert!(errors.iter().any(|error| of_step(&error)), "none in the step {step}: {errors:#?}");
    }
}

#[test]
#[ignore = "needs mount"]
fn a_node_that_does_not_fit_is_reported_and_started_when_there_is_room() {
    let user = User::new();
    let run = user.root.join("run");
    let errors = until_it_fits(&user, &run, |size| size + PAGE, &[]);
    assert!(!errors.is_empty());
    for error in errors {
        assert!(error.starts_with(&format!("Provider: cannot create {}/p-", run.display())), "{error}");
        assert!(error.contains("set SKYWARD_RUNTIME_DIR to a folder of your own with space in it"), "{error}");
    }
}

/// Runs clients whose folder is on a full disk, which then grows until there is room. Returns the
/// errors before that.
fn until_it_fits(
    user: &User,
    folder: &PathBuf,
    grow: impl Fn(u64) -> u64,
    variables: &[(&str, &PathBuf)],
) -> Vec<String> {
    std::fs::create_dir(folder).unwrap();
    let disk = Disk::mount(folder, PAGE);
    disk.fill();
    let mut errors = Vec::new();
    let mut size = PAGE;
    loop {
        let said = finish(user.command("call").envs(variables.iter().copied()).spawn().unwrap());
        assert!(user.machines().is_empty(), "{said}");
        assert!(user.pools().is_empty(), "{said}");
        if said == "returned" {
            return errors;
        }
        errors.push(said);
        size = grow(size);
        assert!(size < MOST, "the client never succeeds: {errors:#?}");
        disk.resize(size);
    }
}

/// The uv of this host, or one that a pool obtains: the small disk must not hold it.
async fn uv() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(uv) = std::env::split_paths(&path).map(|folder| folder.join("uv")).find(|uv| uv.exists()) {
        return uv;
    }
    pool(1).start().await.unwrap().shutdown(Duration::from_secs(20)).await.unwrap();
    let from = |variable| std::env::var_os(variable).map(PathBuf::from);
    let of_user = || Some(from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")))?.join("skyward"));
    let versions = std::fs::read_dir(from("SKYWARD_CACHE_DIR").or_else(of_user).unwrap().join("uv")).unwrap();
    versions.flatten().map(|version| version.path().join("bin/uv")).find(|uv| uv.exists()).unwrap()
}

/// The search path, with the folder of this program in front.
fn path_with(program: PathBuf) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = program.parent().unwrap().to_owned();
    std::env::join_paths(std::iter::once(first).chain(std::env::split_paths(&path))).unwrap().into()
}

/// The role in which the tests start this program.
#[tokio::test]
#[ignore = "a role that the other tests play"]
async fn client() {
    let call: PendingCompute<()> = python(indoc! {"
        def f():
            pass
    "})
    .into();
    match pool(1).scope(async |pool| call.run(pool).await).await {
        Ok(()) => println!("\nsaid returned"),
        Err(error) => println!("\nsaid {:?}: {}", error.kind(), format!("{error:#}").replace('\n', " / ")),
    }
}

const PAGE: u64 = 4096;
const MOST: u64 = 8 << 20;
