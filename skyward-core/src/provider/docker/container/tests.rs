use std::time::Duration;

use bollard::models::{ContainerCreateBody, ContainerSummary, Mount};

use super::labels::LAUNCH;
use super::options::CACHE;
use super::*;
use crate::ids::{Attempt, LaunchId, MachineNumber, PoolId};
use crate::provider::docker::image::ImageFacts;
use crate::provider::{LaunchRequest, MachineState, Offer};

fn request() -> LaunchRequest {
    let (pool, number) = (PoolId::new("p-x"), MachineNumber(1));
    LaunchRequest::new(LaunchId::of(&pool, number, Attempt(2)), pool, number, Duration::from_secs(8)).owner("ada")
}

fn offer() -> Offer {
    Offer::new(OFFER, "here", 1, 1)
}

fn image() -> ImageFacts {
    ImageFacts { id: "sha256:00".into(), user: "1:1".into() }
}

/// The containers of a node and of its builder.
fn bodies(options: &Options) -> (ContainerCreateBody, ContainerCreateBody) {
    let body = body(options, &offer(), &request(), &image(), &[]);
    let summary = ContainerSummary { labels: body.labels.clone(), ..ContainerSummary::default() };
    let builder = builder_body(options, &Node::of(&summary).unwrap());
    (body, builder)
}

fn at<'a>(body: &'a ContainerCreateBody, target: &str) -> Option<&'a Mount> {
    let mounts = body.host_config.as_ref().unwrap().mounts.as_ref().unwrap();
    let mut found = mounts.iter().filter(|mount| mount.target.as_deref() == Some(target));
    let first = found.next();
    assert!(found.next().is_none(), "{target} is mounted twice");
    first
}

fn variable<'a>(body: &'a ContainerCreateBody, name: &str) -> Option<&'a str> {
    // The engine takes the last value.
    let mut env = body.env.iter().flatten().rev().filter_map(|line| line.split_once('='));
    env.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[test]
fn a_node_reads_the_cache_and_its_builder_writes_it() {
    let mut bound = Options::new("i".into());
    bound.binds.push(("/srv/cache".into(), CACHE.into()));
    for options in [Options::new("i".into()), bound] {
        let (node, builder) = bodies(&options);
        let (read, written) = (at(&node, CACHE).unwrap(), at(&builder, CACHE).unwrap());
        assert_eq!(read.read_only, Some(true));
        assert_eq!(written.read_only, Some(false));
        assert_eq!(&read.source, &written.source);
        assert_eq!(read.typ, written.typ);
        assert_eq!(variable(&node, "SKYWARD_CACHE_MODE"), Some("read"));
        assert_eq!(variable(&builder, "SKYWARD_CACHE_MODE"), Some("build"));
        assert_eq!(&node.image, &builder.image);
        assert_eq!(&node.cmd, &builder.cmd);
        let host = builder.host_config.unwrap();
        assert_eq!(host.volumes_from.unwrap(), ["skyward-p-x-n1-a2"]);
        assert!(host.device_requests.is_none());
    }
    let mut alone = Options::new("i".into());
    alone.tmpfs.push((CACHE.into(), 1));
    assert!(!alone.shares_cache());
    let own = body(&alone, &offer(), &request(), &image(), &[]);
    assert!(at(&own, CACHE).is_none() && variable(&own, "SKYWARD_CACHE_MODE").is_none());
}

#[test]
fn a_container_sees_only_its_own_accelerators() {
    const NAME: &str = "NVIDIA_VISIBLE_DEVICES";
    let options = Options::new("i".into());
    assert_eq!(variable(&body(&options, &offer(), &request(), &image(), &[]), NAME), Some("void"));
    let given = body(&options, &offer(), &request(), &image(), &["0".to_owned(), "3".to_owned()]);
    // The engine sets the variable, from the device request.
    assert_eq!(variable(&given, NAME), None);
    assert_eq!(given.host_config.unwrap().device_requests.unwrap()[0].device_ids, Some(vec!["0".into(), "3".into()]));
    let mut all = options;
    all.env.push(format!("{NAME}=all"));
    assert_eq!(variable(&body(&all, &offer(), &request(), &image(), &[]), NAME), Some("all"));
}

#[test]
fn each_state_of_docker_and_of_podman_is_parsed() {
    let states = [
        ("created", MachineState::Starting),
        ("configured", MachineState::Starting),
        ("initialized", MachineState::Starting),
        ("running", MachineState::Running),
        ("paused", MachineState::Running),
        ("restarting", MachineState::Running),
        ("something new", MachineState::Unknown),
        ("stopping", MachineState::Ending),
        ("stopped", MachineState::Ending),
        ("exited", MachineState::Ending),
        ("dead", MachineState::Ending),
        ("removing", MachineState::Ending),
    ];
    for (text, status) in states {
        let json = format!(r#"[{{"Id":"a","Names":["/x"],"State":{text:?}}},{{"Id":"b","State":"running"}}]"#);
        let found = listed(&json).unwrap();
        assert_eq!(state(&found[0]), status, "{text}");
        assert!(is_named(&found[0], "x"), "{text}");
        assert_eq!(found.len(), 2, "{text}");
    }
    assert!(listed("[{").is_none() && listed(r#"[{"Id":3}]"#).is_none());
}

#[test]
fn the_life_of_a_container_that_has_ended_is_told_by_the_times_of_the_engine() {
    let told = |state: &str, finished: &str| {
        let json = format!(r#"[{{"Id":"a","Names":["/x"],"State":{state:?},"Created":1795353441}}]"#);
        let ended = ContainerState { finished_at: Some(finished.to_owned()), ..ContainerState::default() };
        lived(&listed(&json).unwrap()[0], &ended).map(|lived| lived.as_secs())
    };
    // It was created at 13:17:21.
    assert_eq!(told("exited", "2026-11-22T13:19:21.5Z"), Some(120));
    assert_eq!(told("dead", "2026-11-22T15:19:21+02:00"), Some(120));
    // The engine's clock was set between the two, and the engine knows of no end.
    assert_eq!(told("exited", "2026-11-22T13:00:00Z"), Some(0));
    assert_eq!(told("exited", "0001-01-01T00:00:00Z"), None);
    assert_eq!(told("running", "2026-11-22T13:19:21Z"), None, "it was started again");
}

#[test]
fn a_builder_belongs_to_its_machine_and_is_no_machine() {
    let (node, builder) = bodies(&Options::new("i".into()));
    let of = |body: ContainerCreateBody| ContainerSummary { labels: body.labels, ..ContainerSummary::default() };
    let (node, builder) = (of(node), of(builder));
    assert!(is_builder(&builder) && !is_builder(&node));
    let ids = [&node, &builder].map(|found| machine(found).unwrap().id);
    assert_eq!(ids[0], ids[1]);
    assert_eq!(builder_of(&ids[0]), "skyward-p-x-n1-a2-builder");
    // A launch is found by its label, which only the node has.
    assert!(!builder.labels.as_ref().unwrap().contains_key(LAUNCH));
}
