//! The faults of a simulation: what the seed does to tasks, connections, machines, and the
//! provider's calls.

use std::time::Duration;

use super::calls;
use super::seed::{DEAREST, Seed};
use super::timing::{LATEST_DEATH, MACHINE_WAIT};
use crate::error::Refusal;
use crate::provider::{Architecture, Offer};
use crate::testkit::fake_provider::{Arrival, Death, Faults, Forewarning, Turn};
use crate::testkit::fake_worker::{Fate, Work};
use crate::testkit::script::{Answer, FakeTask, Rule, Script};

impl Seed {
    fn turn(self, what: &str, node: u32, call: u32) -> Turn {
        let (node, call) = (node.into(), call.into());
        match self.fault(what, node, call, 10) {
            false => Turn::Works(self.time(what, node, call, 500)),
            true => match self.below(what, node, call.wrapping_add(1 << 40), 8) {
                0 => Turn::Fails,
                1 => Turn::Never,
                2 => Turn::Late(self.time(what, node, call, 4_000)),
                _ => Turn::FailsForNow,
            },
        }
    }
}

impl Seed {
    /// What happens in the simulation of this seed.
    pub(super) fn script(self) -> Script {
        Script::new().faults(self).rule(Rule::all().answer(move |task| Answer::does(self.work(task))))
    }

    fn work(self, task: &FakeTask<'_>) -> Work {
        let (args, run) = (task.sent(), task.start());
        let task = calls::hash(args);
        let time = self.time("work", task, run.into(), 1_000);
        if !self.fault("task", task, run.into(), 6) {
            return self.calls(args, task).unwrap_or(Work::Return(time));
        }
        match self.below("task", task, u64::from(run) + 1000, 8) {
            0..=2 => Work::Raise(time),
            3..=5 => Work::Crash(time, 9),
            6 => Work::UntilInterrupted,
            _ => Work::UntilKilled,
        }
    }
}

impl Fate for Seed {
    fn call_timeout(&self, args: &[u8]) -> Option<Duration> {
        Self::call_timeout(*self, args)
    }

    fn hooks(&self, node: u32, worker: u32, generation: u64) -> Option<Duration> {
        let place = (u64::from(node) << 16) + u64::from(worker);
        let never = self.fault("hooks", place, generation, 80);
        (!never).then(|| self.time("hooks", place, generation, 2_000))
    }

    fn delay(&self, node: u32, frame: u64) -> Duration {
        if self.fault("delay", node.into(), frame, 8) {
            return self.time("delay", node.into(), frame, 700);
        }
        // Each frame that arrives at a slow node takes this long, one after another.
        match self.fault("slow", node.into(), 0, 4) {
            true => self.time("slow", node.into(), 0, 60),
            false => Duration::ZERO,
        }
    }

    fn cut(&self, node: u32, connection: u64, frame: u64) -> bool {
        self.fault("cut", (u64::from(node) << 32) + connection, frame, 60)
    }

    fn repeats(&self, node: u32) -> bool {
        self.chance("repeats", node.into(), 0, 2)
    }

    fn ends_greeting(&self, node: u32, worker: u32, start: u32) -> bool {
        self.fault("greeting", (u64::from(node) << 16) + u64::from(worker), start.into(), 60)
    }
}

impl Faults for Seed {
    fn offers(&self) -> Vec<Offer> {
        let offer = |(name, usd_per_hour, architecture): (&str, f64, Architecture)| {
            Offer::new(name, "nowhere", 64, 256).usd_per_hour(usd_per_hour).architecture(architecture).quota(&name[..1])
        };
        [
            ("a1", 60.0, Architecture::X86_64),
            ("a2", 90.0, Architecture::Aarch64),
            ("b1", 30.0, Architecture::X86_64),
            ("b2", DEAREST, Architecture::X86_64),
        ]
        .map(offer)
        .into()
    }

    fn refusal(&self, offer: &Offer, call: u32) -> Option<Refusal> {
        let name = offer.id.as_str().bytes().fold(0, |sum, byte| sum * 256 + u64::from(byte));
        if !self.fault("refusal", name, call.into(), 4) {
            return None;
        }
        Some(match self.below("refusal", name, u64::from(call) + (1 << 32), 16) {
            0..6 => Refusal::Capacity,
            6..9 => Refusal::Quota(offer.quota.clone().unwrap_or_default()),
            9..11 => Refusal::NotOffered,
            11..14 => Refusal::Throttled(Some(self.time("throttle", name, call.into(), 10_000))),
            14 => Refusal::Throttled(None),
            _ => Refusal::Denied,
        })
    }

    fn forewarning(&self, node: u32, machine: u32) -> Option<Forewarning> {
        let (node, machine) = (u64::from(node), u64::from(machine) << 8);
        if !self.fault("forewarning", node, machine, 3) {
            return None;
        }
        let ends_in = Duration::from_secs(1) + self.time("ends in", node, machine, 60_000);
        Some(match self.chance("walltime", node, machine, 2) {
            true => Forewarning::walltime(ends_in + self.time("ends in", node, machine + 1, 120_000)),
            false => Forewarning::preemption(self.time("warned", node, machine, 60_000), ends_in),
        })
    }

    fn launch(&self, node: u32, call: u32) -> Turn {
        // Replacements often fail to launch.
        match call > 0 && self.fault("relaunch", node.into(), call.into(), 5) {
            true => Turn::Fails,
            false => self.turn("launch", node, call),
        }
    }

    fn connect(&self, node: u32, call: u32) -> Turn {
        self.turn("connect", node, call)
    }

    fn arrival(&self, node: u32, machine: u32) -> Arrival {
        let (node, machine) = (node.into(), machine.into());
        if !self.fault("arrival", node, machine, 4) {
            return Arrival::default();
        }
        // Some machines are queued for longer than the limit.
        let queued = match self.below("arrival", node, machine + (1 << 32), 3) {
            0 => self.time("queued", node, machine, 2 * MACHINE_WAIT.as_millis() as u64),
            1 => self.time("queued", node, machine, 5_000),
            _ => Duration::ZERO,
        };
        Arrival::after(queued, self.time("starting", node, machine, 20_000))
    }

    fn lingers(&self, node: u32, machine: u32) -> Duration {
        match self.fault("lingers", node.into(), machine.into(), 3) {
            true => self.time("lingers", node.into(), machine.into(), 90_000),
            false => Duration::ZERO,
        }
    }

    fn is_unknown(&self, node: u32, call: u32) -> bool {
        self.fault("unknown", node.into(), call.into(), 5)
    }

    fn command(&self, node: u32, call: u32) -> Turn {
        match self.fault("command", node.into(), call.into(), 40) {
            true => self.turn("command", node, call),
            false => Turn::Works(self.time("command", node.into(), call.into(), 300)),
        }
    }

    fn terminate(&self, node: u32, call: u32) -> Turn {
        match self.fault("terminate", node.into(), call.into(), 4) {
            // If a provider refused for good to end a machine, the machine would be left whatever
            // the pool does.
            true => Turn::FailsForNow,
            false => Turn::Works(self.time("terminate", node.into(), call.into(), 3_000)),
        }
    }

    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        let (node, machine) = (u64::from(node), u64::from(machine) << 8);
        if !self.fault("death", node, machine, 2) {
            return None;
        }
        let death = match self.below("death", node, machine + 1, 3) {
            0 if self.chance("preempted", node, machine, 2) => Death::Preemption,
            0 => Death::Machine,
            1 => Death::Agent,
            _ => Death::Freezes,
        };
        // Some machines die soon after they start, others in the middle of their work.
        let latest = if self.chance("death", node, machine + 2, 8) { 3_000 } else { LATEST_DEATH.as_millis() as u64 };
        Some((self.time("death", node, machine + 3, latest), death))
    }
}
