//! The current prices of spot instances, of each type in each zone.

use std::collections::BTreeMap;
use std::time::SystemTime;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{InstanceType, SpotPrice};
use skyward_core::error::Result;
use tokio::time::timeout;

use super::{Price, usd};
use crate::errors;
use crate::timing::SPOT_PRICE_ANSWERS;

/// Prices by type and zone.
pub(crate) type SpotPrices = BTreeMap<(String, String), Price>;

/// The prices of these types in all zones, as far as EC2 returns them: those at `start` by its
/// clock, which are read at `now` by this client's.
///
/// # Cancel safety
///
/// Starts nothing.
pub(crate) async fn prices(ec2: &Client, types: &[&str], start: SystemTime, now: SystemTime) -> SpotPrices {
    let mut rows = Vec::new();
    let listed = timeout(SPOT_PRICE_ANSWERS, async {
        for types in types.chunks(TYPES_AT_ONCE) {
            history(ec2, types, start, &mut rows).await?;
        }
        Ok::<_, skyward_core::Error>(())
    });
    match listed.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "some spot prices are not known"),
        Err(_) => {
            tracing::warn!(within = ?SPOT_PRICE_ANSWERS, "some spot prices are unknown: EC2 has not returned them in time")
        }
    }
    newest(&rows, now)
}

async fn history(ec2: &Client, types: &[&str], start: SystemTime, rows: &mut Vec<SpotPrice>) -> Result<()> {
    let types = types.iter().map(|name| InstanceType::from(*name)).collect();
    let mut pages = ec2
        .describe_spot_price_history()
        .set_instance_types(Some(types))
        // The history begins with the price that holds at its start, so a history from now on is
        // the current price.
        .start_time(DateTime::from(start))
        // Some accounts get the one name of the product and some the other; the price is the same.
        .product_descriptions("Linux/UNIX")
        .product_descriptions("Linux/UNIX (Amazon VPC)")
        .into_paginator()
        .send();
    while let Some(page) = pages.next().await {
        rows.extend_from_slice(errors::called("DescribeSpotPriceHistory", page)?.spot_price_history());
    }
    Ok(())
}

/// The newest price of each type in each zone.
fn newest(rows: &[SpotPrice], now: SystemTime) -> SpotPrices {
    let mut newest: BTreeMap<(String, String), (Option<DateTime>, Price)> = BTreeMap::new();
    for row in rows {
        let (Some(name), Some(zone)) = (row.instance_type(), row.availability_zone()) else { continue };
        let Some(usd_per_hour) = row.spot_price().and_then(usd) else { continue };
        let key = (name.as_str().to_owned(), zone.to_owned());
        let since = row.timestamp().copied();
        if newest.get(&key).is_none_or(|(before, _)| *before < since) {
            newest.insert(key, (since, Price { usd_per_hour, read_at: now }));
        }
    }
    newest.into_iter().map(|(key, (_, price))| (key, price)).collect()
}

/// A thousand rows are a page, and six zones with two products are twelve rows a type.
const TYPES_AT_ONCE: usize = 80;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_sdk_ec2::types::RiProductDescription;

    use super::*;

    fn row(name: &str, zone: &str, price: &str, second: i64) -> SpotPrice {
        SpotPrice::builder()
            .instance_type(name.into())
            .availability_zone(zone)
            .spot_price(price)
            .product_description(RiProductDescription::LinuxUnix)
            .timestamp(DateTime::from_secs(second))
            .build()
    }

    #[test]
    fn the_newest_row_of_each_type_and_zone_counts_whatever_the_order() {
        let rows = [
            row("g5.xlarge", "eu-west-1a", "0.5000", 200),
            row("g5.xlarge", "eu-west-1a", "0.4000", 100),
            row("g5.xlarge", "eu-west-1b", "0.3000", 100),
            row("g5.xlarge", "eu-west-1b", "0.6000", 300),
            row("g5.2xlarge", "eu-west-1a", "0.7000", 100),
            row("p4d.24xlarge", "eu-west-1a", "no price", 100),
            SpotPrice::builder().instance_type("g4dn.xlarge".into()).spot_price("0.2").build(),
        ];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let prices = newest(&rows, now);
        let told: Vec<_> = prices.iter().map(|((name, zone), price)| (&**name, &**zone, price.usd_per_hour)).collect();
        let expected =
            [("g5.2xlarge", "eu-west-1a", 0.7), ("g5.xlarge", "eu-west-1a", 0.5), ("g5.xlarge", "eu-west-1b", 0.6)];
        assert_eq!(told, expected);
        // The age is that of the answer: the row may be as old as the last change.
        assert!(prices.values().all(|price| price.read_at == now));
    }
}
