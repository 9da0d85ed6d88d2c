//! The formats in an engine that versions of the library share: labels, and the names of volumes.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};

use super::container::{self, Node, Options};
use super::image::ImageFacts;
use super::{cache, network};
use crate::ids::{Attempt, LaunchId, MachineNumber, PoolId};
use crate::provider::{LaunchRequest, Offer, PoolRequest};

const NODE: &str = include_str!("formats/node.json");
const NODE_OLDER: &str = include_str!("formats/node-older.json");
const NODE_NEWER: &str = include_str!("formats/node-newer.json");
const BUILDER: &str = include_str!("formats/builder.json");
const NETWORK: &str = include_str!("formats/network.json");

fn image() -> ImageFacts {
    ImageFacts { id: "sha256:00".into(), user: "1:1".into() }
}

fn labels(fixture: &str) -> HashMap<String, String> {
    serde_json::from_str(fixture).unwrap()
}

/// The text of labels, with the client of the fixtures.
fn text(labels: HashMap<String, String>) -> String {
    let mut labels: BTreeMap<_, _> = labels.into_iter().collect();
    labels.insert("skyward.client".to_owned(), "ada".to_owned()).expect("each part has the client");
    serde_json::to_string_pretty(&labels).unwrap() + "\n"
}

fn running(fixture: &str) -> ContainerSummary {
    let state = Some(ContainerSummaryStateEnum::RUNNING);
    ContainerSummary { labels: Some(labels(fixture)), state, ..ContainerSummary::default() }
}

#[test]
fn this_version_writes_the_labels_and_the_volume_of_its_fixtures() {
    let (pool, number, lease) = (PoolId::new("p-x"), MachineNumber(1), Duration::from_secs(60));
    let team = || [("team", "vision")];
    let request = LaunchRequest::new(LaunchId::of(&pool, number, Attempt(2)), pool.clone(), number, lease);
    let request =
        LaunchRequest { ends_in: Some(Duration::from_secs(3600)), ..request.owner("ada at a desk").labels(team()) };
    let (options, offer) = (Options::new("i".into()), Offer::new(container::OFFER, "here", 1, 1));
    let node = container::body(&options, &offer, &request, &image(), &["0".into(), "2".into()]);
    assert_eq!(text(node.labels.unwrap()), NODE);
    let builder = container::builder_body(&options, &Node::of(&running(NODE)).unwrap());
    assert_eq!(text(builder.labels.unwrap()), BUILDER);
    let pool = PoolRequest::new(pool, lease).owner("ada at a desk").labels(team());
    assert_eq!(text(network::labels(&pool)), NETWORK);
    assert_eq!(cache::volume(&image()) + "\n", include_str!("formats/volume"));
}

#[test]
fn containers_of_each_version_are_read() {
    let (now, second) = (SystemTime::now(), Duration::from_secs(1));
    for (fixture, lease, ends_in) in [
        (NODE, 60 * second, Some(3600 * second)),
        (NODE_OLDER, 3600 * second, None),
        (NODE_NEWER, 60 * second, Some(3600 * second)),
        (BUILDER, 3600 * second, None),
    ] {
        let found = running(fixture);
        let machine = container::machine(&found).unwrap();
        assert_eq!(machine.id.as_str(), "skyward-p-x-n1-a2", "{fixture}");
        assert_eq!(machine.launch.as_str(), "p-x-n1-a2", "{fixture}");
        assert_eq!(machine.pool.as_str(), "p-x", "{fixture}");
        assert_eq!(machine.number.0, 1, "{fixture}");
        let pool = container::pool(&found, now, now).unwrap();
        assert_eq!(pool.pool.as_str(), "p-x");
        assert_eq!(pool.owner.as_str(), "ada at a desk");
        assert_eq!(pool.expires, now + lease);
        assert_eq!(container::ends_in(&found), ends_in, "{fixture}");
        assert_eq!(container::is_builder(&found), fixture == BUILDER);
        // Only a container of this form can be connected to.
        let node = Node::of(&found);
        assert_eq!(node.is_some(), fixture == NODE || fixture == NODE_NEWER, "{fixture}");
        assert!(node.is_none_or(|node| node.image.id == image().id && node.image.user == image().user));
    }
    let network = container::record(&labels(NETWORK), now, second).unwrap();
    assert_eq!(network.pool.as_str(), "p-x");
    assert_eq!(network.owner.as_str(), "ada at a desk");
    assert_eq!(network.expires, now + 59 * second);
}
