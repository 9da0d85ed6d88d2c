//! Lists and prices.

use std::collections::BTreeMap;
use std::time::SystemTime;

use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use aws_sdk_ec2::types::InstanceType;
use skyward_aws_testkit::Cloud;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{calls_only, client, code, filter, ids, launch};

#[tokio::test]
#[ignore = "needs moto"]
async fn lists_come_in_pages() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let types = client.describe_instance_types().filters(filter("instance-type", "g5.*")).send().await.unwrap();
    let (count, token) = (types.instance_types().len(), types.next_token().map(str::to_owned));
    assert!(count > 5 && token.is_none(), "{count} {token:?}");
    let all = client.describe_instance_types().send().await.unwrap();
    assert_eq!(all.instance_types().len(), 100);
    assert!(all.next_token().is_some());
    let mut names: Vec<String> = Vec::new();
    let mut pages = client
        .describe_instance_types()
        .filters(filter("instance-type", "g5.*"))
        .max_results(5)
        .into_paginator()
        .send();
    while let Some(page) = pages.next().await {
        let page = page.unwrap();
        assert!(page.instance_types().len() <= 5);
        names.extend(page.instance_types().iter().map(|one| one.instance_type().unwrap().as_str().to_owned()));
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    for _ in 0..3 {
        ids(launch(&cloud, &client).min_count(2).max_count(2)).await;
    }
    cloud.set_page(2);
    let first = client.describe_instances().send().await.unwrap();
    assert_eq!(first.reservations().len(), 1);
    assert!(first.next_token().is_some());
    let mut seen = 0;
    let mut pages = client.describe_instances().into_paginator().send();
    while let Some(page) = pages.next().await {
        seen += page.unwrap().reservations().iter().map(|one| one.instances().len()).sum::<usize>();
    }
    assert_eq!(seen, 6);
    let both = client.describe_instances().instance_ids("i-1").max_results(5).send().await;
    assert_eq!(code(both).as_deref(), Some("InvalidParameterCombination"));
}

#[tokio::test]
#[ignore = "needs moto"]
async fn prices_are_those_of_now_where_now_is_asked_for() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    cloud.set_price("g5.xlarge", 2.0);
    let ask = || {
        client.describe_spot_price_history().instance_types(InstanceType::G5Xlarge).product_descriptions("Linux/UNIX")
    };
    let now = ask().start_time(DateTime::from(SystemTime::now())).send().await.unwrap();
    let prices: BTreeMap<&str, f64> = now
        .spot_price_history()
        .iter()
        .map(|row| (row.availability_zone().unwrap(), row.spot_price().unwrap().parse().unwrap()))
        .collect();
    assert_eq!(now.spot_price_history().len(), 3);
    assert_eq!(prices.len(), 3);
    assert!((prices[format!("{}a", cloud.region()).as_str()] - 0.7).abs() < 1e-6, "{prices:?}");
    // Without a start there are old prices too, in pages.
    assert_eq!(ask().send().await.unwrap().spot_price_history().len(), 9);
    let page = ask().max_results(5).send().await.unwrap();
    assert_eq!(page.spot_price_history().len(), 5);
    assert!(page.next_token().is_some());
    let time = page.spot_price_history()[0].timestamp().unwrap().fmt(DateTimeFormat::DateTime).unwrap();
    assert!(time.as_str() > "2026", "{time}");

    let filters = r#"[{"Type":"TERM_MATCH","Field":"instanceType","Value":"g5.xlarge"},{"Type":"TERM_MATCH","Field":"operatingSystem","Value":"Linux"},
        {"Type":"TERM_MATCH","Field":"tenancy","Value":"Shared"},{"Type":"TERM_MATCH","Field":"capacitystatus","Value":"Used"}]"#;
    let products = json(
        &cloud,
        "AWSPriceListService.GetProducts",
        &format!(r#"{{"ServiceCode":"AmazonEC2","Filters":{filters}}}"#),
    )
    .await;
    let list = products["PriceList"].as_array().unwrap();
    assert_eq!(list.len(), 1);
    let product: serde_json::Value = serde_json::from_str(list[0].as_str().unwrap()).unwrap();
    assert_eq!(product["product"]["attributes"]["regionCode"], cloud.region());
    assert!(list[0].as_str().unwrap().contains(r#""USD":"2.0000000000""#));

    let quota = |code: &str| format!(r#"{{"ServiceCode":"ec2","QuotaCode":"{code}"}}"#);
    cloud.set_quota("L-417A185B", 0.0);
    for (code, value) in [("L-417A185B", 0.0), ("L-DB2E81BA", 768.0)] {
        let answer = json(&cloud, "ServiceQuotasV20190624.GetServiceQuota", &quota(code)).await;
        assert_eq!(answer["Quota"]["Value"], value, "{answer}");
    }
    let answer = json(&cloud, "ServiceQuotasV20190624.GetServiceQuota", &quota("L-0")).await;
    assert_eq!(answer["__type"], "NoSuchResourceException");
}

/// A call in JSON, as the SDKs of Pricing and Service Quotas make it.
async fn json(cloud: &Cloud, target: &str, body: &str) -> serde_json::Value {
    let address = cloud.endpoint().strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/x-amz-json-1.1\r\nx-amz-target: {target}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}
