use std::collections::BTreeMap;

use super::*;
use crate::offers::fit::{self, tests as samples};
use crate::offers::rank::{Prices, rank};
use crate::prices::Price;

fn words(requirements: &Requirements, prices: &Prices, quotas: &BTreeMap<String, u32>) -> String {
    let (listing, setting) = (samples::gpus(), samples::setting());
    let fit::Fit { fitting, mut obstacles } = fit::fit(&listing, requirements, &setting);
    let ranked = rank(&fitting, prices, quotas, requirements, &setting);
    assert_eq!(ranked.offers, []);
    obstacles.extend(ranked.obstacles);
    Nothing::of(&obstacles, &listing, requirements, &setting).to_string()
}

#[track_caller]
fn assert_words(requirements: &Requirements, expected: &str) {
    assert_eq!(words(requirements, &Prices::default(), &BTreeMap::new()), expected);
}

#[test]
fn a_kind_that_is_not_there_is_answered_with_those_that_are() {
    assert_words(&samples::wanting("A1000", 8), "no instance type of eu-west-1 has A1000; nearest to that is A100");
    assert_words(
        &samples::wanting("H100", 8),
        "no instance type of eu-west-1 has H100; it has A100, A10G, H200, Inferentia, T4, Trainium, V100",
    );
}

#[test]
fn a_count_that_is_not_there_is_answered_with_those_that_are() {
    assert_words(&samples::wanting("A100", 16), "A100 comes in 8: p4d.24xlarge, p4de.24xlarge");
    assert_words(
        &samples::wanting("A10G", 16),
        "A10G comes in 1: g5.xlarge, g5.2xlarge; 4: g5.12xlarge; 8: g5.48xlarge",
    );
}

#[test]
fn memory_that_is_not_there_is_answered_with_what_is() {
    assert_words(&samples::wanting("A100-96GB", 8), "A100 comes with 40 GiB: p4d.24xlarge; 80 GiB: p4de.24xlarge");
}

#[test]
fn what_has_no_driver_is_named() {
    assert_words(
        &samples::wanting("V520", 1),
        "EC2 has nothing with 1× V520 in eu-west-1: g4ad.xlarge has Radeon Pro V520, which has no driver in the images \
         that machines start from",
    );
}

#[test]
fn the_types_that_come_nearest_are_named_with_what_they_lack() {
    assert_words(
        &samples::wanting("A10G", 1).cpus(500),
        "EC2 has nothing with 1× A10G and 500 cores in eu-west-1: g5.48xlarge does not have 500 cores; g5.12xlarge does \
         not have 500 cores; g5.2xlarge does not have 500 cores; g5.xlarge does not have 500 cores",
    );
    assert_words(
        &samples::wanting("A10G", 8),
        "EC2 has nothing with 8× A10G in eu-west-1: g5.48xlarge is sold in eu-west-1c, where the pool has no subnet",
    );
    assert_words(
        &samples::wanting("H200", 8),
        "EC2 has nothing with 8× H200 in eu-west-1: p5e.48xlarge is sold only as capacity blocks, which you reserve \
         in advance",
    );
}

#[test]
fn prices_and_quotas_that_are_in_the_way_are_named() {
    let wanted = samples::wanting("T4", 4).most_usd_per_hour(1.0);
    let price = Price { usd_per_hour: 3.912, read_at: std::time::SystemTime::UNIX_EPOCH };
    let prices = Prices { on_demand: [("g4dn.12xlarge".to_owned(), price)].into(), ..Prices::default() };
    assert_eq!(
        words(&wanted, &prices, &BTreeMap::new()),
        "EC2 has nothing with 4× T4 and a price of at most $1/h in eu-west-1: g4dn.12xlarge costs $3.91/h on demand in \
         eu-west-1a; g4dn.12xlarge costs $3.91/h on demand in eu-west-1b"
    );
    let quotas = [("L-DB2E81BA".to_owned(), 0)].into();
    assert_eq!(
        words(&samples::wanting("T4", 4), &Prices::default(), &quotas),
        "EC2 has nothing with 4× T4 in eu-west-1: g4dn.12xlarge needs 48 vCPUs, and the quota L-DB2E81BA allows 0"
    );
}
