//! The offers for a pool's requirements: types that fit, in the zones that have a subnet, at their
//! prices.

mod fit;
mod nothing;
mod rank;
mod reserved;

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use aws_sdk_ec2::Client;
use skyward_core::error::Result;
use skyward_core::provider::{Market, Offer, Requirements};

use self::fit::{Fit, Fitting};
pub(crate) use self::nothing::Nothing;
use self::rank::{Prices, Ranked};
pub(crate) use self::reserved::reserved;
use crate::catalog::{Catalog, Selection};
use crate::clock::Clock;
use crate::prices::on_demand::OnDemand;
use crate::prices::spot;
use crate::quota::{Quota, Quotas};

/// Where offers come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) ec2: &'a Client,
    pub(crate) catalog: &'a Catalog,
    pub(crate) on_demand: &'a OnDemand,
    /// The quotas; none unless the user wants them looked up before a launch.
    pub(crate) quotas: Option<&'a Quotas>,
    /// The time of EC2.
    pub(crate) clock: &'a Clock,
}

/// The settings of launches that offers depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) region: String,
    /// The zones in which the subnets lie.
    pub(crate) zones: BTreeSet<String>,
    /// The size of the root disk where the pool asks for none.
    pub(crate) disk_gib: u32,
    /// Whether the user has named the image, whose drivers are unknown.
    pub(crate) own_image: bool,
}

/// Offers, the best first, or why there are none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) offers: Vec<Offer>,
    /// Where there are no offers.
    pub(crate) nothing: Option<Nothing>,
}

/// What can be rented for these requirements.
///
/// # Errors
///
/// [`ErrorKind::Provider`](skyward_core::error::ErrorKind::Provider) when EC2 does not list its
/// instance types. A price or quota that AWS does not return counts as unknown.
///
/// # Cancel safety
///
/// Starts nothing.
pub(crate) async fn offers(
    sources: Sources<'_>,
    setting: &Setting,
    requirements: &Requirements,
    now: SystemTime,
) -> Result<Answer> {
    let selection = match requirements.accelerator {
        Some(_) => Selection::Accelerated,
        None => Selection::Plain,
    };
    let listing = sources.catalog.listing(selection, now).await?;
    let listing = &listing.value;
    let Fit { fitting, mut obstacles } = fit::fit(listing, requirements, setting);
    let prices = prices_of(&fitting, sources, requirements.market, now);
    let (prices, quotas) = tokio::join!(prices, quotas_of(&fitting, sources, requirements.market));
    let Ranked { offers, obstacles: of_offers } = rank::rank(&fitting, &prices, &quotas, requirements, setting);
    for obstacle in &of_offers {
        tracing::debug!(instance_type = obstacle.instance_type, why = obstacle.words, "an offer is left out");
    }
    obstacles.extend(of_offers);
    let nothing = offers.is_empty().then(|| Nothing::of(&obstacles, listing, requirements, setting));
    Ok(Answer { offers, nothing })
}

async fn prices_of(fitting: &[Fitting<'_>], sources: Sources<'_>, market: Market, now: SystemTime) -> Prices {
    let names = |spot: bool| -> Vec<&str> {
        let sold = fitting.iter().map(|one| one.instance_type);
        sold.filter(|one| if spot { one.spot } else { one.on_demand }).map(|one| &*one.name).collect()
    };
    let spot = async {
        match names(true) {
            names if names.is_empty() || !allows(market, true) => BTreeMap::new(),
            names => spot::prices(sources.ec2, &names, sources.clock.now(), now).await,
        }
    };
    let on_demand = async {
        match names(false) {
            names if names.is_empty() || !allows(market, false) => BTreeMap::new(),
            names => sources.on_demand.prices(&names, now).await,
        }
    };
    let (spot, on_demand) = tokio::join!(spot, on_demand);
    Prices { spot, on_demand }
}

async fn quotas_of(fitting: &[Fitting<'_>], sources: Sources<'_>, market: Market) -> BTreeMap<String, u32> {
    let Some(quotas) = sources.quotas else { return BTreeMap::new() };
    let markets = [false, true].into_iter().filter(|spot| allows(market, *spot));
    let all = markets.flat_map(|spot| fitting.iter().map(move |one| Quota::of(&one.instance_type.name, spot)));
    let keys: BTreeSet<&str> = all.flatten().map(|quota| quota.key()).collect();
    quotas.values(&Vec::from_iter(keys)).await
}

/// Whether the pool accepts spot instances, or on-demand ones.
fn allows(market: Market, spot: bool) -> bool {
    match market {
        Market::OnDemand => !spot,
        Market::Spot => spot,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
