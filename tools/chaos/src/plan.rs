//! What happens in a round, drawn from a seed.

use std::fmt;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::place::{Place, Victim};
use crate::words::{Provider, Script};

/// A round: a pool, what it is busy with, and the faults.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) script: Script,
    pub(crate) faults: Vec<Fault>,
}

/// A process is killed or stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) after: Moment,
    pub(crate) delay: Duration,
    pub(crate) victim: Victim,
    /// Which of the victims, modulo their number.
    pub(crate) which: usize,
    pub(crate) how: How,
}

/// The moment from which a fault's delay counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The client was started.
    Start,
    /// Its pool is up.
    Ready,
    /// It leaves the scope.
    Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Kill,
    /// For good.
    Stop,
    /// It goes on after this time.
    Pause(Duration),
    /// While the client is stopped for this time, so that all it hears of the end comes at once.
    KillUnseen(Duration),
}

impl Plan {
    /// What is drawn for a round is the same each time, and does not depend on other rounds.
    pub(crate) fn draw(place: Place, seed: u64, round: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round);
        let script = Script {
            // These are set when the machines of the round are known.
            provider: Provider::Local,
            executions: String::new(),
            storage: String::new(),
            seed: random.random(),
            nodes: random.random_range(place.nodes()),
            workers_per_node: random.random_range(1..=2),
            slots: if place == Place::Ssh { random.random_range(1..=2) } else { 1 },
            joined: round % 2 == 1,
            hangs: random.random(),
            callers: random.random_range(2..=8),
            busy: random.random_range(300..1500),
            long: random.random_range(0..4) == 0,
            calls: round.is_multiple_of(3),
            freeze: (random.random_range(0..8) == 0)
                .then(|| (random.random_range(0..1000), random.random_range(50..4000))),
        };
        let mut faults: Vec<Fault> =
            (0..random.random_range(1..=3)).map(|_| Fault::draw(place, &mut random, script.busy)).collect();
        if script.long {
            // In half of these rounds nothing else happens, so no task may fail.
            if random.random() {
                faults.clear();
            }
            faults.extend((0..random.random_range(2..=8)).map(|_| Fault::cut(&mut random)));
        }
        Self { script, faults }
    }

    /// Whether nothing happens that ends a process or keeps it from answering.
    pub(crate) fn only_cuts(&self) -> bool {
        let cut = |fault: &Fault| fault.victim == Victim::Connection && fault.how == How::Kill;
        self.script.freeze.is_none() && self.faults.iter().all(cut)
    }
}

impl Fault {
    fn draw(place: Place, random: &mut SmallRng, busy: u64) -> Self {
        let (after, longest) = match random.random_range(0..100) {
            0..20 => (Moment::Start, 700),
            20..90 => (Moment::Ready, busy),
            _ => (Moment::Ending, 200),
        };
        let victim = place.victim(random.random_range(0..100));
        let how = match random.random_range(0..100) {
            // A socket can only be cut.
            _ if victim == Victim::Connection && place == Place::Local => How::Kill,
            _ if victim == Victim::Notice => How::Kill,
            0..25 if victim == Victim::Network => How::Stop,
            0..20 if !matches!(victim, Victim::Client | Victim::Network) => {
                How::KillUnseen(Duration::from_millis(random.random_range(5..300)))
            }
            0..55 if victim != Victim::Network => How::Kill,
            55..75 if victim != Victim::Network => How::Stop,
            _ => How::Pause(Duration::from_millis(random.random_range(10..5000))),
        };
        let delay = Duration::from_millis(random.random_range(0..longest));
        Self { after, delay, victim, which: random.random_range(0..64), how }
    }
}

impl Fault {
    /// A connection is cut while tasks run.
    fn cut(random: &mut SmallRng) -> Self {
        let delay = Duration::from_millis(random.random_range(0..4000));
        let which = random.random_range(0..64);
        Self { after: Moment::Ready, delay, victim: Victim::Connection, which, how: How::Kill }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Script { nodes, workers_per_node, joined, hangs, callers, busy, long, calls, freeze, .. } = &self.script;
        let world = match (joined, hangs) {
            (false, _) => "no world",
            (true, true) => "a world that hangs without a peer",
            (true, false) => "a world that raises without a peer",
        };
        write!(f, "{nodes} nodes with {workers_per_node} workers, {world}, {callers} callers for {busy} ms")?;
        if *long {
            write!(f, ", long tasks")?;
        }
        if *calls {
            write!(f, ", calls within calls")?;
        }
        if let Some((after, time)) = freeze {
            write!(f, "; block the client's runtime for {time} ms {after} ms after Ready")?;
        }
        self.faults.iter().try_for_each(|fault| write!(f, "; {fault}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, delay, victim, how, .. } = self;
        match how {
            How::Kill => write!(f, "kill {victim}")?,
            How::Stop => write!(f, "stop {victim} for good")?,
            How::Pause(time) => write!(f, "stop {victim} for {time:?}")?,
            How::KillUnseen(time) => write!(f, "kill {victim} while the client is stopped for {time:?}")?,
        }
        write!(f, " {delay:?} after {after:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_the_same_each_time() {
        for place in Place::ALL {
            let drawn = |seed, round| Plan::draw(place, seed, round).to_string();
            assert_eq!(drawn(7, 3), drawn(7, 3));
            assert_ne!(drawn(7, 3), drawn(8, 3));
            assert_ne!(drawn(7, 3), drawn(7, 5));
        }
    }

    #[test]
    fn all_that_can_happen_is_drawn() {
        for place in Place::ALL {
            let plans: Vec<Plan> = (0..500).map(|round| Plan::draw(place, 1, round)).collect();
            assert_eq!(plans.iter().filter(|plan| plan.script.joined).count(), 250);
            assert!(plans.iter().any(|plan| plan.script.freeze.is_some()));
            let cut = |plan: &Plan| plan.only_cuts() && plan.script.long && !plan.script.joined;
            assert!(plans.iter().any(cut));
            let faults: Vec<Fault> = plans.iter().flat_map(|plan| plan.faults.clone()).collect();
            for (victim, _) in place.victims() {
                for after in [Moment::Start, Moment::Ready, Moment::Ending] {
                    assert!(faults.iter().any(|fault| fault.victim == *victim && fault.after == after), "{victim}");
                }
            }
            for how in ["kill", "for good", "s "] {
                for victim in [Victim::Worker, Victim::Agent, Victim::Client] {
                    assert!(faults.iter().any(|fault| fault.victim == victim && fault.to_string().contains(how)));
                }
            }
        }
    }
}
