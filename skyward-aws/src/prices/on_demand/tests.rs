use std::collections::BTreeSet;

use super::*;
use crate::loopback::Loopback;

/// A product as the price list has it, shortened.
fn product(name: &str, market: &str, usd: &str) -> String {
    format!(
        r#"{{"product":{{"productFamily":"Compute Instance","attributes":{{"instanceType":"{name}","vcpu":"4",
        "regionCode":"eu-west-1","operatingSystem":"Linux","tenancy":"Shared","preInstalledSw":"NA",
        "capacitystatus":"Used","marketoption":"{market}"}},"sku":"2257YY4K7BWZ4F46"}},"serviceCode":"AmazonEC2",
        "terms":{{"OnDemand":{{"2257YY4K7BWZ4F46.JRTCKXETXF":{{"priceDimensions":{{
        "2257YY4K7BWZ4F46.JRTCKXETXF.6YS6EN2CT7":{{"unit":"Hrs","endRange":"Inf",
        "description":"$1 per On Demand Linux {name} Instance Hour","appliesTo":[],
        "rateCode":"2257YY4K7BWZ4F46.JRTCKXETXF.6YS6EN2CT7","beginRange":"0","pricePerUnit":{{"USD":"{usd}"}}}}}},
        "sku":"2257YY4K7BWZ4F46","effectiveDate":"2026-10-01T00:00:00Z","offerTermCode":"JRTCKXETXF",
        "termAttributes":{{}}}}}},"Reserved":{{"2257YY4K7BWZ4F46.38NPMPTW36":{{"priceDimensions":{{
        "2257YY4K7BWZ4F46.38NPMPTW36.2TG2D8R56U":{{"unit":"Quantity","pricePerUnit":{{"USD":"9999"}}}}}}}}}}}},
        "version":"20261001000000","publicationDate":"2026-10-01T00:00:00Z"}}"#
    )
}

#[test]
fn a_product_tells_the_price_of_an_hour() {
    assert_eq!(usd_of(&product("g5.xlarge", "OnDemand", "1.1230000000"), "g5.xlarge"), Some(1.123));
    assert_eq!(usd_of(&product("g5.xlarge", "OnDemand", "1.1230000000"), "g5.2xlarge"), None);
    assert_eq!(usd_of(&product("p5.48xlarge", "CapacityBlock", "1.1230000000"), "p5.48xlarge"), None);
    assert_eq!(usd_of(&product("g5.xlarge", "OnDemand", "0.0000000000"), "g5.xlarge"), None);
    let of_before = product("g5.xlarge", "OnDemand", "2.0").replace(r#","marketoption":"OnDemand""#, "");
    assert_eq!(usd_of(&of_before, "g5.xlarge"), Some(2.0));
}

#[test]
fn what_is_no_price_in_dollars_by_the_hour_is_none() {
    let product = product("g5.xlarge", "OnDemand", "1.1");
    for (from, to) in
        [(r#""USD":"1.1""#, r#""CNY":"9""#), (r#""unit":"Hrs""#, r#""unit":"Quantity""#), ("OnDemand\":{", "Spot\":{")]
    {
        let changed = product.replace(from, to);
        assert_ne!(changed, product, "{from}");
        assert_eq!(usd_of(&changed, "g5.xlarge"), None, "{from}");
    }
    for text in ["", "[]", "{}", r#"{"product":{}}"#] {
        assert_eq!(usd_of(text, "g5.xlarge"), None, "{text}");
    }
}

fn answer(products: &[String]) -> (u16, String) {
    (200, serde_json::json!({ "FormatVersion": "aws_v1", "PriceList": products }).to_string())
}

/// The type that a request asks for, by its filters.
fn asked_for(request: &str) -> String {
    let request: serde_json::Value = serde_json::from_str(request).unwrap();
    let filters = request["Filters"].as_array().unwrap();
    let value =
        |field: &str| filters.iter().find(|filter| filter["Field"] == field).unwrap()["Value"].as_str().unwrap();
    let others = ["regionCode", "operatingSystem", "tenancy", "preInstalledSw", "capacitystatus"].map(value);
    assert_eq!(others, ["eu-west-1", "Linux", "Shared", "NA", "Used"]);
    value("instanceType").to_owned()
}

fn second(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

#[tokio::test]
async fn each_type_is_asked_for_once_a_day_however_many_want_it() {
    let service = Loopback::start(|request| {
        let name = asked_for(request);
        let price = if name == "g5.xlarge" { "1.1" } else { "2.2" };
        if name == "p5e.48xlarge" { answer(&[]) } else { answer(&[product(&name, "OnDemand", price)]) }
    });
    let prices = OnDemand::new(Some(service.pricing()), "eu-west-1", Cache::off());
    let types = ["g5.xlarge", "g5.2xlarge", "p5e.48xlarge"];
    let (one, other) = tokio::join!(prices.prices(&types, second(0)), prices.prices(&types[..2], second(1)));
    let usd: Vec<_> = one.iter().map(|(name, price)| (&**name, price.usd_per_hour)).collect();
    assert_eq!(usd, [("g5.2xlarge", 2.2), ("g5.xlarge", 1.1)]);
    assert_eq!(one, other);
    let asked: BTreeSet<String> = service.asked().iter().map(|request| asked_for(request)).collect();
    assert_eq!(asked, types.map(str::to_owned).into());
    assert_eq!(service.asked().len(), 3);
    // Tomorrow they are asked for again.
    prices.prices(&types[..2], second(86_402)).await;
    assert_eq!(service.asked().len(), 5);
}

#[tokio::test]
async fn prices_that_may_not_be_read_are_unknown_and_are_not_asked_for_all_the_time() {
    let service = Loopback::start(|_| {
        let denied = r#"{"__type":"AccessDeniedException","Message":"not authorized to perform: pricing:GetProducts"}"#;
        (400, denied.to_owned())
    });
    let prices = OnDemand::new(Some(service.pricing()), "eu-west-1", Cache::off());
    let types: Vec<String> = (0..30).map(|number| format!("m{number}i.large")).collect();
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    assert!(prices.prices(&types, second(0)).await.is_empty());
    // The first error ends it for all.
    let asked = service.asked().len();
    assert!((1..=AT_ONCE).contains(&asked), "{asked}");
    assert!(prices.prices(&types, second(300)).await.is_empty());
    assert_eq!(service.asked().len(), asked);
    assert!(prices.prices(&types, second(301)).await.is_empty());
    assert!(service.asked().len() > asked);
}

#[tokio::test]
async fn without_a_client_nothing_is_asked() {
    let prices = OnDemand::new(None, "eu-west-1", Cache::off());
    assert!(prices.prices(&["g5.xlarge"], second(0)).await.is_empty());
}
