//! Removes what the machines of a pool shared. It needs no more than the tags, so any process can
//! do it.

use std::collections::HashMap;
use std::future::Future;

use futures_util::future::join_all;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::{MachineId, PoolId};
use tokio::time::{Instant, sleep};

use crate::client::Clients;
use crate::describe;
use crate::errors::{Class, Failure, called};
use crate::machines;
use crate::network::find_groups;
use crate::placement;
use crate::tags;
use crate::timing::{GROUP_IN_USE, TEARDOWN_LONGEST_PAUSE, TEARDOWN_PAUSE};

/// Removes the pool's security group and, where it may have one, its placement group. The error
/// lists what else is left.
///
/// # Errors
///
/// [`ErrorKind::Provider`] with each thing that is left, and the command that removes it.
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn teardown(clients: &Clients, pool: &PoolId, has_placement: bool) -> Result<()> {
    let end = Instant::now() + GROUP_IN_USE;
    let region = &clients.region;
    let mut left = Vec::new();
    for group in find_groups(clients, pool).await? {
        let remove = || async {
            let removed = clients.ec2.delete_security_group().group_id(&group).send().await;
            removed.map(drop).map_err(|error| Failure::of("DeleteSecurityGroup", error))
        };
        if let Err(failure) = until_unused(pool, remove, end).await {
            let in_use = failure.class == Class::InUse;
            let mut error = failure.into_error();
            if in_use {
                error = error.with_context("used by", users_of(clients, &group).await);
            }
            left.push((error, format!("aws ec2 delete-security-group --region {region} --group-id {group}")));
        }
    }
    if has_placement {
        for name in placement::find(clients, pool).await? {
            let remove = || async {
                let removed = clients.ec2.delete_placement_group().group_name(&name).send().await;
                removed.map(drop).map_err(|error| Failure::of("DeletePlacementGroup", error))
            };
            if let Err(failure) = until_unused(pool, remove, end).await {
                let command = format!("aws ec2 delete-placement-group --region {region} --group-name {name}");
                left.push((failure.into_error(), command));
            }
        }
    }
    // EC2 deletes volumes with their instance; one that is left costs money.
    let volumes = clients.ec2.describe_volumes().filters(tags::of_pool(pool)).send().await;
    for volume in called("DescribeVolumes", volumes)?.volumes.unwrap_or_default() {
        if volume.state().is_some_and(|state| state.as_str() == "available") {
            let id = volume.volume_id.unwrap_or_default();
            let error = Error::new(ErrorKind::Provider, format!("the volume {id} was not removed with its instance"));
            left.push((error, format!("aws ec2 delete-volume --region {region} --volume-id {id}")));
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = left.iter().map(|(error, _)| error.message().to_owned()).collect();
    let commands: Vec<&str> = left.iter().map(|(_, command)| command.as_str()).collect();
    Err(Error::new(ErrorKind::Provider, format!("something of the pool {pool} is left: {}", words.join("; ")))
        .with_hint(format!("remove it by hand: `{}`", commands.join("`; `"))))
}

/// Removes a group. Instances and their interfaces use it for a while after they have ended.
async fn until_unused<F>(pool: &PoolId, remove: impl Fn() -> F, end: Instant) -> std::result::Result<(), Failure>
where
    F: Future<Output = std::result::Result<(), Failure>>,
{
    let mut pause = TEARDOWN_PAUSE;
    loop {
        let Err(failure) = remove().await else { return Ok(()) };
        match failure.class {
            Class::NotFound => return Ok(()),
            Class::InUse | Class::Throttled | Class::Transient if Instant::now() + pause < end => {
                tracing::debug!(%pool, %failure, "a group is still used");
                sleep(pause).await;
                pause = (pause * 2).min(TEARDOWN_LONGEST_PAUSE);
            }
            _ => return Err(failure),
        }
    }
}

/// The instances that use a security group, as text.
async fn users_of(clients: &Clients, group: &str) -> String {
    let users = describe::instances(clients, vec![tags::filter("instance.group-id", [group])]).await;
    let users = users.unwrap_or_default();
    users.iter().filter_map(|instance| instance.instance_id()).collect::<Vec<_>>().join(", ")
}

/// Terminates instances, and returns an answer for each. EC2 refuses a whole call if it does not
/// know one of its ids.
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn terminate(clients: &Clients, machines: &[MachineId]) -> Vec<Result<()>> {
    match call(clients, machines).await {
        Err(failure) if failure.class == Class::NotFound => {
            // Keeps the ids that EC2 lists: a filter ignores unknown ones.
            let there = match describe::by_id(clients, machines).await {
                Ok(there) => there,
                Err(error) => return machines.iter().map(|_| Err(error.clone())).collect(),
            };
            let live = |machine: &&MachineId| {
                let is_it = |instance: &&aws_sdk_ec2::types::Instance| instance.instance_id() == Some(machine.as_str());
                there.iter().find(is_it).is_some_and(machines::is_live)
            };
            let live: Vec<MachineId> = machines.iter().filter(live).cloned().collect();
            if live.is_empty() {
                return machines.iter().map(|_| Ok(())).collect();
            }
            let ended = answers(clients, &live, call(clients, &live).await).await;
            let ended: HashMap<&MachineId, Result<()>> = live.iter().zip(ended).collect();
            machines.iter().map(|machine| ended.get(machine).cloned().unwrap_or(Ok(()))).collect()
        }
        asked => answers(clients, machines, asked).await,
    }
}

/// The outcome of a call that terminates instances, for each of them. A protected instance does not
/// prevent the others from ending.
async fn answers(
    clients: &Clients,
    machines: &[MachineId],
    asked: std::result::Result<(), Failure>,
) -> Vec<Result<()>> {
    let region = &clients.region;
    match asked {
        Ok(()) => machines.iter().map(|_| Ok(())).collect(),
        Err(failure) if machines.len() > 1 && matches!(failure.class, Class::Denied | Class::Wrong) => {
            let each = machines.iter().map(|machine| async move {
                let asked = call(clients, std::slice::from_ref(machine)).await;
                asked.map_err(|failure| refused(region, machine, failure))
            });
            join_all(each).await
        }
        Err(failure) => match machines {
            [machine] => vec![Err(refused(region, machine, failure))],
            _ => {
                let error = failure.into_error();
                machines.iter().map(|_| Err(error.clone())).collect()
            }
        },
    }
}

/// The error of an instance that EC2 does not end.
fn refused(region: &str, machine: &MachineId, failure: Failure) -> Error {
    let is_protected = failure.has_code("OperationNotPermitted");
    let error = failure.into_error();
    if !is_protected {
        return error;
    }
    error.with_hint(format!(
        "the instance is protected from termination: remove the protection with `aws ec2 modify-instance-attribute \
         --region {region} --instance-id {machine} --no-disable-api-termination`, and end it with `aws ec2 \
         terminate-instances --region {region} --instance-ids {machine}`; its keeper powers it off when its lease is over"
    ))
}

async fn call(clients: &Clients, machines: &[MachineId]) -> std::result::Result<(), Failure> {
    for some in machines.chunks(MOST) {
        let ids = some.iter().map(ToString::to_string).collect();
        let asked = clients.ec2.terminate_instances().set_instance_ids(Some(ids)).send().await;
        asked.map_err(|error| Failure::of("TerminateInstances", error))?;
    }
    Ok(())
}

/// The instances of one call that ends them.
const MOST: usize = 500;
