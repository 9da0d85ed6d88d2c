//! The service of the example `embed_in_service`: as a process, over HTTP, with real Python; and on
//! a pool without machines.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../examples/embed_in_service/main.rs"]
#[allow(dead_code, reason = "a test plays the service in place of its own `main`")]
mod example;
mod fake;
mod journal;
mod service;

use std::process::ExitCode;
use std::time::Duration;

use common::{assert_gone, processes_of};
use example::client::Told;
use example::options::Options;
use example::training::Report;
use serde_json::{Value, json};
use service::{ARGUMENTS, Folders, Service, line, signal};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

/// The example as a process of its own: this program already has its code.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a role that the other tests play"]
async fn the_service() {
    // The line that the test harness has begun ends here.
    println!("\nbegins");
    let arguments = std::env::var(ARGUMENTS).unwrap();
    let ended = example::run_service(&Options::read(arguments.split_whitespace().map(str::to_owned))).await;
    std::process::exit(match ended {
        Ok(code) => i32::from(code != ExitCode::SUCCESS),
        Err(error) => panic!("{error:?}"),
    });
}

const ENDS: &[&str] = &["finished", "failed", "cancelled"];

fn names(events: &[Told]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

/// All events of a training until its end.
async fn followed(service: &Service, place: &str) -> Vec<Told> {
    let mut follower = service.client.follow(&format!("{place}/events"), 0).await.unwrap();
    let events = follower.until(ENDS).await.unwrap();
    assert!(follower.next().await.unwrap().is_none(), "the stream ends with the training");
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn trainings_share_one_pool_and_are_followed() {
    let folders = Folders::new();
    let service = folders.start(&["--nodes", "2"]).await;
    let all = (0..4).map(async |seed| {
        let place = service.begin(json!({ "epochs": 10, "seed": seed })).await;
        (followed(&service, &place).await, service.client.get(&place).await.unwrap())
    });
    let mut ranks = Vec::new();
    for (events, state) in futures_util::future::join_all(all).await {
        let ids: Vec<u64> = events.iter().map(|event| event.id).collect();
        assert_eq!(ids, (1..=events.len() as u64).collect::<Vec<_>>());
        assert_eq!(names(&events[..2]), ["queued", "started"]);
        assert_eq!(names(&events).last(), Some(&"finished"));
        let epochs: Vec<u64> =
            events.iter().filter(|event| event.name == "progress").filter_map(|e| e.data["epoch"].as_u64()).collect();
        assert_eq!(epochs, (1..=10).collect::<Vec<_>>());
        let lines: Vec<&str> =
            events.iter().filter(|event| event.name == "output").filter_map(|e| e.data["line"].as_str()).collect();
        assert!(lines.iter().any(|line| line.starts_with("1408 images to train on")), "{lines:?}");
        assert_eq!(state.body["state"], "finished");
        let report: Report = serde_json::from_value(state.body["report"].clone()).unwrap();
        assert_eq!(report.epochs, 10);
        assert!(report.accuracy > 0.85, "the training succeeds: {report:?}");
        ranks.extend(events[1].data["rank"].as_u64());
    }
    ranks.sort_unstable();
    ranks.dedup();
    assert_eq!(ranks, [0, 1], "both workers ran trainings");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_refused_with_a_hint() {
    let folders = Folders::new();
    let service = folders.start(&["--nodes", "1"]).await;
    let long = format!("{{\"epochs\": {}1}}", " ".repeat(20 << 10));
    for (body, status, field, word) in [
        ("", 422, None, "EOF"),
        ("epochs=5", 422, None, "expected value"),
        ("[1]", 422, None, "not a training request"),
        ("{}", 422, None, "missing field `epochs`"),
        (r#"{"epochs": 5, "epoch": 5}"#, 422, None, "unknown field `epoch`"),
        (r#"{"epochs": "five"}"#, 422, None, "expected u32"),
        (r#"{"epochs": 0}"#, 422, Some("epochs"), "is 0"),
        (r#"{"epochs": 5, "batch_size": 1409}"#, 422, Some("batch_size"), "1409"),
        (r#"{"epochs": 5, "learning_rate": -1}"#, 422, Some("learning_rate"), "-1"),
        (&long, 413, None, "length limit"),
    ] {
        let answer = service.client.post("/trainings", body.to_owned()).await.unwrap();
        let error = &answer.body["error"];
        assert_eq!(answer.status.as_u16(), status, "{body:.80}: {error}");
        assert_eq!(&error["kind"], &json!("InvalidRequest"), "{body:.80}: {error}");
        assert_eq!(error.get("field").and_then(Value::as_str), field, "{error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
        assert!(error["hint"].is_string(), "{error}");
    }
    for path in ["/trainings/p-none-1", "/trainings/p-none-1/events", "/nowhere"] {
        let answer = service.client.get(path).await.unwrap();
        assert_eq!(answer.status.as_u16(), 404, "{path}");
        assert_eq!(&answer.body["error"]["kind"], &json!("NotFound"), "{path}");
    }
    let answer = service.client.delete("/trainings").await.unwrap();
    assert_eq!(answer.status.as_u16(), 405);
    assert_eq!(&answer.body["error"]["kind"], &json!("NoSuchMethod"));
    assert_eq!(service.health().await["room"], 9, "none of these took room");

    // A mistake that only Python notices is an exception of the payload, with its type and message.
    let place = service.begin(json!({ "epochs": 5, "learning_rate": 1e308 })).await;
    let events = followed(&service, &place).await;
    let error = &events.last().unwrap().data["error"];
    assert_eq!(&error["kind"], &json!("Raised"), "{error}");
    assert_eq!(&error["exception"], &json!("FloatingPointError"), "{error}");
    assert!(error["message"].as_str().unwrap().contains("a smaller learning_rate may help"), "{error}");
    assert_eq!(service.client.get(&place).await.unwrap().body["error"], *error);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_service_refuses_trainings_and_a_cancelled_one_makes_room() {
    let folders = Folders::new();
    let service = folders.start(&["--nodes", "1", "--waiting", "1"]).await;
    let long = json!({ "epochs": 100_000 });
    let running = service.begin(long.clone()).await;
    let mut follower = service.client.follow(&format!("{running}/events"), 0).await.unwrap();
    follower.until(&["progress"]).await.unwrap();
    let waiting = service.begin(long.clone()).await;
    assert_eq!(service.client.get(&waiting).await.unwrap().body["state"], "waiting");

    let full = service.client.post("/trainings", long.to_string()).await.unwrap();
    assert_eq!(full.status.as_u16(), 429);
    assert_eq!(&full.body["error"]["kind"], &json!("Full"));
    assert_eq!(full.headers["retry-after"], "5");

    let pool = &service.health().await["pool"];
    assert_eq!(&pool["queued"], &json!(1));
    assert_eq!(&pool["running"], &json!(1));
    assert_eq!(service.client.delete(&waiting).await.unwrap().status, 202);
    assert_eq!(names(&followed(&service, &waiting).await), ["queued", "cancelled"]);
    assert_eq!(service.client.delete(&running).await.unwrap().status, 202);
    follower.until(&["cancelled"]).await.unwrap();
    assert_eq!(service.client.get(&running).await.unwrap().body["state"], "cancelled");
    assert_eq!(service.client.delete(&running).await.unwrap().status, 409);

    let place = service.begin(json!({ "epochs": 3 })).await;
    assert_eq!(names(&followed(&service, &place).await).last(), Some(&"finished"), "the worker is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn late_or_deaf_followers_slow_nothing_down() {
    let folders = Folders::new();
    let service = folders.start(&["--nodes", "1", "--events", "16"]).await;
    let place = service.begin(json!({ "epochs": 1000, "batch_size": 1408 })).await;
    let mut deaf = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(service.client.0).await.unwrap();
        stream.write_all(format!("GET {place}/events HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        deaf.push(stream);
    }
    let mut state = service.client.get(&place).await.unwrap().body;
    while state["state"] != "finished" {
        assert!(state["state"] == "waiting" || state["state"] == "running", "{state}");
        state = service.client.get(&place).await.unwrap().body;
    }
    let late = followed(&service, &place).await;
    assert_eq!(late[0].name.as_str(), "missed", "{:?}", names(&late));
    assert_eq!(late.len(), 17, "{:?}", names(&late));
    let missed = late[0].data["events"].as_u64().unwrap();
    assert!(missed > 900, "{missed}");
    assert_eq!(late[0].id, missed);
    assert_eq!(late[1].id, missed + 1);
    // A follower that was disconnected continues after the last event it has seen.
    let last = late.last().unwrap().id;
    let mut follower = service.client.follow(&format!("{place}/events"), last - 1).await.unwrap();
    assert_eq!(names(&follower.until(ENDS).await.unwrap()), ["finished"]);
    // Followers that did not read get the events that were kept for them.
    let mut text = String::new();
    while !text.contains("event: finished") {
        let mut bytes = [0; 4096];
        let read = tokio::time::timeout(Duration::from_secs(60), deaf[0].read(&mut bytes)).await.unwrap().unwrap();
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_whose_worker_is_killed_starts_again() {
    let folders = Folders::new();
    let service = folders.start(&["--nodes", "1"]).await;
    let place = service.begin(json!({ "epochs": 1500, "batch_size": 1408 })).await;
    let mut follower = service.client.follow(&format!("{place}/events"), 0).await.unwrap();
    follower.until(&["progress"]).await.unwrap();
    let pid = service.health().await["pool"]["workers"][0]["pid"].as_u64().unwrap();
    signal("KILL", pid as u32).await;
    let retried = follower.until(&["retried"]).await.unwrap().pop().unwrap();
    assert_eq!(retried.data["attempt"], 2);
    assert_eq!(retried.data["error"]["kind"], "WorkerExited");
    let rest = follower.until(ENDS).await.unwrap();
    assert_eq!(rest[0].name.as_str(), "started");
    assert_eq!(&rest[0].data["attempt"], &json!(2));
    let first = rest.iter().find(|event| event.name == "progress").unwrap();
    assert_eq!(first.data["epoch"], 1, "from its first epoch");
    assert_eq!(names(&rest).last(), Some(&"finished"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_service_waits_for_trainings_and_leaves_nothing() {
    let folders = Folders::new();
    let mut service = folders.start(&["--nodes", "2", "--drain", "120"]).await;
    let short = service.begin(json!({ "epochs": 1000, "batch_size": 1408 })).await;
    let long = service.begin(json!({ "epochs": 100_000 })).await;
    let mut followers = Vec::new();
    for place in [&short, &long] {
        let mut follower = service.client.follow(&format!("{place}/events"), 0).await.unwrap();
        follower.until(&["progress"]).await.unwrap();
        followers.push(follower);
    }
    service.signal("TERM").await;
    service.line("stopping").await;
    let refused = service.client.post("/trainings", r#"{"epochs": 1}"#).await.unwrap();
    assert_eq!(refused.status.as_u16(), 503);
    assert_eq!(&refused.body["error"]["kind"], &json!("Stopping"));
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(service.client.get("/health").await.unwrap().status, 503);

    followers[0].until(&["finished"]).await.unwrap();
    assert_eq!(
        service.client.get(&short).await.unwrap().body["state"],
        "finished",
        "an ended training can still be queried"
    );
    service.client.delete(&long).await.unwrap();
    followers[1].until(&["cancelled"]).await.unwrap();
    service.line("ended").await;
    assert_eq!(service.ended().await.code(), Some(0));
    assert_nothing_left(&folders, &service);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_or_a_second_signal_ends_long_trainings() {
    for (drain, first, again) in [("1", "INT", false), ("120", "TERM", true)] {
        let folders = Folders::new();
        let mut service = folders.start(&["--nodes", "1", "--drain", drain]).await;
        let place = service.begin(json!({ "epochs": 100_000 })).await;
        let mut follower = service.client.follow(&format!("{place}/events"), 0).await.unwrap();
        follower.until(&["progress"]).await.unwrap();
        service.signal(first).await;
        // A second signal that arrives before the first is taken is merged with it.
        service.line("stopping").await;
        if again {
            service.signal("TERM").await;
        }
        let failed = follower.until(ENDS).await.unwrap().pop().unwrap();
        assert_eq!(failed.name.as_str(), "failed");
        assert_eq!(&failed.data["error"]["kind"], &json!("Closed"));
        assert_eq!(service.ended().await.code(), Some(0));
        assert_nothing_left(&folders, &service);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_service_leaves_no_process_and_the_next_one_reaps_it() {
    let folders = Folders::new();
    let mut service = folders.start(&["--nodes", "2"]).await;
    let place = service.begin(json!({ "epochs": 100_000 })).await;
    let mut follower = service.client.follow(&format!("{place}/events"), 0).await.unwrap();
    follower.until(&["progress"]).await.unwrap();
    assert!(processes_of(&service.pool).len() >= 4, "two agents, two workers");
    service.signal("KILL").await;
    service.ended().await;
    assert_gone(&service.pool).await;
    assert_eq!(folders.pools(), [service.pool.as_str()]);

    let mut next = folders.command(&["--nodes", "1"]).spawn().unwrap();
    let mut lines = BufReader::new(next.stdout.take().unwrap()).lines();
    line(&mut lines, "begins").await;
    let reaped = line(&mut lines, "").await;
    assert!(reaped.contains(service.pool.as_str()), "{reaped}");
    let pool = line(&mut lines, "pool ").await;
    assert_eq!(folders.pools(), [pool]);
    let address = line(&mut lines, "listening on http://").await;
    let client = example::client::Client(address.parse().unwrap());
    assert_eq!(client.get(&place).await.unwrap().status, 404, "ids are not used again");
    signal("TERM", next.id().unwrap()).await;
    line(&mut lines, "ended").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_while_the_pool_starts_ends_its_machines() {
    let folders = Folders::new();
    let mut starting = folders.command(&["--nodes", "2"]).spawn().unwrap();
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while folders.machines().is_empty() {
        assert!(tokio::time::Instant::now() < end && starting.try_wait().unwrap().is_none());
        tokio::task::yield_now().await;
    }
    let pool = skyward::ids::PoolId::new(folders.machines().pop().unwrap());
    signal("TERM", starting.id().unwrap()).await;
    let status = tokio::time::timeout(Duration::from_secs(60), starting.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(processes_of(&pool), Vec::<String>::new());
    assert_eq!(folders.pools(), Vec::<String>::new());
    assert_eq!(folders.machines(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl"]
async fn curl_can_use_the_whole_service() {
    let folders = Folders::new();
    let service = folders.start(&["--nodes", "1"]).await;
    let curl = async |arguments: &[&str], path: &str| {
        let url = format!("http://{}{path}", service.client.0);
        let output = Command::new("curl").args(["-s", "--max-time", "60"]).args(arguments).arg(url).output();
        let output = output.await.expect("there is no curl: apt-get install -y curl");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let answer = curl(&["-i", "-d", r#"{"epochs": 5}"#], "/trainings").await;
    assert!(answer.starts_with("HTTP/1.1 202 Accepted\r\n"), "{answer}");
    let place = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    let events = curl(&["-N"], &format!("{place}/events")).await;
    assert!(events.contains("event: progress\nid: ") && events.contains("event: finished"), "{events}");
    assert!(curl(&[], place).await.contains(r#""state":"finished""#));
    let error = curl(&["-X", "DELETE", "-w", "%{http_code}"], place).await;
    assert!(error.ends_with("409") && error.contains("AlreadyEnded"), "{error}");
}

fn assert_nothing_left(folders: &Folders, service: &Service) {
    assert_eq!(processes_of(&service.pool), Vec::<String>::new());
    assert_eq!(folders.pools(), Vec::<String>::new());
    assert_eq!(folders.machines(), Vec::<String>::new());
}
