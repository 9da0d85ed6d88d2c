//! Golden frames of the worker protocol: the worker package's own tests check the same file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use bytes::Bytes;
use serde_json::Value;
use skyward_core::files::{Entry, EntryKind, Identity, NodePath, Piece};
use skyward_core::payload::TraceContext;
use skyward_core::worker::calls::{CallFrame, FromCaller, ToCaller};
use skyward_core::worker::codec::{Decoder, Frame};
use skyward_core::worker::message::{
    Awaited, FromAgent, FromMover, FromWorker, Note, Refused, Signal, ToAgent, ToMover, ToWorker, WorkerHello,
};

#[derive(serde::Deserialize)]
struct Golden {
    name: String,
    direction: String,
    head: Value,
    body_hex: String,
    frame_hex: String,
}

#[test]
fn every_frame_is_encoded_and_decoded_as_on_the_node() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/frames.json");
    let golden: Vec<Golden> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(golden.len() > 30);
    for golden in &golden {
        let bytes = unhex(&golden.frame_hex);
        let mut decoder = Decoder::new(1 << 20);
        decoder.buffer().extend_from_slice(&bytes);
        let frame = decoder.next_frame().unwrap().expect("a whole frame");
        assert!(!decoder.is_mid_frame(), "{}", golden.name);
        assert_eq!(frame.body, unhex(&golden.body_hex), "{}", golden.name);
        match golden.direction.as_str() {
            "client_to_agent" | "client_to_worker" | "client_to_calls" | "client_to_mover" => {
                let (head, body) = encode(golden, frame.body.clone());
                let mut encoded = Frame::prefix(&head, body.len()).unwrap().to_vec();
                encoded.extend_from_slice(&body);
                assert_eq!(encoded, bytes, "{}", golden.name);
            }
            "agent_to_client" => check_agent(golden, frame),
            "calls_to_client" => check_calls(golden, frame),
            "mover_to_client" => check_mover(golden, frame),
            // The client is no party of these.
            "worker_to_mover" | "mover_to_worker" => {}
            _ => check_worker(golden, frame),
        }
    }
}

#[test]
fn one_table_gives_out_the_numbers_of_messages() {
    let page = include_str!("../../docs/protocol.md");
    let (_, table) = page.split_once("### Message numbers\n").unwrap();
    let table = table.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut given = BTreeMap::new();
    for row in table.skip(2).map(cells) {
        let first = given.len();
        let (least, most) = row[1].split_once(" to ").unwrap();
        let [least, most]: [u64; 2] = [least, most].map(|number| number.parse().unwrap());
        let messages = row[3].split(", ").filter_map(|message| message.split_once(' '));
        let messages = messages.filter_map(|(number, name)| Some((number.parse::<u64>().ok()?, name)));
        given.extend(messages.map(|(number, name)| (number, name.split(' ').next().unwrap().to_owned())));
        let numbers: Vec<u64> = given.range(least..=most).map(|(number, _)| *number).collect();
        let free = least + numbers.len() as u64;
        assert_eq!(numbers, (least..free).collect::<Vec<_>>(), "the numbers of {} have a gap", row[2]);
        assert_eq!(given.len() - first, numbers.len(), "{}", row[2]);
        assert_eq!(row[4].parse(), Ok(free), "{}", row[2]);
        assert!(free <= most + 1, "{}", row[2]);
    }
    // The tables of the messages themselves.
    let described = page.lines().filter(|line| line.starts_with("| ")).map(cells);
    let described = described.filter_map(|row| Some((row[1].parse::<u64>().ok()?, row[2].clone())));
    assert_eq!(described.collect::<BTreeMap<_, _>>(), given);
    let golden: Vec<Golden> = serde_json::from_str(include_str!("../../tests/golden/frames.json")).unwrap();
    let mut sent: Vec<u64> = golden.iter().map(|golden| golden.head[0].as_u64().unwrap()).collect();
    // Adopt arrives with descriptors.
    sent.push(72);
    sent.sort_unstable();
    sent.dedup();
    assert_eq!(sent, given.keys().copied().collect::<Vec<_>>());
}

/// Encodes the message that a golden head describes.
fn encode(golden: &Golden, body: Bytes) -> (Vec<u8>, Bytes) {
    let head = golden.head.as_array().unwrap();
    let number = |at: usize| head[at].as_u64().unwrap();
    let float = |at: usize| head[at].as_f64().unwrap();
    let small = |at: usize| number(at) as u32;
    let numbers = |at: usize| head[at].as_array().unwrap().iter().map(|item| item.as_u64().unwrap() as u32).collect();
    match number(0) {
        1 => ToAgent::Hello { pool: head[2].as_str().unwrap().into(), max_frame_bytes: number(3) as usize }.encode(),
        // The order of the spec's map is free; only the head must agree.
        2 => return (rmp_serde::to_vec(&golden.head).unwrap(), body),
        3 => ToAgent::ReservePort { request: number(1) }.encode(),
        4 => ToAgent::Signal { generation: number(1), worker: small(2), signal: Signal::Interrupt }.encode(),
        5 => ToAgent::Stop { request: number(1), generation: number(2), workers: numbers(3), grace: float(4) }.encode(),
        6 => ToAgent::Ping { sequence: number(1), lease: float(2) }.encode(),
        7 => ToAgent::Logs { generation: number(1), worker: small(2), stdout: number(3), stderr: number(4) }.encode(),
        8 => ToAgent::Shutdown { request: number(1), grace: float(2) }.encode(),
        9 => ToAgent::Recall { generation: number(1), worker: small(2), pid: small(3), upto: number(4) }.encode(),
        10 => ToAgent::Watch { command: serde_json::from_value(head[1].clone()).unwrap() }.encode(),
        11 => ToAgent::Mover { request: number(1) }.encode(),
        193..=224 => {
            let message = to_mover(head, body);
            return (message.encode(if number(0) == 193 { 0 } else { number(1) }).unwrap(), message.body());
        }
        65 => {
            let streams: Vec<(u64, u64, u64)> = serde_json::from_value(head[4].clone()).unwrap();
            let awaited = |(run, arrived, granted)| Awaited { run, arrived, granted };
            let streams: Vec<Awaited> = streams.into_iter().map(awaited).collect();
            ToWorker::Hello { generation: number(2), acknowledged: number(3), streams: &streams }.encode()
        }
        66 => ToWorker::Load { payload: small(1), digest: head[2].as_str().unwrap(), body }.encode(),
        67 => {
            let (run, payload, acknowledged, granted) = (number(1), small(2), number(3), number(4));
            let gang = head.get(6).and_then(|gang| serde_json::from_value(gang.clone()).unwrap());
            let depth = head.get(7).map_or(0, |depth| depth.as_u64().unwrap() as u32);
            let trace = head[5].as_array().map(|fields| {
                let text = |at: usize| fields[at].as_str().unwrap();
                TraceContext::new(text(0)).unwrap().with_state(text(1)).unwrap()
            });
            ToWorker::Run { run, payload, acknowledged, granted, trace: trace.as_ref(), gang, depth, args: body }
                .encode()
        }
        129 => ToCaller::hello(number(2), number(3)),
        130 => {
            let ok = head[3].as_bool().unwrap();
            ToCaller::Outcome { call: number(2), ok, micros: number(4), body }.encode(number(1))
        }
        131 => {
            let within = CallFrame { run: number(3), help: number(4) };
            let (depth, aside) = (small(5), head[6].as_bool().unwrap());
            ToCaller::Help { help: number(2), within, depth, aside, body }.encode(number(1))
        }
        132 => ToCaller::CancelHelp { help: number(2) }.encode(number(1)),
        133 => ToCaller::ack(number(1)),
        134 => {
            let digest = head[3].as_str().unwrap().to_owned();
            let (read, offset, length) = (number(2), number(4), number(5));
            ToCaller::Read { read, digest, offset, length }.encode(number(1))
        }
        135 => ToCaller::Fetched { fetch: number(2), body }.encode(number(1)),
        136 => ToCaller::NotFetched { fetch: number(2) }.encode(number(1)),
        68 => ToWorker::Ack { sequence: number(1) }.encode(),
        69 => ToWorker::Credit(Awaited { run: number(1), granted: number(2), arrived: number(3) }).encode(),
        70 => ToWorker::Cancel { run: number(1) }.encode(),
        71 => ToWorker::Bye.encode(),
        73 => {
            let text = |at: usize| head[at].as_str().unwrap();
            ToWorker::Notice { kind: text(1), seconds: float(2), words: text(3) }.encode()
        }
        74 => ToWorker::Size { workers: small(1) }.encode(),
        other => panic!("{}: message {other} is not one that the client sends", golden.name),
    }
    .unwrap()
}

fn to_mover(head: &[Value], body: Bytes) -> ToMover {
    let number = |at: usize| head[at].as_u64().unwrap();
    let text = |at: usize| head[at].as_str().unwrap().to_owned();
    let path = || {
        let path = OsString::from_vec(unhex(head[3]["hex"].as_str().unwrap()));
        if text(2).is_empty() { NodePath::new(path) } else { NodePath::of_artifact(text(2), path) }
    };
    match number(0) {
        193 => ToMover::Hello { pool: text(2) },
        194 => ToMover::Stat { path: path() },
        195 => {
            let identity: Option<(u64, u64, i64)> = serde_json::from_value(head[4].clone()).unwrap();
            let identity = identity.map(|(inode, size, modified)| Identity { inode, size, modified });
            ToMover::Read { path: path(), identity, offset: number(5), length: number(6) }
        }
        196 => ToMover::Drop { artifact: text(2) },
        197 => ToMover::Attend,
        198 => ToMover::Deliver { channel: number(2), received: number(3), body },
        199 => ToMover::Ask { channel: number(2), ask: number(3) as i64 },
        200 => ToMover::Settle { save: text(2) },
        201 => ToMover::Restore { commit: text(2), manifest: body },
        202 => {
            let path = OsString::from_vec(unhex(head[3]["hex"].as_str().unwrap())).into();
            ToMover::Write { commit: text(2), path, offset: number(4), body }
        }
        203 => ToMover::Complete { commit: text(2) },
        204 => ToMover::Attach { most: number(2), manifest: body },
        205 => ToMover::Fill { id: text(2), spans: serde_json::from_value(head[3].clone()).unwrap(), body },
        _ => ToMover::Publish { id: text(2) },
    }
}

fn check_mover(golden: &Golden, frame: Frame) {
    let body = frame.body.clone();
    let (request, message) = FromMover::decode(frame).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    let head = &golden.head;
    let number = |at: usize| head[at].as_u64().unwrap();
    match message {
        FromMover::Hello { version, pid } => assert_eq!((request, version, pid), (0, 3, 4244)),
        FromMover::Entries { more, entries } => {
            assert_eq!((request, Some(more)), (number(1), head[2].as_bool()));
            assert_eq!((entries[0].path.as_os_str(), &entries[0].kind), ("".as_ref(), &EntryKind::Folder));
            if let [_, file, link] = &entries[..] {
                let identity = Identity { inode: u64::MAX, size: 1 << 40, modified: 1_700_000_000_123_456_789 };
                let path = OsString::from_vec(b"caf\xe9".to_vec());
                assert_eq!(*file, Entry::new(&path, EntryKind::File { executable: true }, identity));
                assert_eq!(link.kind, EntryKind::Link(path.into()));
            }
        }
        FromMover::Piece(Piece { identity, bytes }) => {
            assert_eq!((request, identity.inode, identity.size), (number(1), number(2), number(3)));
            assert_eq!((Some(identity.modified), bytes), (head[4].as_i64(), body));
        }
        FromMover::Done => assert_eq!((request, number(0)), (number(1), 228)),
        FromMover::Failed(Refused { kind, words, errno }) => {
            let kind = format!("{kind:?}").to_lowercase();
            let found = (request, kind.as_str(), words.as_str(), i64::from(errno));
            let text = |at: usize| head[at].as_str().unwrap();
            assert_eq!(found, (number(1), text(2), text(3), head[4].as_i64().unwrap()));
        }
        FromMover::Step { step } => assert_eq!((request, Some(step)), (number(1), head[2].as_i64())),
        FromMover::Restored { path, complete } => {
            let found = unhex(head[2]["hex"].as_str().unwrap());
            assert_eq!((request, Some(complete)), (number(1), head[3].as_bool()));
            assert_eq!(path.as_os_str().as_bytes(), found);
        }
        FromMover::Busy => assert_eq!((request, number(0)), (number(1), 235)),
        FromMover::Attached { id, path, complete, missing } => {
            let found = unhex(head[3]["hex"].as_str().unwrap());
            assert_eq!((request, Some(&*id), Some(complete)), (number(1), head[2].as_str(), head[4].as_bool()));
            assert_eq!(path.as_os_str().as_bytes(), found);
            assert_eq!(missing, if complete { vec![] } else { vec![1, 70_000] });
        }
        FromMover::Note(Note::Sent { channel, number: sent, body: found }) => {
            assert_eq!((channel, sent, found), (number(1), number(2), body));
        }
        FromMover::Note(Note::Closed { channel }) => assert_eq!((channel, number(0)), (number(1), 231)),
        FromMover::Note(Note::Saved { save, path, record }) => {
            assert_eq!((Some(&*save), record), (head[1].as_str(), body));
            assert_eq!(path.as_os_str().as_bytes(), unhex(head[2]["hex"].as_str().unwrap()));
        }
        FromMover::Error { text } => assert_eq!((request, Some(&*text)), (0, head[2].as_str())),
    }
}

fn check_agent(golden: &Golden, frame: Frame) {
    let message = FromAgent::decode(frame).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    let head = &golden.head;
    match message {
        FromAgent::Hello { version, pid, python, installed } => {
            let installed: BTreeMap<String, String> = rmp_serde::from_slice(&installed).unwrap();
            assert_eq!(installed["python"].as_str(), "3.12");
            assert_eq!(installed.len(), 3);
            assert_eq!(version, 3);
            assert_eq!(pid, 4242);
            assert_eq!(python.as_str(), head[3].as_str().unwrap());
        }
        FromAgent::Started { request, generation, workers } => {
            assert_eq!(request, 5);
            assert_eq!(generation, 1);
            assert_eq!(workers[0].pid, 4243);
            assert_eq!(workers[0].socket, head[3][0][2].as_str().unwrap());
        }
        FromAgent::Port { request, port } => {
            assert_eq!(request, 7);
            assert_eq!(port, 41234);
        }
        FromAgent::Exited { code, signal, out_of_memory, begun, last_words, .. } => {
            assert_eq!(code.map(i64::from), head[4].as_i64());
            assert_eq!(signal.map(i64::from), head[5].as_i64());
            assert_eq!(Some(out_of_memory), head[6].as_bool());
            assert_eq!(Some(begun), head[7].as_u64());
            assert_eq!(&last_words[..], &unhex(&golden.body_hex)[..]);
        }
        FromAgent::Pong { sequence } => assert_eq!(Some(sequence), head[1].as_u64()),
        FromAgent::Log { stream, offset, bytes, .. } => {
            assert_eq!(stream, 1);
            assert_eq!(offset, 70000);
            assert_eq!(&bytes[..], &unhex(&golden.body_hex)[..]);
        }
        FromAgent::LogEnd { stdout, stderr, .. } => {
            assert_eq!(stdout, 70006);
            assert_eq!(stderr, 0);
        }
        FromAgent::Stopped { request, workers, .. } => {
            assert_eq!(request, 6);
            assert_eq!(workers, vec![0, 1]);
        }
        FromAgent::Error { refused, text, request } => {
            assert_eq!(refused, 2);
            assert_eq!(text.as_str(), head[2].as_str().unwrap());
            assert_eq!(request, 5);
        }
        FromAgent::Bye { request } => {
            assert_eq!(head[0].as_u64(), Some(42));
            assert_eq!(request, 8);
        }
        FromAgent::Recalled { generation, worker, pid, upto, begun } => {
            assert_eq!(generation, 1);
            assert_eq!(worker, 0);
            assert_eq!(pid, 4243);
            assert_eq!(upto, 70_000);
            assert_eq!(begun, 300);
        }
        FromAgent::Progress { generation, worker } => {
            assert_eq!(generation, 1);
            assert_eq!(worker, 0);
        }
        FromAgent::Stacks { generation, worker, text } => {
            assert_eq!(generation, 1);
            assert_eq!(worker, 0);
            assert_eq!(&text[..], &unhex(&golden.body_hex)[..]);
        }
        FromAgent::Calls { generation, worker, pid, path } => {
            assert_eq!(generation, 1);
            assert_eq!(worker, 0);
            assert_eq!(pid, 4243);
            assert_eq!(path.as_str(), head[4].as_str().unwrap());
        }
        FromAgent::Mover { request, pid, path } => {
            assert_eq!((request, pid), (9, 4244));
            assert_eq!(path.as_str(), head[3].as_str().unwrap());
        }
        FromAgent::Notice { kind, seconds, words } => {
            assert_eq!(kind.as_str(), "preempted");
            assert_eq!(seconds, 120.0);
            assert_eq!(words.as_str(), head[3].as_str().unwrap());
        }
    }
}

fn check_calls(golden: &Golden, frame: Frame) {
    let message = FromCaller::decode(frame.clone()).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    let number = |at: usize| golden.head[at].as_u64().unwrap();
    match message {
        FromCaller::Hello(hello) => {
            assert_eq!(hello.version, 3);
            assert_eq!(hello.pid, 4243);
            assert_eq!(hello.generation, 1);
            assert_eq!(hello.rank, 0);
            assert_eq!(hello.received, number(5));
        }
        FromCaller::Submit { n, call, frame: of, options, body } => {
            assert_eq!(n, number(1));
            assert_eq!(call, number(2));
            assert_eq!(of.run, number(3));
            assert_eq!(of.help, number(4));
            let said = golden.head[5].get("timeout").and_then(Value::as_f64);
            assert_eq!(options.timeout.map(|timeout| timeout.as_secs_f64()), said);
            assert_eq!(body, frame.body);
        }
        FromCaller::Wait { n, frame } => {
            assert_eq!(n, number(1));
            assert_eq!(frame.run, number(2));
            assert_eq!(frame.help, number(3));
        }
        FromCaller::Waited { n } => assert_eq!(n, number(1)),
        FromCaller::Helped { n, help, micros, value } => {
            assert_eq!(n, number(1));
            assert_eq!(help, number(2));
            assert_eq!(micros, number(3));
            assert_eq!(value, frame.body);
        }
        FromCaller::HelpFailed { n, help, micros, failure } => {
            assert_eq!(n, number(1));
            assert_eq!(help, number(2));
            assert_eq!(micros, number(3));
            assert!(!failure.kind.is_empty());
        }
        FromCaller::Refuse { n, help } => {
            assert_eq!(n, number(1));
            assert_eq!(help, number(2));
        }
        FromCaller::Drop { n, call } => {
            assert_eq!(n, number(1));
            assert_eq!(call, number(2));
        }
        FromCaller::Fetch { n, fetch, rank, digest, offset, length } => {
            assert_eq!(n, number(1));
            assert_eq!(fetch, number(2));
            assert_eq!(u64::from(rank), number(3));
            assert_eq!(digest.as_str(), golden.head[4].as_str().unwrap());
            assert_eq!(offset, number(5));
            assert_eq!(length, number(6));
        }
        FromCaller::Piece { n, read, body } => {
            assert_eq!(n, number(1));
            assert_eq!(read, number(2));
            assert_eq!(body, frame.body);
        }
        FromCaller::Missing { n, read } => {
            assert_eq!(n, number(1));
            assert_eq!(read, number(2));
        }
        FromCaller::Ack { received } => assert_eq!(received, number(1)),
    }
}

fn check_worker(golden: &Golden, frame: Frame) {
    let message = FromWorker::decode(frame).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    let head = &golden.head;
    match message {
        FromWorker::Hello(WorkerHello { version, pid, generation, rank, received, failure, .. }) => {
            assert_eq!(version, 3);
            assert_eq!(pid, 4243);
            assert_eq!(generation, 1);
            assert_eq!(rank, 0);
            assert_eq!(Some(received), head[7].as_u64());
            assert_eq!(Some(failure.is_none()), head[5].as_bool());
            assert!(failure.is_none_or(|failure| failure.kind == "hook" && failure.plugin.is_some()));
        }
        FromWorker::Result { end, .. } => {
            let said: Vec<u64> = head.as_array().unwrap()[1..].iter().map(|one| one.as_u64().unwrap()).collect();
            assert_eq!([end.sequence, end.run, end.stdout, end.stderr, end.micros], said[..]);
        }
        FromWorker::Failure { end, failure } => {
            assert_eq!(end.sequence, 42);
            assert_eq!(failure.kind, "exception");
        }
        FromWorker::Item { run, index, value } => {
            assert_eq!(run, 9);
            assert_eq!(index, 0);
            assert_eq!(&value[..], &[1][..]);
        }
        FromWorker::Import { run, begins } => {
            assert_eq!(run, 9);
            assert_eq!(Some(begins), head[2].as_bool());
        }
        FromWorker::Report { sequence, run, value } => {
            assert_eq!(sequence, 44);
            assert_eq!(run, 9);
            assert_eq!(skyward_core::payload::value::decode::<BTreeMap<String, f64>>(&value).unwrap()["loss"], 0.5);
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
