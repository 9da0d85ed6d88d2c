//! The contract of [`Plugin`], one function for each clause.
//!
//! Each function asks the plugin about a table of clusters ([`clusters`]): one worker and many
//! workers, with and without accelerators, fixed and elastic.
//!
//! ```
//! # use skyward_core as skyward;
//! use skyward::plugin::plugin;
//! use skyward::testkit::plugin_suite;
//!
//! plugin_suite::transform_only_adds(&plugin("timing").pip(["psutil"])).unwrap();
//! ```

use std::io::Write;
use std::process::{Command, Stdio};

use super::provider_suite::require;
use super::violation::{Violation, report};
use crate::plugin::{Hook, HookKind, Plugin};
use crate::spec::{Accelerator, ClusterInfo, Image, PackageIndex};

/// Checks every clause, and prints a line for each. Needs `python3` and `sh` on this host.
///
/// # Errors
///
/// A [`Violation`] for each clause that does not hold.
pub fn all(plugin: &dyn Plugin) -> Result<(), Vec<Violation>> {
    let mut broken = Vec::new();
    let subject = plugin.name().to_owned();
    macro_rules! check {
        ($($clause:ident),+ $(,)?) => {
            $(report(&subject, stringify!($clause), $clause(plugin), &mut broken);)+
        };
    }
    check!(
        name_is_one_word,
        answers_are_pure,
        workers_per_node_is_not_zero,
        relations_are_to_others,
        transform_only_adds,
        transform_gives_a_valid_image,
        hooks_are_of_their_kind,
        hooks_define_their_factory,
        hooks_are_python,
        launcher_keeps_the_command,
        bootstrap_is_shell,
    );
    if broken.is_empty() { Ok(()) } else { Err(broken) }
}

/// The clusters on which each clause is checked.
pub fn clusters() -> Vec<ClusterInfo> {
    let mut clusters = Vec::new();
    for (nodes, workers) in [(1, 1), (1, 2), (2, 1), (3, 4)] {
        for accelerator in [None, Some(Accelerator::new("H100", 8)), Some(Accelerator::new("T4", 1))] {
            for elastic in [false, true] {
                let cluster = ClusterInfo::new(nodes, workers).accelerator(accelerator.clone());
                clusters.push(cluster.elastic(elastic).shared_host(nodes == 2).storage(workers != 2));
            }
        }
    }
    clusters
}

/// `name` is one word in lower case, and never changes.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn name_is_one_word(plugin: &dyn Plugin) -> Result<(), Violation> {
    let clause = "name_is_one_word";
    let (name, again) = (plugin.name().to_owned(), plugin.name());
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
    require(clause, good, || format!("the name is {name:?}"))?;
    require(clause, name == again, || format!("the name was {name:?}, then {again:?}"))
}

/// Each method but `around_pool` returns the same answer for the same cluster.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn answers_are_pure(plugin: &dyn Plugin) -> Result<(), Violation> {
    for cluster in clusters() {
        let cluster = &cluster;
        let same = |what: &str, answer: &dyn Fn() -> String| {
            let (first, second) = (answer(), answer());
            require("answers_are_pure", first == second, || {
                format!("on {cluster:?}, `{what}` returned {first}, then {second}")
            })
        };
        same("workers_per_node", &|| format!("{:?}", plugin.workers_per_node(cluster.accelerator.as_ref())))?;
        same("requires", &|| format!("{:?}", plugin.requires(cluster)))?;
        same("conflicts_with", &|| format!("{:?}", plugin.conflicts_with(cluster)))?;
        same("joins_world", &|| plugin.joins_world(cluster).to_string())?;
        same("world", &|| plugin.world().to_owned())?;
        same("bootstrap", &|| format!("{:?}", plugin.bootstrap(cluster)))?;
        same("around_app", &|| format!("{:?}", plugin.around_app(cluster)))?;
        same("around_task", &|| format!("{:?}", plugin.around_task(cluster)))?;
        same("launcher", &|| format!("{:?}", plugin.launcher(worker_command(), cluster)))?;
        for image in images() {
            same("transform", &|| format!("{:?}", plugin.transform(image.clone(), cluster)))?;
        }
    }
    Ok(())
}

/// `workers_per_node` never returns 0.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn workers_per_node_is_not_zero(plugin: &dyn Plugin) -> Result<(), Violation> {
    for cluster in clusters() {
        let workers = plugin.workers_per_node(cluster.accelerator.as_ref());
        require("workers_per_node_is_not_zero", workers != Some(0), || {
            format!("it asks for 0 workers on a node with {:?}", cluster.accelerator)
        })?;
    }
    Ok(())
}

/// The plugins that a plugin requires or conflicts with are other plugins, none is in both lists,
/// and each entry has a reason.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn relations_are_to_others(plugin: &dyn Plugin) -> Result<(), Violation> {
    let clause = "relations_are_to_others";
    for cluster in clusters() {
        let (requires, conflicts) = (plugin.requires(&cluster), plugin.conflicts_with(&cluster));
        for relation in requires.iter().chain(&conflicts) {
            require(clause, relation.plugin != plugin.name(), || {
                format!("on {cluster:?} it names itself: {relation:?}")
            })?;
            require(clause, !relation.reason.trim().is_empty(), || {
                format!("on {cluster:?} it gives no reason: {relation:?}")
            })?;
        }
        let both = requires.iter().find(|one| conflicts.iter().any(|other| one.plugin == other.plugin));
        require(clause, both.is_none(), || format!("on {cluster:?} it both requires and refuses {both:?}"))?;
    }
    Ok(())
}

/// `transform` only adds to the image: everything that the user or an earlier plugin asked for
/// stays, in its order.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn transform_only_adds(plugin: &dyn Plugin) -> Result<(), Violation> {
    for cluster in clusters() {
        for before in images() {
            // A plugin may refuse a cluster or an image.
            let Ok(after) = plugin.transform(before.clone(), &cluster) else { continue };
            let mut lost = Vec::new();
            if after.python != before.python {
                lost.push(format!("python {:?} → {:?}", before.python, after.python));
            }
            if after.default_index != before.default_index && before.default_index.is_some() {
                lost.push(format!("default index {:?} → {:?}", before.default_index, after.default_index));
            }
            if after.requirements != before.requirements && before.requirements.is_some() {
                lost.push(format!("requirements {:?} → {:?}", before.requirements, after.requirements));
            }
            missing("pip", &before.pip, &after.pip, &mut lost);
            missing("apt", &before.apt, &after.apt, &mut lost);
            missing("indexes", &before.indexes, &after.indexes, &mut lost);
            missing("files", &before.files, &after.files, &mut lost);
            missing("exclude", &before.exclude, &after.exclude, &mut lost);
            if before.writable && !after.writable {
                lost.push("writable".to_owned());
            }
            if before.gitignore && !after.gitignore {
                lost.push("gitignore".to_owned());
            }
            missing("requires-python", &before.requires_python, &after.requires_python, &mut lost);
            missing("certificates", &before.certificates, &after.certificates, &mut lost);
            for (key, value) in &before.secrets {
                if after.secrets.get(key) != Some(value) {
                    lost.push(format!("the secret {key}"));
                }
            }
            for (key, value) in &before.env {
                if after.env.get(key) != Some(value) {
                    lost.push(format!("the variable {key} {value:?} → {:?}", after.env.get(key)));
                }
            }
            require("transform_only_adds", lost.is_empty(), || format!("on {cluster:?}: {}", lost.join("; ")))?;
        }
    }
    Ok(())
}

/// `transform` turns a valid image into a valid image.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn transform_gives_a_valid_image(plugin: &dyn Plugin) -> Result<(), Violation> {
    for cluster in clusters() {
        for image in images() {
            let Ok(image) = plugin.transform(image, &cluster) else { continue };
            let valid = image.validate();
            require("transform_gives_a_valid_image", valid.is_ok(), || {
                format!(
                    "on {cluster:?} the image is refused: {}",
                    valid.err().map(|error| format!("{error:#}")).unwrap_or_default()
                )
            })?;
        }
    }
    Ok(())
}

/// `around_app` returns a hook of kind `App`, and `around_task` one of kind `Task`. The argument of
/// each hook is a map, and its file has a name.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn hooks_are_of_their_kind(plugin: &dyn Plugin) -> Result<(), Violation> {
    each_hook(plugin, |from, kind, hook| {
        let clause = "hooks_are_of_their_kind";
        require(clause, hook.kind == kind, || format!("`{from}` returned a hook of kind {:?}", hook.kind))?;
        require(clause, hook.config.is_object(), || format!("the hook of `{from}` has the argument {}", hook.config))?;
        require(clause, !hook.filename.is_empty(), || format!("the hook of `{from}` has no file name for tracebacks"))
    })
}

/// The source of each hook defines its factory.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn hooks_define_their_factory(plugin: &dyn Plugin) -> Result<(), Violation> {
    each_hook(plugin, |from, _, hook| {
        let valid = hook.validate();
        require("hooks_define_their_factory", valid.is_ok(), || {
            format!("the hook of `{from}`: {}", valid.err().map(|error| format!("{error:#}")).unwrap_or_default())
        })
    })
}

/// The source of each hook is valid Python.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn hooks_are_python(plugin: &dyn Plugin) -> Result<(), Violation> {
    let mut seen: Vec<String> = Vec::new();
    each_hook(plugin, |from, _, hook| {
        if seen.contains(&hook.source) {
            return Ok(());
        }
        seen.push(hook.source.clone());
        let compiled = fed("python3", &["-c", COMPILE, &hook.filename], &hook.source);
        require("hooks_are_python", compiled.is_ok(), || {
            format!("the hook of `{from}`: {}", compiled.err().unwrap_or_default())
        })
    })
}

/// `launcher` only puts words before the command line that starts a worker.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn launcher_keeps_the_command(plugin: &dyn Plugin) -> Result<(), Violation> {
    for cluster in clusters() {
        let command = plugin.launcher(worker_command(), &cluster);
        require("launcher_keeps_the_command", command.ends_with(&worker_command()), || {
            format!("on {cluster:?}, {:?} became {command:?}", worker_command())
        })?;
    }
    Ok(())
}

/// The commands of `bootstrap` are scripts that a POSIX shell can parse.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
pub fn bootstrap_is_shell(plugin: &dyn Plugin) -> Result<(), Violation> {
    let mut seen: Vec<String> = Vec::new();
    for script in clusters().iter().flat_map(|cluster| plugin.bootstrap(cluster)) {
        if seen.contains(&script) {
            continue;
        }
        let read = fed("sh", &["-n"], &script);
        require("bootstrap_is_shell", read.is_ok(), || format!("{script:?}: {}", read.err().unwrap_or_default()))?;
        seen.push(script);
    }
    Ok(())
}

fn each_hook(
    plugin: &dyn Plugin,
    mut check: impl FnMut(&str, HookKind, &Hook) -> Result<(), Violation>,
) -> Result<(), Violation> {
    for cluster in clusters() {
        for (from, kind, hook) in [
            ("around_app", HookKind::App, plugin.around_app(&cluster)),
            ("around_task", HookKind::Task, plugin.around_task(&cluster)),
        ] {
            if let Some(hook) = hook {
                check(from, kind, &hook)?;
            }
        }
    }
    Ok(())
}

/// Images as users write them.
fn images() -> [Image; 2] {
    let full = Image::new()
        .python("3.12")
        .pip(["zeta>=2", "alpha[extra]==1.0"])
        .index(PackageIndex::new("own", "https://packages.example/simple").only(["alpha"]))
        .apt(["zstd", "curl"])
        .env("OMP_NUM_THREADS", "3")
        .env("ZETA", "a b")
        .include("src")
        .exclude(["*.lock"])
        .gitignore(true)
        .secret("TOKEN", "hunter2");
    [Image::new(), full]
}

fn worker_command() -> Vec<String> {
    ["/env/bin/python", "-m", "skyward.worker"].map(str::to_owned).to_vec()
}

fn missing<T: PartialEq + std::fmt::Debug>(what: &str, before: &[T], after: &[T], lost: &mut Vec<String>) {
    let mut rest = after.iter();
    if !before.iter().all(|wanted| rest.any(|other| other == wanted)) {
        lost.push(format!("{what} {before:?} → {after:?}"));
    }
}

/// Runs a program with a text as its input. The error is what the program wrote to stderr.
fn fed(program: &str, args: &[&str], text: &str) -> Result<(), String> {
    let run = || -> std::io::Result<std::process::Output> {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program may not read all of its input.
            let _ = stdin.write_all(text.as_bytes());
        }
        child.wait_with_output()
    };
    match run() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("cannot run `{program}`: {error}")),
    }
}

const COMPILE: &str = "import sys; compile(sys.stdin.buffer.read(), sys.argv[1], 'exec')";
