//! Executes a plan.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;

use super::Ready;
use super::cause::{Seen, explain, output_error};
use super::fetch::fetch;
use super::plan::{Plan, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::remote::{Command, CommandOutput, Remote};
use crate::spec::satisfies;

/// Progress while a machine is made ready.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepEvent {
    /// A step began.
    Started {
        /// Its name: `files`, `packages`, `python`, `uv`, `environment`, `worker`, `setup`,
        /// `agent`.
        step: &'static str,
    },
    /// The running step wrote a line.
    Line {
        /// Its name.
        step: &'static str,
        /// The line, without its end.
        line: String,
    },
    /// A step succeeded.
    Finished {
        /// Its name.
        step: &'static str,
        /// How long it took.
        took: Duration,
    },
}

/// Makes a machine ready and starts its agent.
///
/// # Errors
///
/// [`ErrorKind::Environment`] when the interpreter or packages cannot be installed, with the
/// installer's own words and the requirement to check; [`ErrorKind::Bootstrap`] when another step
/// fails; [`ErrorKind::Timeout`] when a step exceeds its deadline.
///
/// # Cancel safety
///
/// Dropping the future ends the running command. Finished work stays and is used the next time;
/// unfinished work is done again.
pub async fn run(remote: &dyn Remote, plan: &Plan, on_event: &(dyn Fn(StepEvent) + Send + Sync)) -> Result<Ready> {
    let bootstrap = Bootstrap { remote, plan, on_event };
    bootstrap.put_files().await?;
    if !plan.setup.is_empty() {
        bootstrap.until_ready(&plan.check).await?;
        for step in &plan.setup {
            bootstrap.required(step).await?;
        }
    }
    let output = bootstrap.until_ready(&plan.start).await?;
    ready(plan, &output).ok_or_else(|| output_error(&plan.start, &output, "the agent did not report that it runs"))
}

struct Bootstrap<'a> {
    remote: &'a dyn Remote,
    plan: &'a Plan,
    on_event: &'a (dyn Fn(StepEvent) + Send + Sync),
}

impl Bootstrap<'_> {
    /// Runs `step`, and before it whatever it reports as missing.
    async fn until_ready(&self, step: &Step) -> Result<CommandOutput> {
        for _ in 0..ROUNDS {
            let output = self.step(step).await?;
            if output.status != NOT_READY {
                return if output.success() { Ok(output) } else { Err(self.explained(step, &output)) };
            }
            self.make(&needs_of(&output)).await?;
        }
        let machine = self.remote.describe();
        let message = format!("{machine} cannot be made ready: files that earlier steps created have disappeared");
        Err(Error::new(ErrorKind::Bootstrap, message)
            .with_hint("check what removes files from the cache folder, or set SKYWARD_CACHE_DIR to another one"))
    }

    /// Runs the steps that create what is missing. Steps with results that pools share run on the
    /// machine's builder, where it has one.
    async fn make(&self, needed: &[&str]) -> Result<()> {
        self.put_certificates().await?;
        self.make_on_machine(needed, |name| !SHARED.contains(&name)).await?;
        if !needed.iter().any(|name| SHARED.contains(name)) {
            return Ok(());
        }
        let builder = if self.plan.writable { None } else { self.remote.builder().await? };
        let Some(builder) = builder else {
            return self.make_on_machine(needed, |name| SHARED.contains(&name)).await;
        };
        // Another machine may have built it meanwhile, or only the interpreter was missing.
        let output = self.step(&self.plan.check).await?;
        let left = output.status == NOT_READY && needs_of(&output).iter().any(|name| SHARED.contains(name));
        if left {
            let bootstrap = Bootstrap { remote: builder.as_ref(), plan: self.plan, on_event: self.on_event };
            Box::pin(bootstrap.until_ready(&self.plan.check)).await?;
        }
        Ok(())
    }

    async fn make_on_machine(&self, needed: &[&str], which: impl Fn(&str) -> bool) -> Result<()> {
        for step in self.plan.steps.iter().filter(|step| which(step.name)) {
            // The environment needs an interpreter and uv.
            let means = matches!(step.name, "python" | "uv") && needed.contains(&"environment");
            if needed.contains(&step.name) || means {
                let output = self.required(step).await?;
                self.check_python(&output)?;
            }
        }
        Ok(())
    }

    async fn required(&self, step: &Step) -> Result<CommandOutput> {
        let mut output = self.step(step).await?;
        if let Some(arch) = marked(&output.stdout, "fetch").filter(|_| output.status == NOT_READY) {
            let on_line = |line: &str| self.report_line(step, line);
            let wheel = fetch(self.plan, arch, &on_line).await.map_err(|error| {
                // Where the machine itself could have downloaded it, the machine's own error is the
                // one to fix.
                match marked(&output.stdout, "unreached") {
                    Some(_) => self.explained(step, &output).with_source(error),
                    None => self.placed(step, error),
                }
            })?;
            self.report_line(step, &format!("putting uv on the machine ({} MiB)", wheel.len() >> 20));
            self.remote.put(&self.plan.wheel, &wheel, 0o600).await.map_err(|error| self.placed(step, error))?;
            output = self.step(step).await?;
        }
        if output.success() { Ok(output) } else { Err(self.explained(step, &output)) }
    }

    async fn step(&self, step: &Step) -> Result<CommandOutput> {
        let name = step.name;
        let mut command = Command::script(step.script.clone()).deadline(step.deadline);
        command.stdin = step.stdin.clone();
        for (key, value) in &step.secrets {
            command = command.env(key, value.expose());
        }
        (self.on_event)(StepEvent::Started { step: name });
        let started = Instant::now();
        let last = Mutex::new(String::new());
        let on_line = |line: &str| {
            self.report_line(step, line);
            if !line.trim().is_empty() && !line.starts_with(MARK) {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = line.to_owned();
            }
        };
        let output = self.remote.run(&command, &on_line).await.map_err(|error| {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner);
            self.placed(step, if error.kind() == ErrorKind::Timeout { too_slow(step, &last, error) } else { error })
        })?;
        if output.success() || output.status == NOT_READY {
            (self.on_event)(StepEvent::Finished { step: name, took: started.elapsed() });
        }
        Ok(output)
    }

    fn report_line(&self, step: &Step, line: &str) {
        // What the scripts and the agent print for this module is internal.
        let internal = line.starts_with(MARK) || step.name == "agent" && line.starts_with('{');
        if !internal {
            (self.on_event)(StepEvent::Line { step: step.name, line: line.to_owned() });
        }
    }

    async fn put_files(&self) -> Result<()> {
        let Some((step, path, archive)) = &self.plan.files else { return Ok(()) };
        (self.on_event)(StepEvent::Started { step: step.name });
        let started = Instant::now();
        self.remote.put(path, archive, 0o600).await.map_err(|error| self.placed(step, error))?;
        let command = Command::script(step.script.clone()).deadline(step.deadline);
        let output = self.remote.run(&command, &|line| self.report_line(step, line)).await;
        let output = output.map_err(|error| self.placed(step, error))?;
        if !output.success() {
            return Err(self.explained(step, &output));
        }
        (self.on_event)(StepEvent::Finished { step: step.name, took: started.elapsed() });
        Ok(())
    }

    async fn put_certificates(&self) -> Result<()> {
        match &self.plan.certificates {
            Some((path, bytes)) => self.remote.put(path, bytes, 0o600).await,
            None => Ok(()),
        }
    }

    /// Checks the version of an interpreter that is used as it is, because it was not chosen by its
    /// version.
    fn check_python(&self, output: &CommandOutput) -> Result<()> {
        let Some(version) = marked(&output.stdout, "version") else { return Ok(()) };
        match self.plan.requires_python.iter().find(|bound| satisfies(version, bound) == Some(false)) {
            None => Ok(()),
            Some(bound) => Err(Error::new(
                ErrorKind::Environment,
                format!("the interpreter is Python {version}, and the payload requires {bound}"),
            )
            .with_hint("give another interpreter, or let a suitable one be found: `.python(\"auto\")`")),
        }
    }

    fn explained(&self, step: &Step, output: &CommandOutput) -> Error {
        let settings = SETTINGS.iter().copied().filter(|name| std::env::var_os(name).is_some());
        let seen = Seen {
            now: SystemTime::now(),
            settings: if self.plan.on_client_host { Vec::new() } else { settings.collect() },
        };
        explain(step, self.plan, output, &seen).with_context("machine", self.remote.describe())
    }

    fn placed(&self, step: &Step, error: Error) -> Error {
        error.with_context("step", step.name).with_context("machine", self.remote.describe())
    }
}

fn too_slow(step: &Step, last: &str, error: Error) -> Error {
    let message = format!("the step `{}` did not end within {:?} and was killed", step.name, step.deadline);
    let hint = match step.name {
        "packages" | "python" | "uv" | "environment" => {
            "the mirror or the disk may be slow; finished work is kept, so the next start has less to do; `Limits::environment` gives more time"
        }
        _ => "the machine may be overloaded, or its disk very slow; a short `Limits::start` also shortens this step",
    };
    Error::new(ErrorKind::Timeout, message)
        .with_context("command", &step.command)
        .with_context("last line", if last.is_empty() { "none" } else { last })
        .with_hint(hint)
        .with_source(error)
}

fn ready(plan: &Plan, output: &CommandOutput) -> Option<Ready> {
    #[derive(Deserialize)]
    struct Agent {
        pid: u32,
        protocol: u32,
        python: String,
    }
    let line = output.stdout.lines().rev().find(|line| line.starts_with('{'))?;
    let agent: Agent = serde_json::from_str(line).ok()?;
    let python_path = marked(&output.stdout, "path")?.to_owned();
    let mut env = plan.env.clone();
    let own = env.get("PYTHONPATH").map(|own| format!(":{own}")).unwrap_or_default();
    env.insert("PYTHONPATH".into(), format!("{python_path}{own}"));
    Some(Ready {
        agent_pid: agent.pid,
        agent_socket: format!("{}/agent.sock", plan.folder),
        protocol: agent.protocol,
        python: marked(&output.stdout, "python")?.to_owned(),
        python_version: agent.python,
        python_path,
        work_dir: work_dir(plan),
        env,
    })
}

/// What a script reports as missing.
fn needs_of(output: &CommandOutput) -> Vec<&str> {
    marked(&output.stdout, "need").unwrap_or_default().split(' ').collect()
}

/// The value that a script printed under this name.
pub(super) fn marked<'a>(stdout: &'a str, name: &str) -> Option<&'a str> {
    stdout.lines().find_map(|line| line.strip_prefix(MARK)?.strip_prefix(name)?.strip_prefix(' '))
}

fn work_dir(plan: &Plan) -> String {
    format!("{}/work", plan.folder)
}

/// The environment variables through which the client's own tools know their index and their
/// certificates.
const SETTINGS: [&str; 6] =
    ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"];
const MARK: &str = "skyward-";
/// The steps with results in the cache, which several pools use.
const SHARED: [&str; 3] = ["uv", "environment", "worker"];
/// The exit status of a script that reports something missing.
const NOT_READY: i32 = 75;
/// A rebuilt environment invalidates the worker package that was compiled for it, and so on. Each
/// round has less to do.
const ROUNDS: u32 = 4;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{File, FileTimes};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, SystemTime};

    use async_trait::async_trait;

    use super::*;
    use crate::bootstrap::Inputs;
    use crate::provider::Place;
    use crate::remote::{ByteStream, OnLine, Process};
    use crate::spec::{Image, Limits};

    /// This host, counting its operations.
    #[derive(Debug, Default)]
    struct Counted(Process, AtomicUsize);

    #[async_trait]
    impl Remote for Counted {
        fn describe(&self) -> String {
            self.0.describe()
        }

        async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.run(command, on_line).await
        }

        async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.put(path, bytes, mode).await
        }

        async fn open(&self, socket: &str) -> Result<ByteStream> {
            self.0.open(socket).await
        }

        async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
            self.0.builder().await
        }
    }

    #[tokio::test]
    async fn a_thousand_files_are_transferred_in_one_piece_with_names_modes_and_content() {
        let root = std::env::temp_dir().join(format!("sky-{:08x}", rand::random::<u32>()));
        let long = format!("{}/{}", "deep".repeat(30), "name".repeat(40));
        let names: Vec<String> = (0..1_000).map(|number| format!("{}/{number}", number % 7)).chain([long]).collect();
        for (number, name) in names.iter().enumerate() {
            let path = root.join("data").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, number.to_string()).unwrap();
            let mode = if number % 2 == 0 { 0o644 } else { 0o755 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let inputs = Inputs::read(&Image::new().include(root.join("data"))).unwrap();
        let place = Place::new("", root.join("n 0").display().to_string());
        let plan = Plan::new(&Image::new(), &inputs, &place, &[], &Limits::default());
        let remote = Counted::default();
        // A machine that is made ready again gets the files again.
        for round in 1..3 {
            Bootstrap { remote: &remote, plan: &plan, on_event: &|_| {} }.put_files().await.unwrap();
            assert_eq!(remote.1.load(Ordering::Relaxed), 2 * round, "for any number of files");
            for (number, name) in names.iter().enumerate() {
                let path = root.join("n 0/work/data").join(name);
                assert_eq!(std::fs::read_to_string(&path).unwrap(), number.to_string());
                let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                assert_eq!(mode, if number % 2 == 0 { 0o644 } else { 0o755 }, "{name}");
            }
            assert!(!root.join("n 0/files.tar").exists());
        }
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[tokio::test]
    async fn a_folder_arrives_as_it_is() {
        let root = std::env::temp_dir().join(format!("sky-{:08x}", rand::random::<u32>()));
        let source = root.join("src");
        let strange = OsStr::from_bytes(b"caf\xe9 \n-x");
        std::fs::create_dir_all(source.join("empty")).unwrap();
        std::fs::create_dir_all(source.join("in")).unwrap();
        std::fs::write(source.join(strange), "x").unwrap();
        std::os::unix::fs::symlink("../empty", source.join("in/link")).unwrap();
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
        for path in [source.join(strange), source.join("empty"), source.join("in")] {
            File::open(path).unwrap().set_times(FileTimes::new().set_modified(changed)).unwrap();
        }
        let inputs = Inputs::read(&Image::new().include(&source)).unwrap();
        let place = Place::new("", root.join("n").display().to_string());
        let plan = Plan::new(&Image::new(), &inputs, &place, &[], &Limits::default());
        // A machine that is made ready again has the files already.
        for _ in 0..2 {
            let remote = Counted::default();
            Bootstrap { remote: &remote, plan: &plan, on_event: &|_| {} }.put_files().await.unwrap();
            let there = root.join("n/work/src");
            assert_eq!(std::fs::read(there.join(strange)).unwrap(), b"x");
            assert_eq!(std::fs::read_dir(there.join("empty")).unwrap().count(), 0);
            assert_eq!(std::fs::read_link(there.join("in/link")).unwrap(), Path::new("../empty"));
            for path in [there.join(strange), there.join("empty"), there.join("in")] {
                assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), changed, "{}", path.display());
            }
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
