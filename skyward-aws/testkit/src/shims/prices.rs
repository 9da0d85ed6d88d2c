//! Prices: GetProducts of the price list, and the table that all prices come from.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use serde_json::{Value, json};

use super::Backend;
use crate::proxy::{Call, Reply};

/// AWS documents: returns products by filters on their attributes; each is a JSON text, with terms
/// that have prices. moto has no price list. Beside Linux on shared hardware, this list has dearer
/// products, which a client must not confuse with it.
pub(crate) fn products(backend: &Backend, call: &Call) -> Reply {
    let question: Value = serde_json::from_str(&call.body).unwrap_or_default();
    let filters: Vec<(String, String)> = question["Filters"].as_array().into_iter().flatten().map(filter).collect();
    let mut found = Vec::new();
    for (kind, usd) in table(backend) {
        for (system, tenancy, software, status, factor) in PRODUCTS {
            let attributes = json!({
                "servicecode": "AmazonEC2",
                "servicename": "Amazon Elastic Compute Cloud",
                "instanceType": kind,
                "instanceFamily": "GPU instance",
                "regionCode": backend.region,
                "locationType": "AWS Region",
                "operatingSystem": system,
                "tenancy": tenancy,
                "preInstalledSw": software,
                "capacitystatus": status,
                "licenseModel": "No License required",
                "marketoption": "OnDemand",
                "currentGeneration": "Yes",
            });
            let fits = |(field, value): &(String, String)| attributes[field].as_str() == Some(value);
            if filters.iter().all(fits) {
                let price = if status == "Used" { usd * factor } else { 0.0 };
                found.push(product(&kind, system, attributes, price).to_string());
            }
        }
    }
    let begin = question["NextToken"].as_str().and_then(|token| token.parse::<usize>().ok()).unwrap_or(0);
    let most =
        question["MaxResults"].as_u64().map_or(PAGE, |most| usize::try_from(most).unwrap_or(PAGE).clamp(1, PAGE));
    let mut answer = json!({ "FormatVersion": "aws_v1" });
    if begin + most < found.len() {
        answer["NextToken"] = json!((begin + most).to_string());
    }
    answer["PriceList"] = found.into_iter().skip(begin).take(most).collect();
    Reply::json(200, &answer)
}

/// What a type costs, in USD per hour on demand.
pub(super) fn table(backend: &Backend) -> Vec<(String, f64)> {
    let set = backend.settings().prices.clone();
    let known = PRICES.iter().map(|(kind, usd)| ((*kind).to_owned(), *usd));
    let mut all: Vec<_> = known.filter(|(kind, _)| !set.contains_key(kind)).collect();
    all.extend(set);
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// Now, in seconds since 1970.
pub(super) fn seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A time as EC2 writes it.
pub(super) fn time(seconds: i64) -> String {
    DateTime::from_secs(seconds).fmt(DateTimeFormat::DateTime).unwrap_or_default()
}

pub(super) fn now() -> String {
    time(seconds())
}

fn filter(filter: &Value) -> (String, String) {
    let text = |name: &str| filter[name].as_str().unwrap_or_default().to_owned();
    (text("Field"), text("Value"))
}

fn product(kind: &str, system: &str, attributes: Value, usd: f64) -> Value {
    let sku = format!("SKU{}", kind.replace('.', "").to_uppercase());
    let (term, rate) = (format!("{sku}.JRTCKXETXF"), format!("{sku}.JRTCKXETXF.6YS6EN2CT7"));
    let dimension = json!({
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "rateCode": rate,
        "appliesTo": [],
        "description": format!("${usd} per On Demand {system} {kind} Instance Hour"),
        "pricePerUnit": { "USD": format!("{usd:.10}") },
    });
    json!({
        "product": { "productFamily": "Compute Instance", "sku": sku, "attributes": attributes },
        "serviceCode": "AmazonEC2",
        "version": "20261101000000",
        "publicationDate": "2026-11-01T00:00:00Z",
        "terms": { "OnDemand": { term: {
            "sku": sku,
            "offerTermCode": "JRTCKXETXF",
            "effectiveDate": "2026-11-01T00:00:00Z",
            "termAttributes": {},
            "priceDimensions": { rate: dimension },
        }}},
    })
}

/// The largest page of the price list.
const PAGE: usize = 100;

/// Operating system, tenancy, software, capacity status, and the price as a multiple of the first
/// product's.
const PRODUCTS: [(&str, &str, &str, &str, f64); 4] = [
    ("Linux", "Shared", "NA", "Used", 1.0),
    ("Linux", "Shared", "NA", "UnusedCapacityReservation", 1.0),
    ("Linux", "Dedicated", "NA", "Used", 1.06),
    ("Windows", "Shared", "NA", "Used", 1.45),
];

/// On-demand prices in us-east-1, roughly those of 2025. A test that depends on a price sets it.
const PRICES: [(&str, f64); 69] = [
    ("c7g.large", 0.0725),
    ("c7g.xlarge", 0.145),
    ("c7g.2xlarge", 0.29),
    ("c7i.large", 0.08925),
    ("c7i.xlarge", 0.1785),
    ("c7i.2xlarge", 0.357),
    ("c7i.4xlarge", 0.714),
    ("c7i.8xlarge", 1.428),
    ("c7i.16xlarge", 2.856),
    ("g4dn.xlarge", 0.526),
    ("g4dn.2xlarge", 0.752),
    ("g4dn.4xlarge", 1.204),
    ("g4dn.8xlarge", 2.176),
    ("g4dn.12xlarge", 3.912),
    ("g4dn.16xlarge", 4.352),
    ("g5.xlarge", 1.006),
    ("g5.2xlarge", 1.212),
    ("g5.4xlarge", 1.624),
    ("g5.8xlarge", 2.448),
    ("g5.12xlarge", 5.672),
    ("g5.16xlarge", 4.096),
    ("g5.24xlarge", 8.144),
    ("g5.48xlarge", 16.288),
    ("g5g.xlarge", 0.42),
    ("g6.xlarge", 0.8048),
    ("g6.2xlarge", 0.9776),
    ("g6.4xlarge", 1.3232),
    ("g6.8xlarge", 2.0144),
    ("g6.12xlarge", 4.6016),
    ("g6.16xlarge", 3.3968),
    ("g6.24xlarge", 6.6752),
    ("g6.48xlarge", 13.3504),
    ("g6e.xlarge", 1.861),
    ("g6e.2xlarge", 2.24208),
    ("g6e.12xlarge", 10.49264),
    ("g6e.48xlarge", 30.13118),
    ("inf2.xlarge", 0.7582),
    ("inf2.8xlarge", 1.96786),
    ("inf2.24xlarge", 6.49063),
    ("inf2.48xlarge", 12.98127),
    ("m7g.large", 0.0816),
    ("m7g.xlarge", 0.1632),
    ("m7i.large", 0.1008),
    ("m7i.xlarge", 0.2016),
    ("m7i.2xlarge", 0.4032),
    ("m7i.4xlarge", 0.8064),
    ("m7i.8xlarge", 1.6128),
    ("p3.2xlarge", 3.06),
    ("p3.8xlarge", 12.24),
    ("p3.16xlarge", 24.48),
    ("p4d.24xlarge", 21.957642),
    ("p4de.24xlarge", 27.44705),
    ("p5.4xlarge", 6.88),
    ("p5.48xlarge", 55.04),
    ("p5en.48xlarge", 63.296),
    ("r7i.large", 0.1323),
    ("r7i.xlarge", 0.2646),
    ("t3.micro", 0.0104),
    ("t3.small", 0.0208),
    ("t3.medium", 0.0416),
    ("t3.large", 0.0832),
    ("t3.xlarge", 0.1664),
    ("t3.2xlarge", 0.3328),
    ("t4g.small", 0.0168),
    ("t4g.medium", 0.0336),
    ("trn1.2xlarge", 1.34375),
    ("trn1.32xlarge", 21.5),
    ("trn1n.32xlarge", 24.78),
    ("vt1.3xlarge", 0.65),
];
