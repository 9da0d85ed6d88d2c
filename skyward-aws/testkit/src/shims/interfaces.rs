//! The network interfaces of instances.

use anyhow::Result;

use super::{Backend, Original, launch};
use crate::phases::Phase;
use crate::proxy::{Call, Reply};

/// AWS documents: an instance has a public address once it runs. In moto its interface has the
/// address from the launch.
pub(crate) async fn describe(backend: &Backend, original: Original) -> Result<Reply> {
    let _settled = backend.settled().await;
    let reply = backend.forward(original).await?;
    if !reply.is_success() {
        return Ok(reply);
    }
    let now = backend.records.clock.now();
    reply.edit(|root| {
        let Some(set) = root.child_mut("networkInterfaceSet") else { return };
        for interface in &mut set.children {
            let record = backend.records.get(interface.at(&["attachment", "instanceId"]));
            if record.is_some_and(|record| record.phase(now) == Phase::Pending) {
                launch::dissociate(interface);
            }
        }
    })
}

/// ModifyNetworkInterfaceAttribute.
///
/// AWS documents no answer for groups of an interface whose instance is shutting down. A client must
/// not rely on being able to change them, so the call is refused here. moto knows no such phase.
pub(crate) async fn modify(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    drop(backend.settled().await);
    let id = call.get("NetworkInterfaceId");
    if !call.list("SecurityGroupId").is_empty() && !call.is_dry_run() {
        let asked = backend.ask("ec2", "DescribeNetworkInterfaces", &[("NetworkInterfaceId.1", id)]).await;
        // moto refuses the call for an interface that it does not know.
        let root = asked.unwrap_or_default();
        let mut instances = root.items("networkInterfaceSet").map(|one| one.at(&["attachment", "instanceId"]));
        let is_over = |instance: &str| backend.records.get(instance).is_some_and(|record| record.is_over());
        if let Some(instance) = instances.find(|instance| is_over(instance)) {
            let message = format!(
                "The instance '{instance}' is shutting down: the groups of its interface '{id}' cannot be changed."
            );
            return Ok(Reply::error(call, 400, "IncorrectInstanceState", &message));
        }
    }
    backend.forward(original).await
}
