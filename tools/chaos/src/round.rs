//! One round: starts a client, lets faults hit it at their moments, and looks for what is left at
//! the end.

mod end;

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::count::{Counts, Tasks};
use crate::place::{Act, Ground, Machines, Place, Target, Victim};
use crate::plan::{Fault, How, Moment, Plan};
use crate::processes;
use crate::timing::{INTERRUPT_POLL, LISTENER_AGAIN};
use crate::words::{CLIENT, Line, Script};

/// What all rounds of a run share.
pub(crate) struct Game<'a> {
    /// The program of the clients.
    pub(crate) client: &'a Path,
    pub(crate) place: Place,
    pub(crate) ground: &'a dyn Ground,
    /// Whether the run was interrupted, so that rounds are given up.
    pub(crate) interrupted: fn() -> bool,
}

/// A round that has ended.
pub(crate) struct Played {
    pub(crate) round: u64,
    pub(crate) counts: Counts,
    pub(crate) took: Duration,
    plan: String,
    history: Vec<String>,
    problems: Vec<String>,
    kept: PathBuf,
}

struct Round<'a> {
    game: &'a Game<'a>,
    machines: Box<dyn Machines>,
    folder: PathBuf,
    mark: String,
    begin: Instant,
    client: Child,
    lines: Receiver<Line>,
    tasks: Tasks,
    ended: bool,
    /// The client reported that all machines are gone.
    ended_well: bool,
    /// Whether the client was killed, or stopped for good.
    client_gone: bool,
    /// The targets that were killed, or stopped for good.
    lost: Vec<Fault>,
    /// The targets that were stopped for good. The end of a pause does not continue them.
    stopped: Vec<Target>,
    /// Whether no fault ends a process or keeps one from answering.
    only_cuts: bool,
    /// Whether a machine was unreachable at times, so that its client may have been unable to end
    /// it.
    was_away: bool,
    /// Whether the round was given up because the run was interrupted.
    given_up: bool,
    counts: Counts,
    history: Vec<String>,
    problems: Vec<String>,
}

/// An action that is due at a time.
struct Due {
    at: Instant,
    what: What,
}

enum What {
    Hit(Fault),
    Continue(Target),
}

/// Plays a round to its end, and ends whatever it has left. `None` if the run was interrupted before
/// the round had ended.
pub(crate) fn play(game: &Game<'_>, round: u64, plan: &Plan) -> Option<Played> {
    let begin = Instant::now();
    // Sockets lie below it, and their paths must be short.
    let folder = std::env::temp_dir().join(format!("sc{}-{round}", process::id()));
    let ended = match Round::start(game, folder.clone(), round, plan) {
        Ok(mut begun) => {
            begun.play(&plan.faults);
            begun.finish();
            let Round { counts, history, problems, given_up, .. } = begun;
            (!given_up).then_some((counts, history, problems))
        }
        Err(_) if (game.interrupted)() => None,
        Err(error) => {
            let counts = Counts { stuck: 1, ..Counts::default() };
            Some((counts, Vec::new(), vec![format!("the round cannot be started: {error:#}")]))
        }
    };
    if ended.as_ref().is_none_or(|(counts, ..)| counts.is_clean()) {
        let _ = fs::remove_dir_all(&folder);
    }
    let (mut counts, history, problems) = ended?;
    counts.rounds = 1;
    Some(Played { round, counts, took: begin.elapsed(), plan: plan.to_string(), history, problems, kept: folder })
}

impl<'a> Round<'a> {
    fn start(game: &'a Game<'a>, folder: PathBuf, round: u64, plan: &Plan) -> anyhow::Result<Self> {
        fs::create_dir_all(folder.join("state"))?;
        let mark = format!("{}.{round}", process::id());
        let machines = game.ground.machines(&folder, &mark)?;
        let script = Script {
            provider: machines.provider(),
            executions: machines.executions(),
            storage: folder.join("storage").to_string_lossy().into_owned(),
            ..plan.script.clone()
        };
        let mut client = command(game.client, &folder, &mark, machines.as_ref())
            .args([CLIENT, "play", &serde_json::to_string(&script)?])
            // Ctrl-C reaches this program alone, which then ends its clients.
            .process_group(0)
            .stderr(File::create(folder.join("stderr"))?)
            .spawn()?;
        let (sender, lines) = mpsc::channel();
        if let Some(output) = client.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // Other lines come from a panic or a library.
                    if let Ok(line) = serde_json::from_str(&line)
                        && sender.send(line).is_err()
                    {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            game,
            machines,
            folder,
            mark,
            begin: Instant::now(),
            client,
            lines,
            tasks: Tasks::default(),
            ended: false,
            ended_well: false,
            client_gone: false,
            lost: Vec::new(),
            stopped: Vec::new(),
            only_cuts: plan.only_cuts(),
            was_away: false,
            given_up: false,
            counts: Counts::default(),
            history: Vec::new(),
            problems: Vec::new(),
        })
    }

    /// Reads the client's output and applies the faults, until the client is gone, its time is over
    /// or the run is interrupted.
    fn play(&mut self, faults: &[Fault]) {
        let mut due: Vec<Due> = Vec::new();
        self.plan(&mut due, faults, Moment::Start);
        let patience = self.game.place.patience();
        let end = self.begin + patience;
        while !self.gives_up() {
            due.sort_by_key(|due| std::cmp::Reverse(due.at));
            let next = due.last().map_or(end, |due| due.at).min(end).min(Instant::now() + INTERRUPT_POLL);
            match self.lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    match &line {
                        Line::Ready => self.plan(&mut due, faults, Moment::Ready),
                        Line::Ending => self.plan(&mut due, faults, Moment::Ending),
                        _ => {}
                    }
                    self.on_line(&line);
                    continue;
                }
                // The client has closed its output, so it is gone.
                Err(RecvTimeoutError::Disconnected) => return self.go_on(due),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(Due { what, .. }) = due.pop_if(|due| due.at <= Instant::now()) {
                match what {
                    What::Hit(fault) => due.extend(self.hit(fault)),
                    What::Continue(target) => self.goes_on(&target),
                }
                if self.client_gone && due.is_empty() {
                    return;
                }
            } else if Instant::now() >= end {
                self.counts.stuck += 1;
                self.problems.push(format!("the client had not ended after {patience:?}"));
                return;
            }
        }
    }

    /// Whether the run was interrupted: what is left to do is to clean up.
    fn gives_up(&mut self) -> bool {
        self.given_up |= (self.game.interrupted)();
        self.given_up
    }

    /// Continues what was stopped for a while, at its time and without a client: it may be what
    /// ends the machines.
    fn go_on(&mut self, mut due: Vec<Due>) {
        due.sort_by_key(|due| due.at);
        for Due { at, what } in due {
            if let What::Continue(target) = what {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                self.goes_on(&target);
            }
        }
    }

    fn goes_on(&mut self, target: &Target) {
        let was = if self.stopped.contains(target) {
            "stays stopped"
        } else if self.machines.act(target, Act::Continue) {
            "continues"
        } else {
            "had ended before it could continue"
        };
        self.note(format!("{target} {was}"));
    }

    fn on_line(&mut self, line: &Line) {
        if let Line::Ended { error } = line {
            self.note(format!("the scope ended: {}", error.as_deref().unwrap_or("well")));
            self.ended = true;
            self.ended_well = error.is_none();
        }
        self.tasks.on_line(line);
    }

    fn plan(&mut self, due: &mut Vec<Due>, faults: &[Fault], moment: Moment) {
        self.note(format!("{moment:?}"));
        let now = Instant::now();
        let faults = faults.iter().filter(|fault| fault.after == moment);
        due.extend(faults.map(|fault| Due { at: now + fault.delay, what: What::Hit(*fault) }));
    }

    /// Kills or stops a target, and returns when a stopped one continues.
    fn hit(&mut self, fault: Fault) -> Option<Due> {
        let Some(target) = self.find(fault) else {
            self.note(format!("{fault}: no target existed"));
            return None;
        };
        let client = self.client();
        let hit = match fault.how {
            How::Kill => self.machines.act(&target, Act::Kill),
            How::Stop | How::Pause(_) => self.machines.act(&target, Act::Stop),
            // The worker runs what it has received before, and nobody reads its answers.
            How::KillUnseen(time) => {
                self.machines.act(&client, Act::Stop) && {
                    thread::sleep(time / 2);
                    self.machines.act(&target, Act::Kill)
                }
            }
        };
        if !hit {
            if !self.stopped.contains(&client) {
                self.machines.act(&client, Act::Continue);
            }
            self.note(format!("{fault}: the target {target} had already ended"));
            return None;
        }
        self.note(format!("{fault}: {target}"));
        self.counts.faults += 1;
        self.was_away |= fault.victim.leads_to_machines(self.game.place);
        if !matches!(fault.how, How::Pause(_)) {
            self.client_gone |= fault.victim == Victim::Client;
            self.lost.push(fault);
        }
        if fault.how == How::Stop {
            self.stopped.push(target.clone());
        }
        match fault.how {
            How::Pause(time) => Some(Due { at: Instant::now() + time, what: What::Continue(target) }),
            How::KillUnseen(time) => Some(Due { at: Instant::now() + time / 2, what: What::Continue(client) }),
            // As a host's service manager does.
            How::Kill if fault.victim == Victim::Listener => {
                Some(Due { at: Instant::now() + LISTENER_AGAIN, what: What::Continue(target) })
            }
            How::Kill | How::Stop => None,
        }
    }

    fn find(&self, fault: Fault) -> Option<Target> {
        if fault.victim == Victim::Client {
            return Some(self.client());
        }
        let mut found = self.machines.find(fault.victim);
        let count = found.len();
        (count > 0).then(|| found.swap_remove(fault.which % count))
    }

    fn client(&self) -> Target {
        Target::Process { pid: self.client.id(), name: "the client".into() }
    }

    fn note(&mut self, what: impl fmt::Display) {
        self.history.push(format!("{:>6} ms  {what}", self.begin.elapsed().as_millis()));
    }
}

/// The command of a client, with its own folders for ledger and machines, as a separate user has
/// them.
pub(super) fn command(program: &Path, folder: &Path, mark: &str, machines: &dyn Machines) -> Command {
    let mut command = Command::new(program);
    command
        .envs(machines.env())
        .env("SKYWARD_STATE_DIR", folder.join("state"))
        .env("SKYWARD_RUNTIME_DIR", folder.join("run"))
        .env(processes::MARK, mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// What failed, and which faults hit when.
impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.counts.is_clean() { "went well" } else { "failed" };
        writeln!(f, "\nround {} {how} after {:.1} s: {}", self.round, self.took.as_secs_f64(), self.plan)?;
        self.history.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.problems.iter().take(MOST_SHOWN).try_for_each(|problem| writeln!(f, "  {problem}"))?;
        if self.problems.len() > MOST_SHOWN {
            writeln!(f, "  and {} more", self.problems.len() - MOST_SHOWN)?;
        }
        if self.counts.is_clean() { Ok(()) } else { write!(f, "kept in {}", self.kept.display()) }
    }
}

const MOST_SHOWN: usize = 20;

#[cfg(test)]
mod tests;
