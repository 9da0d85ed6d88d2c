//! The tags on everything that a pool makes. They are the provider's own records: other processes
//! read them back.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_ec2::types::{Filter, ResourceType, Tag, TagSpecification};
use skyward_core::ids::{LaunchId, MachineNumber, OfferId, PoolId};
use skyward_core::provider::{Labels, LaunchRequest, Machine};

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
/// The launches of one call, in their order in the call; further ones are in `skyward:launches.1` and
/// so on.
pub(crate) const LAUNCHES: &str = "skyward:launches";
/// The launch of this one instance, which is one of the call's. Only an instance whose launch index is
/// not the place of its launch in the call has this tag.
pub(crate) const LAUNCH: &str = "skyward:launch";

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
        let item = Item::of(&request.pool, &request.launch, request.number);
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

/// The launches of the call that has made an instance, each with its machine's number, in their order
/// in the call. None if the tags cannot be read.
pub(crate) fn launches(tags: &[Tag], pool: &PoolId) -> Option<Vec<(LaunchId, MachineNumber)>> {
    let items = launches_text(tags).map(|part| part.split(' ').map(Item::read).collect::<Option<Vec<Item>>>());
    let items = items.collect::<Option<Vec<_>>>()?.into_iter().flatten();
    let mut all = Vec::new();
    for item in items {
        all.extend(item.launches(pool, MOST_LAUNCHES - all.len())?);
    }
    (!all.is_empty()).then_some(all)
}

/// The parts of the tag with the launches of a call.
pub(crate) fn launches_text(tags: &[Tag]) -> impl Iterator<Item = &str> {
    (0..).map_while(|number| value(tags, &part_key(number)))
}

/// The launch that an instance is tagged with.
pub(crate) fn launch(tags: &[Tag], pool: &PoolId) -> Option<LaunchId> {
    let one = Item::read(value(tags, LAUNCH)?)?.launches(pool, 1)?;
    one.into_iter().next().map(|(launch, _)| launch)
}

/// The tag with the launch of one instance.
pub(crate) fn of_launch(machine: &Machine) -> Tag {
    let item = Item::of(&machine.pool, &machine.launch, machine.number);
    Tag::builder().key(LAUNCH).value(item.to_string()).build()
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
    fn of(pool: &PoolId, launch: &LaunchId, number: MachineNumber) -> Self {
        let (launch, number) = (launch.as_str(), number.0);
        let start = format!("{pool}-n{number}-a");
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

    /// Its launches; none if there are more than `most`.
    fn launches(&self, pool: &PoolId, most: usize) -> Option<Vec<(LaunchId, MachineNumber)>> {
        match self {
            Self::Run { first, count, attempt } if usize::try_from(*count).is_ok_and(|count| count <= most) => {
                let numbers = *first..first.checked_add(*count)?;
                let of = |number| (LaunchId::new(format!("{pool}-n{number}-a{attempt}")), MachineNumber(number));
                Some(numbers.map(of).collect())
            }
            Self::One { number, launch } if most > 0 => {
                Some(vec![(LaunchId::new(launch.clone()), MachineNumber(*number))])
            }
            _ => None,
        }
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
/// More launches than one call of EC2 has. Tags that claim more are not read.
const MOST_LAUNCHES: usize = 100_000;

#[cfg(test)]
mod tests {
    use skyward_core::ids::MachineId;
    use skyward_core::provider::Facts;

    use super::*;

    fn request(launch: &str, number: u32) -> LaunchRequest {
        let (pool, lease) = (PoolId::new("p-x"), Duration::from_secs(60));
        LaunchRequest::new(LaunchId::new(launch), pool, MachineNumber(number), lease)
    }

    #[test]
    fn the_launches_of_a_call_are_read_in_their_order() {
        let mut requests: Vec<_> = (0..1000).map(|number| request(&format!("p-x-n{number}-a1"), number)).collect();
        assert_eq!(of_launches(&requests), Tags::from([(LAUNCHES.to_owned(), "0+1000=1".to_owned())]));
        requests.push(request("a-strange-one", 7));
        // None follows the one before it.
        requests.extend((0..100).map(|number| request(&format!("p-x-n{}-a2", 2 * number), 2 * number)));
        requests.push(request("p-x-n1-a02", 1));
        let tags = of_launches(&requests);
        assert!(tags.len() > 2 && tags.values().all(|value| value.len() <= LONGEST_VALUE), "{tags:?}");
        let tags = list(&tags);
        let expected: Vec<_> = requests.iter().map(|request| (request.launch.clone(), request.number)).collect();
        assert_eq!(launches(&tags, &PoolId::new("p-x")).unwrap(), expected);
        for claim in ["0+4000000000=1", "4000000000+1000000000=1", "0+0=1", "nothing", ""] {
            let tags = list(&Tags::from([(LAUNCHES.to_owned(), claim.to_owned())]));
            assert_eq!(launches(&tags, &PoolId::new("p-x")), None, "{claim}");
        }
        assert_eq!(launches(&[], &PoolId::new("p-x")), None);
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

    #[test]
    fn the_launch_of_an_instance_is_tagged_and_read_in_the_same_form() {
        let told = fixture(include_str!("formats/instance-told.tags"));
        for (launch, number) in [("p-x-n4-a1", 4), ("a-strange-one", 7)] {
            let (pool, launch, number) = (PoolId::new("p-x"), LaunchId::new(launch), MachineNumber(number));
            let (id, offer, facts) = (MachineId::new("i-1"), OfferId::new("o"), Facts::new());
            let tag = of_launch(&Machine { id, launch: launch.clone(), pool: pool.clone(), number, offer, facts });
            assert_eq!(super::launch(std::slice::from_ref(&tag), &pool), Some(launch));
            if number.0 == 4 {
                assert_eq!((tag.key(), tag.value()), (Some(LAUNCH), told.get(LAUNCH).map(String::as_str)));
            }
        }
    }
}
