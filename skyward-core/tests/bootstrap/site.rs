//! Machines of this host with a cache folder of their own, and package indexes to build from.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use skyward_core::bootstrap::{Inputs, Plan, Ready, StepEvent, run};
use skyward_core::error::ErrorKind;
use skyward_core::ids::{Attempt, LaunchId, MachineNumber, PoolId};
use skyward_core::provider::{LaunchBatch, LaunchRequest, Local, Machine, Offer, Place, Provider};
use skyward_core::remote::{Command, Process, Remote};
use skyward_core::spec::{Image, Limits};
use skyward_core::{Error, Result};

/// The machines of a pool on this host and a cache folder of its own. Both are removed at the end.
pub(crate) struct Site {
    local: Local,
    pool: PoolId,
    pub(crate) root: PathBuf,
    env: Vec<(String, String)>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let root = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&root).unwrap();
        Self { local: Local::new().runtime_dir(root.join("r")), pool: PoolId::random(), root, env: Vec::new() }
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    pub(crate) fn with_env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Leaves only ordinary commands of this host, and these, in `PATH`.
    pub(crate) fn with_only(self, more: &[&str]) -> Self {
        let folder = self.root.join("bin");
        std::fs::create_dir(&folder).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        // The shims of version managers need their managers in PATH.
        let folders: Vec<_> = std::env::split_paths(&path).filter(|folder| !folder.ends_with("shims")).collect();
        for name in ORDINARY.iter().chain(more) {
            if let Some(found) = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()) {
                std::os::unix::fs::symlink(found, folder.join(name)).unwrap();
            }
        }
        let path = folder.to_str().unwrap().to_owned();
        self.with_env("PATH", &path)
    }

    /// Leaves only ordinary commands, and a Python without pip, in `PATH`.
    pub(crate) fn with_python_alone(self) -> Self {
        let site = self.with_only(&["python3"]);
        let path = site.root.join("bin/python3");
        let python = std::fs::read_link(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let script = format!("#!/bin/sh\n[ \"${{2:-}}\" != pip ] || exit 1\nexec {} \"$@\"\n", python.display());
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        site
    }

    /// Leaves only ordinary commands, and this tool, in `PATH`.
    pub(crate) fn with_tool(self, tool: &str) -> Self {
        let site = match tool {
            "nothing" => return self.with_only(&[]),
            "python3" => return self.with_python_alone(),
            tool => self.with_only(&[tool]),
        };
        let there = site.root.join("bin").join(tool).exists();
        assert!(there, "this host has no {tool}: apt-get install -y {tool}");
        site
    }

    /// Launches a machine. Returns it with its place.
    pub(crate) async fn machine(&self, node: u32) -> (Machine, Place) {
        let number = MachineNumber(node);
        let launch = LaunchId::of(&self.pool, number, Attempt(1));
        let request = LaunchRequest::new(launch, self.pool.clone(), number, Duration::ZERO);
        let batch = LaunchBatch::one(Offer::new("host", "this host", 1, 1), request);
        let machine = self.local.launch(&batch).await.remove(0).unwrap();
        let report = self.local.inspect(std::slice::from_ref(&machine.id)).await.unwrap().remove(0);
        (machine, report.place.unwrap())
    }

    pub(crate) fn remote(&self, (machine, place): &(Machine, Place)) -> Process {
        let remote = Process::new()
            .folder(&place.folder)
            .env("SKYWARD_MACHINE", machine.id.as_str())
            .env("SKYWARD_CACHE_DIR", self.cache().to_str().unwrap())
            // No retries: a refused connection fails at once, without pauses.
            .env("UV_HTTP_RETRIES", "0")
            .env("PIP_RETRIES", "0");
        self.env.iter().fold(remote, |remote, (key, value)| remote.env(key, value))
    }

    pub(crate) async fn start(&self, image: &Image, node: u32) -> (Result<Ready>, Vec<StepEvent>) {
        self.start_with(image, node, &[]).await
    }

    pub(crate) async fn start_with(&self, image: &Image, node: u32, setup: &[&str]) -> (Result<Ready>, Vec<StepEvent>) {
        image.validate().unwrap();
        let machine = self.machine(node).await;
        let setup: Vec<_> = setup.iter().map(|command| (*command).to_owned()).collect();
        let plan = Plan::new(image, &Inputs::read(image).unwrap(), &machine.1, &setup, &Limits::default());
        let events = Mutex::new(Vec::new());
        let ready = run(&self.remote(&machine), &plan, &|event| events.lock().unwrap().push(event)).await;
        (ready, events.into_inner().unwrap())
    }

    /// The error of an environment that cannot be built.
    pub(crate) async fn fails(&self, image: &Image) -> Error {
        let error = self.start(image, 0).await.0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Environment, "{error}");
        error
    }

    pub(crate) async fn end(self) {
        self.local.teardown(&self.pool).await.unwrap();
        assert_eq!(self.local.list(&self.pool).await.unwrap(), []);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// The names of the steps that began, in order.
pub(crate) fn steps(events: &[StepEvent]) -> Vec<&'static str> {
    let started = |event: &StepEvent| match event {
        StepEvent::Started { step } => Some(*step),
        _ => None,
    };
    events.iter().filter_map(started).collect()
}

/// How many output lines of all steps contain this text.
pub(crate) fn lines_with(events: &[StepEvent], text: &str) -> usize {
    events.iter().filter(|event| matches!(event, StepEvent::Line { line, .. } if line.contains(text))).count()
}

/// The output of a line of code in the workers' Python.
pub(crate) async fn python(ready: &Ready, code: &str) -> String {
    let mut command = Command::new([ready.python.as_str(), "-c", code]);
    command.env = ready.env.clone();
    let output = Process::new().folder(&ready.work_dir).run(&command, &|_| {}).await.unwrap();
    assert!(output.success(), "{output:?}");
    output.stdout.trim().to_owned()
}

/// All files below a folder, without Python's caches.
pub(crate) fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() && !path.ends_with("__pycache__") {
            found.extend(walk(&path));
        } else if !path.ends_with("__pycache__") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Adds a package of one empty module to a folder that becomes an [`Index`].
pub(crate) fn wheel(index: &Path, name: &str, version: &str, requires: Option<&str>) {
    let mut command = std::process::Command::new("python3");
    command.args(["-c", WHEEL]).arg(index).args([name, version]).args(requires);
    assert!(command.status().unwrap().success());
}

/// A simple index over HTTP on this host.
pub(crate) struct Index {
    server: std::process::Child,
    scheme: &'static str,
    port: u16,
}

impl Index {
    /// Serves a folder; if `user` (`name:password`) is not empty, to this user alone.
    pub(crate) fn serve(folder: &Path, user: &str) -> Self {
        Self::start(folder, user, Path::new(""))
    }

    /// Serves a folder over TLS, with a certificate of an unknown authority. Returns the file with
    /// the authority's certificate too.
    pub(crate) fn serve_privately(folder: &Path, keys: &Path) -> (Self, PathBuf) {
        std::fs::create_dir(keys).unwrap();
        let mut command = std::process::Command::new("sh");
        command.args(["-euc", KEYS]).current_dir(keys).stderr(std::process::Stdio::null());
        let made = command.status().unwrap().success();
        assert!(made, "openssl cannot make a certificate here: apt-get install -y openssl");
        (Self::start(folder, "", &keys.join("server.pem")), keys.join("ca.pem"))
    }

    fn start(folder: &Path, user: &str, certificate: &Path) -> Self {
        use std::io::BufRead;
        let mut command = std::process::Command::new("python3");
        command.args(["-c", SERVER]).arg(folder).arg(user).arg(certificate).stdout(std::process::Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let scheme = if certificate.as_os_str().is_empty() { "http" } else { "https" };
        Self { server, scheme, port: line.trim().parse().unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}/simple", self.scheme, self.port)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The commands of every Debian.
const ORDINARY: [&str; 32] = [
    "sh",
    "uname",
    "id",
    "cut",
    "getent",
    "mkdir",
    "mktemp",
    "rm",
    "mv",
    "cat",
    "cp",
    "find",
    "flock",
    "grep",
    "sed",
    "tr",
    "ls",
    "chmod",
    "date",
    "df",
    "env",
    "gzip",
    "head",
    "od",
    "sha256sum",
    "sort",
    "stat",
    "tail",
    "tar",
    "tee",
    "uniq",
    "wc",
];

const WHEEL: &str = r#"
import pathlib, sys, zipfile
index, name, version, *requires = sys.argv[1:]
folder = pathlib.Path(index, 'simple', name)
folder.mkdir(parents=True, exist_ok=True)
file, info = f'{name}-{version}-py3-none-any.whl', f'{name}-{version}.dist-info'
with zipfile.ZipFile(folder / file, 'w') as archive:
    archive.writestr(f'{name}/__init__.py', '')
    needs = ''.join(f'Requires-Dist: {needed}\n' for needed in requires)
    archive.writestr(f'{info}/METADATA', f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}')
    archive.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    archive.writestr(f'{info}/RECORD', '')
(folder / 'index.html').write_text(f'<a href="{file}">{file}</a>')
"#;

const SERVER: &str = r#"
import base64, functools, http.server, ssl, sys
folder, wanted = sys.argv[1], sys.argv[2].encode()
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        given = self.headers.get('Authorization', 'Basic ').split(' ')[1]
        if base64.b64decode(given) == wanted or not wanted:
            return super().do_GET()
        self.send_response(401)
        self.send_header('WWW-Authenticate', 'Basic realm="x"')
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Handler, directory=folder))
if sys.argv[3]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

const KEYS: &str = "
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=private
openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1
printf 'subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' > ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile ext
cat server.crt server.key > server.pem
";
