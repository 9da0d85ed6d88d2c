//! Nodes of one pool have the same Python and packages, with real Python.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::{ErrorKind, Result};
use skyward::ids::Rank;
use skyward::payload::{Payload, Target};
use skyward::plugin::plugin;
use skyward::spec::Image;

use crate::common::scene::Folder;
use crate::common::{pool, python};

/// The interpreter of an environment with this Python, which Skyward builds.
async fn interpreter(image: Image) -> Result<String> {
    let executable: PendingCompute<String> = python(indoc! {"
        import sys
        def f():
            return sys.executable
    "})
    .into();
    pool(1).image(image).scope(async |pool| executable.run(pool).await).await
}

/// Writes a program that runs another interpreter on each node: this one, with these folders
/// besides from which it imports.
fn of_nodes(folder: &Folder, interpreters: [(&str, &[PathBuf]); 2]) -> Image {
    let mut script = String::from("#!/bin/sh\ncase $SKYWARD_MACHINE in\n");
    for (pattern, (interpreter, folders)) in ["*.n0-*", "*"].into_iter().zip(interpreters) {
        writeln!(script, "{pattern})").unwrap();
        for folder in folders {
            writeln!(script, "export PYTHONPATH=\"${{PYTHONPATH:+$PYTHONPATH:}}{}\"", folder.display()).unwrap();
        }
        writeln!(script, "exec {interpreter} \"$@\" ;;").unwrap();
    }
    script += "esac\n";
    let path = folder.path.join("python");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Image::new().python(path.to_str().unwrap())
}

/// A folder in which a package is installed.
fn package(folder: &Folder, name: &str, version: &str) -> PathBuf {
    let path = folder.path.join(format!("{name}-{version}"));
    let about = path.join(format!("{name}-{version}.dist-info"));
    std::fs::create_dir_all(&about).unwrap();
    std::fs::write(about.join("METADATA"), format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"))
        .unwrap();
    path
}

#[tokio::test]
async fn nodes_with_different_packages_are_refused_before_their_workers_start() {
    let python = interpreter(Image::new()).await.unwrap();
    let folder = Folder::new();
    let (one, two) = (package(&folder, "demo", "1.0"), package(&folder, "demo", "2.0"));
    let other = package(&folder, "other", "3.0");
    let cases: [(&[PathBuf], &[PathBuf], &str); 3] = [
        (std::slice::from_ref(&one), &[two], "demo 2.0 instead of 1.0"),
        (std::slice::from_ref(&one), &[one.clone(), other], "other 3.0 in addition"),
        (std::slice::from_ref(&one), &[], "no demo 1.0"),
    ];
    for (first, second, difference) in cases {
        let image = of_nodes(&folder, [(&python, first), (&python, second)]);
        let error = pool(2).image(image.clone()).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Environment, "{error:#}");
        assert_eq!(error.message(), format!("node 1 has another environment than node 0: {difference}"));
    }
}

#[tokio::test]
async fn packages_on_the_path_of_the_image_count_too() {
    // In the working folder of each node.
    let make =
        "case $SKYWARD_MACHINE in *.n0-*) version=1.0 ;; *) version=2.0 ;; esac\nmkdir -p libs/demo-$version.dist-info";
    let image = Image::new().env("PYTHONPATH", "libs");
    let error = pool(2).image(image).plugin(plugin("libs").bootstrap(make)).start().await.unwrap_err();
    assert_eq!(error.message(), "node 1 has another environment than node 0: demo 2.0 instead of 1.0");
}

#[tokio::test]
async fn a_mixed_pool_runs_tasks_and_refuses_calls() {
    let python_of_both = interpreter(Image::new()).await.unwrap();
    let folder = Folder::new();
    let one = package(&folder, "demo", "1.0");
    let image = of_nodes(&folder, [(&python_of_both, &[one]), (&python_of_both, &[])]);
    let has: PendingCompute<bool> = python(indoc! {"
        import importlib.metadata
        def f():
            return any(found.name == 'demo' for found in importlib.metadata.distributions())
    "})
    .into();
    let calls: PendingCompute<String> = python(indoc! {"
        import skyward as sky
        def f():
            try:
                return sky.submit(len, 'ab').result()
            except sky.CallError as error:
                return str(error)
    "})
    .into();
    let (has, said) = pool(2)
        .image(image)
        .mixed_environments(true)
        .scope(async |pool| Ok((has.broadcast(pool).await?, calls.run(pool).await?)))
        .await
        .unwrap();
    assert_eq!(has, [true, false]);
    assert!(said.starts_with("payloads make no calls in a pool whose nodes may have different environments"), "{said}");
}

#[tokio::test]
#[ignore = "needs two pythons, package index"]
async fn nodes_with_different_pythons_are_refused_before_their_workers_start() {
    let [first, second] = two_pythons();
    let old = interpreter(Image::new().python(first.as_str())).await.unwrap();
    let new = interpreter(Image::new().python(second.as_str())).await.unwrap();
    let folder = Folder::new();
    let image = of_nodes(&folder, [(&old, &[]), (&new, &[])]);
    let error = pool(2).image(image.clone()).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Environment, "{error:#}");
    let wanted = format!("node 1 has another environment than node 0: python {second} instead of {first}");
    assert!(error.message().starts_with(&wanted), "{error:#}");
    let version: PendingCompute<String> = python(indoc! {"
        import sys
        def f():
            return '%d.%d' % sys.version_info[:2]
    "})
    .into();
    let mixed = pool(2).image(image).mixed_environments(true);
    assert_eq!(mixed.scope(async |pool| version.broadcast(pool).await).await.unwrap(), [first, second]);
}

/// Two minor versions of Python of this host that Skyward's environments can have.
fn two_pythons() -> [String; 2] {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).filter(|folder| !folder.ends_with("shims")).collect();
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".pyenv")));
    let versions = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok()).into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let has = |version: &u32| folders.iter().any(|folder| folder.join(format!("python3.{version}")).is_file());
    let found: Vec<String> = (10..=14).filter(has).map(|version| format!("3.{version}")).take(2).collect();
    found.try_into().unwrap_or_else(|found| panic!("this host has two minor versions of Python: {found:?}"))
}

/// A payload in `tests/payloads/changes.py`.
fn changes(entry: &'static str) -> PendingCompute<Vec<String>> {
    Payload::python("changes.py", include_str!("../payloads/changes.py"), entry).into()
}

#[tokio::test]
async fn what_a_payload_changes_in_its_environment_reaches_no_other_pool() {
    let image = Image::new().pip(["iniconfig==2.0.0"]);
    let other = Image::new().pip(["iniconfig==2.0.0", "sniffio==1.3.1"]);
    let seen_by = async |image: Image| pool(1).image(image).scope(async |pool| changes("seen").run(pool).await).await;
    assert_eq!(seen_by(other.clone()).await.unwrap(), Vec::<String>::new());
    pool(1)
        .image(image.clone())
        .scope(async |pool| {
            let done = changes("change").run(pool).await?;
            assert_eq!(done.len(), 10, "{done:?}");
            assert_eq!(changes("seen").run(pool).await?, done, "the pool itself goes on with what it has");
            for image in [image.clone(), other.clone()] {
                assert_eq!(seen_by(image).await?, Vec::<String>::new());
            }
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(seen_by(image).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_writable_environment_is_that_of_its_node_alone() {
    let image = Image::new().pip(["iniconfig==2.0.0"]);
    let writable = image.clone().writable(true);
    let done = pool(2)
        .image(writable)
        .scope(async |pool| {
            let done = changes("change").run_on(pool, Target::Rank(Rank(0))).await?;
            assert_eq!(changes("seen").run_on(pool, Target::Rank(Rank(0))).await?, done);
            assert_eq!(changes("seen").run_on(pool, Target::Rank(Rank(1))).await?, Vec::<String>::new());
            Ok(done)
        })
        .await
        .unwrap();
    assert_eq!(done.len(), 10, "{done:?}");
    let seen = pool(1).image(image).scope(async |pool| changes("seen").run(pool).await).await.unwrap();
    assert_eq!(seen, Vec::<String>::new());
}
