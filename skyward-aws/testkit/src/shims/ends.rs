//! The end of an instance: it shuts down for a while, and is terminated then.

use std::sync::Arc;

use anyhow::Result;

use super::{Backend, Original};
use crate::phases::Phase;
use crate::proxy::{Call, Reply};
use crate::records::Record;
use crate::shims::instances::state;

impl Backend {
    /// Ends an instance, with a reason unless its user ended it. A second time changes nothing.
    ///
    /// AWS documents: an instance is `shutting-down` until it is `terminated`, and its interface is
    /// deleted with it
    /// (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html>). moto
    /// terminates at once, so moto gets the call only when the phase is over. Until then, the
    /// instance holds what it was launched with.
    pub(crate) async fn end(self: &Arc<Self>, id: &str, reason: Option<(&str, &str)>) -> Result<()> {
        let Some(terminated) = self.records.end(id, reason) else { return Ok(()) };
        self.terminated.notify_one();
        if terminated <= self.records.clock.now() {
            return self.finish(id).await;
        }
        let (own, id) = (Arc::clone(self), id.to_owned());
        tokio::spawn(async move {
            own.records.clock.until(terminated).await;
            if let Err(error) = own.finish(&id).await {
                own.consoles.of(&id).write("hypervisor", format!("{error:#}"));
            }
        });
        Ok(())
    }

    /// Terminates it in moto. No call sees an instance that moto has terminated and that its record
    /// does not call so, or the other way round.
    async fn finish(&self, id: &str) -> Result<()> {
        let _alone = self.launches.alone().await;
        self.ask("ec2", "TerminateInstances", &[("InstanceId.1", id)]).await?;
        self.records.finish(id);
        self.changed.notify_one();
        Ok(())
    }
}

/// TerminateInstances. The hypervisor ends the machines at once.
pub(crate) async fn terminate(backend: &Arc<Backend>, call: &Call, original: Original) -> Result<Reply> {
    drop(backend.settled().await);
    if call.is_dry_run() {
        return backend.forward(original).await;
    }
    let ids = call.list("InstanceId");
    if let Some(refusal) = protected(backend, call, &ids).await? {
        return Ok(refusal);
    }
    let reply = backend.forward_with(original, &[(KEEP, "1".to_owned())]).await?;
    if !reply.is_success() {
        return Ok(reply);
    }
    let phase = |id: &str| Some(backend.records.get(id)?.phase(backend.records.clock.now()));
    let before: Vec<Option<Phase>> = ids.iter().map(|id| phase(id)).collect();
    for id in &ids {
        backend.end(id, None).await?;
    }
    reply.edit(|root| {
        let Some(set) = root.child_mut("instancesSet") else { return };
        for instance in &mut set.children {
            let id = instance.at(&["instanceId"]).to_owned();
            let before = ids.iter().position(|one| *one == id).and_then(|index| before[index]);
            for (name, phase) in [("previousState", before), ("currentState", phase(&id))] {
                // moto knows whether an instance that has not ended runs or was stopped.
                if let Some(state) = phase.and_then(|phase| state(name, phase)) {
                    instance.put(state);
                }
            }
        }
    })
}

/// AWS documents: TerminateInstances fails if one of its instances is protected. The other
/// instances in that zone stay, and those in zones without a protected one end all the same. moto
/// ends those that the call names before it.
async fn protected(backend: &Arc<Backend>, call: &Call, ids: &[&str]) -> Result<Option<Reply>> {
    let records: Vec<(&str, Record)> = ids.iter().filter_map(|id| Some((*id, backend.records.get(id)?))).collect();
    let kept: Vec<&(&str, Record)> =
        records.iter().filter(|(_, record)| record.is_protected && !record.is_over()).collect();
    let Some((first, _)) = kept.first() else { return Ok(None) };
    let ends = |record: &Record| kept.iter().all(|(_, kept)| kept.zone != record.zone);
    for (id, _) in records.iter().filter(|(_, record)| ends(record)) {
        backend.end(id, None).await?;
    }
    let message = format!(
        "The instance '{first}' may not be terminated. Modify its 'disableApiTermination' instance attribute and try \
         again."
    );
    Ok(Some(Reply::error(call, 400, "OperationNotPermitted", &message)))
}

/// The header that makes moto check the call alone.
const KEEP: &str = "x-testkit-keep";
