//! Removes what the machines of a pool shared. It needs no more than the tags, so any process can
//! do it.

use std::collections::HashMap;

use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::{Volume, VolumeState};
use futures_util::future::join_all;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::{MachineId, PoolId};
use tokio::time::sleep;

use crate::client::Clients;
use crate::describe;
use crate::errors::{Class, Failure, called};
use crate::machines;
use crate::network::find_groups;
use crate::placement;
use crate::tags;
use crate::timing::VOLUME_DELETED;

/// Removes the pool's security group and, where it may have one, its placement group. The error
/// lists what else is left.
///
/// # Errors
///
/// [`ErrorKind::Provider`] with each thing that is left, and the command that removes it. Temporary
/// where instances that end still use it.
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn teardown(clients: &Clients, pool: &PoolId, has_placement: bool) -> Result<()> {
    let region = &clients.region;
    let mut left = Vec::new();
    for group in find_groups(clients, pool).await? {
        let removed = clients.ec2.delete_security_group().group_id(&group).send().await;
        if let Err(failure) = unless_gone("DeleteSecurityGroup", removed) {
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
            let removed = clients.ec2.delete_placement_group().group_name(&name).send().await;
            if let Err(failure) = unless_gone("DeletePlacementGroup", removed) {
                let command = format!("aws ec2 delete-placement-group --region {region} --group-name {name}");
                left.push((failure.into_error(), command));
            }
        }
    }
    for id in staying_volumes(clients, pool).await? {
        let error = Error::new(ErrorKind::Provider, format!("the volume {id} is not removed with its instance"));
        left.push((error, format!("aws ec2 delete-volume --region {region} --volume-id {id}")));
    }
    if left.is_empty() {
        return Ok(());
    }
    let is_temporary = left.iter().all(|(error, _)| error.is_temporary());
    let words: Vec<String> = left.iter().map(|(error, _)| error.message().to_owned()).collect();
    let commands: Vec<&str> = left.iter().map(|(_, command)| command.as_str()).collect();
    let error = Error::new(ErrorKind::Provider, format!("something of the pool {pool} is left: {}", words.join("; ")))
        .with_hint(format!("remove it by hand: `{}`", commands.join("`; `")));
    // The pool tries again: an instance that ends uses its groups for a while.
    Err(if is_temporary { error.temporary() } else { error })
}

/// The failure of a call that removes something, unless that is gone already.
fn unless_gone<T, E>(
    call: &'static str,
    removed: std::result::Result<T, SdkError<E>>,
) -> std::result::Result<(), Failure>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    match removed.map_err(|error| Failure::of(call, error)) {
        Err(failure) if failure.class != Class::NotFound => Err(failure),
        _ => Ok(()),
    }
}

/// The volumes of a pool that remain after their instances, and cost money. EC2 deletes a volume with
/// its instance, and may list it in between as one that nothing uses; so one counts that is listed
/// twice.
async fn staying_volumes(clients: &Clients, pool: &PoolId) -> Result<Vec<String>> {
    let listed = async || -> Result<Vec<String>> {
        let volumes = clients.ec2.describe_volumes().filters(tags::of_pool(pool)).send().await;
        let volumes = called("DescribeVolumes", volumes)?.volumes.unwrap_or_default();
        Ok(volumes.into_iter().filter(stays).filter_map(|volume| volume.volume_id).collect())
    };
    let mut staying = listed().await?;
    if !staying.is_empty() {
        sleep(VOLUME_DELETED).await;
        let again = listed().await?;
        staying.retain(|id| again.contains(id));
    }
    Ok(staying)
}

/// Whether a volume seems to remain after its instance.
fn stays(volume: &Volume) -> bool {
    volume.state() == Some(&VolumeState::Available)
        || volume.attachments().iter().any(|attachment| attachment.delete_on_termination() == Some(false))
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
        // Nothing on an instance is needed any more, so its system need not shut down in order.
        let asked = clients.ec2.terminate_instances().set_instance_ids(Some(ids)).skip_os_shutdown(true).send().await;
        asked.map_err(|error| Failure::of("TerminateInstances", error))?;
    }
    Ok(())
}

/// The instances of one call that ends them.
const MOST: usize = 500;
