//! The wait until a machine runs, or is gone.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::timing::{ARRIVAL, LONGEST_INSPECT_PAUSE, SHORTEST_INSPECT_PAUSE, TRY_PAUSE};
use super::{Checked, broken};
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::ids::MachineId;
use crate::provider::{MachineReport, MachineState, Place, Provider, Reason};

/// Limits of the wait for a machine that was bought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arriving {
    /// How long the machine may be queued.
    pub(crate) queue: Duration,
    /// The longest pause between two inspections. Nobody renews the lease until the place is known,
    /// so this pause must be shorter than the lease.
    pub(crate) pause: Duration,
}

impl Checked {
    /// Waits until the provider reports the machine as ending, released or gone, and returns that
    /// as an error. Inspects the machine after `first`, then repeatedly, at last every 15 seconds.
    /// A failed call and the state `Unknown` conclude nothing.
    ///
    /// # Cancel safety
    ///
    /// Only inspects.
    pub(crate) async fn until_gone(&self, machine: &MachineId, first: Duration) -> Error {
        let mut pause = first;
        loop {
            sleep(pause).await;
            match self.look(machine).await {
                Ok(report) if report.state.is_over() => {
                    return self.over(machine, &self.explained(machine, report).await);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(provider = self.name(), %machine, %error, "the state of a machine is not known");
                }
            }
            pause = longer(pause);
        }
    }

    /// Waits until the machine runs, and returns its place, and the time after which it ends if
    /// that is known. Each report goes to `on_report`. The wait is limited to the time that a call
    /// of `connect` has, plus `wait.queue` while the machine is queued. The state `Unknown` does
    /// not change which of the two limits counts.
    ///
    /// # Errors
    ///
    /// The machine is ending, released or gone; it did not run in time (the error has the last
    /// report); or the provider cannot be asked at all.
    ///
    /// # Cancel safety
    ///
    /// Only inspects.
    pub(crate) async fn until_there(
        &self,
        machine: &MachineId,
        wait: Arriving,
        on_report: impl Fn(&MachineReport),
    ) -> Result<(Place, Option<Duration>)> {
        let limit = self.most.unwrap_or(ARRIVAL);
        let (mut queued, mut started, mut is_queued) = (Duration::ZERO, Duration::ZERO, false);
        let mut pause = Duration::ZERO;
        loop {
            let asked = Instant::now();
            // The first inspection is for a machine that runs already, and does not wait for others
            // to join it.
            let look = async {
                match pause.is_zero() {
                    true => self.look_now(machine).await,
                    false => self.look(machine).await,
                }
            };
            let report = match look.await {
                Ok(report) => report,
                Err(error) if error.is_temporary() => MachineReport::new(MachineState::Unknown).saying(error.summary()),
                Err(error) => return Err(self.placed(error, "machine", machine.as_str(), 1)),
            };
            on_report(&report);
            match &report.place {
                Some(place) if report.state == MachineState::Running => {
                    let place = self.checked_place(place).map_err(|error| error.with_context("machine", machine))?;
                    return Ok((place, report.ends_in));
                }
                _ if report.state.is_over() => {
                    return Err(self.over(machine, &self.explained(machine, report).await).with_hint(UNREACHED));
                }
                _ => {}
            }
            // `Unknown` concludes nothing: a queued machine still counts as queued.
            is_queued = report.state == MachineState::Queued || is_queued && report.state == MachineState::Unknown;
            let (spent, most, setting) = match is_queued {
                true => (&mut queued, wait.queue, "Limits::machine_wait"),
                false => (&mut started, limit, "Limits::start"),
            };
            *spent += asked.elapsed();
            if *spent >= most {
                let what =
                    format!("the provider {} reports the machine {machine} as {report} after {most:?}", self.name());
                return Err(Error::new(ErrorKind::Timeout, what).with_hint(format!("`{setting}` gives more time")));
            }
            pause = (pause * 2).clamp(TRY_PAUSE, wait.pause.clamp(TRY_PAUSE, LONGEST_INSPECT_PAUSE));
            let paused = pause.min(most - *spent);
            sleep(paused).await;
            *spent += paused;
        }
    }

    /// The report of a machine, with the reason of its end where the provider reports that a moment
    /// later: one more inspection, and no longer wait, is for a reason that comes late.
    ///
    /// # Cancel safety
    ///
    /// Only inspects.
    pub(crate) async fn explained(&self, machine: &MachineId, report: MachineReport) -> MachineReport {
        if !report.may_be_explained() {
            return report;
        }
        sleep(SHORTEST_INSPECT_PAUSE).await;
        match self.look(machine).await {
            Ok(later) if later.state.is_over() && later.reason.is_some() => later,
            _ => report,
        }
    }

    fn checked_place(&self, place: &Place) -> Result<Place> {
        let Place { folder, address, .. } = place;
        if folder.len() > LONGEST_FOLDER || !folder.starts_with('/') {
            let what = "the machine's folder is not an absolute path of at most 60 bytes, which Unix sockets need";
            return Err(broken(&*self.inner, what).with_context("folder", folder));
        }
        if address.is_empty() {
            return Err(broken(&*self.inner, "a running machine has no address"));
        }
        Ok(place.clone())
    }

    /// The error of a machine that is ending, released or gone.
    pub(crate) fn over(&self, machine: &MachineId, report: &MachineReport) -> Error {
        let message = format!("the provider {} reports the machine {machine} as {report}", self.name());
        let error = Error::new(ErrorKind::Provider, message);
        match report.reason {
            Some(Reason::Preempted) => error.with_exit(WorkerExit::Preempted),
            Some(Reason::Expired) => error.with_exit(WorkerExit::Expired),
            Some(Reason::Failed) => error.with_exit(WorkerExit::MachineFailed),
            Some(Reason::Asked) | None => error,
        }
    }
}

/// The next pause between two inspections of a machine.
fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(SHORTEST_INSPECT_PAUSE, LONGEST_INSPECT_PAUSE)
}

/// The hint for a machine that ended before the pool connected to it.
pub(super) const UNREACHED: &str =
    "the machine ended before the pool connected to it: look up the reason in the provider's own records";
const LONGEST_FOLDER: usize = 60;
