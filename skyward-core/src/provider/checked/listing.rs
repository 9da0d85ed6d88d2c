//! Lists of a pool's machines, for one machine each.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gather::NO_RESULT;
use super::timing::ANSWER;
use super::{Checked, broken};
use crate::error::Result;
use crate::ids::{MachineNumber, PoolId};
use crate::provider::{Machine, Provider};

impl Checked {
    /// The machines of one number of a pool, in a list that is made after this call. Lists at nearly
    /// the same moment are one call of the provider: a list has all machines of the pool, and many
    /// of them leave together.
    ///
    /// # Errors
    ///
    /// As [`Provider::list`].
    ///
    /// # Cancel safety
    ///
    /// Others that list at the same moment still get their answer.
    pub(crate) async fn list_of(&self, pool: &PoolId, number: MachineNumber) -> Result<Vec<Machine>> {
        let call = self.within(ANSWER, LIST, "pool").gathered(true);
        let list = |_| {
            let of = pool.clone();
            let list = |provider: Arc<dyn Provider>, numbers: Vec<MachineNumber>| async move {
                let mut listed: BTreeMap<MachineNumber, Vec<Machine>> = BTreeMap::new();
                match provider.list(&of).await {
                    Ok(machines) => {
                        for machine in machines.into_iter().filter(|machine| machine.pool == of) {
                            listed.entry(machine.number).or_default().push(machine);
                        }
                        numbers.iter().map(|number| Ok(listed.remove(number).unwrap_or_default())).collect()
                    }
                    Err(error) => vec![Err(error); numbers.len()],
                }
            };
            self.gathers.list.call(pool.clone(), vec![(number, number)], self.asked(LIST), &call.had_turn, list)
        };
        let listed = self.call_each(&call, &[pool.as_str()], list).await.pop();
        listed.unwrap_or_else(|| Err(broken(&*self.inner, NO_RESULT)))
    }
}

/// What `list` does, in messages; the name of the line in which its calls wait for their turns.
pub(super) const LIST: &str = "list its machines";
