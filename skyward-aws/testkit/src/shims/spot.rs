//! DescribeSpotPriceHistory.

use anyhow::Result;
use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};

use super::{Backend, Original, pages, prices, refused};
use crate::proxy::{Call, Reply};
use crate::xml::Element;

/// AWS documents: returns the changes of prices by type, product and zone, the newest first; with a
/// start time, the price at that time and all later changes. moto has one row of 2006 at 0.00001
/// for each type and zone, and ignores times.
pub(crate) async fn history(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    if let Some(refusal) = refused(backend, original).await? {
        return Ok(refusal);
    }
    let asked = |list: &str, filter: &str| {
        let mut values: Vec<String> = call.list(list).into_iter().map(str::to_owned).collect();
        let filters = call.filters().into_iter().filter(|(name, _)| *name == filter);
        values.extend(filters.flat_map(|(_, values)| values).map(str::to_owned));
        values
    };
    let types = asked("InstanceType", "instance-type");
    let products = asked("ProductDescription", "product-description");
    let mut zones = asked("", "availability-zone");
    zones.extend(Some(call.get("AvailabilityZone").to_owned()).filter(|zone| !zone.is_empty()));
    let begin = DateTime::from_str(call.get("StartTime"), DateTimeFormat::DateTime).ok();
    let takes = |asked: &[String], value: &str| asked.is_empty() || asked.iter().any(|one| one == value);
    let mut items = Vec::new();
    for (kind, price) in prices::table(backend) {
        for (number, zone) in backend.zones.iter().enumerate() {
            for product in PRODUCTS {
                if takes(&types, &kind) && takes(&zones, zone) && takes(&products, product) {
                    let usd = price * SHARE * ZONES[number % ZONES.len()];
                    items.extend(rows(&kind, zone, product, usd, begin));
                }
            }
        }
    }
    let mut root = Element::answer("DescribeSpotPriceHistory").with([Element::new("spotPriceHistorySet").with(items)]);
    let most = backend.settings().page.unwrap_or(ROWS);
    let refusal = pages::cut(&mut root, "spotPriceHistorySet", most, call, |_| 1);
    Ok(refusal.unwrap_or_else(|| Reply::xml(&root)))
}

/// The changes of one price. A call without a start time gets old changes too.
fn rows(kind: &str, zone: &str, product: &str, usd: f64, begin: Option<DateTime>) -> Vec<Element> {
    let now = prices::seconds();
    let mut rows = Vec::new();
    for (age, factor) in CHANGES {
        let time = now - age;
        let leaves = [
            ("instanceType", kind.to_owned()),
            ("productDescription", product.to_owned()),
            ("spotPrice", format!("{:.6}", usd * factor)),
            ("timestamp", prices::time(time)),
            ("availabilityZone", zone.to_owned()),
        ];
        rows.push(Element::new("item").with(leaves.map(|(name, text)| Element::leaf(name, text))));
        // The price at the start time is the last one to return.
        if begin.is_some_and(|begin| time <= begin.secs()) {
            break;
        }
    }
    rows
}

const PRODUCTS: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];
/// The spot price as a share of the on-demand price.
const SHARE: f64 = 0.35;
/// The factor of each zone.
const ZONES: [f64; 3] = [1.0, 0.93, 1.08];
/// Seconds since each change, and the price then as a multiple of the price now.
const CHANGES: [(i64, f64); 3] = [(1800, 1.0), (6 * 3600, 1.2), (3 * 86400, 0.1)];
/// The largest page of EC2.
const ROWS: usize = 1000;
