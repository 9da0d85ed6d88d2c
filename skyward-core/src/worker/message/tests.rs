use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::error::ErrorKind;
use crate::payload::Source;
use crate::spec::Secrets;
use crate::worker::codec::Frame;

#[test]
fn elements_of_a_later_version_are_ignored() {
    let frame = |head: Vec<u8>| Frame { head: head.into(), body: Bytes::new() };
    let pong = FromAgent::decode(frame(pack(&(37, 7, "more")).unwrap())).unwrap();
    assert_eq!(pong, FromAgent::Pong { sequence: 7 });
    let result = FromWorker::decode(frame(pack(&(98, 1, 2, 3, 4, 5, [6])).unwrap())).unwrap();
    assert!(matches!(result, FromWorker::Result { end: TaskEnd { sequence: 1, micros: 5, .. }, .. }));
}

#[test]
fn a_result_and_a_failure_may_have_warnings() {
    let warning = [("a pattern matched nothing", "change it")];
    for (number, body) in
        [(98, Bytes::new()), (99, rmp_serde::to_vec(&BTreeMap::from([("kind", "exception")])).unwrap().into())]
    {
        let frame = Frame { head: pack(&(number, 1, 2, 3, 4, 5, warning)).unwrap().into(), body };
        let (FromWorker::Result { end, .. } | FromWorker::Failure { end, .. }) = FromWorker::decode(frame).unwrap()
        else {
            unreachable!()
        };
        assert_eq!(end.warnings.len(), 1);
        assert_eq!((&*end.warnings[0].message, &*end.warnings[0].hint), warning[0]);
    }
}

#[test]
fn a_notice_is_decoded_only_with_seconds_that_fit_a_deadline() {
    let read = |seconds: f64| {
        let head = pack(&(46, "preempted", seconds, "the market wants it back")).unwrap();
        FromAgent::decode(Frame { head: head.into(), body: Bytes::new() })
    };
    for seconds in [0.0, 0.5, 120.0, LONGEST_NOTICE] {
        let words = "the market wants it back".to_owned();
        assert_eq!(read(seconds).unwrap(), FromAgent::Notice { kind: "preempted".into(), seconds, words });
    }
    for seconds in [-0.1, 2e9, f64::INFINITY, f64::NAN] {
        assert_eq!(read(seconds).unwrap_err().kind(), ErrorKind::Protocol, "{seconds}");
    }
}

#[test]
fn a_watch_and_a_notice_are_encoded_as_the_node_decodes_them() {
    let watch = ToAgent::Watch { command: vec!["poll".into(), "--every=5".into()] };
    let (head, body) = watch.encode().unwrap();
    let read: (u32, Vec<String>) = rmp_serde::from_slice(&head).unwrap();
    assert_eq!(read.0, watch.number());
    assert_eq!(read.1.join(" ").as_str(), "poll --every=5");
    assert_eq!(body.len(), 0);
    let notice = ToWorker::Notice { kind: "budget", seconds: 90.5, words: "" };
    let (head, body) = notice.encode().unwrap();
    let read: (u32, String, f64, String) = rmp_serde::from_slice(&head).unwrap();
    assert_eq!(read, (73, "budget".into(), 90.5, String::new()));
    assert_eq!(body.len(), 0);
}

#[test]
fn the_size_of_a_pool_is_encoded_as_the_worker_decodes_it() {
    let (head, body) = ToWorker::Size { workers: 70_000 }.encode().unwrap();
    let read: (u32, u32) = rmp_serde::from_slice(&head).unwrap();
    assert_eq!(read, (74, 70_000));
    assert_eq!(body.len(), 0);
}

#[test]
fn peers_are_the_end_of_a_start_spec() {
    let peers = [("10.0.0.1", 0), ("10.0.0.2", 1)].map(|(addr, node)| Peer { node, addr: addr.into() });
    let cluster = Cluster {
        node: 1,
        total_nodes: 2,
        workers_per_node: 1,
        head_addr: "10.0.0.1".into(),
        head_port: 4242,
        job_id: "p-1".into(),
        addr: "10.0.0.2".into(),
        accelerators: 0,
        total_accelerators: 0,
        accelerator: None,
        generation: 1,
        joined: true,
        shared_host: false,
        storage: false,
        data: Vec::new(),
        peers: [],
    };
    let spec = StartSpec {
        python: "python".into(),
        launcher: Vec::new(),
        env: BTreeMap::new(),
        secrets: Secrets::default(),
        cwd: "/work".into(),
        hooks: Vec::new(),
        payloads: vec![StartPayload::new(&Arc::new(Source::file("job.py", "def f(): ...", "f")))],
        max_frame_bytes: 1,
        retain_bytes: 1,
        store_bytes: 1,
        cluster,
    };
    let peers = Peers::new(&peers).unwrap();
    let start = ToAgent::Start { request: 1, generation: 1, workers: vec![0], spec: Box::new(spec), peers };
    let (_, body) = start.encode().unwrap();
    let body: serde_json::Value = rmp_serde::from_slice(&[body, start.shared()].concat()).unwrap();
    let told = serde_json::json!([{"node": 0, "addr": "10.0.0.1"}, {"node": 1, "addr": "10.0.0.2"}]);
    assert_eq!(&body["cluster"]["peers"], &told, "{body}");
    assert_eq!(body["python"], "python", "{body}");
    let source = serde_json::json!({
        "entry": "f", "main": "job.py", "first_line": 1, "files": [["job.py", "def f(): ..."]],
    });
    assert_eq!(&body["payloads"][0][1], &source, "{body}");
}

#[test]
fn bytes_that_are_no_message_are_an_error() {
    for head in [
        &b""[..],
        b"\xc0",
        b"\x90",
        b"\x91\x62",
        b"\x91\xcc\xff",
        b"\x92\x25\xa1x",
        b"\x93\x22\x01\xdd\xff\xff\xff\xff",
    ] {
        let frame = Frame { head: Bytes::copy_from_slice(head), body: Bytes::new() };
        assert_eq!(FromAgent::decode(frame.clone()).unwrap_err().kind(), ErrorKind::Protocol, "{head:?}");
        assert_eq!(FromWorker::decode(frame).unwrap_err().kind(), ErrorKind::Protocol, "{head:?}");
    }
}
