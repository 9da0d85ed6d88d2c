//! Launches instances: each launch once, even if the answer to its call is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_ec2::types::Instance;
use skyward_core::error::{Error, ErrorKind, Refusal, Result};
use skyward_core::ids::{LaunchId, MachineId};
use skyward_core::provider::{Architecture, LaunchRequest, Machine, Offer};

use crate::call::Call;
use crate::client::Clients;
use crate::doubt;
use crate::errors::{Class, Failure};
use crate::images::{Image, Purpose};
use crate::list::{self, Listed};
use crate::options::Options;
use crate::pool::{Pool, Shared};
use crate::quota;

/// The answers to launches.
pub(crate) type Answers = BTreeMap<LaunchId, Result<Machine>>;

/// Launches instances by one offer, and returns an answer for each launch. A launch whose outcome
/// is unknown is repeated by the call that made it first; one that another process has made is
/// found by its tags.
///
/// # Cancel safety
///
/// `list` finds what was launched.
pub(crate) async fn launch(
    clients: &Clients,
    options: &Options,
    pool: &Pool,
    shared: &Shared,
    offer: &Offer,
    requests: Vec<LaunchRequest>,
    all_or_none: bool,
) -> Answers {
    let mut answers = Answers::new();
    loop {
        // A call that EC2 has just refused for now is not repeated here, but by the pool, later.
        let begun = launch_begun(clients, options, pool, &unanswered(&requests, &answers)).await;
        answers.extend(begun);
        let left = unanswered(&requests, &answers);
        if left.is_empty() {
            return answers;
        }
        match launch_new(clients, options, pool, shared, offer, left.clone(), all_or_none).await {
            Ok(Some(new)) => answers.extend(new),
            // Another caller has begun one of them meanwhile.
            Ok(None) => {}
            Err(error) => answers.extend(left.into_iter().map(|request| (request.launch, Err(error.clone())))),
        }
    }
}

fn unanswered(requests: &[LaunchRequest], answers: &Answers) -> Vec<LaunchRequest> {
    requests.iter().filter(|request| !answers.contains_key(&request.launch)).cloned().collect()
}

/// The answers to launches that a call of this process has made, or has begun to make.
async fn launch_begun(clients: &Clients, options: &Options, pool: &Pool, requests: &[LaunchRequest]) -> Answers {
    let mut answers = Answers::new();
    for request in requests {
        if answers.contains_key(&request.launch) {
            continue;
        }
        // The repeat for another launch of the same call may have answered for this one too.
        if let Some(machine) = pool.made(&request.launch) {
            answers.insert(request.launch.clone(), Ok(machine));
            continue;
        }
        if let Some(call) = pool.unsettled(&request.launch) {
            answers.extend(run(clients, options, pool, &call).await);
        }
    }
    answers.retain(|launch, _| requests.iter().any(|request| request.launch == *launch));
    answers
}

/// Makes a new call for launches that none has made. Returns none if another call has begun to make
/// one of them meanwhile.
async fn launch_new(
    clients: &Clients,
    options: &Options,
    pool: &Pool,
    shared: &Shared,
    offer: &Offer,
    requests: Vec<LaunchRequest>,
    all_or_none: bool,
) -> Result<Option<Answers>> {
    let mut answers = Answers::new();
    for Listed { machine, is_live } in list::list(clients, &pool.id, Some(pool)).await? {
        if is_live && requests.iter().any(|request| request.launch == machine.launch) {
            answers.insert(machine.launch.clone(), Ok(machine));
        }
    }
    let new: Vec<LaunchRequest> =
        requests.into_iter().filter(|request| !answers.contains_key(&request.launch)).collect();
    if new.is_empty() {
        return Ok(Some(answers));
    }
    let image = image(clients, options, pool, offer).await?;
    let call = Arc::new(Call::new(pool, shared, options, image, offer.clone(), new, all_or_none)?);
    if pool.is_unchecked() {
        check(clients, options, pool, &call).await?;
        pool.checked();
    }
    if !pool.begin(&call) {
        return Ok(None);
    }
    answers.extend(run(clients, options, pool, &call).await);
    Ok(Some(answers))
}

/// The image for the machines of an offer. During the life of a pool, all machines with the same
/// architecture and accelerators have the same image.
async fn image(clients: &Clients, options: &Options, pool: &Pool, offer: &Offer) -> Result<Image> {
    let accelerators = offer.accelerator.as_ref().and_then(|accelerator| accelerator.family());
    let architecture = offer.architecture.unwrap_or(Architecture::X86_64);
    let mut images = pool.images.lock().await;
    if let Some(image) = images.get(&(architecture, accelerators)) {
        return Ok(image.clone());
    }
    let purpose = Purpose { architecture, accelerators, region: &clients.region, user: options.user.as_deref() };
    let image = Image::resolve(&clients.ec2, &options.image, purpose).await.map_err(|error| match error.kind() {
        // The error would be the same with every other offer.
        ErrorKind::InvalidSpec => Error::refused(Refusal::Misconfigured, error.message())
            .with_hint(error.hint().unwrap_or_default().to_owned()),
        _ => error,
    })?;
    images.insert((architecture, accelerators), image.clone());
    Ok(image)
}

/// Asks EC2 whether it would allow a call, without making the call.
async fn check(clients: &Clients, options: &Options, pool: &Pool, call: &Call) -> Result<()> {
    let asked = call.input(clients, options).dry_run(true).send().await;
    let Err(error) = asked else { return Ok(()) };
    let failure = Failure::of("RunInstances (a dry run)", error);
    match failure.class {
        _ if failure.has_code("DryRunOperation") => Ok(()),
        // Capacity and quota are checked by the call itself.
        Class::Capacity | Class::Quota | Class::NotOffered | Class::Throttled | Class::Transient => Ok(()),
        // Parts of EC2 may not know yet what was made a moment ago.
        Class::NotFound => {
            pool.share(None);
            Err(failure.into_error().temporary())
        }
        _ => {
            let error = failure.of_launch(call.offer.quota.as_deref());
            Err(error.with_context("caller", &clients.caller).with_context("region", &clients.region))
        }
    }
}

/// Makes a call, or repeats it.
async fn run(clients: &Clients, options: &Options, pool: &Pool, call: &Call) -> Answers {
    let attempt = call.attempt();
    let asked = call.input(clients, options).client_token(&call.token);
    let answer = asked.customize().config_override(Clients::once()).send().await;
    match answer {
        Ok(answer) => {
            attempt.answered();
            let answers = machines_of(clients, pool, call, &answer.instances.unwrap_or_default()).await;
            pool.settle(call);
            answers
        }
        Err(error) => {
            let failure = Failure::of("RunInstances", error);
            // EC2 may have launched instances before an error of its own.
            if failure.class == Class::Transient {
                drop(attempt);
                return all(call, &failure.into_error());
            }
            attempt.answered();
            doubt::answers(clients, pool, call, failure).await
        }
    }
}

/// The answers that EC2 gives to a call. An instance that it made beside those of the launches is
/// ended.
async fn machines_of(clients: &Clients, pool: &Pool, call: &Call, instances: &[Instance]) -> Answers {
    let assigned = pool.answered(call, instances);
    let surplus = assigned.surplus.iter().filter_map(|one| one.instance_id()).map(MachineId::new).collect();
    list::tell(clients, pool).await;
    if let Err(error) = list::end_surplus(clients, &pool.id, surplus).await {
        tracing::warn!(pool = %pool.id, %error, "the next list of the pool's machines ends them");
    }
    let answer = |launch: &LaunchId| {
        pool.made(launch).ok_or_else(|| {
            let (launched, wanted, offer) = (instances.len(), call.requests.len(), &call.offer.id);
            Error::refused(Refusal::Capacity, format!("EC2 launched {launched} of {wanted} instances by {offer}"))
        })
    };
    call.requests.iter().map(|request| (request.launch.clone(), answer(&request.launch))).collect()
}

/// The same error for all launches of a call.
pub(crate) fn all(call: &Call, error: &Error) -> Answers {
    call.requests.iter().map(|request| (request.launch.clone(), Err(error.clone()))).collect()
}

/// The error of a call that EC2 has refused, and that has launched nothing. A call that has to be
/// repeated is kept, so that the next try repeats it with the same token.
pub(crate) fn refused(clients: &Clients, pool: &Pool, call: &Call, failure: Failure) -> Error {
    if failure.class == Class::Throttled {
        return failure.of_launch(None);
    }
    pool.settle(call);
    match failure.class {
        Class::NotFound => {
            // The pool's group was removed, or a part of EC2 does not know it yet. The next try
            // looks for it, and makes it if it is gone.
            pool.refuse(call);
            pool.share(None);
            failure.into_error().temporary()
        }
        Class::Quota => {
            let code = failure.code.as_deref().unwrap_or_default();
            let explanation = quota::explain(code, &call.offer, &clients.region);
            let message = format!("{}: {}", explanation.words, failure.message);
            Error::refused(Refusal::Quota(explanation.quota), message).with_hint(explanation.hint)
        }
        _ => {
            let error = failure.of_launch(call.offer.quota.as_deref());
            error.with_context("caller", &clients.caller).with_context("region", &clients.region)
        }
    }
}
