use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use skyward_core::provider::{Architecture, Market};
use skyward_core::spec::Accelerator;

use super::*;
use crate::offers::fit::{self, tests as samples};

fn price(usd_per_hour: f64) -> Price {
    Price { usd_per_hour, read_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1000) }
}

fn prices() -> Prices {
    let spot = [
        ("g5.xlarge", "eu-west-1a", 0.45),
        ("g5.xlarge", "eu-west-1b", 0.40),
        ("g5.2xlarge", "eu-west-1a", 1.10),
        ("g5.2xlarge", "eu-west-1b", 0.50),
    ];
    let on_demand = [("g5.xlarge", 1.006), ("g5.2xlarge", 1.212)];
    Prices {
        spot: spot.map(|(name, zone, usd)| ((name.to_owned(), zone.to_owned()), price(usd))).into(),
        on_demand: on_demand.map(|(name, usd)| (name.to_owned(), price(usd))).into(),
    }
}

fn ranked(requirements: &Requirements, prices: &Prices, quotas: &BTreeMap<String, u32>) -> Ranked {
    let (listing, setting) = (samples::gpus(), samples::setting());
    let fit = fit::fit(&listing, requirements, &setting);
    rank(&fit.fitting, prices, quotas, requirements, &setting)
}

fn ids(ranked: &Ranked) -> Vec<&str> {
    ranked.offers.iter().map(|offer| offer.id.as_str()).collect()
}

fn wanting(market: Market) -> Requirements {
    samples::wanting("A10G", 1).market(market)
}

#[test]
fn an_offer_says_everything() {
    let wanted = wanting(Market::Spot).zones(["eu-west-1b"]);
    let ranked = ranked(&wanted, &prices(), &BTreeMap::new());
    let expected = Offer::new("g5.xlarge", "eu-west-1b", 4, 16)
        .id(OfferId::new("g5.xlarge/eu-west-1b/spot"))
        .usd_per_hour(0.40)
        .priced_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1000))
        .spot(true)
        .quota("L-3819A6DF")
        .disk_gib(100)
        .architecture(Architecture::X86_64)
        .accelerator(Accelerator::new("A10G", 1).memory_gib(22));
    assert_eq!(ranked.offers[0], expected);
}

#[test]
fn the_cheapest_is_first_and_what_has_no_price_is_last_the_smallest_first() {
    assert_eq!(
        ids(&ranked(&wanting(Market::Cheapest), &prices(), &BTreeMap::new())),
        [
            "g5.xlarge/eu-west-1b/spot",
            "g5.xlarge/eu-west-1a/spot",
            "g5.2xlarge/eu-west-1b/spot",
            "g5.xlarge/eu-west-1a/on-demand",
            "g5.xlarge/eu-west-1b/on-demand",
            "g5.2xlarge/eu-west-1a/spot",
            "g5.2xlarge/eu-west-1a/on-demand",
            "g5.2xlarge/eu-west-1b/on-demand",
            "g5.12xlarge/eu-west-1a/on-demand",
            "g5.12xlarge/eu-west-1a/spot",
            "g5.12xlarge/eu-west-1b/on-demand",
            "g5.12xlarge/eu-west-1b/spot",
        ]
    );
    let none = ranked(&wanting(Market::OnDemand), &Prices::default(), &BTreeMap::new());
    assert_eq!(
        ids(&none)[..3],
        ["g5.xlarge/eu-west-1a/on-demand", "g5.xlarge/eu-west-1b/on-demand", "g5.2xlarge/eu-west-1a/on-demand"]
    );
    assert!(none.offers.iter().all(|offer| offer.usd_per_hour.is_none() && offer.priced_at.is_none()));
}

#[test]
fn one_market_has_its_own_offers_alone() {
    for (market, spots) in
        [(Market::Spot, &[true][..]), (Market::OnDemand, &[false]), (Market::SpotOrOnDemand, &[false, true])]
    {
        let ranked = ranked(&wanting(market), &prices(), &BTreeMap::new());
        let seen: BTreeSet<bool> = ranked.offers.iter().map(|offer| offer.spot).collect();
        assert_eq!(Vec::from_iter(seen), spots, "{market:?}");
    }
}

#[test]
fn places_of_one_price_are_in_the_order_in_which_they_were_named() {
    let wanted = wanting(Market::OnDemand).zones(["eu-west-1b", "eu-west-1a"]);
    let ranked = ranked(&wanted, &prices(), &BTreeMap::new());
    assert_eq!(ids(&ranked)[..2], ["g5.xlarge/eu-west-1b/on-demand", "g5.xlarge/eu-west-1a/on-demand"]);
}

#[test]
fn what_is_known_to_cost_more_is_left_out() {
    let wanted = wanting(Market::Cheapest).most_usd_per_hour(0.46);
    let ranked = ranked(&wanted, &prices(), &BTreeMap::new());
    let known: Vec<_> = ranked.offers.iter().filter(|offer| offer.usd_per_hour.is_some()).collect();
    assert_eq!(known.len(), 2);
    assert!(ranked.obstacles.iter().all(|obstacle| obstacle.stage == Stage::Price));
    assert_eq!(ranked.obstacles.len(), 6);
}

#[test]
fn what_a_quota_does_not_allow_is_left_out_and_named() {
    let quotas = [("L-DB2E81BA".to_owned(), 4), ("L-3819A6DF".to_owned(), 0)].into();
    let ranked = ranked(&wanting(Market::Cheapest), &prices(), &quotas);
    assert_eq!(ids(&ranked), ["g5.xlarge/eu-west-1a/on-demand", "g5.xlarge/eu-west-1b/on-demand"]);
    let named: Vec<_> = ranked.obstacles.iter().map(|one| (&*one.instance_type, &*one.words)).collect();
    assert!(named.contains(&("g5.2xlarge", "needs 8 vCPUs, and the quota L-DB2E81BA allows 4")), "{named:?}");
    assert!(named.contains(&("g5.xlarge", "needs 4 vCPUs, and the quota L-3819A6DF allows 0")), "{named:?}");
}

#[test]
fn a_disk_is_as_large_as_it_is_asked_for() {
    let wanted = wanting(Market::OnDemand).disk_gib(2000);
    let ranked = ranked(&wanted, &prices(), &BTreeMap::new());
    assert!(ranked.offers.iter().all(|offer| offer.disk_gib == Some(2000)));
}

fn offers(spot: usize, on_demand: usize) -> Vec<Offer> {
    let one = |spot: bool| move |number: usize| Offer::new(format!("{number}"), "z", 1, 1).spot(spot);
    (0..spot).map(one(true)).chain((0..on_demand).map(one(false))).collect()
}

#[test]
fn there_are_not_too_many_offers_and_no_market_is_left_out() {
    for (spot, on_demand, expected) in
        [(100, 100, (30, 30)), (100, 10, (50, 10)), (5, 100, (5, 55)), (100, 0, (60, 0)), (10, 10, (10, 10))]
    {
        let cut = cut(offers(spot, on_demand));
        let count = |spot: bool| cut.iter().filter(|offer| offer.spot == spot).count();
        assert_eq!((count(true), count(false)), expected);
        // The first of each stay.
        assert_eq!(cut.first().map(|offer| &*offer.machine_type), Some("0"));
    }
}
