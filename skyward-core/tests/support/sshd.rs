//! OpenSSH servers for tests: run as this user, on addresses of this machine alone, each with a key
//! and a log of its own.
//!
//! The file uses the standard library alone, so that any program of the project can include it with
//! `#[path]`.

// Each program uses a part of the file, and a library makes it public.
#![allow(dead_code, unreachable_pub)]

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A running server. Dropping the value ends the server, its sessions and the processes they
/// started, and removes its files.
#[derive(Debug)]
pub struct Sshd {
    program: PathBuf,
    folder: PathBuf,
    address: String,
    port: u16,
    within: Vec<String>,
    listener: Option<Child>,
    /// Sessions whose listener has ended.
    orphans: Vec<u32>,
}

/// The options of a server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    address: Option<String>,
    lines: Vec<String>,
    env: Vec<String>,
    key_type: Option<&'static str>,
    authorized: Vec<String>,
    within: Vec<String>,
}

impl Options {
    /// Options of a server that allows everything that the client needs, to any user with the
    /// client key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens on this address of the loopback interface, or another one of this machine.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Adds a line to the configuration. If a setting is there twice, OpenSSH takes the first, and
    /// these lines come first.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Forwards no streams to Unix sockets.
    pub fn without_streams(self) -> Self {
        self.line("AllowStreamLocalForwarding no")
    }

    /// Forwards nothing at all.
    pub fn without_forwarding(self) -> Self {
        self.line("DisableForwarding yes")
    }

    /// Sets a variable for the processes that the server starts.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push(format!("\"{name}={value}\""));
        self
    }

    /// Sets the type of the host key; the default is `ed25519`.
    pub fn key_type(mut self, key_type: &'static str) -> Self {
        self.key_type = Some(key_type);
        self
    }

    /// Puts these words before the server's command, such as `ip netns exec NAME`.
    pub fn within(mut self, words: &[&str]) -> Self {
        self.within = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Accepts this key too: a line of `authorized_keys`.
    pub fn authorized(mut self, line: impl Into<String>) -> Self {
        self.authorized.push(line.into());
        self
    }
}

impl Sshd {
    /// The path of the server's program, or why there is none.
    fn program() -> Result<PathBuf, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
        let found = folders.map(|folder| folder.join("sshd")).find(|program| program.is_file());
        found.ok_or_else(|| "there is no OpenSSH server here: `sudo apt-get install -y openssh-server`".to_owned())
    }

    /// Starts a server and waits until it listens.
    pub fn start(options: &Options) -> io::Result<Self> {
        let program = Self::program().map_err(io::Error::other)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("skyward-sshd-{id}-{number}"));
        fs::create_dir(&folder)?;
        let address = options
            .address
            .clone()
            .unwrap_or_else(|| format!("127.{}.{}.{}", 16 + id / 250 % 200, 1 + id % 250, 1 + number % 250));
        // An address that this machine does not have belongs to another network, where no port is
        // taken.
        let free = if options.within.is_empty() { address.as_str() } else { "127.0.0.1" };
        let port = TcpListener::bind((free, 0))?.local_addr()?.port();
        // From here on, dropping `sshd` removes the folder.
        let within = options.within.clone();
        let mut sshd = Self { program, folder, address, port, within, listener: None, orphans: Vec::new() };
        sshd.make_key("host", options.key_type.unwrap_or("ed25519"))?;
        sshd.make_key("client", "ed25519")?;
        let mut authorized = fs::read_to_string(sshd.path("client.pub"))?;
        for line in &options.authorized {
            authorized += &format!("{line}\n");
        }
        fs::write(sshd.path("authorized_keys"), authorized)?;
        fs::write(sshd.path("config"), sshd.config(options))?;
        sshd.listen()?;
        Ok(sshd)
    }

    /// The address that the server listens on.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The port that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The user that the server accepts: this user.
    pub fn user(&self) -> String {
        let told = Command::new("id").arg("-un").output();
        told.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    }

    /// The private key that the server accepts.
    pub fn client_key(&self) -> PathBuf {
        self.path("client")
    }

    /// The host key, as in its `.pub` file: type, key, comment.
    pub fn host_key(&self) -> String {
        fs::read_to_string(self.path("host.pub")).unwrap_or_default().trim().to_owned()
    }

    /// A folder for a test's files; it is removed with the server.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server's log, for when a test fails.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The processes of the server's sessions that speak SSH, without the commands that run in
    /// them.
    pub fn sessions(&self) -> Vec<u32> {
        let all = processes();
        let mut found: Vec<u32> = all.iter().map(|one| one.id).filter(|id| self.orphans.contains(id)).collect();
        let listener = self.listener.as_ref().map(Child::id);
        found.extend(listener);
        let mut at = 0;
        while at < found.len() {
            let children = all.iter().filter(|one| one.parent == found[at] && one.name.starts_with("sshd"));
            let children: Vec<_> = children.map(|one| one.id).filter(|id| !found.contains(id)).collect();
            found.extend(children);
            at += 1;
        }
        found.retain(|id| Some(*id) != listener);
        found
    }

    /// Sends a signal to all sessions: `KILL`, `STOP`, `CONT`. Returns how many there were.
    pub fn signal_sessions(&self, signal: &str) -> usize {
        let sessions = self.sessions();
        send(signal, &sessions);
        sessions.len()
    }

    /// Sends a signal to the process that accepts connections.
    pub fn signal_listener(&self, signal: &str) {
        if let Some(listener) = &self.listener {
            send(signal, &[listener.id()]);
        }
    }

    /// Ends the process that accepts connections, and all sessions, as when the host goes down.
    pub fn stop(&mut self) {
        self.end_listener();
        send("KILL", &self.orphans);
        self.orphans.clear();
    }

    /// Ends the process that accepts connections; sessions go on.
    pub fn stop_listening(&mut self) {
        self.end_listener();
        send("CONT", &self.orphans);
    }

    /// Ends the process that accepts connections, and leaves the sessions stopped.
    fn end_listener(&mut self) {
        // A process that forks during the search, as a client reconnects, would not be found once
        // its parent has ended.
        self.signal_listener("STOP");
        let mut held = Vec::new();
        loop {
            let found = self.sessions();
            send("STOP", &found);
            if found.iter().all(|id| held.contains(id)) {
                break;
            }
            held = found;
        }
        self.orphans = held;
        if let Some(mut listener) = self.listener.take() {
            let _ = listener.kill();
            let _ = listener.wait();
        }
    }

    /// Whether there is a process that accepts connections; it may be stopped.
    pub fn is_listening(&mut self) -> bool {
        self.listener.as_mut().is_some_and(|listener| matches!(listener.try_wait(), Ok(None)))
    }

    /// Listens again, on the same port.
    pub fn listen(&mut self) -> io::Result<()> {
        if fs::metadata("/run").is_ok_and(|run| !run.permissions().readonly()) {
            // As root, sshd requires this folder, which the system makes when it starts the
            // service.
            let _ = fs::create_dir("/run/sshd");
        }
        let log = fs::File::options().create(true).append(true).open(self.path("log"))?;
        let mut words = self.within.iter().map(PathBuf::from).chain([self.program.clone()]);
        let mut listener = Command::new(words.next().unwrap_or_default())
            .args(words)
            .args(["-D", "-e", "-f"])
            .arg(self.path("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let end = Instant::now() + SERVER_START;
        while TcpStream::connect((self.address.as_str(), self.port)).is_err() {
            let ended = listener.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                let _ = listener.kill();
                let _ = listener.wait();
                return Err(io::Error::other(format!("sshd does not listen: {}", self.log())));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.listener = Some(listener);
        Ok(())
    }

    /// Listens again, on the same port, with these words before the server's command.
    pub fn listen_within(&mut self, words: &[&str]) -> io::Result<()> {
        self.within = words.iter().map(|word| (*word).to_owned()).collect();
        self.listen()
    }

    /// Replaces the host key and listens again; sessions go on.
    pub fn change_host_key(&mut self) -> io::Result<()> {
        for name in ["host", "host.pub"] {
            fs::remove_file(self.path(name))?;
        }
        self.make_key("host", "ed25519")?;
        self.stop_listening();
        self.listen()
    }

    /// Makes a key pair in the server's folder: `name` and `name.pub`.
    pub fn make_key(&self, name: &str, key_type: &str) -> io::Result<PathBuf> {
        self.keygen(&["-q", "-t", key_type, "-N", "", "-C", name, "-f"], name)?;
        Ok(self.path(name))
    }

    /// Runs `ssh-keygen` with these arguments, the last being a file in the server's folder.
    pub fn keygen(&self, arguments: &[&str], file: &str) -> io::Result<String> {
        let output = Command::new("ssh-keygen").args(arguments).arg(self.path(file)).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("ssh-keygen: {}", String::from_utf8_lossy(&output.stderr))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A file in the server's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn config(&self, options: &Options) -> String {
        let own = [
            format!("ListenAddress {}", self.address),
            format!("Port {}", self.port),
            format!("HostKey {}", self.path("host").display()),
            format!("AuthorizedKeysFile {}", self.path("authorized_keys").display()),
            "PidFile none".into(),
            // The folders above do not belong to this user alone.
            "StrictModes no".into(),
            "UsePAM no".into(),
            "PasswordAuthentication no".into(),
            "KbdInteractiveAuthentication no".into(),
            "UseDNS no".into(),
            "LogLevel ERROR".into(),
            "MaxStartups 200".into(),
            "PerSourceMaxStartups none".into(),
        ];
        let mut lines = options.lines.clone();
        // OpenSSH takes the last line of this setting.
        let is_limited = lines.iter().any(|line| line.starts_with("MaxStartups "));
        lines.extend(own.into_iter().filter(|line| !(is_limited && line.starts_with("MaxStartups "))));
        // A shell of the second level reads no `~/.bashrc`. What this machine's user has there is not
        // part of a test, and may hang: a killed `pyenv init` keeps a lock for which later ones wait.
        lines.push(format!("SetEnv SHLVL=1 {}", options.env.join(" ")));
        lines.join("\n") + "\n"
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process of this machine.
struct Process {
    id: u32,
    parent: u32,
    name: String,
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (name, rest) = stat.split_once(" (")?.1.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let is_gone = fields.next()? == "Z";
        let parent = fields.next()?.parse().ok()?;
        (!is_gone).then(|| Process { id, parent, name: name.to_owned() })
    })
    .collect()
}

fn send(signal: &str, processes: &[u32]) {
    if !processes.is_empty() {
        let ids = processes.iter().map(u32::to_string);
        let _ = Command::new("kill").arg(format!("-{signal}")).args(ids).stderr(Stdio::null()).status();
    }
}

static NUMBER: AtomicU32 = AtomicU32::new(0);
/// How long a server may take to listen.
const SERVER_START: Duration = Duration::from_secs(60);
