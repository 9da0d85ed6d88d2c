//! One round: a client is started, faults hit at their moments, and what is left at the end is looked for.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::count::{Counts, Tasks};
use super::plan::{Fault, How, Moment, Plan, Victim};
use super::processes::{self, Process};
use super::words::{LEASE, Line};

/// A round that was played.
pub(crate) struct Played {
    pub(crate) round: u64,
    pub(crate) counts: Counts,
    plan: String,
    history: Vec<String>,
    problems: Vec<String>,
    kept: PathBuf,
}

struct Round<'a> {
    client_program: &'a Path,
    folder: PathBuf,
    mark: String,
    begin: Instant,
    client: Child,
    lines: Receiver<Line>,
    tasks: Tasks,
    ended: bool,
    /// The client was killed, or stopped for good.
    client_gone: bool,
    agent_hit: bool,
    counts: Counts,
    history: Vec<String>,
    problems: Vec<String>,
}

/// Something that is to be done at a time.
struct Due {
    at: Instant,
    what: What,
}

enum What {
    Hit(Fault),
    /// A process goes on.
    Continue(u32),
}

/// Plays a round to its end, and ends whatever it has left.
pub(crate) fn play(client: &Path, round: u64, plan: &Plan) -> Played {
    // Sockets lie below it, and their paths must be short.
    let folder = std::env::temp_dir().join(format!("sc{}-{round}", process::id()));
    let mut played = match Round::start(client, folder.clone(), round, plan) {
        Ok(mut begun) => {
            begun.play(&plan.faults);
            begun.finish();
            let Round { counts, history, problems, .. } = begun;
            Played { round, counts, plan: plan.to_string(), history, problems, kept: folder.clone() }
        }
        Err(error) => Played {
            round,
            counts: Counts { stuck: 1, ..Counts::default() },
            plan: plan.to_string(),
            history: Vec::new(),
            problems: vec![format!("the client cannot be started: {error}")],
            kept: folder.clone(),
        },
    };
    played.counts.rounds = 1;
    if played.counts.is_clean() {
        let _ = fs::remove_dir_all(folder);
    }
    played
}

impl<'a> Round<'a> {
    fn start(client_program: &'a Path, folder: PathBuf, round: u64, plan: &Plan) -> anyhow::Result<Self> {
        fs::create_dir_all(folder.join("state"))?;
        let mut script = plan.script.clone();
        script.executions = folder.join("executions").to_string_lossy().into_owned();
        let mark = format!("{}.{round}", process::id());
        let mut client = command(client_program, &folder, &mark)
            .args(["client", &serde_json::to_string(&script)?])
            .stderr(File::create(folder.join("stderr"))?)
            .spawn()?;
        let (sender, lines) = mpsc::channel();
        if let Some(output) = client.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // What is no line of ours is a panic's or a library's word.
                    if let Ok(line) = serde_json::from_str(&line)
                        && sender.send(line).is_err()
                    {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            client_program,
            folder,
            mark,
            begin: Instant::now(),
            client,
            lines,
            tasks: Tasks::default(),
            ended: false,
            client_gone: false,
            agent_hit: false,
            counts: Counts::default(),
            history: Vec::new(),
            problems: Vec::new(),
        })
    }

    /// Reads what the client says and lets the faults hit, until the client is gone or there is nothing more to wait for.
    fn play(&mut self, faults: &[Fault]) {
        let mut due: Vec<Due> = Vec::new();
        self.plan(&mut due, faults, Moment::Start);
        let end = self.begin + PATIENCE;
        loop {
            due.sort_by_key(|due| std::cmp::Reverse(due.at));
            let next = due.last().map_or(end, |due| due.at).min(end);
            match self.lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    match &line {
                        Line::Ready => self.plan(&mut due, faults, Moment::Ready),
                        Line::Ending => self.plan(&mut due, faults, Moment::Ending),
                        Line::Ended { error } => {
                            self.note(format!("the scope ended: {}", error.as_deref().unwrap_or("well")));
                            self.ended = true;
                        }
                        _ => {}
                    }
                    self.tasks.on_line(&line);
                    continue;
                }
                // Its output is closed: it is gone.
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(Due { what, .. }) = due.pop_if(|due| due.at <= Instant::now()) {
                match what {
                    What::Hit(fault) => due.extend(self.hit(fault)),
                    What::Continue(pid) => {
                        let was =
                            if processes::signal(pid, Signal::CONT) { "goes on" } else { "was gone before it went on" };
                        self.note(format!("process {pid} {was}"));
                    }
                }
                if self.client_gone && due.is_empty() {
                    return;
                }
            } else if Instant::now() >= end {
                self.counts.stuck += 1;
                self.problems.push(format!("the client had not ended after {PATIENCE:?}"));
                return;
            }
        }
    }

    fn plan(&mut self, due: &mut Vec<Due>, faults: &[Fault], moment: Moment) {
        self.note(format!("{moment:?}"));
        let now = Instant::now();
        let faults = faults.iter().filter(|fault| fault.after == moment);
        due.extend(faults.map(|fault| Due { at: now + fault.delay, what: What::Hit(*fault) }));
    }

    /// Kills or stops; gives when a stopped one goes on.
    fn hit(&mut self, fault: Fault) -> Option<Due> {
        let Some((pid, name)) = self.find(fault) else {
            self.note(format!("{fault}: there was none"));
            return None;
        };
        let client = self.client.id();
        let hit = match fault.how {
            How::Kill => processes::signal(pid, Signal::KILL),
            How::Stop | How::Pause(_) => processes::signal(pid, Signal::STOP),
            // The worker goes through what it was sent before, and nobody reads its answers.
            How::KillUnseen(time) => {
                processes::signal(client, Signal::STOP) && {
                    thread::sleep(time / 2);
                    processes::signal(pid, Signal::KILL)
                }
            }
        };
        if !hit {
            processes::signal(client, Signal::CONT);
            self.note(format!("{fault}: process {pid} was gone"));
            return None;
        }
        self.note(format!("{fault}: process {pid}, {name}"));
        self.counts.faults += 1;
        match fault.victim {
            Victim::Client => self.client_gone |= !matches!(fault.how, How::Pause(_)),
            Victim::Agent => self.agent_hit = true,
            Victim::Worker => {}
        }
        match fault.how {
            How::Pause(time) => Some(Due { at: Instant::now() + time, what: What::Continue(pid) }),
            How::KillUnseen(time) => Some(Due { at: Instant::now() + time / 2, what: What::Continue(client) }),
            How::Kill | How::Stop => None,
        }
    }

    fn find(&self, fault: Fault) -> Option<(u32, String)> {
        if fault.victim == Victim::Client {
            return Some((self.client.id(), "the client".into()));
        }
        let mut found = processes::of_round(&self.mark, self.client.id());
        found.retain(|process| process.is(fault.victim));
        found.sort_by_key(|process| process.pid);
        let count = found.len();
        (count > 0).then(|| (found[fault.which % count].pid, found[fault.which % count].command.clone()))
    }

    /// Waits for what has to end by itself, ends the rest, and counts.
    fn finish(&mut self) {
        if self.client_gone {
            self.check_layers();
        }
        if !self.ended {
            processes::signal(self.client.id(), Signal::KILL);
        }
        let status = self.client.wait();
        if !self.ended && !self.client_gone && self.counts.stuck == 0 {
            self.counts.stuck += 1;
            self.problems.push(format!("the client crashed: {status:?}, see `stderr`"));
        }
        // What it said before its end.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
            self.ended |= matches!(line, Line::Ended { .. });
            self.tasks.on_line(&line);
        }
        if !self.ended {
            self.reap();
        }
        self.look_for_leftovers();
        self.tasks.on_executions(&fs::read_to_string(self.folder.join("executions")).unwrap_or_default());
        let (counts, problems) = self.tasks.count(self.ended || self.counts.stuck > 0);
        self.counts += &counts;
        self.problems.extend(problems);
    }

    /// Without its client a node ends by itself: its agent watches the owner, and where that is only stopped, the lease. Not where a fault hit an agent too.
    fn check_layers(&mut self) {
        let end = Instant::now() + Duration::from_millis(LEASE) + MARGIN;
        loop {
            let left = processes::of_round(&self.mark, self.client.id());
            if left.is_empty() || (self.agent_hit && Instant::now() + MARGIN > end) {
                return;
            }
            if Instant::now() > end {
                self.left("still run without their client", left.iter().map(shown).collect());
                return;
            }
            thread::sleep(POLL);
        }
    }

    fn reap(&mut self) {
        let output =
            command(self.client_program, &self.folder, &self.mark).arg("reap").stderr(Stdio::inherit()).output();
        match output {
            Ok(output) if output.status.success() => {
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                self.note("reaped");
                if !said.trim().is_empty() {
                    self.left("could not be reaped", said.lines().map(str::to_owned).collect());
                }
            }
            other => self.left("could not be reaped", vec![format!("{other:?}")]),
        }
    }

    fn look_for_leftovers(&mut self) {
        let left = processes::of_round(&self.mark, self.client.id());
        self.left("still run", left.iter().map(shown).collect());
        left.iter().for_each(|process| {
            processes::signal(process.pid, Signal::KILL);
        });
        let names = |folder: &str, wanted: fn(&str) -> bool| {
            let entries = fs::read_dir(self.folder.join(folder)).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.filter(|name| wanted(name)).collect::<Vec<_>>()
        };
        let machines = names("run", |name| name.starts_with("p-"));
        let records = names("state/ledger", |name| name.ends_with(".ledger"));
        self.left("are folders of pools", machines);
        self.left("are still on record", records);
    }

    fn left(&mut self, what: &str, things: Vec<String>) {
        if !things.is_empty() {
            self.counts.left_running += things.len() as u64;
            self.problems.push(format!("these {what}: {}", things.join("; ")));
        }
    }

    fn note(&mut self, what: impl fmt::Display) {
        self.history.push(format!("{:>6} ms  {what}", self.begin.elapsed().as_millis()));
    }
}

/// The clients' program, as a user of its own: with folders for its ledger and its machines.
fn command(program: &Path, folder: &Path, mark: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("SKYWARD_STATE_DIR", folder.join("state"))
        .env("SKYWARD_RUNTIME_DIR", folder.join("run"))
        .env(processes::MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn shown(process: &Process) -> String {
    let stopped = if process.is_stopped() { ", stopped" } else { "" };
    format!("{} ({}{stopped})", process.command, process.pid)
}

/// What failed, and when what was done.
impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nround {} failed: {}", self.round, self.plan)?;
        self.history.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.problems.iter().take(MOST_SHOWN).try_for_each(|problem| writeln!(f, "  {problem}"))?;
        if self.problems.len() > MOST_SHOWN {
            writeln!(f, "  and {} more", self.problems.len() - MOST_SHOWN)?;
        }
        write!(f, "kept in {}", self.kept.display())
    }
}

/// A client's life: its pool's start, all deadlines of its tasks, and the pool's end.
const PATIENCE: Duration = Duration::from_secs(120);
/// How much later than its lease a node may end on a host that is busy.
const MARGIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
const MOST_SHOWN: usize = 20;
