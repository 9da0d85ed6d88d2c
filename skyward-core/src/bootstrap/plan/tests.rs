mod changed;
mod settings;

use super::*;
use crate::spec::PackageIndex;

fn place() -> Place {
    Place::new("127.1.2.3", "/run/sky ward/n0")
}

fn plan(image: &Image, inputs: &Inputs) -> Plan {
    let package = Package::new(&[("skyward/__init__.py", "")]);
    Plan::with_package(image, inputs, &place(), &["echo hi".into()], &Limits::default(), &package)
}

fn plan_of_client_host(image: &Image) -> Plan {
    Plan::with_package(
        image,
        &Inputs::default(),
        &place().on_client_host(),
        &[],
        &Limits::default(),
        &Package::new(&[]),
    )
}

fn with_requirements(text: &str) -> Inputs {
    let path = "requirements/r.txt".to_owned();
    let files = BTreeMap::from([(path.clone(), text.to_owned())]);
    Inputs { requirements: Some(RequirementFiles::new(path, files).unwrap()), ..Inputs::default() }
}

fn step<'a>(plan: &'a Plan, name: &str) -> &'a Step {
    plan.steps.iter().find(|step| step.name == name).unwrap()
}

/// The beginning of a script: the lines that set its variables.
fn header(script: &str) -> &str {
    script.split("# Where things are on the machine").next().unwrap()
}

#[test]
fn a_plain_image_needs_uv_an_environment_and_the_worker() {
    let plan = plan(&Image::new().pip(["numpy>=2"]), &Inputs::default());
    assert_eq!(plan.steps.iter().map(|step| step.name).collect::<Vec<_>>(), ["python", "uv", "environment", "worker"]);
    assert_eq!(
        header(&plan.start.script),
        "key=b094c6ffc25f8ed56767\ndigest=a56b8789ac98542dc9cf\ninterpreter=''\napt=''\narch=''\nfolder='/run/sky ward/n0'\nwritable=''\n"
    );
    assert_eq!(
        plan.start.script.lines().last().unwrap(),
        "exec \"$python\" -m skyward.agent --dir '/run/sky ward/n0' --addr 127.1.2.3 --lease 60"
    );
}

#[test]
fn an_agent_starts_within_the_time_of_the_pool_and_an_environment_has_its_own() {
    let limits = Limits { start: Duration::from_secs(20), ..Limits::default() };
    let package = Package::new(&[("skyward/__init__.py", "")]);
    let plan = |limits| Plan::with_package(&Image::new(), &Inputs::default(), &place(), &[], limits, &package);
    let short = plan(&limits);
    assert_eq!(short.start.deadline, limits.start);
    assert_eq!(short.check.deadline, limits.start);
    assert_eq!(step(&short, "environment").deadline, limits.environment);
    let long = plan(&Limits::default());
    assert!(long.start.deadline < Limits::default().start, "an agent that hangs leaves time for another machine");
}

#[test]
fn the_environment_is_requested_as_a_project() {
    let image = Image::new()
        .pip(["torch==2.9.0", "name'with\"quotes"])
        .python("3.12")
        .requires_python(">= 3.12.1")
        .default_index("https://mirror.example/simple")
        .index(PackageIndex::new("extra", "https://extra.example/simple"))
        .index(PackageIndex::new("py-torch.cpu", "https://torch.example/whl").only(["torch", "Torch_Vision"]))
        .credentials("py-torch.cpu", "me", "hunter2");
    let inputs = with_requirements("idna==3.10\n");
    let plan = plan(&image, &inputs);
    let environment = step(&plan, "environment");
    let mut project = String::new();
    set(&mut project, "project", &Project::of(&image).text);
    let rest = "extras='bound1=torch-vision'\nhas_settings=1\nhas_default_index=''\nindex='default=https://mirror.example/simple'\n\
                lock=requirements/r.txt\nworker_needs='msgspec>=0.19,<1'\n";
    assert!(environment.script.contains(&format!("{project}{rest}")), "{}", environment.script);
    assert_eq!(environment.stdin, inputs.requirements.unwrap().archive());
    assert_eq!(
        environment.secrets.keys().collect::<Vec<_>>(),
        ["UV_INDEX_PY_TORCH_CPU_PASSWORD", "UV_INDEX_PY_TORCH_CPU_USERNAME"]
    );
    assert!(environment.script.contains("\npython_request='==3.12.*,>=3.12.1'\n"));
    assert!(!format!("{plan:?}").contains("hunter2"));
    assert!(plan.steps.iter().all(|step| !step.script.contains("hunter2")));
}

#[test]
fn equal_images_share_an_environment_and_different_ones_do_not() {
    let key =
        |image: &Image, inputs: &Inputs| header(&plan(image, inputs).start.script).lines().next().unwrap().to_owned();
    let (image, none) = (Image::new().pip(["a", "b"]), Inputs::default());
    let locked = with_requirements("c==1");
    assert_eq!(key(&image, &none), key(&Image::new().pip(["b", "a"]).env("X", "1"), &none));
    assert_ne!(key(&image, &none), key(&image, &locked));
    assert_ne!(key(&image, &none), key(&image.clone().python("/usr/bin/python3"), &none));
}

#[test]
fn an_interpreter_is_checked_for_the_packages_of_the_image() {
    let image = Image::new().python("/opt/py/bin/python").pip(["numpy>=2", "keras"]);
    let plan = plan(&image, &Inputs::default());
    assert!(step(&plan, "environment").script.contains("check='numpy>=2\nkeras\n'\n"));
    assert!(header(&plan.start.script).contains("interpreter=/opt/py/bin/python\n"));
}

#[test]
fn packages_certificates_files_variables_and_plugin_commands_have_their_places() {
    let image = Image::new().apt(["git", "libgl1"]).env("A", "it's").certificate("/ca.pem");
    let archive = Bytes::from_static(b"tar");
    let inputs = Inputs { certificates: b"PEM".to_vec(), files: archive.clone(), ..Inputs::default() };
    let plan = plan(&image, &inputs);
    assert_eq!(plan.steps[0].name, "packages");
    assert!(header(&plan.start.script).contains("\napt='git libgl1'\n"));
    let (path, bytes) = plan.certificates.clone().unwrap();
    assert_eq!(path.as_str(), "/run/sky ward/n0/certificates.pem");
    assert_eq!(&bytes[..], &b"PEM"[..]);
    assert!(step(&plan, "uv").script.contains("certificates='/run/sky ward/n0/certificates.pem'\n"));
    let (unpack, path, bytes) = plan.files.clone().unwrap();
    assert_eq!(path.as_str(), "/run/sky ward/n0/files.tar");
    assert_eq!(bytes, archive);
    assert!(unpack.script.starts_with("folder='/run/sky ward/n0'\n"), "{}", unpack.script);
    assert!(plan.setup[0].script.ends_with("export A=\"it's\"\necho hi\n"));
    assert!(plan.check.script.contains("check_only=1\n") && plan.start.script.contains("check_only=''\n"));
}

#[test]
fn an_agent_on_the_clients_host_watches_the_client() {
    let plan = plan_of_client_host(&Image::new());
    assert!(plan.start.script.ends_with(&format!(" --owner-pid {}\n", std::process::id())));
}

#[test]
fn nothing_is_installed_into_the_clients_own_system() {
    let image = Image::new().apt(["git"]);
    let steps = |plan: &Plan| plan.steps.iter().map(|step| step.name).collect::<Vec<_>>();
    let client = plan_of_client_host(&image);
    assert_eq!(steps(&client), ["packages", "uv", "environment", "worker"]);
    assert!(client.steps.iter().take(3).all(|step| step.script.contains("\nmay_install=''\n")));
    let other = plan(&image, &Inputs::default());
    assert_eq!(steps(&other), ["packages", "python", "uv", "environment", "worker"]);
    assert!(other.steps.iter().take(4).all(|step| step.script.contains("\nmay_install=1\n")));
    // An interpreter that the image names exists, or the step fails.
    let named = plan(&Image::new().python("/opt/python"), &Inputs::default());
    assert_eq!(steps(&named), ["uv", "environment", "worker"]);
}

#[test]
fn uv_comes_from_the_images_index_with_its_password_in_no_script() {
    let image = Image::new().default_index("https://mirror.example/simple").credentials("default", "me@x", "p w/1");
    let plan = plan(&image, &Inputs::default());
    for step in [step(&plan, "uv"), &plan.fetch] {
        assert_eq!(step.secrets["SKYWARD_INDEX"].expose(), "https://me%40x:p%20w%2F1@mirror.example/simple");
    }
    assert!(plan.steps.iter().chain([&plan.fetch]).all(|step| !step.script.contains("p%20w")));
    assert!(!format!("{plan:?}").contains("p%20w"));
}

#[test]
fn the_worker_package_is_complete_and_has_a_digest_of_its_own() {
    let package = Package::embedded();
    let files: BTreeMap<String, String> = serde_json::from_slice(&package.json).unwrap();
    for name in ["skyward/__init__.py", "skyward/agent.py", "skyward/worker.py", "skyward/py.typed"] {
        assert!(files.contains_key(name), "{name}");
    }
    assert!(files.keys().all(|name| name.ends_with(".py") || name.ends_with("py.typed")));
    assert_ne!(package.digest, Package::new(&[("skyward/__init__.py", "")]).digest);
}

#[test]
fn the_pinned_uv_has_the_version_of_the_scripts() {
    assert!(UV_REQUIREMENT.starts_with(&format!("uv=={UV_VERSION} ")));
    assert!(UV_REQUIREMENT.matches("--hash=sha256:").count() > 4);
}

#[test]
fn a_quoted_word_of_the_shell_is_its_text() {
    for text in ["", "plain-1.0", "two words", "it's", "$HOME `x` \"y\" \\", "a\nb", "{a,b}", "!^é"] {
        let output =
            std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quoted(text))]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
    }
}

/// A cache folder on this host, with the paths of the two fixtures of what an environment consists of.
struct Cache(std::path::PathBuf);

impl Cache {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn run(&self, interpreter: &str, script: &str) -> String {
        self.run_with(&[], interpreter, script)
    }

    fn run_with(&self, env: &[(&str, &str)], interpreter: &str, script: &str) -> String {
        let mut text = String::new();
        for (name, value) in [("key", "KEY"), ("digest", "DIGEST"), ("interpreter", interpreter)] {
            set(&mut text, name, value);
        }
        // The fixtures have a word in place of the architecture, which depends on this host.
        text.push_str("arch=ARCH apt= folder=/nowhere writable=\n");
        let text = format!("{text}{COMMON}{RESULT}{script}");
        let mut shell = std::process::Command::new("sh");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("UV_")) {
            shell.env_remove(name);
        }
        shell.env("SKYWARD_CACHE_DIR", &self.0).env("XDG_CONFIG_HOME", self.0.join("config"));
        shell.env("PIP_CONFIG_FILE", "/dev/null").env_remove("PIP_INDEX_URL").envs(env.iter().copied());
        let output = shell.args(["-eu", "-c", &text]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn has(&self, interpreter: &str) -> (bool, bool) {
        let said = self.run(interpreter, "! environment_ready || echo environment\n! worker_ready || echo worker\n");
        (said.contains("\nenvironment\n"), said.contains("\nworker\n"))
    }

    /// A program in the place of an interpreter.
    fn program(&self, name: &str) -> String {
        use std::os::unix::fs::PermissionsExt;

        let file = self.0.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_environment_of_the_fixture_is_used_and_one_without_a_part_of_it_is_built_again() {
    let files: Vec<&str> = include_str!("formats/environment").lines().collect();
    for lacking in files.iter().map(Some).chain([None]) {
        let cache = Cache::new();
        for file in files.iter().filter(|file| !file.ends_with(".content")) {
            cache.program(file);
        }
        cache.run("", "record \"$env\"\nrecord \"$worker\"\n");
        if let Some(file) = lacking {
            std::fs::remove_file(cache.0.join(file)).unwrap();
        }
        let has = |kind| lacking.is_none_or(|file| !file.starts_with(kind));
        assert_eq!(cache.has(""), (has("envs"), has("worker")), "without {lacking:?}");
    }
}

#[test]
fn an_environment_is_written_as_its_fixture_says() {
    let cache = Cache::new();
    let python = cache.program("python");
    // What it is built with is another matter.
    let without = "find_uv() { return 1; }\nmake_cache() { :; }\nalone() { :; }\ntell_state() { :; }\n";
    let header =
        "project= extras= has_settings= has_default_index= check= index= lock= worker_needs= python_request=\n";
    cache.run(&python, &format!("{without}{header}{ENVIRONMENT}"));
    cache.run(&python, &format!("unpack=\nmkdir -p \"$worker\"\n{WORKER}"));
    let said = cache.run(&python, "cd \"$cache\"\nfind envs worker -type f | LC_ALL=C sort\n");
    let files: Vec<&str> = said.lines().skip_while(|line| line.starts_with("skyward-cache")).collect();
    assert_eq!(files.join("\n") + "\n", include_str!("formats/environment-of-interpreter"));
    assert_eq!(cache.has(&python), (true, true));
    std::fs::write(&python, "#!/bin/sh\n# another one\n").unwrap();
    assert_eq!(cache.has(&python), (false, true), "the interpreter has changed");
}
