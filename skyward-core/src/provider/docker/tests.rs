//! Launches at a fake engine, whose host has declared accelerators only.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::image::ImageFacts;
use super::*;
use crate::ids::{Attempt, LaunchId, MachineNumber};
use crate::provider::LaunchRequest;
use crate::remote::docker::tests::{answer_of, read_request};

/// An engine with containers that do nothing.
struct Pretended {
    folder: PathBuf,
    serving: JoinHandle<()>,
    containers: Arc<Mutex<Vec<Value>>>,
}

impl Pretended {
    /// `rivals`: the devices of containers that another client creates, each just before one of
    /// this client's is created, and older than that one.
    fn new(rivals: &[&'static str]) -> Self {
        let folder = std::env::temp_dir().join(format!("skyd{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("s")).unwrap();
        let containers: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (known, rivals) = (Arc::clone(&containers), Arc::new(Mutex::new(rivals.to_vec())));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (known, rivals) = (Arc::clone(&known), Arc::clone(&rivals));
                tokio::spawn(async move {
                    let Some((mut stream, head, body)) = read_request(stream).await else { return };
                    let answer = answer(&head, &body, &mut known.lock().unwrap(), &mut rivals.lock().unwrap());
                    stream.write_all(&answer).await.unwrap();
                });
            }
        });
        Self { folder, serving, containers }
    }

    /// A client of its own.
    fn docker(&self, accelerators: u32) -> Docker {
        let url = format!("unix://{}/s", self.folder.display());
        Docker::new("image").engine(&url).accelerator(Accelerator::new("A100", accelerators))
    }

    /// The devices of each container, by its name.
    fn devices(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let containers = self.containers.lock().unwrap();
        containers.iter().map(|found| (text(&found["Names"][0]), text(&found["Labels"][container::DEVICES]))).collect()
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn answer(head: &str, body: &[u8], containers: &mut Vec<Value>, rivals: &mut Vec<&'static str>) -> Vec<u8> {
    let mut words = head.split([' ', '?']);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let query = words.next().unwrap();
    let named = |found: &Value, name: &str| found["Names"][0] == format!("/{name}");
    let make = |containers: &mut Vec<Value>, name: &str, labels: Value, created: u64| {
        let id = format!("id{}", containers.len());
        containers.push(json!({
            "Id": id, "Names": [format!("/{name}")], "Labels": labels, "Created": created, "State": "created",
        }));
        answer_of("201 Created", &json!({ "Id": id, "Warnings": [] }).to_string())
    };
    let of_container = path.split_once("/containers/").map_or("", |(_, rest)| rest);
    match (method, of_container) {
        ("HEAD", of) if of.ends_with("/archive") => {
            let bare =
                containers.iter().any(|found| found["Image"] == BARE && named(found, of.trim_end_matches("/archive")));
            match bare {
                true => answer_of("404 Not Found", ""),
                false => answer_of("501 Not Implemented", ""),
            }
        }
        ("GET", of) if of.ends_with("/json") => {
            answer_of("200 OK", r#"{"Config":{"Env":["A=b","PATH=/opt/bin:/bin"]}}"#)
        }
        ("GET", "json") => {
            // The containers of one launch, or all.
            let launch = query.split_once("skyward.launch%3D").map(|(_, rest)| rest.split("%22").next().unwrap());
            let asked = |found: &&Value| launch.is_none_or(|launch| found["Labels"]["skyward.launch"] == launch);
            let list: Vec<&Value> = containers.iter().filter(asked).collect();
            answer_of("200 OK", &serde_json::to_string(&list).unwrap())
        }
        ("POST", "create") => {
            let name = query.split("name=").nth(1).unwrap().split('&').next().unwrap();
            if containers.iter().any(|found| named(found, name)) {
                return answer_of("409 Conflict", r#"{"message":"the name is in use"}"#);
            }
            if !rivals.is_empty() {
                let labels = json!({ (container::DEVICES): rivals.remove(0) });
                make(containers, &format!("rival{}", containers.len()), labels, 1);
            }
            let mut asked: Value = serde_json::from_slice(body).unwrap();
            let answer = make(containers, name, asked["Labels"].take(), 2);
            containers.last_mut().unwrap()["Image"] = asked["Image"].take();
            answer
        }
        ("POST", of) if of.ends_with("/start") => {
            let found = containers.iter_mut().find(|found| named(found, of.trim_end_matches("/start")));
            found.unwrap()["State"] = "running".into();
            answer_of("204 No Content", "")
        }
        ("DELETE", of) => {
            containers.retain(|found| !named(found, of));
            answer_of("204 No Content", "")
        }
        _ if path.ends_with("/version") => answer_of("200 OK", r#"{"ApiVersion":"1.41","MinAPIVersion":"1.41"}"#),
        _ if path.ends_with("/images/bare/json") => answer_of("200 OK", &json!({ "Id": BARE }).to_string()),
        _ if path.ends_with("/images/image/json") => answer_of("200 OK", r#"{"Id":"sha256:1"}"#),
        other => panic!("nobody asks for {other:?} {path}"),
    }
}

/// The id of an image without a shell.
const BARE: &str = "sha256:2";

fn batch(number: u32, accelerators: u32) -> LaunchBatch {
    let (pool, number) = (PoolId::new("p-x"), MachineNumber(number));
    let offer = Offer::new(container::OFFER, "here", 1, 1).accelerator(Accelerator::new("A100", accelerators));
    let request = LaunchRequest::new(LaunchId::of(&pool, number, Attempt(1)), pool, number, Duration::from_secs(9));
    LaunchBatch::one(offer, request)
}

/// Launches the only machine of a batch.
async fn launch(docker: &Docker, batch: &LaunchBatch) -> Result<Machine> {
    docker.launch(batch).await.remove(0)
}

#[tokio::test]
async fn a_repeated_launch_is_the_same_container_with_its_accelerators() {
    let engine = Pretended::new(&[]);
    let first = launch(&engine.docker(2), &batch(0, 2)).await.unwrap();
    // Also from a client that was started since.
    assert_eq!(launch(&engine.docker(2), &batch(0, 2)).await.unwrap(), first);
    assert_eq!(engine.devices(), [("/skyward-p-x-n0-a1".to_owned(), "0,1".to_owned())]);
    let error = launch(&engine.docker(2), &batch(1, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error}");
    assert!(error.is_temporary(), "{error}");
    assert!(format!("{error:#}").contains("skyward-p-x-n0-a1"), "{error}");
}

#[tokio::test]
async fn an_image_without_a_shell_is_named_and_its_container_removed() {
    let engine = Pretended::new(&[]);
    let docker = Docker { options: Options::new("bare".to_owned()), ..engine.docker(1) };
    let error = launch(&docker, &batch(0, 1)).await.unwrap_err();
    let said = "the image bare has no shell: there is no `sh` in /bin nor in its PATH, /opt/bin:/bin";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Provider, said));
    assert!(!error.is_temporary() && error.hint().unwrap().contains("`scratch`"), "{error:#}");
    assert_eq!(engine.devices(), []);
}

#[tokio::test]
async fn a_launch_that_loses_its_accelerator_to_another_client_takes_another_one() {
    let engine = Pretended::new(&["0"]);
    launch(&engine.docker(2), &batch(0, 1)).await.unwrap();
    let of = |name: &str, devices: &str| (name.to_owned(), devices.to_owned());
    assert_eq!(engine.devices(), [of("/rival0", "0"), of("/skyward-p-x-n0-a1", "1")]);
    // Other clients take all accelerators: nothing of the launch is left.
    let engine = Pretended::new(&["0", "1"]);
    let error = launch(&engine.docker(2), &batch(0, 1)).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    assert_eq!(engine.devices(), [of("/rival0", "0"), of("/rival1", "1")]);
}

#[tokio::test]
async fn a_container_of_an_interrupted_launch_gives_way_to_an_older_one_with_its_accelerator() {
    let engine = Pretended::new(&[]);
    let image = ImageFacts { id: "sha256:1".into(), user: String::new() };
    let left = container::name(&batch(0, 1).requests[0].launch);
    let batch = batch(0, 1);
    let options = engine.docker(2).options;
    let labels = container::body(&options, &batch.offer, &batch.requests[0], &image, &["0".to_owned()]).labels;
    for (name, labels, created) in [("rival", json!({ (container::DEVICES): "0" }), 1), (&left, json!(labels), 2)] {
        engine.containers.lock().unwrap().push(json!({
            "Id": name, "Names": [format!("/{name}")], "Labels": labels, "Created": created, "State": "created",
        }));
    }
    launch(&engine.docker(2), &batch).await.unwrap();
    let of = |name: &str, devices: &str| (format!("/{name}"), devices.to_owned());
    assert_eq!(engine.devices(), [of("rival", "0"), of(&left, "1")]);
}

#[test]
fn an_error_of_the_connection_to_the_engine_keeps_its_facts() {
    let lost = Error::new(ErrorKind::Io, "the connection broke").temporary().with_context("tried", "to list networks");
    let error = provider::<()>(Err(lost)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(error.is_temporary());
    assert_eq!(error.to_string(), "the connection broke (tried: to list networks)");
}

#[test]
fn an_engine_is_identified_by_what_does_not_change() {
    let of = |version: &str, info: &str| {
        engine_identity(&serde_json::from_str(version).unwrap(), &serde_json::from_str(info).unwrap())
    };
    let docker = r#"{"Components":[{"Name":"Engine","Version":"28"}]}"#;
    assert_eq!(of(docker, r#"{"ID":"ABCD"}"#).as_deref(), Some("ABCD"));
    assert_eq!(of("{}", r#"{"ID":""}"#), None);
    let podman = r#"{"Components":[{"Name":"Podman Engine","Version":"5"}]}"#;
    let answer = |id| format!(r#"{{"ID":"{id}","Name":"host","DockerRootDir":"/home/a/storage"}}"#);
    assert_eq!(of(podman, &answer(1)).as_deref(), Some("Podman in /home/a/storage on `host`"));
    assert_eq!(of(podman, &answer(1)), of(podman, &answer(2)));
}
