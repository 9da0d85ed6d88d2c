//! Containers of a bare Debian, reached by `docker exec`.

use std::sync::Mutex;

use async_trait::async_trait;
use skyward_core::Result;
use skyward_core::bootstrap::{Inputs, Plan, Ready, StepEvent, run};
use skyward_core::error::{Error, ErrorKind};
use skyward_core::provider::Place;
use skyward_core::remote::{ByteStream, Command, CommandOutput, OnLine, Process, Remote};
use skyward_core::spec::{Image, Limits};

/// A container that is removed at the end of its test.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) name: String,
    user: String,
    env: Vec<(String, String)>,
    calls: Mutex<Vec<&'static str>>,
}

impl Container {
    /// Starts a container of this image, used by root, with these options of `docker run`.
    pub(crate) fn start(image: &str, options: &[&str]) -> Self {
        let name = format!("skyward-test-{:08x}", rand::random::<u32>());
        let fixed = ["run", "--detach", "--init", "--label", LABEL, "--name", &name];
        docker(&[&fixed, options, &[image, "sleep", "600"]].concat());
        let env = vec![("UV_PYTHON_DOWNLOADS".to_owned(), "never".to_owned())];
        let container = Self { name, user: "root".into(), env, calls: Mutex::default() };
        // Packages need not survive a power cut, so dpkg may skip its syncs.
        container.sh("echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/test");
        container
    }

    /// Makes the user `sky`, who is not root, and runs all commands as `sky` from here on.
    pub(crate) fn used_by_sky(mut self) -> Self {
        self.sh("useradd --create-home sky");
        self.user = "sky".into();
        self
    }

    pub(crate) fn with_env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Runs a script in the container as root. Returns its output.
    pub(crate) fn sh(&self, script: &str) -> String {
        docker(&["exec", &self.name, "sh", "-euc", script])
    }

    /// Cuts the container off from all networks.
    pub(crate) fn cut_off(&self) {
        docker(&["network", "disconnect", "bridge", &self.name]);
    }

    pub(crate) async fn make_ready(&self, image: &Image) -> (Result<Ready>, Vec<StepEvent>) {
        self.make_ready_in(image, Limits::default(), &|_| {}).await
    }

    pub(crate) async fn make_ready_in(
        &self,
        image: &Image,
        limits: Limits,
        on_event: &(dyn Fn(&StepEvent) + Send + Sync),
    ) -> (Result<Ready>, Vec<StepEvent>) {
        let folder = format!("/tmp/sky-{:08x}", rand::random::<u32>());
        let place = Place::new("127.0.0.1", folder);
        let plan = Plan::new(image, &Inputs::read(image).unwrap(), &place, &[], &limits);
        self.calls.lock().unwrap().clear();
        let events = Mutex::new(Vec::new());
        let heard = |event: StepEvent| {
            on_event(&event);
            events.lock().unwrap().push(event);
        };
        let ready = run(self, &plan, &heard).await;
        (ready, events.into_inner().unwrap())
    }

    /// The calls to the machine of the last start, in order.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }

    fn exec(&self, command: &Command) -> Command {
        let mut argv: Vec<String> = ["docker", "exec", "-i", "-u", &self.user].map(Into::into).into();
        let env = self.env.iter().map(|(key, value)| (key, value)).chain(&command.env);
        argv.extend(env.flat_map(|(key, value)| ["-e".to_owned(), format!("{key}={value}")]));
        argv.push(self.name.clone());
        argv.extend(command.argv.iter().cloned());
        Command::new(argv).stdin(command.stdin.clone()).deadline(command.deadline)
    }
}

#[async_trait]
impl Remote for Container {
    fn describe(&self) -> String {
        format!("{} in {}", self.user, self.name)
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.calls.lock().unwrap().push("run");
        Process::new().inherit(["DOCKER_*"]).run(&self.exec(command), on_line).await
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.calls.lock().unwrap().push("put");
        let script =
            format!("mkdir -p \"${{1%/*}}\"; cat >\"$1.new\"; chmod {mode:o} \"$1.new\"; mv \"$1.new\" \"$1\"");
        let put = Command::new(["sh", "-euc", &script, "sh", path]).stdin(bytes.to_vec());
        let output = Process::new().inherit(["DOCKER_*"]).run(&self.exec(&put), &|_| {}).await?;
        if output.success() { Ok(()) } else { Err(Error::new(ErrorKind::Bootstrap, output.stderr)) }
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        Err(Error::new(ErrorKind::Io, format!("nothing here opens {socket}")))
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = std::process::Command::new("docker").args(["rm", "--force", "--volumes", &self.name]).output();
    }
}

fn docker(args: &[&str]) -> String {
    let output = std::process::Command::new("docker").args(args).output().unwrap();
    assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const LABEL: &str = "skyward-test=bare";
