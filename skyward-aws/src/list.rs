//! Lists the machines of a pool, each launch once: an instance that runs beside another one of its
//! launch is ended.

use aws_sdk_ec2::types::Instance;
use futures_util::stream::{self, StreamExt};
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::{MachineId, PoolId};
use skyward_core::provider::Machine;

use crate::assign::{self, Assigned, Known};
use crate::client::Clients;
use crate::describe;
use crate::errors::called;
use crate::machines;
use crate::pool::Pool;
use crate::tags;
use crate::teardown;

/// A machine that EC2 lists.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) machine: Machine,
    /// Whether something of it may still run.
    pub(crate) is_live: bool,
}

/// The machines of a pool, also those that have ended and that EC2 still lists. `pool` is what this
/// process knows of the pool.
///
/// # Errors
///
/// [`ErrorKind::Provider`], also where a second instance of a launch cannot be ended: without it, the
/// list would not be complete.
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn list(clients: &Clients, id: &PoolId, pool: Option<&Pool>) -> Result<Vec<Listed>> {
    let instances = describe::instances(clients, vec![tags::of_pool(id)]).await?;
    let assigned = match pool {
        Some(pool) => pool.listed(&instances),
        None => assign::listed(&instances, &Known::default()),
    };
    let (listed, surplus) = parts(assigned);
    if let Some(pool) = pool {
        tell(clients, pool).await;
    }
    end_surplus(clients, id, surplus).await?;
    Ok(listed)
}

/// The machines, and the ids of surplus instances.
fn parts(assigned: Assigned<'_>) -> (Vec<Listed>, Vec<MachineId>) {
    let listed = assigned.found.into_iter();
    let listed = listed.map(|found| Listed { machine: found.machine, is_live: machines::is_live(found.instance) });
    let surplus = assigned.surplus.into_iter().filter_map(Instance::instance_id).map(MachineId::new);
    (listed.collect(), surplus.collect())
}

/// Ends instances that run beside other ones of the same launches.
///
/// # Errors
///
/// [`ErrorKind::Provider`], temporary.
///
/// # Cancel safety
///
/// The next list finds them again.
pub(crate) async fn end_surplus(clients: &Clients, pool: &PoolId, surplus: Vec<MachineId>) -> Result<()> {
    if surplus.is_empty() {
        return Ok(());
    }
    let names = surplus.iter().map(MachineId::as_str).collect::<Vec<_>>().join(", ");
    tracing::warn!(%pool, instances = names, "EC2 has more instances than were launched; the surplus ones are ended");
    let ended = teardown::terminate(clients, &surplus).await.into_iter().collect::<Result<Vec<()>>>();
    ended.map(drop).map_err(|error| {
        let what =
            format!("EC2 has more instances of the pool {pool} than were launched, and {names} could not be ended");
        Error::new(ErrorKind::Provider, what).with_source(error).temporary()
    })
}

/// Tags the machines of which only this process knows which launch they are. What fails is tried again
/// when the machines are inspected or listed next: EC2 may not know yet what it launched a moment ago.
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn tell(clients: &Clients, pool: &Pool) {
    let calls = pool.untold().into_iter().map(|machine| async move {
        let tagged = clients.ec2.create_tags().resources(machine.id.as_str()).tags(tags::of_launch(&machine)).send();
        match called("CreateTags", tagged.await) {
            Ok(_) => pool.told(&machine.id),
            Err(error) => tracing::debug!(machine = %machine.id, %error, "the launch of a machine could not be tagged"),
        }
    });
    stream::iter(calls).buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// How many calls that tag machines are made at the same time.
const AT_ONCE: usize = 8;
