//! Which machines are gone because their time was over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::timing::{EARLY_END, END_REMEMBERED};
use super::{MachineReport, Reason};
use crate::ids::MachineId;

/// When machines end that were launched with an end, as far as this value has seen. A machine's
/// record is removed with it, so nothing else can explain why the machine is gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends(Arc<Mutex<BTreeMap<MachineId, Instant>>>);

impl Ends {
    /// Remembers the end that a report gives, and adds the reason [`Reason::Expired`] to the report
    /// of a machine that is over at that time.
    pub(super) fn see(&self, machine: &MachineId, report: MachineReport, now: Instant) -> MachineReport {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (report.ends_in, ends.get(machine)) {
            (Some(left), _) if !report.state.is_over() => {
                ends.retain(|_, end| *end + END_REMEMBERED > now);
                ends.insert(machine.clone(), now + left.min(END_REMEMBERED));
                report
            }
            (_, Some(end)) if report.state.is_over() && report.reason.is_none() && *end <= now + EARLY_END => {
                report.because(Reason::Expired)
            }
            _ => report,
        }
    }

    /// Forgets a machine whose end was requested.
    pub(super) fn forget(&self, machine: &MachineId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(machine);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::provider::MachineState;

    #[test]
    fn a_machine_that_is_gone_at_its_end_is_expired_and_no_other_is() {
        let (ends, now) = (Ends::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let machine = MachineId::new("m");
        let runs = MachineReport::new(MachineState::Running);
        let gone = || MachineReport::new(MachineState::Gone);
        assert_eq!(ends.see(&machine, gone(), at(0)).reason, None);
        ends.see(&machine, runs.clone().ends_in(Duration::from_secs(60)), at(0));
        assert_eq!(ends.see(&machine, gone(), at(30)).reason, None, "it was lost before its end");
        assert_eq!(ends.see(&machine, runs, at(61)).reason, None, "it is not gone yet");
        assert_eq!(ends.see(&machine, gone(), at(61)).reason, Some(Reason::Expired));
        assert_eq!(ends.see(&machine, gone().because(Reason::Asked), at(61)).reason, Some(Reason::Asked));
        assert_eq!(ends.see(&MachineId::new("n"), gone(), at(61)).reason, None);
        ends.forget(&machine);
        assert_eq!(ends.see(&machine, gone(), at(61)).reason, None);
    }
}
