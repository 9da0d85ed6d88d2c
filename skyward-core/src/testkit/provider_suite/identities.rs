//! Clauses on `identity` and `parts`.

use super::trial::{ask, require, trial};
use crate::provider::Provider;
use crate::testkit::Violation;

/// `identity` is not empty, and the same for `again`, another value of the same provider. So are the
/// identities of the parts, in any order.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The function starts nothing.
pub async fn identity_stays_the_same(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    let clause = "identity_stays_the_same";
    let (first, second) = (identities(clause, provider).await?, identities(clause, again).await?);
    let empty = first.iter().any(String::is_empty);
    require(clause, !empty, || format!("an identity is empty: {first:?}"))?;
    require(clause, first == second, || format!("the identities are {first:?}, and {second:?} to another value"))
}

/// `parts` is empty, or a machine is in the list of one part alone, and its id ends with `@` and the
/// identity of that part.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn parts_have_their_machines(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("parts_have_their_machines", provider, async |trial| {
        if provider.parts().is_empty() {
            return Ok(());
        }
        let machine = trial.launch(0).await?;
        let mut holders = Vec::new();
        for part in provider.parts() {
            let listed = trial.ask("list of a part", part.provider.list(&trial.pool)).await?;
            if listed.iter().any(|other| other.id == machine.id) {
                holders.push(trial.ask("identity of a part", part.provider.identity()).await?);
            }
        }
        let right = matches!(&holders[..], [one] if machine.id.as_str().ends_with(&format!("@{one}")));
        trial.require(right, || format!("the machine {} is listed by the parts {holders:?}", machine.id))
    })
    .await
}

async fn identities(clause: &'static str, provider: &dyn Provider) -> Result<Vec<String>, Violation> {
    let parts = provider.parts();
    if parts.is_empty() {
        return Ok(vec![ask(clause, "identity", provider.identity()).await?]);
    }
    let mut all = Vec::new();
    for part in parts {
        all.push(ask(clause, "identity of a part", part.provider.identity()).await?);
    }
    all.sort();
    Ok(all)
}
