//! The tags on everything that a pool makes. They are the provider's own records: other processes
//! read them back.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_ec2::types::{Filter, ResourceType, Tag, TagSpecification};
use skyward_core::ids::{LaunchId, MachineNumber, OfferId, PoolId};
use skyward_core::provider::{Labels, LaunchRequest};

/// The prefix of the provider's own tags.
pub(crate) const PREFIX: &str = "skyward:";
/// `true` on everything that the provider makes. The policy allows the provider to change nothing
/// else.
pub(crate) const MANAGED: &str = "skyward:managed";
/// The pool.
pub(crate) const POOL: &str = "skyward:pool";
/// Who started the pool.
pub(crate) const OWNER: &str = "skyward:owner";
/// The offer that was taken.
pub(crate) const OFFER: &str = "skyward:offer";
/// How long the lease is, in milliseconds.
pub(crate) const LEASE: &str = "skyward:lease";
/// When the machine expires unless this tag is renewed, in seconds since 1970.
pub(crate) const EXPIRES: &str = "skyward:expires-at";
/// When the machine ends itself because the pool's budget is spent, in seconds since 1970.
pub(crate) const ENDS: &str = "skyward:ends-at";
/// The launches of one call, in the order of the instances' launch index; further ones are in
/// `skyward:launches.1` and so on.
pub(crate) const LAUNCHES: &str = "skyward:launches";

/// Names and values.
pub(crate) type Tags = BTreeMap<String, String>;

/// The tags of everything that belongs to a pool, with the user's own.
pub(crate) fn common(pool: &PoolId, owner: &str, own: &BTreeMap<String, String>) -> Tags {
    let mut tags = own.clone();
    tags.extend([
        ("Name".to_owned(), format!("skyward {pool}")),
        (MANAGED.to_owned(), "true".to_owned()),
        (POOL.to_owned(), pool.to_string()),
        (OWNER.to_owned(), clean(owner)),
    ]);
    tags
}

/// A pool's labels as tags.
pub(crate) fn of_labels(labels: &Labels) -> Tags {
    labels.iter().map(|(key, value)| (key.clone(), clean(value))).collect()
}

/// The tags of the instances of one call, besides those of all that the call makes.
pub(crate) fn of_instances(
    of_call: &Tags,
    offer: &OfferId,
    ends: Option<SystemTime>,
    requests: &[LaunchRequest],
) -> Tags {
    let mut tags = of_call.clone();
    tags.insert(OFFER.to_owned(), clean(offer.as_str()));
    if let Some(ends) = ends {
        tags.insert(ENDS.to_owned(), seconds(ends));
    }
    tags.extend(of_launches(requests));
    tags
}

/// The launches of the instances of one call. Launches with the ids that a pool gives them are
/// written as runs: `0+100=1` is the first try of machines 0 to 99. Others are written in full:
/// `7:name`.
fn of_launches(requests: &[LaunchRequest]) -> Tags {
    let mut items: Vec<Item> = Vec::new();
    for request in requests {
        let item = Item::of(request);
        match (items.last_mut(), &item) {
            (Some(Item::Run { first, count, attempt }), Item::Run { first: next, attempt: same, .. })
                if *first + *count == *next && attempt == same =>
            {
                *count += 1;
            }
            _ => items.push(item),
        }
    }
    let mut tags = Tags::new();
    let mut part = String::new();
    for item in items.iter().map(ToString::to_string) {
        if part.len() + 1 + item.len() > LONGEST_VALUE {
            add_part(&mut tags, std::mem::take(&mut part));
        }
        if !part.is_empty() {
            part.push(' ');
        }
        part.push_str(&item);
    }
    add_part(&mut tags, part);
    tags
}

/// The launch of the instance with this index, and its machine's number.
pub(crate) fn launch(tags: &[Tag], pool: &PoolId, index: i32) -> Option<(LaunchId, MachineNumber)> {
    let parts = (0..).map_while(|number| value(tags, &part_key(number)));
    let mut left = u32::try_from(index).ok()?;
    for item in parts.flat_map(|part| part.split(' ')) {
        match Item::read(item)? {
            Item::Run { first, count, attempt } if left < count => {
                let number = first.checked_add(left)?;
                return Some((LaunchId::new(format!("{pool}-n{number}-a{attempt}")), MachineNumber(number)));
            }
            Item::Run { count, .. } => left -= count,
            Item::One { number, launch } if left == 0 => return Some((LaunchId::new(launch), MachineNumber(number))),
            Item::One { .. } => left -= 1,
        }
    }
    None
}

/// Launches in a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    /// The same try of machines with consecutive numbers.
    Run {
        first: u32,
        count: u32,
        attempt: String,
    },
    One {
        number: u32,
        launch: String,
    },
}

impl Item {
    fn of(request: &LaunchRequest) -> Self {
        let (launch, number) = (request.launch.as_str(), request.number.0);
        let start = format!("{}-n{number}-a", request.pool);
        match launch.strip_prefix(&start).filter(|attempt| attempt.parse::<u32>().is_ok()) {
            Some(attempt) => Self::Run { first: number, count: 1, attempt: attempt.to_owned() },
            None => Self::One { number, launch: launch.to_owned() },
        }
    }

    fn read(text: &str) -> Option<Self> {
        if let Some((number, launch)) = text.split_once(':') {
            return Some(Self::One { number: number.parse().ok()?, launch: launch.to_owned() });
        }
        let (run, attempt) = text.split_once('=')?;
        let (first, count) = run.split_once('+')?;
        Some(Self::Run { first: first.parse().ok()?, count: count.parse().ok()?, attempt: attempt.to_owned() })
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { first, count, attempt } => write!(f, "{first}+{count}={attempt}"),
            Self::One { number, launch } => write!(f, "{number}:{launch}"),
        }
    }
}

/// The value of a tag.
pub(crate) fn value<'a>(tags: &'a [Tag], key: &str) -> Option<&'a str> {
    tags.iter().find(|tag| tag.key() == Some(key)).and_then(Tag::value)
}

/// A time in a tag.
pub(crate) fn time(tags: &[Tag], key: &str) -> Option<SystemTime> {
    value(tags, key)?.parse().ok().and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
}

/// A time in the form of a tag.
pub(crate) fn seconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string()
}

/// The tags in the form that a call takes.
pub(crate) fn list(tags: &Tags) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

/// The tags of a resource that a call makes.
pub(crate) fn specification(kind: ResourceType, tags: &Tags) -> TagSpecification {
    TagSpecification::builder().resource_type(kind).set_tags(Some(list(tags))).build()
}

/// A filter for what belongs to a pool.
pub(crate) fn of_pool(pool: &PoolId) -> Filter {
    filter(&format!("tag:{POOL}"), [pool.as_str()])
}

/// A filter of a call that lists.
pub(crate) fn filter<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> Filter {
    let values = values.into_iter().map(str::to_owned).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

/// The text with only what a tag's value may contain: up to 256 letters, digits, spaces and `+ - =
/// . _ : / @`.
pub(crate) fn clean(text: &str) -> String {
    let allowed = |letter: char| if letter.is_alphanumeric() || " +-=._:/@".contains(letter) { letter } else { '_' };
    text.chars().map(allowed).take(LONGEST_VALUE).collect()
}

fn add_part(tags: &mut Tags, part: String) {
    let number = tags.len();
    tags.insert(part_key(number), part);
}

fn part_key(number: usize) -> String {
    if number == 0 { LAUNCHES.to_owned() } else { format!("{LAUNCHES}.{number}") }
}

const LONGEST_VALUE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(launch: &str, number: u32) -> LaunchRequest {
        let (pool, lease) = (PoolId::new("p-x"), Duration::from_secs(60));
        LaunchRequest::new(LaunchId::new(launch), pool, MachineNumber(number), lease)
    }

    #[test]
    fn each_instance_of_a_call_is_of_its_own_launch() {
        let mut requests: Vec<_> = (0..1000).map(|number| request(&format!("p-x-n{number}-a1"), number)).collect();
        assert_eq!(of_launches(&requests), Tags::from([(LAUNCHES.to_owned(), "0+1000=1".to_owned())]));
        requests.push(request("a-strange-one", 7));
        // None follows the one before it.
        requests.extend((0..100).map(|number| request(&format!("p-x-n{}-a2", 2 * number), 2 * number)));
        requests.push(request("p-x-n1-a02", 1));
        let tags = of_launches(&requests);
        assert!(tags.len() > 2 && tags.values().all(|value| value.len() <= LONGEST_VALUE), "{tags:?}");
        let tags = list(&tags);
        for (index, request) in requests.iter().enumerate() {
            let index = i32::try_from(index).unwrap();
            let (launch, number) = launch(&tags, &request.pool, index).unwrap();
            assert_eq!(&launch, &request.launch);
            assert_eq!(number, request.number);
        }
        assert_eq!(launch(&tags, &PoolId::new("p-x"), 1102), None);
        assert_eq!(launch(&tags, &PoolId::new("p-x"), -1), None);
    }

    #[test]
    fn a_value_has_only_what_ec2_takes() {
        assert_eq!(clean("ada@work (β) <x>"), "ada@work _β_ _x_");
        assert_eq!(clean(&"x".repeat(300)).len(), 256);
        let now = SystemTime::now();
        let tags = list(&Tags::from([(EXPIRES.to_owned(), seconds(now))]));
        assert!(now.duration_since(time(&tags, EXPIRES).unwrap()).unwrap() < Duration::from_secs(1));
    }

    /// The tags of a fixture.
    fn fixture(text: &str) -> Tags {
        let pairs = text.lines().map(|line| line.split_once('=').unwrap());
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    const INSTANCE: &str = include_str!("formats/instance.tags");

    #[test]
    fn this_version_writes_the_tags_of_its_fixture() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let own = BTreeMap::from([("team".to_owned(), "vision".to_owned())]);
        let mut tags = of_labels(&own);
        tags.extend(common(&PoolId::new("p-x"), "ada at a desk", &BTreeMap::new()));
        tags.insert(EXPIRES.to_owned(), seconds(at(1_795_353_501)));
        let requests = [request("p-x-n3-a1", 3), request("p-x-n4-a1", 4), request("a-strange-one", 7)];
        tags.insert(LEASE.to_owned(), requests[0].lease.as_millis().to_string());
        let offer = OfferId::new("g5.xlarge/eu-west-1a/spot");
        assert_eq!(of_instances(&tags, &offer, Some(at(1_795_357_041)), &requests), fixture(INSTANCE));
    }
}
