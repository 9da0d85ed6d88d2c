use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::io::DuplexStream;
use tokio::time::sleep;

use super::*;
use crate::files::{LARGEST_PIECE, NodePath};

/// The mover's side of a connection.
struct Far {
    sender: Sender,
    reader: Reader,
}

impl Far {
    /// A connection that was greeted.
    async fn connect() -> (Mover, Self) {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (greeted, far) = tokio::join!(greet(near), Self::greeted(far));
        (greeted.unwrap(), far)
    }

    async fn greeted(far: DuplexStream) -> Self {
        let (sender, writer, reader) = link(Box::new(far), MOST_BODY);
        spawn(writer.run());
        let mut far = Self { sender, reader };
        far.next().await;
        far.send(&(225, PROTOCOL_VERSION, 7), Bytes::new());
        far
    }

    /// The next messages of the client.
    async fn next(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        assert!(self.reader.read(&mut frames).await.unwrap());
        frames
    }

    fn send(&self, head: &impl Serialize, body: Bytes) {
        self.sender.push(&rmp_serde::to_vec(head).unwrap(), body).unwrap();
        self.sender.flush();
    }

    fn piece(&self, request: u64) {
        self.send(&(227, request, 1, 10, 1), Bytes::from_static(b"piece"));
    }
}

async fn greet(near: DuplexStream) -> Result<Mover> {
    Mover::greet(&PoolId::new("p"), MachineId::new("m"), "/work".into(), 7, Box::new(near), None).await
}

async fn ask(mover: &Mover, request: ToMover) -> Result<FromMover> {
    mover.ask(&request).await
}

fn read() -> ToMover {
    ToMover::Read { path: NodePath::new("a"), identity: None, offset: 0, length: LARGEST_PIECE }
}

fn stat() -> ToMover {
    ToMover::Stat { path: NodePath::new("a") }
}

/// An answer with this many entries.
fn entries(count: usize) -> Bytes {
    let entry = (Bytes::from_static(b"a"), "folder", 1, 0, 0, false, Bytes::new());
    rmp_serde::to_vec(&vec![entry; count]).unwrap().into()
}

#[tokio::test(start_paused = true)]
async fn a_slow_connection_lasts_as_long_as_answers_come() {
    let (mover, far) = Far::connect().await;
    let request = read();
    let asked = join_all((0..8).map(|_| mover.ask(&request)));
    let answers = async {
        for request in 1..=8 {
            sleep(MOVER_SILENCE - Duration::from_secs(1)).await;
            far.piece(request);
        }
    };
    let (asked, ()) = tokio::join!(asked, answers);
    assert!(asked.into_iter().all(|answer| matches!(answer, Ok(FromMover::Piece(_)))));
    // Without a request, silence is no loss.
    sleep(MOVER_SILENCE * 10).await;
    assert!(mover.is_of(&MachineId::new("m")) && !mover.is_of(&MachineId::new("other")));
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_lost_for_all_requests_and_can_be_repeated() {
    let (mover, far) = Far::connect().await;
    let began = Instant::now();
    let (first, second) = tokio::join!(ask(&mover, read()), ask(&mover, stat()));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(error.kind() == ErrorKind::Io && error.is_temporary(), "{error}");
        assert!(error.message().contains("did not answer for"), "{error}");
    }
    assert!(began.elapsed() < MOVER_SILENCE * 2, "{:?}", began.elapsed());
    assert!(!mover.is_of(&MachineId::new("m")));
    let error = ask(&mover, read()).now_or_never().unwrap().unwrap_err();
    assert!(error.is_temporary(), "{error}");
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_waits_for_any_more_is_dropped_and_the_next_one_arrives() {
    let (mover, far) = Far::connect().await;
    assert!(ask(&mover, read()).now_or_never().is_none(), "its caller gives up");
    let answers = async {
        far.piece(1);
        far.send(&(228, 2), Bytes::new());
    };
    let discard = ToMover::Drop { artifact: "0".repeat(32) };
    let (discarded, ()) = tokio::join!(ask(&mover, discard), answers);
    assert_eq!(discarded.unwrap(), FromMover::Done);
}

#[tokio::test(start_paused = true)]
async fn what_a_mover_must_not_send_ends_the_connection_with_the_reason() {
    type Breach = fn(&Far);
    let breaches: [(Breach, &str); 4] = [
        (|far| far.piece(2), "nobody waits for"),
        (|far| far.send(&(41, 194, "no such message", 0), Bytes::new()), "no such message"),
        (|far| far.send(&(300,), Bytes::new()), "300"),
        (|far| (0..=MOST_ENTRIES / 1024).for_each(|_| far.send(&(226, 1, true), entries(4096))), "without end"),
    ];
    for (breach, words) in breaches {
        let (mover, far) = Far::connect().await;
        let (asked, ()) = tokio::join!(ask(&mover, stat()), async { breach(&far) });
        let error = asked.unwrap_err();
        assert!(
            error.kind() == ErrorKind::Protocol && !error.is_temporary() && error.message().contains(words),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_folder_with_too_many_files_is_refused_and_other_requests_are_answered() {
    let (mover, far) = Far::connect().await;
    let answers = async {
        (0..=MOST_ENTRIES / 4096).for_each(|_| far.send(&(226, 1, true), entries(4096)));
        far.send(&(226, 1, false), entries(1));
        far.piece(2);
    };
    let (listed, piece, ()) = tokio::join!(ask(&mover, stat()), ask(&mover, read()), answers);
    let error = listed.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidSpec && error.message().contains(&MOST_ENTRIES.to_string()), "{error}");
    assert!(matches!(piece.unwrap(), FromMover::Piece(_)));
}

#[tokio::test(start_paused = true)]
async fn entries_in_several_parts_are_one_answer() {
    let (mover, far) = Far::connect().await;
    let answers = async {
        far.send(&(226, 1, true), entries(3));
        far.send(&(226, 1, false), entries(2));
        far.send(&(226, 2, false), entries(1));
    };
    let (first, second, ()) = tokio::join!(ask(&mover, stat()), ask(&mover, stat()), answers);
    for (answer, wanted) in [(first, 5), (second, 1)] {
        let FromMover::Entries { entries, .. } = answer.unwrap() else { panic!("entries") };
        assert_eq!(entries.len(), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn another_process_and_a_refusal_are_named() {
    for (hello, words) in [(Some(8), "another process"), (None, "there are 64")] {
        let (near, far) = tokio::io::duplex(1000);
        let (sender, writer, _reader) = link(Box::new(far), MOST_BODY);
        spawn(writer.run());
        let head = match hello {
            Some(pid) => rmp_serde::to_vec(&(225, PROTOCOL_VERSION, pid)).unwrap(),
            None => rmp_serde::to_vec(&(41, 193, "there are 64 connections", 0)).unwrap(),
        };
        sender.push(&head, Bytes::new()).unwrap();
        sender.flush();
        let error = greet(near).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Protocol && error.message().contains(words), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_those_who_need_a_connection_at_once_one_opens_it() {
    let route = Route::default();
    let opened = Mutex::new(0);
    let failing = || async {
        *opened.lock().unwrap() += 1;
        sleep(Duration::from_secs(1)).await;
        Err(lost())
    };
    let machine = MachineId::new("m");
    let failed = join_all((0..8).map(|_| route.mover(&machine, failing()))).await;
    assert!(failed.iter().all(Result::is_err));
    assert_eq!(*opened.lock().unwrap(), 1);
    let mut far = Vec::new();
    let (mover, other) = Far::connect().await;
    far.push(other);
    let open = || async {
        *opened.lock().unwrap() += 1;
        Ok(mover.clone())
    };
    let reached = join_all((0..8).map(|_| route.mover(&machine, open()))).await;
    assert!(reached.iter().all(Result::is_ok));
    assert_eq!(*opened.lock().unwrap(), 2);
}
