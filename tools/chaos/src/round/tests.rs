use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use super::*;
use crate::words::Provider;

/// One machine, of which it is known what was done to it.
#[derive(Clone)]
struct One {
    folder: PathBuf,
    done: Arc<Mutex<Vec<Act>>>,
}

impl Ground for One {
    fn machines(&self, _: &Path, _: &str) -> anyhow::Result<Box<dyn Machines>> {
        Ok(Box::new(self.clone()))
    }
}

impl Machines for One {
    fn provider(&self) -> Provider {
        Provider::Local
    }

    fn executions(&self) -> String {
        String::new()
    }

    fn executed(&self) -> String {
        String::new()
    }

    fn find(&self, victim: Victim) -> Vec<Target> {
        vec![Target::Machine { victim, id: "one".into() }]
    }

    fn act(&mut self, target: &Target, act: Act) -> bool {
        match target {
            Target::Machine { .. } => {
                self.done.lock().unwrap().push(act);
                fs::write(self.folder.join("hit"), []).unwrap();
                true
            }
            Target::Process { pid, .. } => act != Act::Kill || processes::signal(*pid, Signal::KILL),
        }
    }

    fn running(&self) -> Vec<Target> {
        Vec::new()
    }

    fn left(&self) -> Vec<(&'static str, Vec<String>)> {
        Vec::new()
    }
}

/// Plays a round whose client is a script. Gives what was done to the machine.
fn played(name: &str, script: impl FnOnce(&Path) -> String, faults: Vec<Fault>) -> (Played, Vec<Act>) {
    let (played, done) = ended(name, script, faults, || false);
    (played.unwrap(), done)
}

/// The same in a run that may be interrupted.
fn ended(
    name: &str,
    script: impl FnOnce(&Path) -> String,
    faults: Vec<Fault>,
    interrupted: fn() -> bool,
) -> (Option<Played>, Vec<Act>) {
    let folder = std::env::temp_dir().join(format!("scr{}-{name}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let client = folder.join("client");
    // Another process writes it: while this one had it open, a process that another thread starts would
    // have it open, too, and it could not run.
    let write = ["-c", r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#, "sh"];
    let written = Command::new("sh").args(write).arg(&client).arg(script(&folder)).status().unwrap();
    assert!(written.success());
    let ground = One { folder: folder.clone(), done: Arc::default() };
    let plan = Plan { faults, ..Plan::draw(Place::Local, 1, 0) };
    let game = Game { client: &client, place: Place::Local, ground: &ground, interrupted };
    let played = play(&game, name.len() as u64, &plan);
    let done = ground.done.lock().unwrap().clone();
    fs::remove_dir_all(&folder).unwrap();
    if let Some(played) = &played {
        let _ = fs::remove_dir_all(&played.kept);
    }
    (played, done)
}

#[test]
fn what_was_stopped_for_a_while_goes_on_after_its_client_is_gone() {
    let how = How::Pause(Duration::from_millis(300));
    let fault = Fault { after: Moment::Start, delay: Duration::ZERO, victim: Victim::Machine, which: 0, how };
    // It ends as soon as the machine is hit.
    let script = |folder: &Path| format!("until [ -e '{}/hit' ]; do :; done", folder.display());
    let (played, done) = played("gone", script, vec![fault]);
    assert_eq!(done, [Act::Stop, Act::Continue], "{:?}", played.history);
}

#[test]
fn what_was_stopped_for_good_stays_stopped_after_a_pause() {
    let fault = |delay, how| Fault {
        after: Moment::Start,
        delay: Duration::from_millis(delay),
        victim: Victim::Machine,
        which: 0,
        how,
    };
    let faults = vec![fault(0, How::Stop), fault(50, How::Pause(Duration::from_millis(100)))];
    let (played, done) = played("stays", |_| "sleep 1".into(), faults);
    assert_eq!(done, [Act::Stop, Act::Stop], "{:?}", played.history);
}

#[test]
fn a_pool_that_fails_although_nothing_was_hit_is_no_clean_round() {
    let said = |error: &str| {
        let script = format!(r#"echo '{{"ended":{{"error":{error}}}}}'"#);
        played(&format!("said{error}").replace('"', ""), |_| script, Vec::new()).0.counts
    };
    assert_eq!(said(r#""no network""#).wrong, 1);
    let well = said("null");
    assert!(well.is_clean(), "{well:?}");
}

#[test]
fn a_round_of_an_interrupted_run_is_given_up_and_leaves_nothing() {
    let (began, name) = (Instant::now(), "interrupted");
    let script = |_: &Path| "[ \"$2\" = reap ] || exec sleep 1000".to_owned();
    let (played, done) = ended(name, script, Vec::new(), || true);
    assert!(played.is_none() && done.is_empty());
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(!std::env::temp_dir().join(format!("sc{}-{}", process::id(), name.len())).exists());
}

#[test]
fn a_client_that_does_not_exit_after_its_scope_is_killed() {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    let (began, name) = (Instant::now(), "stays-after-its-scope");
    let script = |_: &Path| r#"[ "$2" = reap ] || { echo '{"ended":{"error":null}}'; exec sleep 1000; }"#.to_owned();
    // Interrupted after the client has ended its scope, which it does at once.
    let (played, _) = ended(name, script, Vec::new(), || LOOKS.fetch_add(1, Ordering::Relaxed) > 10);
    assert!(played.is_none());
    assert!(began.elapsed() < Duration::from_secs(60));
}
