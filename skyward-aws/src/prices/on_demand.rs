//! On-demand prices from the price list of AWS. They are the same in all zones of a region, and
//! change once in months.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use aws_sdk_pricing::Client;
use aws_sdk_pricing::types::{Filter, FilterType};
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use skyward_core::error::{Error, ErrorKind, Result};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Price, usd};
use crate::cache::{Cache, Kept};
use crate::errors;
use crate::timing::{PRICE_ANSWERS, PRICES_AGAIN, PRICES_KEPT};

/// The on-demand prices of a region, each asked for once a day.
#[derive(Debug)]
pub(crate) struct OnDemand {
    /// A client in the region that serves the price list; none where no region does.
    pricing: Option<Client>,
    region: String,
    cache: Cache,
    /// Locked while a call reads prices, so that all who need them wait for one answer.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// None until the cache was read.
    prices: Option<BTreeMap<String, Price>>,
    /// When a call last failed.
    failed_at: Option<SystemTime>,
    /// Whether a warning about failed calls was logged.
    warned: bool,
}

impl OnDemand {
    pub(crate) fn new(pricing: Option<Client>, region: &str, cache: Cache) -> Self {
        Self { pricing, region: region.to_owned(), cache, known: Mutex::default() }
    }

    /// The prices of these types, as far as the price list has them.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing. Answers that came before are kept with the next one.
    pub(crate) async fn prices(&self, types: &[&str], now: SystemTime) -> BTreeMap<String, Price> {
        let mut known = self.known.lock().await;
        if known.prices.is_none() {
            let kept = self.cache.read(FILE, now, PRICES_KEPT).await;
            known.prices = Some(kept.map(|kept: Kept<_>| kept.value).unwrap_or_default());
        }
        let Known { prices, failed_at, warned } = &mut *known;
        let prices = prices.get_or_insert_default();
        prices.retain(|_, price| is_within(price.read_at, now, PRICES_KEPT));
        let missing: Vec<&str> = types.iter().copied().filter(|name| !prices.contains_key(*name)).collect();
        let may_ask = failed_at.is_none_or(|at| !is_within(at, now, PRICES_AGAIN));
        if let Some(pricing) = self.pricing.as_ref().filter(|_| !missing.is_empty() && may_ask) {
            let before = prices.len();
            *failed_at = None;
            if let Err(why) = self.ask(pricing, &missing, now, prices).await {
                *failed_at = Some(now);
                // Warns once: a user who may not read prices needs no reminder.
                if std::mem::replace(warned, true) {
                    tracing::debug!(error = %why, "some on-demand prices are not known");
                } else {
                    tracing::warn!(error = why.summary(), hint = why.hint(), "some on-demand prices are unknown");
                }
            }
            if prices.len() > before {
                self.cache.write(FILE, &Kept::new(&*prices, now)).await;
            }
        }
        types.iter().filter_map(|name| prices.get(*name).map(|price| ((*name).to_owned(), *price))).collect()
    }

    /// Asks for each type, several at once, until all prices are known, a call fails or the time is
    /// up.
    async fn ask(
        &self,
        pricing: &Client,
        types: &[&str],
        now: SystemTime,
        prices: &mut BTreeMap<String, Price>,
    ) -> Result<()> {
        let asked: Vec<_> = types.iter().map(|name| self.price_of(pricing, name)).collect();
        let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
        let read = timeout(PRICE_ANSWERS, async {
            while let Some(answer) = answers.next().await {
                let (name, price) = answer?;
                match price {
                    Some(usd_per_hour) => drop(prices.insert(name.to_owned(), Price { usd_per_hour, read_at: now })),
                    None => tracing::debug!(instance_type = name, "the price list has no on-demand price"),
                }
            }
            Ok(())
        });
        read.await.unwrap_or_else(|_| Err(too_slow()))
    }

    async fn price_of<'a>(&self, pricing: &Client, name: &'a str) -> Result<(&'a str, Option<f64>)> {
        let filter = |field: &str, value: &str| {
            Filter::builder()
                .r#type(FilterType::TermMatch)
                .field(field)
                .value(value)
                .build()
                .map_err(|error| Error::new(ErrorKind::Provider, format!("a filter of prices is wrong: {error}")))
        };
        let filters = vec![
            filter("instanceType", name)?,
            filter("regionCode", &self.region)?,
            filter("operatingSystem", "Linux")?,
            filter("tenancy", "Shared")?,
            filter("preInstalledSw", "NA")?,
            filter("capacitystatus", "Used")?,
        ];
        let mut pages =
            pricing.get_products().service_code("AmazonEC2").set_filters(Some(filters)).into_paginator().send();
        let mut price: Option<f64> = None;
        while let Some(page) = pages.next().await {
            let page = errors::called("GetProducts", page)?;
            let listed = page.price_list().iter().filter_map(|product| usd_of(product, name));
            price = listed.chain(price).reduce(f64::max);
        }
        Ok((name, price))
    }
}

/// What an hour of a type costs by one product of the price list. Of several prices the highest
/// counts, so that no machine costs more than its offer says.
fn usd_of(product: &str, name: &str) -> Option<f64> {
    let product: Product = serde_json::from_str(product).ok()?;
    let attributes = &product.product.attributes;
    // Capacity blocks are other products of the same type, with other prices.
    let is_on_demand = attributes.get("marketoption").is_none_or(|market| market == "OnDemand");
    let is_type = attributes.get("instanceType").is_some_and(|type_| type_ == name);
    if !is_on_demand || !is_type {
        return None;
    }
    let dimensions = product.terms.on_demand.into_values().flat_map(|term| term.price_dimensions.into_values());
    let hourly = dimensions.filter(|dimension| dimension.unit == "Hrs");
    // Products with a price in CNY alone are those of China.
    hourly.filter_map(|dimension| usd(dimension.price_per_unit.get("USD")?)).reduce(f64::max)
}

/// The fields of a product of the price list that are needed here.
#[derive(Deserialize)]
struct Product {
    product: Attributes,
    #[serde(default)]
    terms: Terms,
}

#[derive(Deserialize)]
struct Attributes {
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
struct Terms {
    #[serde(rename = "OnDemand", default)]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    #[serde(default)]
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    unit: String,
    #[serde(default)]
    price_per_unit: BTreeMap<String, String>,
}

fn is_within(at: SystemTime, now: SystemTime, lifetime: Duration) -> bool {
    now.duration_since(at).is_ok_and(|age| age <= lifetime)
}

fn too_slow() -> Error {
    Error::new(
        ErrorKind::Provider,
        format!("the price list of AWS has not returned all prices within {PRICE_ANSWERS:?}"),
    )
}

const FILE: &str = "on-demand";
const AT_ONCE: usize = 8;

#[cfg(test)]
mod tests;
