//! Launches instances: each launch once, even if the answer to its call is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_ec2::types::Instance;
use skyward_core::error::{Error, ErrorKind, Refusal, Result};
use skyward_core::ids::LaunchId;
use skyward_core::provider::{Architecture, LaunchRequest, Machine, Offer};
use tokio::time::{Instant, sleep};

use crate::call::Call;
use crate::client::Clients;
use crate::describe;
use crate::errors::{Class, Failure};
use crate::images::{Image, Purpose};
use crate::machines;
use crate::options::Options;
use crate::pool::{Pool, Shared};
use crate::quota;
use crate::timing::{OTHER_LIST_PAUSE, OTHER_LISTED_LATE};

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
        answers.extend(launch_begun(clients, options, pool, &requests).await);
        let left: Vec<LaunchRequest> =
            requests.iter().filter(|request| !answers.contains_key(&request.launch)).cloned().collect();
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
    for machine in describe::list(clients, &pool.id).await? {
        if requests.iter().any(|request| request.launch == machine.launch) {
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
    let asked = call.input(clients, options).client_token(&call.token);
    let answer = asked.customize().config_override(Clients::once()).send().await;
    match answer {
        Ok(answer) => {
            pool.settle(call);
            machines_of(pool, call, &answer.instances.unwrap_or_default())
        }
        Err(error) => {
            let error = settle_failure(clients, pool, call, Failure::of("RunInstances", error)).await;
            call.requests.iter().map(|request| (request.launch.clone(), Err(error.clone()))).collect()
        }
    }
}

/// Classifies the error of a call. A call that may have launched instances is kept, so that the
/// next try repeats it with the same token.
async fn settle_failure(clients: &Clients, pool: &Pool, call: &Call, failure: Failure) -> Error {
    if failure.has_code("IdempotentParameterMismatch") {
        pool.settle(call);
        return other(clients, pool, call).await;
    }
    match failure.class {
        Class::Transient => failure.into_error(),
        // The call has launched nothing: the next try makes the same call.
        Class::Throttled => failure.of_launch(None),
        Class::NotFound => {
            pool.settle(call);
            // The pool's group was removed, or a part of EC2 does not know it yet. The next try
            // looks for it, and makes it if it is gone.
            pool.refuse(call);
            pool.share(None);
            failure.into_error().temporary()
        }
        Class::Quota => {
            pool.settle(call);
            let code = failure.code.as_deref().unwrap_or_default();
            let explanation = quota::explain(code, &call.offer, &clients.region);
            let quota = call.offer.quota.as_deref().or(failure.code.as_deref()).unwrap_or_default().to_owned();
            let message = format!("{}: {}", explanation.words, failure.message);
            Error::refused(Refusal::Quota(quota), message).with_hint(explanation.hint)
        }
        _ => {
            pool.settle(call);
            let error = failure.of_launch(call.offer.quota.as_deref());
            error.with_context("caller", &clients.caller).with_context("region", &clients.region)
        }
    }
}

/// The error of a launch that another process has made, with other keys. EC2 lists its machine some
/// time later, and a later try of this launch returns that machine.
async fn other(clients: &Clients, pool: &Pool, call: &Call) -> Error {
    let end = Instant::now() + OTHER_LISTED_LATE;
    let is_one = |machine: &Machine| call.requests.iter().any(|request| request.launch == machine.launch);
    while Instant::now() < end {
        match describe::list(clients, &pool.id).await {
            Ok(listed) if listed.iter().any(is_one) => break,
            Ok(_) => sleep(OTHER_LIST_PAUSE).await,
            Err(error) => return error,
        }
    }
    Error::new(ErrorKind::Provider, "another process has made this launch").temporary()
}

fn machines_of(pool: &Pool, call: &Call, instances: &[Instance]) -> Answers {
    let mut machines: Vec<Machine> = instances.iter().filter_map(machines::machine).collect();
    let mut answer = |launch: &LaunchId| {
        let place = machines.iter().position(|machine| machine.launch == *launch)?;
        Some(machines.swap_remove(place))
    };
    let mut answers = Answers::new();
    for request in &call.requests {
        let made = match answer(&request.launch) {
            Some(machine) => {
                pool.launched(machine.id.clone(), call);
                pool.make(&machine);
                Ok(machine)
            }
            None => {
                let offer = &call.offer.id;
                let message =
                    format!("EC2 launched {} of {} instances by {offer}", instances.len(), call.requests.len());
                Err(Error::refused(Refusal::Capacity, message))
            }
        };
        answers.insert(request.launch.clone(), made);
    }
    answers
}
