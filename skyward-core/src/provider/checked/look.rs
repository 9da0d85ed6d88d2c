//! Inspections of single machines.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::time::timeout;

use super::timing::INSPECTION;
use super::{Checked, broken};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MachineId;
use crate::provider::{MachineReport, Provider};

impl Checked {
    /// Inspects a machine, together with others that are inspected at the same moment, or while the
    /// call waits for its turn.
    ///
    /// # Errors
    ///
    /// The provider cannot be asked, temporarily or at all, or returns a wrong number of reports.
    ///
    /// # Cancel safety
    ///
    /// Others that inspect at the same moment still get their answer.
    pub(super) async fn look(&self, machine: &MachineId) -> Result<MachineReport> {
        let had_turn = AtomicBool::default();
        self.looked(self.inspect_gathered(std::slice::from_ref(machine), &had_turn)).await
    }

    /// Inspects one machine alone, at once, where the provider does not combine calls.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look).
    pub(super) async fn look_now(&self, machine: &MachineId) -> Result<MachineReport> {
        match self.gathers() {
            true => self.look(machine).await,
            false => self.looked(inspect_all(&*self.inner, std::slice::from_ref(machine))).await,
        }
    }

    /// Inspects machines, together with others that are inspected at the same moment.
    pub(super) async fn inspect_gathered(
        &self,
        machines: &[MachineId],
        had_turn: &AtomicBool,
    ) -> Vec<Result<MachineReport>> {
        let items = machines.iter().map(|machine| (machine.clone(), machine.clone())).collect();
        let inspect = |provider: Arc<dyn Provider>, machines: Vec<MachineId>| async move {
            inspect_all(&*provider, &machines).await
        };
        self.gathers.inspect.call((), items, self.asked(INSPECT), had_turn, inspect).await
    }

    /// The report of one machine, in the time that a provider has for it.
    async fn looked(&self, asked: impl Future<Output = Vec<Result<MachineReport>>>) -> Result<MachineReport> {
        let most = INSPECTION + self.inner.capabilities().pace.min(INSPECTION);
        let none = || Err(broken(&*self.inner, "`inspect` of a machine returned no report"));
        match timeout(most, asked).await {
            Ok(mut reports) => reports.pop().unwrap_or_else(none),
            Err(_) => {
                let name = self.inner.name();
                let what = format!("the provider {name} did not report the state of its machines within {most:?}");
                Err(Error::new(ErrorKind::Timeout, what).temporary())
            }
        }
    }
}

/// The report of each machine, or the error of all.
pub(super) async fn inspect_all(provider: &dyn Provider, machines: &[MachineId]) -> Vec<Result<MachineReport>> {
    let reports = match provider.inspect(machines).await {
        Ok(reports) => reports,
        Err(error) => return vec![Err(error); machines.len()],
    };
    let (asked, returned) = (machines.len(), reports.len());
    if asked != returned {
        let error = broken(provider, &format!("`inspect` of {asked} machines returned {returned} reports"));
        return vec![Err(error); asked];
    }
    reports.into_iter().map(Ok).collect()
}

/// What `inspect` does, in messages; the name of the line in which its calls wait for their turns.
pub(super) const INSPECT: &str = "report the state of its machines";
