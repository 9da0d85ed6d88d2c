use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use skyward_core::ids::{LaunchId, MachineNumber, PoolId};
use skyward_core::provider::{LaunchBatch, LaunchRequest, Market, Provider, Requirements};

use super::*;
use crate::loopback::{Loopback, ec2};
use crate::tags;

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn the_time_is_that_of_the_last_answer_and_goes_on_whatever_this_clock_says() {
    let clock = Clock::default();
    let (start, local) = (elapsed::now(), at(1_000));
    assert_eq!(clock.at(start, local), local, "nothing has answered yet");
    clock.on_answer("2027-01-15T08:00:00Z", start);
    assert_eq!(clock.at(start, local), local, "it is no date of a header");
    clock.on_answer("Fri, 15 Jan 2027 08:00:00 GMT", start);
    let answered = at(1_800_000_001);
    assert_eq!(clock.at(start, local), answered);
    assert_eq!(clock.at(start + HOUR, at(5)), answered + HOUR, "a step of this client's clock changes nothing");
    clock.on_answer("no date", start + HOUR);
    assert_eq!(clock.at(start + HOUR, local), answered + HOUR);
    clock.on_answer("Fri, 15 Jan 2027 08:30:00 GMT", start + HOUR);
    assert_eq!(clock.at(start + HOUR, local), answered + HOUR / 2, "the last one counts");
}

#[test]
fn a_time_is_moved_to_another_clock_by_how_far_it_is_from_now() {
    assert_eq!(moved(at(100), at(5_000), at(5_060)), at(160));
    assert_eq!(moved(at(100), at(5_000), at(4_960)), at(60));
}

/// The services are three hours ahead of this client.
#[tokio::test]
async fn tags_user_data_and_expiries_have_the_time_of_the_service() {
    const AHEAD: Duration = Duration::from_secs(3 * 3600);
    let expires = tags::seconds(SystemTime::now() + AHEAD + HOUR);
    let group = format!(
        "<DescribeSecurityGroupsResponse><securityGroupInfo><item><groupId>sg-1</groupId><tagSet><item><key>{}</key>\
         <value>p-left</value></item><item><key>{}</key><value>{expires}</value></item></tagSet></item>\
         </securityGroupInfo></DescribeSecurityGroupsResponse>",
        tags::POOL,
        tags::EXPIRES
    );
    let service = Loopback::start(move |body| match body.contains("Action=DescribeSecurityGroups&") {
        true => (200, group.clone()),
        false => ec2::answer(body),
    });
    let service = service.ahead(AHEAD);
    let aws = service.aws();
    let offers = aws.offers(&Requirements::default().market(Market::Spot)).await.unwrap();
    let pool = PoolId::new("p-clock");
    let request = LaunchRequest::new(LaunchId::new("p-clock-n0-a1"), pool, MachineNumber(0), HOUR).ends_in(2 * HOUR);
    let before = SystemTime::now();
    let refused = aws.launch(&LaunchBatch::one(offers[0].clone(), request)).await.remove(0).unwrap_err();
    assert!(refused.message().contains("AccountDisabled"), "{refused}");
    let near = |told: SystemTime, wanted: SystemTime, what: &str| {
        let off = told.duration_since(wanted).unwrap_or_else(|early| early.duration());
        assert!(off < Duration::from_secs(60), "{what} is off by {off:?}");
    };
    let launches = service.asked_of("RunInstances");
    let launch = launches.last().unwrap();
    let tag = |key: &str| {
        let name = launch.iter().find(|(name, value)| name.ends_with(".Key") && *value == key).unwrap().0;
        at(launch[&name.replace(".Key", ".Value")].parse().unwrap())
    };
    near(tag(tags::EXPIRES), before + AHEAD + 2 * HOUR, "the expiry");
    near(tag(tags::ENDS), before + AHEAD + 2 * HOUR, "the end");
    let mut script = String::new();
    let packed = STANDARD.decode(&launch["UserData"]).unwrap();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut script).unwrap();
    let asked = script.split("'/var/lib/skyward/node' 'ubuntu' '").nth(1).unwrap().split('\'').next().unwrap();
    near(at(asked.parse().unwrap()), before + AHEAD, "the time of the launch");
    let history = service.asked_of("DescribeSpotPriceHistory");
    let start = DateTime::from_str(&history[0]["StartTime"], DateTimeFormat::DateTime).unwrap();
    near(SystemTime::try_from(start).unwrap(), before + AHEAD, "the start of the price's history");
    let records = aws.pools().await.unwrap();
    near(records[0].expires, before + HOUR + crate::timing::RENEWAL_PERIOD, "what this client is told");
}
