//! Clauses on a provider's name and offers, and on `prepare` and `teardown`.

use std::time::Duration;

use tokio::time::timeout;

use super::trial::{ask, require, trial};
use crate::error::Refusal;
use crate::ids::PoolId;
use crate::provider::{Provider, Requirements};
use crate::testkit::Violation;

/// `name` is one word in lower case, and never changes.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The function starts nothing.
pub async fn name_is_one_word(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    let (name, again) = (provider.name().to_owned(), provider.name());
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
    let clause = "name_is_one_word";
    require(clause, good, || format!("the name is {name:?}"))?;
    require(clause, name == again, || format!("the name was {name:?}, then {again:?}"))
}

/// Every offer meets the requirements, and requirements that no machine can meet get no offer.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The function starts nothing.
pub async fn offers_meet_the_requirements(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    let clause = "offers_meet_the_requirements";
    let all = ask(clause, "offers", provider.offers(&Requirements::default())).await?;
    let Some(largest) = all.iter().map(|offer| offer.cpus).max() else { return Ok(()) };
    for requirements in [
        Requirements::default().cpus(largest),
        Requirements::default().cpus(u32::MAX),
        Requirements::default().memory_gib(u32::MAX),
    ] {
        // A provider may also report an error when it has no offer.
        let asked = async {
            let offers = provider.offers(&requirements).await;
            offers.or_else(
                |error| if error.refusal() == Some(&Refusal::NotOffered) { Ok(Vec::new()) } else { Err(error) },
            )
        };
        let offers = ask(clause, "offers", asked).await?;
        let short = offers.iter().find(|offer| {
            requirements.cpus.is_some_and(|cpus| offer.cpus < cpus)
                || requirements.memory_gib.is_some_and(|memory| offer.memory_gib < memory)
        });
        require(clause, short.is_none(), || format!("{short:?} was offered for {requirements:?}"))?;
    }
    Ok(())
}

/// `prepare` may be called more than once.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the resources that `prepare` made.
pub async fn prepare_is_repeatable(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("prepare_is_repeatable", provider, async |trial| {
        trial.ask("prepare", provider.prepare(&trial.prepared())).await?;
        trial.ask("prepare, again", provider.prepare(&trial.prepared())).await
    })
    .await
}

/// `teardown` may be called more than once, and without `prepare` or `launch` having finished.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn teardown_is_idempotent(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("teardown_is_idempotent", provider, async |trial| {
        trial.ask("teardown of a pool that never existed", provider.teardown(&PoolId::random())).await?;
        // The future is dropped after one poll: `prepare` may have made anything, or nothing.
        let _ = timeout(Duration::ZERO, provider.prepare(&trial.prepared())).await;
        trial.ask("teardown after a dropped prepare", provider.teardown(&trial.pool)).await?;
        let machine = trial.launch(0).await?;
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        trial.ask("teardown", provider.teardown(&trial.pool)).await?;
        trial.ask("teardown, again", provider.teardown(&trial.pool)).await
    })
    .await
}

/// The teardown of one pool does not affect the machines of another.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn teardown_leaves_other_pools(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("teardown_leaves_other_pools", provider, async |here| {
        trial("teardown_leaves_other_pools", provider, async |there| {
            let (a, b) = (here.launch(0).await?, there.launch(0).await?);
            here.terminate(&a.id).await?;
            here.gone(&a.id).await?;
            here.ask("teardown", provider.teardown(&here.pool)).await?;
            let report = there.report(&b.id).await?;
            let alive = !report.state.is_over();
            there.require(alive, || format!("another pool was torn down, and the machine {} is {report}", b.id))
        })
        .await
    })
    .await
}
