//! Calls that EC2 refuses, and that may have launched instances all the same: an earlier attempt was
//! not answered, or another process has made the same call.

use std::collections::BTreeMap;

use skyward_core::error::{Error, ErrorKind, Refusal, Result};
use skyward_core::ids::LaunchId;
use skyward_core::provider::Machine;
use tokio::time::{Instant, sleep};

use crate::call::Call;
use crate::client::Clients;
use crate::errors::{Class, Failure};
use crate::launch::{Answers, all, refused};
use crate::list;
use crate::pool::Pool;
use crate::timing::{LIST_PAUSE, LISTED_LATE};

/// The answers to the launches of a call that EC2 has refused. Where instances may have been launched
/// all the same, they are looked for until EC2 must list them. Until then, the call stays on record.
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn answers(clients: &Clients, pool: &Pool, call: &Call, failure: Failure) -> Answers {
    // Both: <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html>.
    let is_others = failure.has_code("IdempotentParameterMismatch");
    let has_ended = failure.has_code("IdempotentInstanceTerminated");
    let doubt = call.in_doubt_since();
    if doubt.is_none() {
        if !is_others && !has_ended {
            return all(call, &refused(clients, pool, call, failure));
        }
        // Another process has made the call, and only that process has the keys of its instances.
        pool.settle(call);
    } else if failure.class == Class::Throttled {
        return all(call, &unknown(&failure, "the call is made again"));
    }
    let since = doubt.unwrap_or_else(Instant::now);
    let mut made = match search(clients, pool, call, since + LISTED_LATE).await {
        Ok(made) => made,
        Err(error) => {
            return all(call, &unknown(&failure, &format!("they could not be listed: {}", error.message())));
        }
    };
    let rest = if call.in_doubt_since().is_some_and(|again| again > since) {
        unknown(&failure, "another attempt is under way")
    } else if has_ended {
        pool.settle(call);
        lost(&failure)
    } else if is_others {
        pool.settle(call);
        let message = "another process has made this launch, and EC2 does not list its machine yet";
        Error::new(ErrorKind::Provider, message).temporary()
    } else {
        refused(clients, pool, call, failure)
    };
    let launches = call.requests.iter().map(|request| request.launch.clone());
    launches.map(|launch| (launch.clone(), made.remove(&launch).ok_or_else(|| rest.clone()))).collect()
}

/// The machines of the launches of a call, also those that have ended: a later inspection says how. The
/// last list begins at the time `settled` at the earliest, unless all are found before.
async fn search(clients: &Clients, pool: &Pool, call: &Call, settled: Instant) -> Result<BTreeMap<LaunchId, Machine>> {
    loop {
        let is_last = Instant::now() >= settled;
        let listed = list::list(clients, &pool.id, Some(pool)).await?;
        let is_meant = |machine: &Machine| call.requests.iter().any(|request| request.launch == machine.launch);
        let made = listed.into_iter().map(|listed| listed.machine).filter(is_meant);
        let made: BTreeMap<LaunchId, Machine> = made.map(|machine| (machine.launch.clone(), machine)).collect();
        if is_last || made.len() == call.requests.len() {
            return Ok(made);
        }
        sleep(LIST_PAUSE).await;
    }
}

/// The error of a call that may have launched machines.
fn unknown(failure: &Failure, then: &str) -> Error {
    let what =
        format!("{failure}; an earlier attempt of this call had no answer, so it may have launched machines: {then}");
    Error::new(ErrorKind::Provider, what).temporary()
}

/// The error of a launch whose machine has ended, and which EC2 lists no more. The token of the call
/// stands for that machine for a day, so the launch cannot be made again by this offer:
/// <https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html>.
fn lost(failure: &Failure) -> Error {
    let message = format!("the machine of this launch ended before it was known here: {failure}");
    Error::refused(Refusal::Capacity, message)
        .with_hint("EC2 keeps the reason of an end for about an hour: `aws ec2 describe-instances`")
}
