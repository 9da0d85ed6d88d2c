//! Bootstrap of nodes on this host, with real environments from the package index that this host
//! uses.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may fail the test")]

#[path = "../support/hostile.rs"]
mod hostile;
mod projects;
mod site;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use skyward_core::bootstrap::{Inputs, Plan, StepEvent, run};
use skyward_core::error::ErrorKind;
use skyward_core::remote::{Command, Process, Remote};
use skyward_core::spec::{Image, Limits, PackageIndex};

use crate::hostile::{SHELLS, Sh};
use crate::site::{Index, Site, lines_with, python, steps, walk, wheel};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs package index"]
async fn two_nodes_at_once_build_one_environment_and_the_next_start_is_one_command() {
    let site = Site::new();
    let image = Image::new().pip(["iniconfig==2.0.0"]).env("COLOUR", "blue");
    let ((a, first), (b, second)) = tokio::join!(site.start(&image, 0), site.start(&image, 1));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.python, b.python);
    assert!(a.agent_pid != b.agent_pid && a.agent_socket != b.agent_socket);
    let installed = "+ iniconfig==2.0.0";
    assert_eq!(lines_with(&first, installed) + lines_with(&second, installed), 1, "{first:?} {second:?}");
    assert_eq!(python(&a, "import iniconfig, msgspec, skyward, os; print(os.environ['COLOUR'])").await, "blue");
    assert_eq!(python(&a, "import sys; print('%d.%d.%d' % sys.version_info[:3])").await, a.python_version);
    site.remote(&site.machine(0).await).open(&a.agent_socket).await.unwrap();
    let environments = std::fs::read_dir(site.cache().join("envs")).unwrap().flatten().map(|entry| entry.path());
    let frozen: Vec<_> = environments.filter_map(|path| std::fs::read_to_string(path.join(".ready")).ok()).collect();
    assert_eq!(frozen.len(), 1);
    assert!(frozen[0].contains("iniconfig==2.0.0\n") && frozen[0].contains("msgspec=="), "{frozen:?}");

    let (third, events) = site.start(&image, 2).await;
    assert_eq!(third.unwrap().python, a.python);
    // The second start runs no uv and no resolution, and no Python but the agent's.
    assert_eq!(steps(&events), ["agent"]);
    assert!(matches!(&events[..], [_, StepEvent::Finished { step: "agent", .. }]), "{events:?}");
    assert!(Path::new(&a.agent_socket).exists());
    site.end().await;
    assert!(!Path::new(&a.agent_socket).exists());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs package index, dash, busybox"]
async fn a_users_settings_change_nothing_of_an_environment() {
    for name in SHELLS {
        let sh = Sh::new(name).unwrap();
        let settings = hostile::environment();
        let site = settings.iter().fold(Site::new(), |site, (name, value)| site.with_env(name, value));
        let site = site.with_env("PATH", sh.path());
        let data = site.root.join("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("digits.csv"), "1,2\n").unwrap();
        let image = Image::new().pip(["iniconfig==2.0.0"]).include(&data);
        let (ready, events) = site.start_with(&image, 0, &["cat data/digits.csv"]).await;
        let ready = ready.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(lines_with(&events, "1,2"), 1, "{name}: {events:?}");
        assert_eq!(python(&ready, "import iniconfig, msgspec, skyward; print('here')").await, "here", "{name}");
        site.end().await;
    }
}

#[tokio::test]
#[ignore = "needs package index"]
async fn files_and_plugin_commands_come_before_the_agent() {
    let site = Site::new();
    let data = site.root.join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("digits.csv"), "1,2\n").unwrap();
    let image = Image::new().include(&data).env("WHO", "it's me").env("PYTHONPATH", "/mine");
    let setup = ["cat data/digits.csv; echo $WHO", "python -c 'import msgspec; print(msgspec.__name__)'"];
    let (ready, events) = site.start_with(&image, 0, &setup).await;
    let ready = ready.unwrap();
    assert_eq!(std::fs::read_to_string(Path::new(&ready.work_dir).join("data/digits.csv")).unwrap(), "1,2\n");
    assert!(ready.env["PYTHONPATH"].ends_with(":/mine"), "{ready:?}");
    let order = ["files", "agent", "uv", "environment", "worker", "agent", "setup", "setup", "agent"];
    assert_eq!(steps(&events), order);
    let said = |text: &str| events.contains(&StepEvent::Line { step: "setup", line: text.into() });
    assert!(said("1,2") && said("it's me") && said("msgspec"), "{events:?}");

    let (failed, events) = site.start_with(&image, 1, &["echo no such thing >&2; exit 3"]).await;
    assert_eq!(steps(&events), ["files", "agent", "setup"]);
    let error = failed.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bootstrap);
    assert!(error.message().contains("  no such thing"), "{error}");
    assert!(error.context().contains(&("exit", "3".into())), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn an_incomplete_environment_or_one_without_its_interpreter_is_made_anew() {
    let site = Site::new();
    let first = site.start(&Image::new(), 0).await.0.unwrap();
    let environment = Path::new(&first.python).parent().unwrap().parent().unwrap().to_owned();
    std::fs::remove_file(environment.join(".ready")).unwrap();
    std::fs::write(environment.join("half"), "").unwrap();
    let (again, events) = site.start(&Image::new(), 1).await;
    again.unwrap();
    assert_eq!(steps(&events), ["agent", "uv", "environment", "agent", "worker", "agent"]);
    assert!(!environment.join("half").exists());
    std::fs::remove_file(&first.python).unwrap();
    let (again, events) = site.start(&Image::new(), 2).await;
    again.unwrap();
    assert!(steps(&events).contains(&"environment"));
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_start_dropped_while_it_builds_does_not_hold_up_the_next_one() {
    let site = Site::new();
    let image = Image::new().pip(["iniconfig==2.0.0"]);
    let machine = site.machine(0).await;
    let plan = Plan::new(&image, &Inputs::default(), &machine.1, &[], &Limits::default());
    let building = tokio::sync::Notify::new();
    let remote = site.remote(&machine);
    let on_event = |event: StepEvent| {
        if lines_with(&[event], "Using CPython") > 0 {
            building.notify_one();
        }
    };
    tokio::select! {
        ready = run(&remote, &plan, &on_event) => panic!("not dropped: {ready:?}"),
        () = building.notified() => {}
    }
    let ready = site.start(&image, 1).await.0.unwrap();
    assert_eq!(python(&ready, "import iniconfig; print(iniconfig.__name__)").await, "iniconfig");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_step_that_takes_too_long_is_reported_with_its_last_line() {
    let site = Site::new();
    site.start(&Image::new(), 0).await.0.unwrap();
    let machine = site.machine(1).await;
    let mut limits = Limits::default();
    limits.environment = Duration::from_secs(1);
    let setup = ["echo halfway; echo; sleep 600".to_owned()];
    let plan = Plan::new(&Image::new(), &Inputs::default(), &machine.1, &setup, &limits);
    let error = run(&site.remote(&machine), &plan, &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.message(), "the step `setup` did not end within 1s and was killed");
    for fact in [("last line", "halfway"), ("command", setup[0].as_str()), ("machine", "this host")] {
        assert!(error.context().contains(&(fact.0, fact.1.into())), "{error}");
    }
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn unknown_packages_and_unsatisfiable_versions_are_named() {
    let site = Site::new();
    let error = site.fails(&Image::new().pip(["iniconfig", "skyward-no-such-package-anywhere"])).await;
    assert!(error.message().contains("no index has a package `skyward-no-such-package-anywhere`"), "{error}");
    assert!(error.message().contains("look at: skyward-no-such-package-anywhere\n"), "{error}");
    let error = site.fails(&Image::new().pip(["iniconfig==99.0"])).await;
    assert!(error.message().contains("there is no version `iniconfig==99.0`"), "{error}");
    let error = site.fails(&Image::new().pip(["iniconfig<2", "iniconfig>=2"])).await;
    assert!(error.message().contains("look at: iniconfig<2, iniconfig>=2\n"), "{error}");
    assert!(error.message().contains("unsatisfiable"), "{error}");
    // An environment that failed once does not count as ready.
    site.fails(&Image::new().pip(["iniconfig==99.0"])).await;
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn an_unreachable_index_is_named_also_when_it_is_pips_setting() {
    let (nowhere, fresh) = ("http://127.0.0.1:9/simple", Site::new());
    let cache = fresh.root.join("uv");
    let site = fresh.with_env("UV_CACHE_DIR", cache.to_str().unwrap());
    let error = site.fails(&Image::new().pip(["iniconfig"]).default_index(nowhere)).await;
    assert!(error.message().contains("127.0.0.1 cannot be reached"), "{error}");
    assert!(error.is_temporary());
    site.end().await;

    let site = Site::new();
    let uv = site.start(&Image::new(), 0).await.0.unwrap();
    assert!(!uv.python.is_empty(), "uv is installed before the index becomes unreachable");
    let cache = site.root.join("uv");
    let site = site.with_env("UV_CACHE_DIR", cache.to_str().unwrap()).with_env("PIP_INDEX_URL", nowhere);
    let error = site.fails(&Image::new().pip(["iniconfig"])).await;
    assert!(error.message().contains("127.0.0.1 cannot be reached"), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_setting_in_pips_configuration_file_applies_to_uv() {
    let site = Site::new();
    site.start(&Image::new(), 0).await.0.unwrap();
    let (file, cache) = (site.root.join("pip.conf"), site.root.join("uv"));
    std::fs::write(&file, "[global]\nindex-url = http://127.0.0.1:9/simple\n").unwrap();
    let site =
        site.with_env("PIP_CONFIG_FILE", file.to_str().unwrap()).with_env("UV_CACHE_DIR", cache.to_str().unwrap());
    let error = site.fails(&Image::new().pip(["iniconfig"])).await;
    assert!(error.message().contains("127.0.0.1 cannot be reached: the connection is refused"), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn the_error_for_a_missing_python_lists_those_that_the_machine_has() {
    let site = Site::new().with_env("UV_PYTHON_DOWNLOADS", "never");
    let error = site.fails(&Image::new().requires_python(">=3.29")).await;
    assert!(error.message().contains("no Python that suits (the payload requires >=3.29)"), "{error}");
    assert!(error.message().contains("it has: 3."), "{error}");
    let error = site.fails(&Image::new().python("/no/such/python")).await;
    assert!(error.message().contains("there is no interpreter at /no/such/python"), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn an_interpreter_given_by_path_is_used_unchanged() {
    let site = Site::new();
    let own = site.root.join("own");
    assert!(std::process::Command::new("python3").arg("-m").arg("venv").arg(&own).status().unwrap().success());
    let image = Image::new().python(own.join("bin/python"));
    let before = walk(&own);
    let ready = site.start(&image, 0).await.0.unwrap();
    assert_eq!(Path::new(&ready.python), own.join("bin/python"));
    assert!(python(&ready, "import msgspec; print(msgspec.__file__)").await.contains("/site/msgspec/"));
    assert_eq!(walk(&own), before, "nothing is installed into it");
    assert_eq!(steps(&site.start(&image, 1).await.1), ["agent"]);

    site.start(&image.clone().pip(["pip>1"]), 2).await.0.unwrap();
    let error = site.fails(&image.clone().pip(["iniconfig==2.0.0"])).await;
    assert!(error.message().contains("lacks packages that the image requires"), "{error}");
    assert!(error.hint().unwrap().contains("pip install 'iniconfig==2.0.0'"), "{error}");
    let error = site.fails(&image.requires_python(">=3.29")).await;
    assert!(error.message().contains("the payload requires >=3.29"), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_replaced_interpreter_is_checked_again_whatever_its_modification_time() {
    let site = Site::new();
    let program = site.root.join("python");
    let image = Image::new().python(program.clone());
    let year = Duration::from_secs(31_557_600);
    let now = SystemTime::now();
    for (round, time) in [now, now - 20 * year, now + 20 * year].into_iter().enumerate() {
        let node = 2 * round as u32;
        std::fs::write(&program, "#!/bin/sh\nexec python3 \"$@\"\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::File::open(&program).unwrap().set_modified(time).unwrap();
        let (ready, events) = site.start(&image, node).await;
        ready.unwrap();
        assert!(steps(&events).contains(&"environment"), "{time:?}: {events:?}");
        assert_eq!(steps(&site.start(&image, node + 1).await.1), ["agent"], "{time:?}");
        std::fs::remove_file(&program).unwrap();
    }
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_requirements_file_pins_what_is_installed() {
    let site = Site::new();
    let requirements = site.root.join("requirements.txt");
    std::fs::write(&requirements, "iniconfig==1.1.1\n").unwrap();
    let ready = site.start(&Image::new().pip(["iniconfig"]).requirements(&requirements), 0).await.0.unwrap();
    assert_eq!(python(&ready, "import importlib.metadata as m; print(m.version('iniconfig'))").await, "1.1.1");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_lock_file_pins_what_is_installed() {
    let site = Site::new();
    let lock = site.root.join("pylock.toml");
    let file = site.root.join("skyalpha-1.0-py3-none-any.whl");
    wheel(&site.root.join("index"), "skyalpha", "1.0", None);
    std::fs::copy(site.root.join("index/simple/skyalpha/skyalpha-1.0-py3-none-any.whl"), &file).unwrap();
    let digest = Command::new(["sha256sum", file.to_str().unwrap()]);
    let digest = Process::new().run(&digest, &|_| {}).await.unwrap().stdout;
    let digest = digest.split(' ').next().unwrap();
    let index = Index::serve(&site.root.join("index"), "");
    let text = format!(
        "lock-version = \"1.0\"\ncreated-by = \"test\"\n[[packages]]\nname = \"skyalpha\"\nversion = \"1.0\"\n\
         wheels = [{{ url = \"{}/skyalpha/skyalpha-1.0-py3-none-any.whl\", hashes = {{ sha256 = \"{digest}\" }} }}]\n",
        index.url()
    );
    std::fs::write(&lock, &text).unwrap();
    let ready = site.start(&Image::new().pip(["skyalpha>=1"]).requirements(&lock), 0).await.0.unwrap();
    assert_eq!(python(&ready, "import skyalpha, msgspec; print(skyalpha.__name__)").await, "skyalpha");
    std::fs::write(&lock, text.replace(digest, &"0".repeat(64))).unwrap();
    let cache = site.root.join("uv");
    let site = site.with_env("UV_CACHE_DIR", cache.to_str().unwrap());
    let error = site.fails(&Image::new().requirements(&lock)).await;
    assert!(error.message().contains("differs from the hash in the lock file"), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn packages_bound_to_an_index_come_from_it_also_as_dependencies() {
    let site = Site::new();
    let (public, bound) = (site.root.join("public"), site.root.join("bound"));
    wheel(&public, "skyalpha", "2.0", None);
    wheel(&public, "skybeta", "1.0", Some("skyalpha"));
    wheel(&bound, "skyalpha", "1.0", None);
    let (public, bound) = (Index::serve(&public, ""), Index::serve(&bound, ""));
    let image = Image::new()
        .pip(["skybeta"])
        .index(PackageIndex::new("public", public.url()))
        .index(PackageIndex::new("bound", bound.url()).only(["SkyAlpha", "skygamma"]));
    let ready = site.start(&image, 0).await.0.unwrap();
    let versions = "import importlib.metadata as m; print(m.version('skyalpha'), m.version('skybeta'))";
    assert_eq!(python(&ready, versions).await, "1.0 1.0");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn credentials_reach_the_index_but_no_message_or_file() {
    let site = Site::new();
    wheel(&site.root.join("private"), "skyalpha", "1.0", None);
    let private = Index::serve(&site.root.join("private"), "me:hunter2");
    let image = Image::new().pip(["skyalpha"]).index(PackageIndex::new("my-index", private.url()).only(["skyalpha"]));
    let error = site.fails(&image).await;
    assert!(error.message().contains("127.0.0.1 refuses access"), "{error}");
    let error = site.fails(&image.clone().credentials("my-index", "me", "hunter3")).await;
    assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    let (ready, events) = site.start(&image.credentials("my-index", "me", "hunter2"), 0).await;
    assert_eq!(python(&ready.unwrap(), "import skyalpha; print(skyalpha.__name__)").await, "skyalpha");
    assert!(!format!("{events:?}").contains("hunter"));
    let kept = Command::new(["grep", "-rl", "hunter2", site.root.to_str().unwrap()]);
    assert_eq!(Process::new().run(&kept, &|_| {}).await.unwrap().stdout, "");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index, openssl"]
async fn an_index_with_a_private_certificate_works_by_image_and_by_pips_setting() {
    let site = Site::new();
    wheel(&site.root.join("private"), "skyalpha", "1.0", None);
    let (index, authority) = Index::serve_privately(&site.root.join("private"), &site.root.join("keys"));
    let image = Image::new().pip(["skyalpha"]).index(PackageIndex::new("private", index.url()).only(["skyalpha"]));
    let error = site.fails(&image).await;
    assert!(error.message().contains("the certificate of 127.0.0.1 is not trusted"), "{error}");
    let ready = site.start(&image.clone().certificate(&authority), 0).await.0.unwrap();
    assert_eq!(python(&ready, "import skyalpha; print(skyalpha.__name__)").await, "skyalpha");

    // Only this authority is trusted now, so only its index can be reached.
    let site = site.with_env("SSL_CERT_FILE", "").with_env("PIP_CERT", authority.to_str().unwrap());
    let site = site.with_env("UV_DEFAULT_INDEX", &index.url());
    let error = site.fails(&Image::new().pip(["skyalpha", "skydelta"])).await;
    assert!(error.message().contains("no index has a package `skydelta`"), "the private index was asked: {error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn a_version_behind_the_shims_of_pyenv_is_found() {
    let site = Site::new();
    let ready = site.start(&Image::new(), 0).await.0.unwrap();
    let version = ready.python_version.clone();
    let minor = version.rsplit_once('.').unwrap().0.to_owned();
    let base = python(&ready, "import sys, os; print(os.path.realpath(sys.executable))").await;
    let root = site.root.join("pyenv");
    let (shims, bin) = (root.join("shims"), root.join("versions").join(&version).join("bin"));
    std::fs::create_dir_all(&shims).unwrap();
    std::fs::create_dir_all(&bin).unwrap();
    for name in ["python".to_owned(), "python3".to_owned(), format!("python{minor}")] {
        std::fs::write(
            shims.join(&name),
            format!("#!/bin/sh\necho \"pyenv: {name}: command not found\" >&2\nexit 127\n"),
        )
        .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(shims.join(&name), mode).unwrap();
        std::os::unix::fs::symlink(&base, bin.join(&name)).unwrap();
    }
    let site = site.with_only(&["uv"]).with_env("UV_PYTHON_DOWNLOADS", "never");
    let path = format!("{}:{}", shims.display(), site.root.join("bin").display());
    let site = site.with_env("PYENV_ROOT", root.to_str().unwrap()).with_env("PATH", &path);
    let ready = site.start(&Image::new().python(minor.as_str()), 1).await.0.unwrap();
    assert_eq!(ready.python_version, version);
    let error = site.fails(&Image::new().python("3.29")).await;
    assert!(error.message().contains(&format!("it has: {version}")), "{error}");
    assert!(!error.message().contains("command not found"), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn two_starts_at_once_obtain_the_pinned_uv_once() {
    let site = Site::new().with_only(&["python3"]);
    let image = Image::new();
    let ((a, first), (b, second)) = tokio::join!(site.start(&image, 0), site.start(&image, 1));
    a.unwrap();
    b.unwrap();
    assert_eq!(lines_with(&first, "obtaining uv") + lines_with(&second, "obtaining uv"), 1, "{first:?} {second:?}");
    let kept = std::fs::read_dir(site.cache().join("uv")).unwrap().flatten();
    let kept: Vec<_> = kept.map(|entry| entry.file_name()).filter(|name| name != ".lock").collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs package index"]
async fn without_uv_python_fetches_it_or_the_client_sends_it() {
    uv_is_obtained_with(&["python3", "nothing"]).await;
}

#[tokio::test]
#[ignore = "needs package index, curl"]
async fn without_uv_curl_fetches_it() {
    uv_is_obtained_with(&["curl"]).await;
}

#[tokio::test]
#[ignore = "needs package index, wget"]
async fn without_uv_wget_fetches_it() {
    uv_is_obtained_with(&["wget"]).await;
}

/// Checks machines that have one of these tools and no uv.
async fn uv_is_obtained_with(tools: &[&str]) {
    for &tool in tools {
        let site = Site::new().with_tool(tool);
        // Hides interpreters of this host that are not in `PATH`.
        let nowhere = site.root.join("none").to_str().unwrap().to_owned();
        let site = site.with_env("PYENV_ROOT", &nowhere).with_env("UV_PYTHON_INSTALL_DIR", &nowhere);
        let site = site.with_env("UV_PYTHON_DOWNLOADS", "never");
        let (ready, events) = site.start(&Image::new(), 0).await;
        assert_eq!(lines_with(&events, "obtaining uv"), usize::from(tool != "nothing"), "{tool}: {events:?}");
        assert_eq!(
            lines_with(&events, "putting uv on the machine"),
            usize::from(tool == "nothing"),
            "{tool}: {events:?}"
        );
        if tool == "python3" {
            ready.unwrap();
        } else {
            let error = ready.unwrap_err();
            let message = "uv cannot download one; the system's Python was not installed, because nothing is installed into the client's own system";
            assert!(error.message().contains(message), "{tool}: {error}");
            assert!(error.hint().unwrap().contains("install one: `sudo "), "{tool}: {error}");
        }
        site.end().await;
    }
}

#[tokio::test]
#[ignore = "needs package index"]
async fn uv_comes_from_the_client_if_the_machine_does_not_reach_the_index() {
    // The messages and exit statuses of the tools without a route.
    for (tool, says, status) in [
        ("curl", "curl: (7) Failed to connect to pypi.org port 443: Network is unreachable", 7),
        ("wget", "failed: Network is unreachable.", 4),
    ] {
        let site = Site::new().with_only(&["python3"]);
        let script = format!("#!/bin/sh\necho '{says}' >&2\nexit {status}\n");
        let path = site.root.join("bin").join(tool);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let (ready, events) = site.start(&Image::new(), 0).await;
        ready.unwrap();
        assert_eq!(lines_with(&events, "requesting uv from the client"), 1, "{tool}: {events:?}");
        assert_eq!(lines_with(&events, "putting uv on the machine"), 1, "{tool}: {events:?}");
        site.end().await;
    }
}

#[tokio::test]
async fn python_takes_only_the_pinned_uv_from_an_index_with_a_password() {
    only_the_pinned_uv_is_taken_by("python3").await;
}

#[tokio::test]
#[ignore = "needs curl"]
async fn curl_takes_only_the_pinned_uv_from_an_index_with_a_password() {
    only_the_pinned_uv_is_taken_by("curl").await;
}

#[tokio::test]
#[ignore = "needs wget"]
async fn wget_takes_only_the_pinned_uv_from_an_index_with_a_password() {
    only_the_pinned_uv_is_taken_by("wget").await;
}

async fn only_the_pinned_uv_is_taken_by(tool: &str) {
    let pinned = include_str!("../../src/bootstrap/scripts/uv.txt").split([' ', '=']).nth(2).unwrap();
    let site = Site::new().with_tool(tool);
    let folder = site.root.join("private/simple/uv");
    std::fs::create_dir_all(&folder).unwrap();
    let arch = Process::new().run(&Command::new(["uname", "-m"]), &|_| {}).await.unwrap().stdout;
    let fetched = format!("uv-{pinned}-py3-none-musllinux_1_1_{}.whl", arch.trim());
    std::fs::write(folder.join(&fetched), "not uv").unwrap();
    std::fs::write(folder.join("index.html"), format!("<a href=\"{fetched}#sha256=0\">{fetched}</a>")).unwrap();
    let private = Index::serve(&site.root.join("private"), "me@home:hunter 2");
    let image = Image::new().default_index(private.url());
    for (password, message) in [("3", "refuses access"), ("2", "another uv than the pinned one")] {
        let image = image.clone().credentials("default", "me@home", format!("hunter {password}"));
        let (ready, events) = site.start(&image, 0).await;
        let error = ready.unwrap_err();
        assert!(error.message().contains(message), "{tool}: {error}");
        assert!(!format!("{error:?} {events:?}").contains("hunter"), "{error:?} {events:?}");
    }
    site.end().await;
}

#[tokio::test]
async fn missing_debian_packages_are_not_installed_into_the_clients_own_system() {
    let site = Site::new();
    let error = site.fails(&Image::new().apt(["dpkg", "skyward-no-such-package"])).await;
    assert!(error.message().contains("nothing is installed into the client's own system"), "{error}");
    site.end().await;
}

#[tokio::test]
#[ignore = "needs dpkg"]
async fn missing_debian_packages_are_reported_with_the_command_that_installs_them() {
    let site = Site::new();
    let error = site.fails(&Image::new().apt(["dpkg", "skyward-no-such-package"])).await;
    let hint = "install them on the machine: `sudo apt-get install -y skyward-no-such-package`";
    assert_eq!(error.hint(), Some(hint), "{error}");
    site.end().await;
}

#[tokio::test]
async fn a_cache_folder_that_is_not_writable_is_reported() {
    let site = Site::new().with_env("SKYWARD_CACHE_DIR", "/proc/none");
    let error = site.fails(&Image::new()).await;
    assert!(error.message().contains("cannot be written to"), "{error}");
    assert!(error.hint().unwrap().contains("SKYWARD_CACHE_DIR"), "{error}");
    site.end().await;
}
