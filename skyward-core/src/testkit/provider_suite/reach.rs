//! Clauses on `connect`.

use tokio::time::timeout;

use super::timing::CALL;
use super::trial::trial;
use crate::provider::Provider;
use crate::remote::Command;
use crate::testkit::Violation;

/// `connect` reaches the machine, and files can be put into the machine's folder.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn connect_reaches_the_machine(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("connect_reaches_the_machine", provider, async |trial| {
        let (a, b) = (trial.launch(0).await?, trial.launch(1).await?);
        for machine in [&a, &b] {
            let (remote, place) = (trial.connect(machine).await?, trial.there(machine).await?);
            let path = format!("{}/who", place.folder);
            trial.ask("put", remote.put(&path, machine.id.as_str().as_bytes(), 0o600)).await?;
        }
        for machine in [&a, &b] {
            let (remote, place) = (trial.connect(machine).await?, trial.there(machine).await?);
            let command = Command::new(["cat".to_owned(), format!("{}/who", place.folder)]);
            let output = trial.ask("run", remote.run(&command, &|_| {})).await?;
            trial.require(output.stdout == machine.id.as_str(), || {
                format!("the file of {} reads {output:?}", machine.id)
            })?;
        }
        Ok(())
    })
    .await
}

/// A machine that is gone cannot be reached: `connect`, or the first command, fails.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn connect_refuses_what_is_gone(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("connect_refuses_what_is_gone", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let place = trial.there(&machine).await?;
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        let reached = async {
            let remote = trial.checked.connect(&machine, &place).await?;
            remote.run(&Command::script("echo here"), &|_| {}).await
        };
        match timeout(CALL, reached).await {
            Ok(Ok(output)) => {
                trial.require(false, || format!("the machine is gone, and a command on it returned {output:?}"))
            }
            Ok(Err(_)) => Ok(()),
            Err(_) => {
                trial.require(false, || format!("`connect` to a machine that is gone had not failed after {CALL:?}"))
            }
        }
    })
    .await
}
