use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::loopback::Loopback;

fn item(name: &str) -> String {
    format!(
        "<item><instanceType>{name}</instanceType><currentGeneration>true</currentGeneration>\
         <bareMetal>false</bareMetal><supportedUsageClasses><item>on-demand</item><item>spot</item>\
         </supportedUsageClasses><processorInfo><supportedArchitectures><item>x86_64</item></supportedArchitectures>\
         </processorInfo><vCpuInfo><defaultVCpus>4</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>16384</sizeInMiB>\
         </memoryInfo><gpuInfo><gpus><item><name>A10G</name><manufacturer>NVIDIA</manufacturer><count>1</count>\
         <gpuPartitionSize>1.0</gpuPartitionSize><memoryInfo><sizeInMiB>22888</sizeInMiB></memoryInfo></item></gpus>\
         </gpuInfo></item>"
    )
}

fn types(names: &[&str], next: &str) -> String {
    let items: String = names.iter().map(|name| item(name)).collect();
    format!(
        "<DescribeInstanceTypesResponse><instanceTypeSet>{items}</instanceTypeSet>{next}</DescribeInstanceTypesResponse>"
    )
}

fn offerings(pairs: &[(&str, &str)]) -> String {
    let item = |(name, zone): &(&str, &str)| {
        format!(
            "<item><instanceType>{name}</instanceType><locationType>availability-zone</locationType><location>{zone}</location></item>"
        )
    };
    let items: String = pairs.iter().map(item).collect();
    format!(
        "<DescribeInstanceTypeOfferingsResponse><instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>\
         </DescribeInstanceTypeOfferingsResponse>"
    )
}

/// Two pages of types, and their zones.
fn region(request: &str) -> (u16, String) {
    let answer = match request {
        _ if request.contains("Action=DescribeInstanceTypeOfferings") => {
            offerings(&[("g5.xlarge", "eu-west-1a"), ("g5.xlarge", "eu-west-1b"), ("g5.2xlarge", "eu-west-1b")])
        }
        _ if request.contains("NextToken=more") => types(&["g5.2xlarge"], ""),
        _ => types(&["g5.xlarge"], "<nextToken>more</nextToken>"),
    };
    (200, answer)
}

fn second(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

#[tokio::test]
async fn all_pages_are_read_and_each_type_has_its_zones() {
    let service = Loopback::start(region);
    let catalog = Catalog::new(service.ec2(), Cache::off());
    let listing = catalog.listing(Selection::Accelerated, second(0)).await.unwrap();
    let names: Vec<&str> = listing.value.types.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["g5.2xlarge", "g5.xlarge"]);
    let zones = |name| listing.value.zones_of(name).collect::<Vec<_>>();
    assert_eq!(zones("g5.xlarge"), ["eu-west-1a", "eu-west-1b"]);
    assert_eq!(zones("g5.2xlarge"), ["eu-west-1b"]);
    assert!(zones("g6.xlarge").is_empty());
    let asked = service.asked();
    assert!(asked[0].contains("Filter.1.Name=instance-type") && asked[0].contains("=trn%2A"), "{}", asked[0]);
    assert!(asked[2].contains("LocationType=availability-zone") && asked[2].contains("=g5.2xlarge"), "{}", asked[2]);
}

#[tokio::test]
async fn callers_share_one_answer_for_a_day() {
    let service = Loopback::start(region);
    let catalog = Catalog::new(service.ec2(), Cache::off());
    let listing = |now| catalog.listing(Selection::Accelerated, second(now));
    let (one, other) = tokio::join!(listing(0), listing(0));
    assert!(Arc::ptr_eq(&one.unwrap(), &other.unwrap()));
    assert_eq!(service.asked().len(), 3);
    listing(86_400).await.unwrap();
    assert_eq!(service.asked().len(), 3);
    listing(86_401).await.unwrap();
    assert_eq!(service.asked().len(), 6);
    catalog.listing(Selection::Plain, second(86_401)).await.unwrap();
    assert_eq!(service.asked().len(), 9);
}

#[tokio::test]
async fn another_process_reads_what_was_kept() {
    let folder = std::env::temp_dir().join(format!("skyward-aws-catalog-{}", std::process::id()));
    let cache = Cache::within(&folder, "123456789012", "eu-west-1");
    let service = Loopback::start(region);
    let first = Catalog::new(service.ec2(), cache.clone()).listing(Selection::Accelerated, second(5)).await.unwrap();
    let second_ = Catalog::new(service.ec2(), cache).listing(Selection::Accelerated, second(6)).await.unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(first, second_);
    assert_eq!(service.asked().len(), 3);
}

#[tokio::test]
async fn an_error_is_not_kept() {
    let asked = AtomicUsize::new(0);
    let service = Loopback::start(move |request| {
        match asked.fetch_add(1, Ordering::Relaxed) {
        0 => (403, "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>".into()),
        _ => region(request),
    }
    });
    let catalog = Catalog::new(service.ec2(), Cache::off());
    let error = catalog.listing(Selection::Accelerated, second(0)).await.unwrap_err();
    assert!(error.message().contains("DescribeInstanceTypes"), "{error}");
    assert_eq!(catalog.listing(Selection::Accelerated, second(0)).await.unwrap().value.types.len(), 2);
}

#[tokio::test]
async fn names_are_asked_for_in_parts_that_a_filter_can_have() {
    let names: Vec<String> = (0..450).map(|number| format!("m{number}.large")).collect();
    let service = Loopback::start(move |request| {
        let answer = match request.contains("Action=DescribeInstanceTypeOfferings") {
            true => offerings(&[]),
            false => types(&names.iter().map(String::as_str).collect::<Vec<_>>(), ""),
        };
        (200, answer)
    });
    Catalog::new(service.ec2(), Cache::off()).listing(Selection::Plain, second(0)).await.unwrap();
    let values = |request: &String| request.matches(".Value.").count();
    assert_eq!(service.asked()[1..].iter().map(values).collect::<Vec<_>>(), [200, 200, 50]);
}
