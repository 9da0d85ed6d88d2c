//! The clause on calls for many machines, which the pool makes of the calls of a moment.

use std::collections::BTreeSet;

use super::service::Service;
use super::timing::CALL;
use super::trial::trial;
use crate::ids::MachineId;
use crate::provider::Provider;
use crate::testkit::Violation;

/// With [`batches`](crate::provider::Capabilities::batches), the machines of one call have results
/// of their own: requests that differ, or are partly launched already, are launched by one call;
/// and a machine that is gone changes neither the reports nor the ends of the others. If the
/// service has machines for a part of a batch, as is checked for a service with a
/// [limit](Service::limit), that part is launched. The clause holds for a provider without the
/// capability.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines, and the service with its limit.
pub async fn batches_have_a_result_for_each(
    provider: &(impl Provider + Clone),
    service: &dyn Service,
) -> Result<(), Violation> {
    trial("batches_have_a_result_for_each", provider, async |trial| {
        if !provider.capabilities().batches {
            return Ok(());
        }
        let first = trial.launch(0).await?;
        let mut mixed = trial.batch(&[0, 1, 2]).await?;
        mixed.requests[1].ends_in = Some(CALL);
        mixed.requests[2].labels = [("part".to_owned(), "two".to_owned())].into();
        let launched = trial.launch_batch("launch of machines that differ, one of them launched", &mixed).await?;
        let ids: Vec<MachineId> = launched.iter().map(|machine| machine.id.clone()).collect();
        let distinct: BTreeSet<&MachineId> = ids.iter().collect();
        trial.require(launched[0] == first && distinct.len() == 3, || {
            format!("{first:?} was launched, and then a batch of it and two others, which returned {launched:?}")
        })?;
        trial.terminate(&ids[1]).await?;
        trial.gone(&ids[1]).await?;
        let reports = trial.ask("inspect of three machines, one of them gone", provider.inspect(&ids)).await?;
        let over: Vec<bool> = reports.iter().map(|report| report.state.is_over()).collect();
        trial.require(over == [false, true, false], || {
            format!("the second of three machines is gone, and the reports are {reports:?}")
        })?;
        let end = async { Ok(provider.terminate(&ids).await) };
        let ended = trial.ask("terminate of three machines, one of them gone", end).await?;
        trial.require(ended.len() == 3 && ended.iter().all(Result::is_ok), || {
            format!("the second of three machines is gone, and `terminate` of all of them returned {ended:?}")
        })?;
        for id in [&ids[0], &ids[2]] {
            trial.gone(id).await?;
        }
        let part = trial.batch(&[3, 4]).await?;
        if !service.limit(Some(1)).await {
            return Ok(());
        }
        let answers = trial.ask("launch of two machines", async { Ok(provider.launch(&part).await) }).await;
        service.limit(None).await;
        let answers = answers?;
        trial.note(answers.iter().flatten());
        let refused = answers.iter().filter(|answer| answer.as_ref().is_err_and(|error| error.refusal().is_some()));
        trial.require(answers.iter().flatten().count() == 1 && refused.count() == 1, || {
            format!(
                "a batch of two was launched, and the service had one machine: one must be launched, and the other \
                 refused. `launch` returned {answers:?}"
            )
        })
    })
    .await
}
