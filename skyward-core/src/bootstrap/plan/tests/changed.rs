//! What pools share is as it was made, whoever changed it in whatever way.

use std::fs::File;
use std::os::unix::process::CommandExt as _;

use super::{Cache, ENVIRONMENT, WORKER};

/// A user without rights.
const NOBODY: u32 = 65_534;

/// Ways to change a result, as commands in its folder, and what each does.
const WAYS: [(&str, &str); 14] = [
    ("a line is appended to a file", "echo 'x = 2' >>lib/a.py"),
    (
        "a file is written with the same size and times",
        "touch -r lib/a.py t; echo 'x = 3' >lib/a.py; touch -r t lib/a.py; rm t",
    ),
    ("a file is replaced by an equal one", "cp -p lib/a.py lib/new; mv -f lib/new lib/a.py"),
    ("a file is removed", "rm -f lib/a.py"),
    ("a file has another name", "mv lib/a.py lib/b.py"),
    ("a file is truncated", ": >lib/a.py"),
    (
        "a package is installed",
        "mkdir lib/more lib/more-1.0.dist-info; touch lib/more/__init__.py lib/more-1.0.dist-info/RECORD",
    ),
    ("a package is removed", "rm -rf lib/package"),
    ("a module is added that runs at each start", "echo 'import os' >lib/sitecustomize.py"),
    ("a folder is added to the path of modules", "echo /tmp >lib/more.pth"),
    ("the settings of the environment are others", "echo 'include-system-site-packages = true' >>pyvenv.cfg"),
    ("a link leads elsewhere", "ln -sfn /bin/false bin/tool"),
    ("a program cannot be run", "chmod a-x bin/script"),
    ("a file has a name of two lines", "touch \"$(printf 'lib/two\\nlines.py')\""),
];

/// What changes nothing.
const OTHER: [(&str, &str); 3] = [
    ("a file is read", "cat lib/a.py"),
    ("a module is compiled", "mkdir -p lib/__pycache__ lib/package/__pycache__; echo x >lib/__pycache__/a.pyc"),
    ("a temporary file comes and goes", "touch lib/t; rm lib/t"),
];

impl Cache {
    /// Makes an environment and a worker package, with the same few files.
    fn make(&self) {
        let files = "mkdir -p bin lib/package; echo 'x = 1' >lib/a.py; touch lib/package/__init__.py pyvenv.cfg\n\
            touch bin/script; chmod 700 bin/script; ln -sfn /bin/true bin/tool; ln -sfn /bin/true bin/python\n";
        let made = ["env", "worker"].map(|result| {
            format!("rm -rf \"${result}\"; mkdir -p \"${result}\"; (cd \"${result}\"; {files}); record \"${result}\"\n")
        });
        self.run("", &format!("{}: >\"$env/.ready\"; record_both\n", made.concat()));
        assert_eq!(self.has(""), (true, true));
        assert!(self.is_as_listed());
    }

    /// Whether the next start need not look further.
    fn is_as_listed(&self) -> bool {
        self.run("", "! are_as_listed || echo listed\n").contains("\nlisted\n")
    }

    /// Runs a command in a folder of the cache.
    fn change(&self, folder: &str, user: Option<u32>, way: &str) {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-euc", way]).current_dir(self.0.join(folder));
        if let Some(user) = user {
            shell.uid(user).gid(user);
        }
        assert!(shell.status().unwrap().success(), "{way}");
    }

    /// Gives what the cache has to another user.
    fn give_to(&self, user: u32) {
        let user = user.to_string();
        assert!(std::process::Command::new("chown").args(["-hR", &user]).arg(&self.0).status().unwrap().success());
    }

    /// The folders of the environment.
    fn environments(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join("envs")).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }
}

/// The users that may change a cache: this one, and one without rights where this one is root.
fn users() -> Vec<Option<u32>> {
    [None].into_iter().chain(rustix::process::geteuid().is_root().then_some(Some(NOBODY))).collect()
}

#[test]
fn a_result_that_was_changed_is_not_used() {
    let cache = Cache::new();
    for user in users() {
        for (name, way) in WAYS {
            for (folder, left) in [("envs/KEY-ARCH", (false, true)), ("worker/DIGEST", (true, false))] {
                cache.make();
                if let Some(user) = user {
                    cache.give_to(user);
                    cache.run("", "record \"$env\"; record \"$worker\"; record_both\n");
                    assert!(cache.is_as_listed());
                }
                cache.change(folder, user, way);
                assert_eq!(cache.has(""), left, "{name}, as {user:?}");
                assert!(!cache.is_as_listed(), "{name}, as {user:?}");
            }
        }
    }
}

#[test]
fn a_result_that_was_only_used_is_unchanged() {
    let cache = Cache::new();
    cache.make();
    for (name, way) in OTHER {
        cache.change("envs/KEY-ARCH", None, way);
        cache.change("worker/DIGEST", None, way);
        assert_eq!(cache.has(""), (true, true), "{name}");
    }
}

#[test]
fn a_change_before_both_are_recorded_is_found() {
    let cache = Cache::new();
    for folder in ["envs/KEY-ARCH", "worker/DIGEST"] {
        cache.make();
        std::fs::remove_file(cache.0.join("worker/DIGEST/.ready-KEY-ARCH")).unwrap();
        cache.change(folder, None, "echo 'x = 2' >>lib/a.py");
        cache.run("", "record_both\n");
        assert!(!cache.is_as_listed());
        assert_eq!(cache.has(""), (folder.starts_with("worker"), false));
    }
}

#[test]
fn a_list_of_nothing_proves_nothing() {
    let cache = Cache::new();
    cache.make();
    std::fs::write(cache.0.join("worker/DIGEST/.ready-KEY-ARCH"), "").unwrap();
    let said = cache.run("", "find() { return 1; }\n! are_as_listed || echo listed\n");
    assert!(!said.contains("listed"), "{said}");
}

#[test]
fn a_result_without_a_record_is_not_used() {
    let cache = Cache::new();
    for (file, left) in [("envs/KEY-ARCH", (false, true)), ("worker/DIGEST", (true, false))] {
        cache.make();
        std::fs::remove_file(cache.0.join(file).join(".content")).unwrap();
        assert_eq!(cache.has(""), left);
    }
}

#[test]
fn a_changed_environment_stays_while_an_agent_uses_it() {
    let cache = Cache::new();
    let python = cache.program("python");
    let without = "find_uv() { return 1; }\nmake_cache() { :; }\ntell_state() { :; }\n";
    let header =
        "project= extras= has_settings= has_default_index= check= index= lock= worker_needs= python_request=\n";
    let build = || cache.run(&python, &format!("{without}{header}{ENVIRONMENT}"));
    let change = |name: &str| std::fs::write(cache.0.join("envs").join(name).join("site/x.py"), "x").unwrap();
    build();
    let held = File::open(cache.0.join("envs/KEY-ARCH/.content")).unwrap();
    held.lock_shared().unwrap();
    change("KEY-ARCH");
    let said = build();
    assert!(
        said.contains("files of the environment were changed after it was built, so it is built anew: site/x.py"),
        "{said}"
    );
    assert_eq!(cache.environments(), ["KEY-ARCH", "KEY-ARCH.2"]);
    assert!(build().contains("the environment exists: "));
    change("KEY-ARCH.2");
    build();
    assert_eq!(cache.environments(), ["KEY-ARCH", "KEY-ARCH.3"], "one is in use");
    drop(held);
    change("KEY-ARCH.3");
    build();
    assert_eq!(cache.environments(), ["KEY-ARCH.4"]);
}

#[test]
fn a_changed_worker_package_is_unpacked_beside_it() {
    let cache = Cache::new();
    cache.make();
    cache.change("worker/DIGEST", None, "echo 'x = 2' >>lib/a.py");
    let python =
        "rm bin/python; printf '#!/bin/sh\\nmkdir -p \"$3\"; : >\"$3/a.py\"\\n' >bin/python; chmod 700 bin/python";
    cache.change("envs/KEY-ARCH", None, python);
    let said = cache.run("", &format!("record \"$env\"\nunpack=\n{WORKER}"));
    assert!(said.contains("files of the worker package were changed, so it is unpacked anew: lib/a.py"), "{said}");
    assert_eq!(cache.has(""), (true, true));
    assert!(cache.0.join("worker/DIGEST.2").exists());
    let changed = cache.0.join("worker/DIGEST/lib/a.py");
    assert!(std::fs::read_to_string(changed).unwrap().ends_with("x = 2\n"), "a worker may still import from it");
}
