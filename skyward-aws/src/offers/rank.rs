//! Offers of the types that fit, the best first.

use std::collections::BTreeMap;

use skyward_core::ids::OfferId;
use skyward_core::provider::{Offer, Requirements};

use super::fit::{Fitting, Obstacle, Stage, offer_of};
use super::{Setting, allows};
use crate::catalog::instance_type::InstanceType;
use crate::prices::Price;
use crate::prices::spot::SpotPrices;
use crate::quota::Quota;

/// The known prices.
#[derive(Debug, Default)]
pub(super) struct Prices {
    pub(super) spot: SpotPrices,
    pub(super) on_demand: BTreeMap<String, Price>,
}

/// The offers, the best first, and why others are left out.
#[derive(Debug)]
pub(super) struct Ranked {
    pub(super) offers: Vec<Offer>,
    pub(super) obstacles: Vec<Obstacle>,
}

/// The offers of the types that fit, the cheapest first. Offers without a known price come last,
/// the smallest first.
///
/// The pool sorts offers by market, and keeps this order within each market.
pub(super) fn rank(
    fitting: &[Fitting<'_>],
    prices: &Prices,
    quotas: &BTreeMap<String, u32>,
    requirements: &Requirements,
    setting: &Setting,
) -> Ranked {
    let (mut ranked, mut obstacles) = (Vec::new(), Vec::new());
    for Fitting { instance_type, zones } in fitting {
        for spot in markets(instance_type, requirements) {
            let key = Quota::of(&instance_type.name, spot).map(|quota| quota.key());
            let most = key.and_then(|key| quotas.get(key));
            if let Some(most) = most.filter(|most| **most < instance_type.cpus) {
                let quota = key.unwrap_or_default();
                let words = format!("needs {} vCPUs, and the quota {quota} allows {most}", instance_type.cpus);
                obstacles.push(Obstacle::new(Stage::Quota, instance_type, instance_type.weight(), words));
                continue;
            }
            for zone in zones {
                let mut offer = priced(instance_type, zone, spot, prices, requirements, setting);
                offer.quota = key.map(str::to_owned);
                match requirements.are_met_by(&offer) {
                    true => ranked.push((instance_type.weight(), offer)),
                    false => obstacles.push(too_dear(instance_type, &offer)),
                }
            }
        }
    }
    ranked.sort_by(|(weight, one), (other_weight, other)| {
        let price = |offer: &Offer| offer.usd_per_hour.unwrap_or(f64::INFINITY);
        let named = |offer: &Offer| requirements.zones.iter().position(|zone| *zone == offer.zone);
        (price(one).total_cmp(&price(other)))
            .then_with(|| weight.cmp(other_weight))
            .then_with(|| one.machine_type.cmp(&other.machine_type))
            // Among zones with the same price, the one that was named first.
            .then_with(|| named(one).cmp(&named(other)))
            .then_with(|| one.id.as_str().cmp(other.id.as_str()))
    });
    Ranked { offers: cut(ranked.into_iter().map(|(_, offer)| offer).collect()), obstacles }
}

fn markets(instance_type: &InstanceType, requirements: &Requirements) -> impl Iterator<Item = bool> {
    let InstanceType { spot: is_spot, on_demand, .. } = *instance_type;
    let market = requirements.market;
    [true, false].into_iter().filter(move |spot| allows(market, *spot) && if *spot { is_spot } else { on_demand })
}

fn priced(
    instance_type: &InstanceType,
    zone: &str,
    spot: bool,
    prices: &Prices,
    requirements: &Requirements,
    setting: &Setting,
) -> Offer {
    let name = &instance_type.name;
    let price = match spot {
        true => prices.spot.get(&(name.clone(), zone.to_owned())),
        false => prices.on_demand.get(name),
    };
    offer_of(instance_type, zone, requirements, setting)
        .id(OfferId::new(format!("{name}/{zone}/{}", if spot { "spot" } else { "on-demand" })))
        .usd_per_hour(price.map(|price| price.usd_per_hour))
        .priced_at(price.map(|price| price.read_at))
        .spot(spot)
}

fn too_dear(instance_type: &InstanceType, offer: &Offer) -> Obstacle {
    let price = offer.usd_per_hour.unwrap_or_default();
    let market = if offer.spot { "as a spot instance" } else { "on demand" };
    let words = format!("costs ${price:.2}/h {market} in {}", offer.zone);
    // In millionths of a dollar.
    Obstacle::new(Stage::Price, instance_type, (price * 1e6) as u64, words)
}

/// The first offers, with at least a share for each market: the dearer market is what remains when
/// the cheaper one has no capacity.
fn cut(offers: Vec<Offer>) -> Vec<Offer> {
    let count = |spot: bool| offers.iter().filter(|offer| offer.spot == spot).count();
    let (spot, on_demand) = (count(true), count(false));
    let share = |has: usize, other: usize| has.min((MOST_OFFERS / 2).max(MOST_OFFERS.saturating_sub(other)));
    let mut left = [share(on_demand, spot), share(spot, on_demand)];
    let mut offers = offers;
    offers.retain(|offer| {
        let left = &mut left[usize::from(offer.spot)];
        let stays = *left > 0;
        *left = left.saturating_sub(1);
        stays
    });
    offers
}

/// Enough for ten types in three zones and two markets.
const MOST_OFFERS: usize = 60;

#[cfg(test)]
mod tests;
