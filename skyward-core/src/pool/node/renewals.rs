//! Tells the account which renewals of a machine's lease were sent and answered.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::ids::LaunchId;
use crate::pool::fleet::account::Account;

/// The renewals that one connection to an agent sends. Their times are of the clock of costs.
#[derive(Debug)]
pub(crate) struct Renewals {
    launch: LaunchId,
    /// When the last renewals were sent that are not answered, by their numbers.
    sent: Mutex<BTreeMap<u64, Instant>>,
}

impl Renewals {
    pub(crate) fn new(launch: LaunchId) -> Self {
        Self { launch, sent: Mutex::default() }
    }

    /// A renewal with this number is sent.
    pub(crate) fn on_sent(&self, account: &mut Account, number: u64, now: Instant) {
        account.on_renewing(&self.launch, now);
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.insert(number, now);
        while sent.len() > MOST_UNANSWERED {
            sent.pop_first();
        }
    }

    /// The renewal with this number was answered.
    pub(crate) fn on_answered(&self, account: &mut Account, number: u64) {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        if let Some(sent) = sent {
            account.on_renewed(&self.launch, sent);
        }
    }
}

/// How many renewals are remembered. A connection on which a whole lease passes without an answer
/// ends, and a lease has fewer renewals.
const MOST_UNANSWERED: usize = 16;
