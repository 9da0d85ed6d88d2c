//! Offers by the SDK's own calls, to services on this host.

use std::time::Duration;

use skyward_core::spec::Accelerator;

use super::*;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::loopback::Loopback;

const DENIED: &str =
    "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>";

fn types() -> String {
    let item = |name: &str, cpus: u32, gpus: u32| {
        format!(
            "<item><instanceType>{name}</instanceType><currentGeneration>true</currentGeneration>\
             <supportedUsageClasses><item>on-demand</item><item>spot</item></supportedUsageClasses><processorInfo>\
             <supportedArchitectures><item>x86_64</item></supportedArchitectures></processorInfo><vCpuInfo>\
             <defaultVCpus>{cpus}</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>16384</sizeInMiB></memoryInfo><gpuInfo>\
             <gpus><item><name>A10G</name><manufacturer>NVIDIA</manufacturer><count>{gpus}</count><memoryInfo>\
             <sizeInMiB>22888</sizeInMiB></memoryInfo></item></gpus></gpuInfo></item>"
        )
    };
    let items = [item("g5.xlarge", 4, 1), item("g5.12xlarge", 48, 4)].concat();
    format!("<DescribeInstanceTypesResponse><instanceTypeSet>{items}</instanceTypeSet></DescribeInstanceTypesResponse>")
}

fn offerings() -> String {
    let item =
        |name: &str, zone: &str| format!("<item><instanceType>{name}</instanceType><location>{zone}</location></item>");
    let items = ["g5.xlarge", "g5.12xlarge"].map(|name| item(name, "eu-west-1a") + &item(name, "eu-west-1b")).concat();
    format!(
        "<DescribeInstanceTypeOfferingsResponse><instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>\
         </DescribeInstanceTypeOfferingsResponse>"
    )
}

fn history() -> String {
    let item = |zone: &str, price: &str, time: &str| {
        format!(
            "<item><instanceType>g5.xlarge</instanceType><productDescription>Linux/UNIX</productDescription><spotPrice>\
             {price}</spotPrice><timestamp>{time}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
        )
    };
    let items = [
        item("eu-west-1a", "0.500000", "2026-11-01T10:00:00.000Z"),
        item("eu-west-1a", "0.900000", "2026-10-01T10:00:00.000Z"),
        item("eu-west-1b", "0.300000", "2026-11-01T10:00:00.000000000Z"),
    ];
    format!(
        "<DescribeSpotPriceHistoryResponse><spotPriceHistorySet>{}</spotPriceHistorySet></DescribeSpotPriceHistoryResponse>",
        items.concat()
    )
}

fn ec2(request: &str) -> (u16, String) {
    let action = ["InstanceTypeOfferings", "SpotPriceHistory", "InstanceTypes"].into_iter();
    match action.into_iter().find(|action| request.contains(&format!("Action=Describe{action}&"))) {
        Some("InstanceTypeOfferings") => (200, offerings()),
        Some("SpotPriceHistory") => (200, history()),
        _ => (200, types()),
    }
}

/// A price list in which each type costs 1.006.
fn price_list(request: &str) -> (u16, String) {
    let request: serde_json::Value = serde_json::from_str(request).unwrap();
    let filters = request["Filters"].as_array().unwrap();
    let name = &filters.iter().find(|filter| filter["Field"] == "instanceType").unwrap()["Value"];
    let product = serde_json::json!({
        "product": { "attributes": { "instanceType": name } },
        "terms": { "OnDemand": { "A": { "priceDimensions": { "B": { "unit": "Hrs", "pricePerUnit": { "USD": "1.006" } } } } } },
    });
    (200, serde_json::json!({ "PriceList": [product.to_string()] }).to_string())
}

/// A quota of 8 vCPUs on demand; no answer for spot instances.
fn quota(request: &str) -> (u16, String) {
    match request.contains("L-DB2E81BA") {
        true => (200, r#"{"Quota":{"QuotaCode":"L-DB2E81BA","Value":8.0}}"#.to_owned()),
        false => (400, r#"{"__type":"NoSuchResourceException","Message":"no such quota"}"#.to_owned()),
    }
}

async fn answer(
    ec2: &Loopback,
    pricing: &Loopback,
    quotas: Option<&Loopback>,
    requirements: &Requirements,
) -> Result<Answer> {
    let (client, quotas) = (ec2.ec2(), quotas.map(|service| Quotas::new(service.quotas())));
    let catalog = Catalog::new(client.clone(), Cache::off());
    let on_demand = OnDemand::new(Some(pricing.pricing()), "eu-west-1", Cache::off());
    let sources = Sources {
        ec2: &client,
        catalog: &catalog,
        on_demand: &on_demand,
        quotas: quotas.as_ref(),
        clock: &Clock::told("Fri, 15 Jan 2027 08:00:00 GMT"),
    };
    offers(sources, &fit::tests::setting(), requirements, SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000))
        .await
}

fn told(answer: &Answer) -> Vec<(&str, Option<f64>)> {
    answer.offers.iter().map(|offer| (offer.id.as_str(), offer.usd_per_hour)).collect()
}

fn wanting(market: Market) -> Requirements {
    Requirements::default().accelerator(Accelerator::new("A10G", 1)).market(market)
}

#[tokio::test]
async fn offers_come_from_types_zones_prices_and_quotas() {
    let (ec2, pricing, quotas) = (Loopback::start(ec2), Loopback::start(price_list), Loopback::start(quota));
    let answer = answer(&ec2, &pricing, Some(&quotas), &wanting(Market::Cheapest)).await.unwrap();
    assert_eq!(answer.nothing, None);
    assert_eq!(
        told(&answer),
        [
            ("g5.xlarge/eu-west-1b/spot", Some(0.3)),
            ("g5.xlarge/eu-west-1a/spot", Some(0.5)),
            ("g5.xlarge/eu-west-1a/on-demand", Some(1.006)),
            ("g5.xlarge/eu-west-1b/on-demand", Some(1.006)),
            ("g5.12xlarge/eu-west-1a/spot", None),
            ("g5.12xlarge/eu-west-1b/spot", None),
        ]
    );
    let asked = ec2.asked().into_iter().find(|request| request.contains("SpotPriceHistory")).unwrap();
    for part in [
        "StartTime=2027-01-15T08%3A00%3A0",
        "ProductDescription.2=Linux%2FUNIX%20%28Amazon%20VPC%29",
        "InstanceType.2=g5.xlarge",
    ] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
}

#[tokio::test]
async fn a_market_that_is_not_wanted_is_not_asked_about() {
    let (ec2, pricing) = (Loopback::start(ec2), Loopback::start(price_list));
    let on_demand = answer(&ec2, &pricing, None, &wanting(Market::OnDemand)).await.unwrap();
    assert_eq!(on_demand.offers.len(), 4);
    assert!(!ec2.asked().concat().contains("SpotPriceHistory"));
    let asked = pricing.asked().len();
    assert_eq!(answer(&ec2, &pricing, None, &wanting(Market::Spot)).await.unwrap().offers.len(), 4);
    assert_eq!(pricing.asked().len(), asked);
}

#[tokio::test]
async fn prices_that_cannot_be_had_are_unknown() {
    let ec2 = Loopback::start(|request| match request.contains("SpotPriceHistory") {
        true => (403, DENIED.to_owned()),
        false => ec2(request),
    });
    let pricing = Loopback::start(|_| (500, "<html>".to_owned()));
    let answer = answer(&ec2, &pricing, None, &wanting(Market::SpotOrOnDemand)).await.unwrap();
    assert_eq!(answer.offers.len(), 8);
    assert!(answer.offers.iter().all(|offer| offer.usd_per_hour.is_none()));
}

#[tokio::test]
async fn types_that_cannot_be_had_are_an_error() {
    let (ec2, pricing) = (Loopback::start(|_| (403, DENIED.to_owned())), Loopback::start(price_list));
    let error = answer(&ec2, &pricing, None, &wanting(Market::OnDemand)).await.unwrap_err();
    assert!(error.message().contains("UnauthorizedOperation"), "{error}");
}

#[tokio::test]
async fn where_nothing_fits_no_price_is_asked_for_and_the_answer_says_why() {
    let (ec2, pricing, quotas) = (Loopback::start(ec2), Loopback::start(price_list), Loopback::start(quota));
    let wanted = wanting(Market::Cheapest).accelerator(Accelerator::new("A10G", 16));
    let answer = answer(&ec2, &pricing, Some(&quotas), &wanted).await.unwrap();
    assert_eq!(answer.offers, []);
    assert_eq!(answer.nothing.unwrap().to_string(), "A10G comes in 1: g5.xlarge; 4: g5.12xlarge");
    assert!(!ec2.asked().concat().contains("SpotPriceHistory"));
    assert!(pricing.asked().is_empty() && quotas.asked().is_empty());
}
