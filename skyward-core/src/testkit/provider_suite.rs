//! The contract of [`Provider`], one function for each clause.
//!
//! Clones of the value under test are the same provider; one that cannot be cloned is given as an `Arc`. Machines are reached through [`Checked`], as a pool reaches them.
//!
//! Each function starts its own pools under fresh ids, and ends whatever it started, also when the clause does not hold. The machines are real ones of the provider under test: at one that takes
//! money the whole suite costs about twenty short-lived machines.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use skyward_core::provider::Local;
//! use skyward_core::testkit::provider_suite;
//!
//! provider_suite::list_finds_what_was_launched(&Local::new()).await.unwrap();
//! # }
//! ```

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::time::{Instant, sleep, timeout};

use super::remote_suite;
use super::violation::{Violation, told};
use crate::error::Result as Answer;
use crate::ids::{Attempt, LaunchId, MachineId, NodeIndex, PoolId};
use crate::provider::{Checked, LaunchRequest, Machine, MachineStatus, Offer, Provider, Requirements};
use crate::remote::{Command, Remote};
use crate::spec::Limits;

/// Checks every clause, of the provider's machines as [`Remote`]s too, and prints a line for each. `again` is another value of the same provider, as another process would make it.
///
/// # Errors
///
/// The clauses that do not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines of one clause; `list` of the provider shows them.
pub async fn all(provider: &(impl Provider + Clone), again: &(impl Provider + Clone)) -> Result<(), Vec<Violation>> {
    let mut broken = Vec::new();
    let subject = provider.name().to_owned();
    macro_rules! check {
        ($($clause:ident),+ $(,)?) => {
            $(told(&subject, stringify!($clause), $clause(provider).await, &mut broken);)+
        };
    }
    check!(
        name_is_one_word,
        offers_meet_the_requirements,
        launch_answers_its_request,
        launch_is_idempotent,
        launches_differ,
        dropped_launch_is_listed,
        inspect_answers_in_order,
        inspect_does_not_give_up_a_new_machine,
        list_finds_what_was_launched,
    );
    told(&subject, "list_is_not_memory", list_is_not_memory(provider, again).await, &mut broken);
    check!(
        terminate_is_idempotent,
        terminate_may_come_early,
        terminate_is_seen,
        terminate_ends_what_runs,
        prepare_is_repeatable,
        teardown_is_idempotent,
        teardown_leaves_other_pools,
        connect_reaches_the_machine,
        connect_refuses_what_is_gone,
    );
    let on_machine = trial("connect_reaches_the_machine", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let remote = trial.connect(&machine).await?;
        remote_suite::all(&*remote, &machine.folder, &mut broken).await;
        Ok(())
    })
    .await;
    broken.extend(on_machine.err());
    if broken.is_empty() { Ok(()) } else { Err(broken) }
}

/// `name` is one word in lower case, and never changes.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Starts nothing.
pub async fn name_is_one_word(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    let (name, again) = (provider.name().to_owned(), provider.name());
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
    let clause = "name_is_one_word";
    require(clause, good, || format!("the name is {name:?}"))?;
    require(clause, name == again, || format!("the name was {name:?}, then {again:?}"))
}

/// Every offer meets the requirements, and what nobody has is not offered.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Starts nothing.
pub async fn offers_meet_the_requirements(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    let clause = "offers_meet_the_requirements";
    let all = ask(clause, "offers", provider.offers(&Requirements::default())).await?;
    let Some(largest) = all.iter().map(|offer| offer.cpus).max() else { return Ok(()) };
    for requirements in [
        Requirements { cpus: Some(largest), ..Requirements::default() },
        Requirements { cpus: Some(u32::MAX), ..Requirements::default() },
        Requirements { memory_gib: Some(u32::MAX), ..Requirements::default() },
    ] {
        let offers = ask(clause, "offers", provider.offers(&requirements)).await?;
        let short = offers.iter().find(|offer| {
            requirements.cpus.is_some_and(|cpus| offer.cpus < cpus)
                || requirements.memory_gib.is_some_and(|memory| offer.memory_gib < memory)
        });
        require(clause, short.is_none(), || format!("{short:?} was offered for {requirements:?}"))?;
    }
    Ok(())
}

/// `launch` gives a machine of just this launch, pool and node, with an absolute folder of at most 60 bytes.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn launch_answers_its_request(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("launch_answers_its_request", provider, async |trial| {
        let request = trial.request(3).await?;
        let machine = trial.ask("launch", provider.launch(&request)).await?;
        let same = machine.launch == request.launch && machine.pool == request.pool && machine.node == request.node;
        trial.require(same, || format!("{machine:?} was launched for {request:?}"))?;
        let folder = &machine.folder;
        trial.require(folder.starts_with('/') && folder.len() <= LONGEST_FOLDER, || {
            format!("the folder {folder:?} is not an absolute path of at most {LONGEST_FOLDER} bytes")
        })?;
        trial.require(!machine.address.is_empty(), || "the machine has no address".into())
    })
    .await
}

/// `launch` with the same launch id gives the same machine, one after another and at the same time.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn launch_is_idempotent(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("launch_is_idempotent", provider, async |trial| {
        let request = trial.request(0).await?;
        let (a, b) = tokio::join!(
            trial.ask("launch", provider.launch(&request)),
            trial.ask("launch, at the same time", provider.launch(&request))
        );
        let (a, b) = (a?, b?);
        let c = trial.ask("launch, again", provider.launch(&request)).await?;
        trial.require(a == b && b == c, || format!("three launches gave {a:?}, {b:?} and {c:?}"))?;
        let listed = trial.list().await?;
        trial.require(listed.len() == 1, || format!("one launch id started {} machines: {listed:?}", listed.len()))
    })
    .await
}

/// Launches of two nodes are two machines, with ids and folders of their own.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn launches_differ(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("launches_differ", provider, async |trial| {
        let (a, b) = (trial.launch(0).await?, trial.launch(1).await?);
        trial.require(a.id != b.id, || format!("both machines are {}", a.id))?;
        let place = |machine: &Machine| (machine.address.clone(), machine.folder.clone());
        trial.require(place(&a) != place(&b), || format!("both machines are at {} in {}", a.address, a.folder))
    })
    .await
}

/// Dropping the future of `launch` leaves at most machines that `list` finds: once they are ended, none comes after them.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave a machine.
pub async fn dropped_launch_is_listed(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    for polls in [1_u32, 2, 3, 5, 8, 13] {
        trial("dropped_launch_is_listed", provider, async |trial| {
            let request = trial.request(0).await?;
            {
                let mut launch = provider.launch(&request);
                for _ in 0..polls {
                    let step = poll_fn(|context| {
                        let done = launch.as_mut().poll(context).is_ready();
                        // A wake-up of its own: what the launch waits for may take longer than this clause has.
                        context.waker().wake_by_ref();
                        std::task::Poll::Ready(done)
                    });
                    if step.await {
                        break;
                    }
                    sleep(BRIEF).await;
                }
            }
            for machine in trial.list().await? {
                trial.terminate(&machine.id).await?;
                trial.gone(&machine.id).await?;
            }
            for _ in 0..LOOKS {
                sleep(BRIEF).await;
                let late = trial.list().await?;
                trial.require(late.is_empty(), || {
                    format!("after {polls} polls and all that was listed had ended, there came {late:?}")
                })?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// `inspect` answers for each machine, in the order asked.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn inspect_answers_in_order(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("inspect_answers_in_order", provider, async |trial| {
        let (a, b) = (trial.launch(0).await?, trial.launch(1).await?);
        trial.terminate(&a.id).await?;
        trial.gone(&a.id).await?;
        for (asked, gone) in [
            (vec![], vec![]),
            (vec![a.id.clone(), b.id.clone()], vec![true, false]),
            (vec![b.id.clone(), a.id.clone()], vec![false, true]),
        ] {
            let states = trial.ask("inspect", provider.inspect(&asked)).await?;
            let answered: Vec<bool> = states.iter().map(|state| *state == MachineStatus::Gone).collect();
            trial
                .require(answered == gone, || format!("of {asked:?}, {} of which is gone, it said {states:?}", a.id))?;
        }
        Ok(())
    })
    .await
}

/// `inspect` never reports a machine as gone that may still be starting.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn inspect_does_not_give_up_a_new_machine(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("inspect_does_not_give_up_a_new_machine", provider, async |trial| {
        let machine = trial.launch(0).await?;
        for _ in 0..LOOKS {
            let state = trial.state(&machine.id).await?;
            trial.require(!matches!(state, MachineStatus::Ending | MachineStatus::Gone), || {
                format!("a machine that was just launched is {state:?}")
            })?;
            sleep(BRIEF).await;
        }
        Ok(())
    })
    .await
}

/// `list` gives the live machines of a pool just as `launch` gave them, and those of no other pool.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn list_finds_what_was_launched(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("list_finds_what_was_launched", provider, async |trial| {
        let mut launched = vec![trial.launch(0).await?, trial.launch(1).await?];
        let mut listed = trial.list().await?;
        launched.sort_by(|a, b| a.id.cmp(&b.id));
        listed.sort_by(|a, b| a.id.cmp(&b.id));
        trial.require(launched == listed, || format!("launched were {launched:?}, listed {listed:?}"))?;
        let other = trial.ask("list of a pool that never was", provider.list(&PoolId::random())).await?;
        trial.require(other.is_empty(), || format!("a pool that never was has {other:?}"))?;
        trial.terminate(&launched[0].id).await?;
        trial.gone(&launched[0].id).await?;
        let left = trial.list().await?;
        trial.require(left == launched[1..], || format!("left is {:?}, listed {left:?}", &launched[1..]))
    })
    .await
}

/// `list` finds a pool's machines from the provider's own records, not from this process's memory: `again`, another value of the same provider, finds and ends them.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn list_is_not_memory(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    trial("list_is_not_memory", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let listed = trial.ask("list, by another value of the provider", again.list(&trial.pool)).await?;
        trial.require(listed == [machine.clone()], || {
            format!("{machine:?} was launched, another value lists {listed:?}")
        })?;
        trial.ask("terminate, by another value of the provider", again.terminate(&machine.id)).await?;
        trial.gone(&machine.id).await
    })
    .await
}

/// `terminate` of an ended machine, and of one that the provider knows no more, is fine.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_is_idempotent(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_is_idempotent", provider, async |trial| {
        let machine = trial.launch(0).await?;
        trial.terminate(&machine.id).await?;
        trial.ask("terminate of an ending machine", provider.terminate(&machine.id)).await?;
        trial.gone(&machine.id).await?;
        trial.ask("terminate of an ended machine", provider.terminate(&machine.id)).await?;
        trial.ask("teardown", provider.teardown(&trial.pool)).await?;
        trial.ask("terminate of a machine of a pool that is gone", provider.terminate(&machine.id)).await
    })
    .await
}

/// `terminate` may be called before `launch` has returned, of whatever `list` finds; the machine does not come back.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_may_come_early(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_may_come_early", provider, async |trial| {
        let request = trial.request(0).await?;
        let launch = timeout(LONGEST, provider.launch(&request));
        let end = async {
            for _ in 0..LOOKS {
                for machine in trial.list().await? {
                    trial.ask("terminate, while it is launched", provider.terminate(&machine.id)).await?;
                }
                sleep(BRIEF).await;
            }
            Ok(())
        };
        // The launch of a machine that is ended meanwhile may fail.
        let (launched, ended) = tokio::join!(launch, end);
        ended?;
        if let Ok(Ok(machine)) = launched {
            trial.terminate(&machine.id).await?;
            trial.gone(&machine.id).await?;
        }
        let left = trial.list().await?;
        trial.require(left.is_empty(), || format!("after its end there still is {left:?}"))
    })
    .await
}

/// When `terminate` has returned, `inspect` reports the machine as ending or gone, and soon as gone.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_is_seen(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_is_seen", provider, async |trial| {
        let machine = trial.launch(0).await?;
        trial.terminate(&machine.id).await?;
        let state = trial.state(&machine.id).await?;
        trial.require(matches!(state, MachineStatus::Ending | MachineStatus::Gone), || {
            format!("after `terminate` the machine is {state:?}")
        })?;
        trial.gone(&machine.id).await
    })
    .await
}

/// A machine ends with all that runs on it, also with what left its session. Seen only of machines on the client's own host.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_ends_what_runs(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_ends_what_runs", provider, async |trial| {
        let machine = trial.launch(0).await?;
        if !machine.on_client_host {
            return Ok(());
        }
        let remote = trial.connect(&machine).await?;
        let script = "sleep 600 >/dev/null 2>&1 & echo $!\nsetsid sleep 600 >/dev/null 2>&1 & echo $!";
        let output = trial.ask("run", remote.run(&Command::script(script), &|_| {})).await?;
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        let left: Vec<&str> = output.stdout.split_whitespace().filter(|pid| lives(pid)).collect();
        trial.require(left.is_empty(), || format!("the machine is gone, and its processes {left:?} run on"))
    })
    .await
}

/// `prepare` may be called more than once.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave what `prepare` made.
pub async fn prepare_is_repeatable(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("prepare_is_repeatable", provider, async |trial| {
        trial.ask("prepare", provider.prepare(&trial.pool)).await?;
        trial.ask("prepare, again", provider.prepare(&trial.pool)).await
    })
    .await
}

/// `teardown` may be called more than once, and without `prepare` or `launch` having finished.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn teardown_is_idempotent(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("teardown_is_idempotent", provider, async |trial| {
        trial.ask("teardown of a pool that never was", provider.teardown(&PoolId::random())).await?;
        // Dropped after one poll: it may have made anything, or nothing.
        let _ = timeout(Duration::ZERO, provider.prepare(&trial.pool)).await;
        trial.ask("teardown after a dropped prepare", provider.teardown(&trial.pool)).await?;
        let machine = trial.launch(0).await?;
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        trial.ask("teardown", provider.teardown(&trial.pool)).await?;
        trial.ask("teardown, again", provider.teardown(&trial.pool)).await
    })
    .await
}

/// The end of one pool leaves the machines of another alone.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn teardown_leaves_other_pools(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("teardown_leaves_other_pools", provider, async |here| {
        trial("teardown_leaves_other_pools", provider, async |there| {
            let (a, b) = (here.launch(0).await?, there.launch(0).await?);
            here.terminate(&a.id).await?;
            here.gone(&a.id).await?;
            here.ask("teardown", provider.teardown(&here.pool)).await?;
            let state = there.state(&b.id).await?;
            let alive = !matches!(state, MachineStatus::Ending | MachineStatus::Gone);
            there.require(alive, || format!("with another pool's end the machine {} is {state:?}", b.id))
        })
        .await
    })
    .await
}

/// `connect` reaches the machine, in whose folder files can be put.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn connect_reaches_the_machine(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("connect_reaches_the_machine", provider, async |trial| {
        let (a, b) = (trial.launch(0).await?, trial.launch(1).await?);
        for machine in [&a, &b] {
            let remote = trial.connect(machine).await?;
            let path = format!("{}/who", machine.folder);
            trial.ask("put", remote.put(&path, machine.id.as_str().as_bytes(), 0o600)).await?;
        }
        for machine in [&a, &b] {
            let remote = trial.connect(machine).await?;
            let command = Command::new(["cat".to_owned(), format!("{}/who", machine.folder)]);
            let output = trial.ask("run", remote.run(&command, &|_| {})).await?;
            trial.require(output.stdout == machine.id.as_str(), || format!("on {} it read {output:?}", machine.id))?;
        }
        Ok(())
    })
    .await
}

/// A machine that is gone is not reached: `connect`, or the first command, fails.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn connect_refuses_what_is_gone(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("connect_refuses_what_is_gone", provider, async |trial| {
        let machine = trial.launch(0).await?;
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        let reached = async {
            let remote = trial.checked.connect(&machine).await?;
            remote.run(&Command::script("echo here"), &|_| {}).await
        };
        match timeout(LONGEST, reached).await {
            Ok(Ok(output)) => {
                trial.require(false, || format!("the machine is gone, and a command on it gave {output:?}"))
            }
            Ok(Err(_)) => Ok(()),
            Err(_) => trial.require(false, || format!("it was still tried to reach what is gone after {LONGEST:?}")),
        }
    })
    .await
}

/// A pool of its own for the check of one clause.
struct Trial<'a> {
    clause: &'static str,
    provider: &'a dyn Provider,
    /// The same provider as a pool asks it.
    checked: Checked,
    pool: PoolId,
}

/// Checks a clause, and ends all that was started for it.
async fn trial<'a, P, F>(clause: &'static str, provider: &'a P, check: F) -> Result<(), Violation>
where
    P: Provider + Clone,
    F: AsyncFnOnce(&Trial<'a>) -> Result<(), Violation>,
{
    let checked = Checked::new(Arc::new(provider.clone())).deadline(Limits::default().start);
    let trial = Trial { clause, provider, checked, pool: PoolId::random() };
    let checked = check(&trial).await;
    let ended = trial.end().await;
    // What keeps it from ending is often the same that the clause is about.
    checked.and(ended)
}

impl Trial<'_> {
    async fn request(&self, node: u32) -> Result<LaunchRequest, Violation> {
        self.ask("prepare", self.provider.prepare(&self.pool)).await?;
        let offers = self.ask("offers", self.provider.offers(&Requirements::default())).await?;
        let cheapest = |a: &Offer, b: &Offer| a.usd_per_hour.total_cmp(&b.usd_per_hour);
        let offer = offers.into_iter().min_by(cheapest);
        let offer = offer.ok_or_else(|| Violation::new(self.clause, "the provider offers nothing to launch"))?;
        let node = NodeIndex(node);
        let launch = LaunchId::of(&self.pool, node, Attempt(1));
        Ok(LaunchRequest::new(launch, self.pool.clone(), node, offer, LONGEST))
    }

    async fn launch(&self, node: u32) -> Result<Machine, Violation> {
        let request = self.request(node).await?;
        self.ask("launch", self.provider.launch(&request)).await
    }

    /// Reaches the machine as a pool does: again and again while it may still be starting, unless the provider reports its end.
    async fn connect(&self, machine: &Machine) -> Result<Box<dyn Remote>, Violation> {
        let reached = self.checked.connect(machine).await;
        reached.map_err(|error| Violation::new(self.clause, format!("`connect` failed: {error}")))
    }

    async fn list(&self) -> Result<Vec<Machine>, Violation> {
        self.ask("list", self.provider.list(&self.pool)).await
    }

    async fn terminate(&self, machine: &MachineId) -> Result<(), Violation> {
        self.ask("terminate", self.provider.terminate(machine)).await
    }

    async fn state(&self, machine: &MachineId) -> Result<MachineStatus, Violation> {
        let states = self.ask("inspect", self.provider.inspect(std::slice::from_ref(machine))).await?;
        states.first().copied().ok_or_else(|| Violation::new(self.clause, "`inspect` of one machine gave no state"))
    }

    /// Waits until a machine that was terminated is reported as gone.
    async fn gone(&self, machine: &MachineId) -> Result<(), Violation> {
        let end = Instant::now() + LONGEST;
        let mut pause = BRIEF;
        loop {
            let state = self.state(machine).await?;
            if state == MachineStatus::Gone {
                return Ok(());
            }
            self.require(matches!(state, MachineStatus::Ending | MachineStatus::Unknown), || {
                format!("the machine {machine} was terminated and is {state:?}")
            })?;
            self.require(Instant::now() + pause < end, || {
                format!("the machine {machine} is {state:?} after {LONGEST:?}")
            })?;
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE);
        }
    }

    async fn ask<T>(&self, what: &str, call: impl Future<Output = Answer<T>>) -> Result<T, Violation> {
        ask(self.clause, what, call).await
    }

    fn require(&self, holds: bool, found: impl FnOnce() -> String) -> Result<(), Violation> {
        require(self.clause, holds, found)
    }

    async fn end(&self) -> Result<(), Violation> {
        for machine in self.list().await? {
            self.terminate(&machine.id).await?;
            self.gone(&machine.id).await?;
        }
        self.ask("teardown", self.provider.teardown(&self.pool)).await
    }
}

pub(super) fn require(clause: &'static str, holds: bool, found: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(clause, found())) }
}

/// Awaits an answer that must come, and be no error.
pub(super) async fn ask<T>(
    clause: &'static str,
    what: &str,
    call: impl Future<Output = Answer<T>>,
) -> Result<T, Violation> {
    match timeout(LONGEST, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Violation::new(clause, format!("`{what}` failed: {error}"))),
        Err(_) => Err(Violation::new(clause, format!("`{what}` was not done after {LONGEST:?}"))),
    }
}

/// Whether a process of this host runs; one that only waits to be reaped does not.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

/// What any call, and the way of a machine from its end to being gone, may take.
const LONGEST: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(2);
const BRIEF: Duration = Duration::from_millis(10);
/// How often it is looked for what should not come.
const LOOKS: u32 = 10;
const LONGEST_FOLDER: usize = 60;
