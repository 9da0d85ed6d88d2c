//! The plan that makes a machine ready: from image, files and machine to scripts, without I/O.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::inputs::Inputs;
use super::package::{NEEDS, Package};
use super::project::Project;
use super::requirements::RequirementFiles;
use super::timing::{AGENT_START, APT_LOCK, STEP_WITHOUT_DOWNLOAD};
use crate::provider::Place;
use crate::remote::quoted;
use crate::spec::{Image, Limits, OLDEST, Python, Secret, hex};

/// How one machine is made ready for an image.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// The steps that may be needed, in order. A machine that is ready needs none of them.
    pub steps: Vec<Step>,
    /// The commands of plugins, which run each time a machine is made ready.
    pub setup: Vec<Step>,
    /// Reports what is not ready, or starts the agent.
    pub start: Step,
    /// Like `start`, but starts nothing.
    pub check: Step,
    /// Unpacks the files for the working folder; the path of the archive that it expects; the
    /// archive. None where the image has no files.
    pub files: Option<(Step, String, Bytes)>,
    /// Runs on the client's host: downloads uv for a machine that cannot. It needs the variable
    /// `arch` in front.
    pub fetch: Step,
    /// The path where a machine expects the file that `fetch` downloaded.
    pub wheel: String,
    /// Whether the machine is the client's own host, and so has the client's settings.
    pub on_client_host: bool,
    /// Certificate authorities and the path where the steps expect them.
    pub certificates: Option<(String, Arc<[u8]>)>,
    /// The machine's own folder.
    pub folder: String,
    /// Whether the machine builds an environment of its own, which payloads may change.
    pub writable: bool,
    /// The bounds on Python's version, all of which apply.
    pub requires_python: Vec<String>,
    /// The image's requirements, for messages.
    pub requirements: Vec<String>,
    /// The image's environment variables.
    pub env: BTreeMap<String, String>,
}

/// One command of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// Its name in events and messages: `packages`, `python`, `uv`, `environment`, `worker`,
    /// `setup`, `agent`.
    pub name: &'static str,
    /// A short form of what it runs, for messages.
    pub command: String,
    /// The script, for `sh -eu`.
    pub script: String,
    /// The script's standard input.
    pub stdin: Bytes,
    /// Environment variables with secret values.
    pub secrets: BTreeMap<String, Secret>,
    /// How long it may take.
    pub deadline: Duration,
}

impl Plan {
    /// Makes the plan for the machine at a place. `inputs` are the files that the image names,
    /// `setup` the commands of plugins.
    pub fn new(image: &Image, inputs: &Inputs, place: &Place, setup: &[String], limits: &Limits) -> Self {
        Self::with_package(image, inputs, place, setup, limits, Package::embedded())
    }

    pub(super) fn with_package(
        image: &Image,
        inputs: &Inputs,
        place: &Place,
        setup: &[String],
        limits: &Limits,
        package: &Package,
    ) -> Self {
        let folder = place.folder.as_str();
        let certificates = (!inputs.certificates.is_empty())
            .then(|| (format!("{folder}/certificates.pem"), Arc::from(inputs.certificates.as_slice())));
        let common = common(image, inputs, place, package);
        let installer = {
            let certificates = certificates.as_ref().map_or("", |(path, _)| path.as_str());
            installer(&common, image, inputs, place, limits, certificates)
        };
        let files = (!inputs.files.is_empty()).then(|| {
            let script = format!("folder={}\n{ENGLISH}{FILES}", quoted(folder));
            (
                step("files", "tar -x", script, STEP_WITHOUT_DOWNLOAD),
                format!("{folder}/files.tar"),
                inputs.files.clone(),
            )
        });
        let setup = setup.iter().map(|command| {
            let script = format!("{common}{SETUP}{}{command}\n", image_env(image));
            step("setup", command, script, limits.environment)
        });
        let agent = |check_only: &str| {
            format!("{common}check_only={}\n{AGENT}{}", quoted(check_only), agent_line(place, image, limits))
        };
        Self {
            steps: steps(&common, &installer, image, inputs, place, limits, package),
            setup: setup.collect(),
            start: step("agent", "python -m skyward.agent", agent(""), AGENT_START.min(limits.start)),
            check: step("agent", "python -m skyward.agent", agent("1"), STEP_WITHOUT_DOWNLOAD.min(limits.start)),
            fetch: fetch(image, limits),
            wheel: format!("{folder}/uv.whl"),
            on_client_host: place.on_client_host,
            files,
            certificates,
            folder: folder.to_owned(),
            writable: image.writable,
            requires_python: image.requires_python.clone(),
            requirements: image.pip.clone(),
            env: image.env.clone(),
        }
    }
}

fn step(name: &'static str, command: &str, script: String, deadline: Duration) -> Step {
    let (command, stdin, secrets) = (command.to_owned(), Bytes::new(), BTreeMap::new());
    Step { name, command, script, stdin, secrets, deadline }
}

/// The beginning of most scripts.
fn common(image: &Image, inputs: &Inputs, place: &Place, package: &Package) -> String {
    // A host that the client does not run on reports it by itself.
    let arch = place.on_client_host.then(|| rustix::system::uname().machine().to_string_lossy().into_owned());
    let mut common = String::new();
    set(&mut common, "key", &environment_key(image, inputs));
    set(&mut common, "digest", &package.digest);
    set(&mut common, "interpreter", &interpreter(image));
    set(&mut common, "apt", &image.apt.join(" "));
    set(&mut common, "arch", arch.as_deref().unwrap_or_default());
    set(&mut common, "folder", &place.folder);
    set(&mut common, "writable", if image.writable { "1" } else { "" });
    common.push_str(COMMON);
    common
}

/// The beginning of the scripts that install something. `certificates` is the path of the image's
/// certificate authorities, empty where it has none.
fn installer(
    common: &str,
    image: &Image,
    inputs: &Inputs,
    place: &Place,
    limits: &Limits,
    certificates: &str,
) -> String {
    let mut installer = common.to_owned();
    set(&mut installer, "uv_version", UV_VERSION);
    set(&mut installer, "certificates", certificates);
    set(&mut installer, "may_install", if place.on_client_host { "" } else { "1" });
    set(&mut installer, "lock_wait", &(limits.environment / 6).min(APT_LOCK).as_secs().to_string());
    set(&mut installer, "python_request", &python_request(image));
    set(&mut installer, "check", &check(image, inputs));
    installer.push_str(ENGLISH);
    installer.push_str(INSTALLER);
    installer
}

/// The steps that a machine may need, in order.
fn steps(
    common: &str,
    installer: &str,
    image: &Image,
    inputs: &Inputs,
    place: &Place,
    limits: &Limits,
    package: &Package,
) -> Vec<Step> {
    let mut steps = Vec::new();
    if !image.apt.is_empty() {
        let command = format!("apt-get install {}", image.apt.join(" "));
        steps.push(step("packages", &command, format!("{installer}{PACKAGES}"), limits.environment));
    }
    if interpreter(image).is_empty() && !place.on_client_host {
        steps.push(step("python", "apt-get install python3", format!("{installer}{PYTHON}"), limits.environment));
    }
    let mut uv = step("uv", "fetch uv", format!("{installer}{FETCH}{UV}"), limits.environment);
    uv.stdin = UV_REQUIREMENT.as_bytes().into();
    uv.secrets = index_address(image);
    steps.push(uv);
    let script = format!("{installer}{RESULT}{}{ENVIRONMENT}", environment_header(image, inputs));
    let mut environment = step("environment", "uv pip install", script, limits.environment);
    environment.stdin = inputs.requirements.as_ref().map(RequirementFiles::archive).unwrap_or_default();
    environment.secrets = secrets(image);
    steps.push(environment);
    let script = format!("{common}{ENGLISH}{RESULT}unpack={}\n{WORKER}", quoted(UNPACK));
    let mut worker = step("worker", "python unpack.py", script, STEP_WITHOUT_DOWNLOAD);
    worker.stdin = package.json.clone();
    steps.push(worker);
    steps
}

/// The step that downloads uv on the client's host, for a machine that cannot.
fn fetch(image: &Image, limits: &Limits) -> Step {
    let mut fetch = step("uv", "fetch uv", String::new(), limits.environment);
    set(&mut fetch.script, "uv_version", UV_VERSION);
    fetch.script.push_str(FETCH);
    fetch.script.push_str(CLIENT);
    fetch.secrets = index_address(image);
    fetch
}

/// The key of an environment. Environments with the same key have the same content.
fn environment_key(image: &Image, inputs: &Inputs) -> String {
    let content = format!("{}\n{NEEDS:?}\n{LAYOUT}", image.content_hash(inputs.hashed_text().as_deref()));
    hex(&Sha256::digest(content)[..10])
}

fn interpreter(image: &Image) -> String {
    match &image.python {
        Python::Interpreter(path) => path.display().to_string(),
        Python::Auto | Python::Version(_) => String::new(),
    }
}

/// What an interpreter that is used as it is must have already.
fn check(image: &Image, inputs: &Inputs) -> String {
    match (&image.python, image.pip.is_empty(), &inputs.requirements) {
        (Python::Interpreter(_), false, _) => image.pip.join("\n") + "\n",
        (Python::Interpreter(_), true, Some(_)) => "# the lock alone\n".into(),
        _ => String::new(),
    }
}

fn environment_header(image: &Image, inputs: &Inputs) -> String {
    let project = Project::of(image);
    let mut header = String::new();
    set(&mut header, "project", &project.text);
    set(&mut header, "extras", &project.extras.join(" "));
    set(&mut header, "has_settings", if project.has_settings { "1" } else { "" });
    set(&mut header, "has_default_index", if project.has_default_index { "1" } else { "" });
    let index = image.default_index.as_ref().map(|url| format!("{}={url}", Image::DEFAULT_INDEX));
    set(&mut header, "index", &index.unwrap_or_default());
    set(&mut header, "lock", inputs.requirements.as_ref().map_or("", |files| files.first.as_str()));
    set(&mut header, "worker_needs", &NEEDS.join(" "));
    header
}

/// The version specifiers that the interpreter must meet.
fn python_request(image: &Image) -> String {
    let first = match &image.python {
        Python::Version(version) if version.split('.').count() == 2 => format!("=={version}.*"),
        Python::Version(version) => format!("=={version}"),
        Python::Auto | Python::Interpreter(_) => OLDEST.to_owned(),
    };
    let all: Vec<_> = std::iter::once(first).chain(image.requires_python.iter().cloned()).collect();
    all.join(",").split_whitespace().collect()
}

/// The environment variables with the user and password of each named index, for uv.
fn secrets(image: &Image) -> BTreeMap<String, Secret> {
    let named = |index: &str| index.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    image
        .credentials
        .iter()
        .flat_map(|(index, credentials)| {
            let index = named(index);
            [
                (format!("UV_INDEX_{index}_USERNAME"), Secret::new(credentials.username.clone())),
                (format!("UV_INDEX_{index}_PASSWORD"), credentials.password.clone()),
            ]
        })
        .collect()
}

/// The address of the image's default index, including user and password.
fn index_address(image: &Image) -> BTreeMap<String, Secret> {
    let Some(url) = &image.default_index else { return BTreeMap::new() };
    let encoded = |text: &str| -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        text.bytes()
            .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect()
    };
    let address = match (image.credentials.get(Image::DEFAULT_INDEX), url.split_once("://")) {
        (Some(known), Some((scheme, rest))) => {
            format!("{scheme}://{}:{}@{rest}", encoded(&known.username), encoded(known.password.expose()))
        }
        _ => url.clone(),
    };
    BTreeMap::from([("SKYWARD_INDEX".to_owned(), Secret::new(address))])
}

fn image_env(image: &Image) -> String {
    image.env.iter().map(|(key, value)| format!("export {key}={}\n", quoted(value))).collect()
}

fn agent_line(place: &Place, image: &Image, limits: &Limits) -> String {
    let mut line = format!(
        "exec \"$python\" -m skyward.agent --dir {} --addr {} --lease {}",
        quoted(&place.folder),
        quoted(&place.address),
        limits.lease.as_secs_f64(),
    );
    if place.on_client_host {
        let _ = write!(line, " --owner-pid {}", std::process::id());
    }
    if let Some(path) = image.env.get("PYTHONPATH") {
        let _ = write!(line, " --path={}", quoted(path));
    }
    line.push('\n');
    line
}

fn set(script: &mut String, name: &str, value: &str) {
    let _ = writeln!(script, "{name}={}", quoted(value));
}

const COMMON: &str = include_str!("scripts/common.sh");
const ENGLISH: &str = include_str!("scripts/english.sh");
const INSTALLER: &str = include_str!("scripts/installer.sh");
const PACKAGES: &str = include_str!("scripts/packages.sh");
const PYTHON: &str = include_str!("scripts/python.sh");
const FETCH: &str = include_str!("scripts/fetch.sh");
const CLIENT: &str = include_str!("scripts/client.sh");
const RESULT: &str = include_str!("scripts/result.sh");
const UV: &str = include_str!("scripts/uv.sh");
const ENVIRONMENT: &str = include_str!("scripts/environment.sh");
const WORKER: &str = include_str!("scripts/worker.sh");
const UNPACK: &str = include_str!("scripts/unpack.py");
const FILES: &str = include_str!("scripts/files.sh");
const SETUP: &str = include_str!("scripts/setup.sh");
const AGENT: &str = include_str!("scripts/agent.sh");
/// The uv that is installed where the machine has none, with the digests of its wheels.
pub(super) const UV_REQUIREMENT: &str = include_str!("scripts/uv.txt");
const UV_VERSION: &str = "0.13.8";
/// Increased when the layout of an environment's folder changes.
const LAYOUT: u32 = 1;

#[cfg(test)]
mod tests;
