use bytes::Bytes;

use super::*;
use crate::ids::MachineNumber;
use crate::pool::fleet::account::Account;
use crate::pool::tasks::replies::tests::{LIFE, RANK, frame, pool, submit};
use crate::provider::Offer;
use crate::spec::Budget;

/// The connection to an agent of the pool's node, and the agent's end of it.
async fn agent(shared: &Arc<Shared>) -> (Agent, Sender) {
    let (agent, sender, _) = agent_that_reads(shared).await;
    (agent, sender)
}

/// The same, with what the agent receives.
async fn agent_that_reads(shared: &Arc<Shared>) -> (Agent, Sender, Reader) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (sender, writer, reader) = link(Box::new(far), 1 << 20);
    tokio::spawn(write(writer));
    let installed = Bytes::from_static(&[0x80]);
    report(&sender, frame(&(33, PROTOCOL_VERSION, 1, "3.12.0"), installed));
    let launch = LaunchId::new("l");
    let agent = Agent::connect(shared, &launch, NodeIndex(0), Layout::new(1), Box::new(near));
    (agent.await.unwrap(), sender, reader)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn report(sender: &Sender, frame: Frame) {
    sender.push(&frame.head, frame.body).unwrap();
    sender.flush();
}

#[tokio::test]
async fn an_agent_of_another_version_is_refused() {
    let newer = format!("version: {}", PROTOCOL_VERSION + 1);
    for (hello, what) in [
        (frame(&(33, 1, 1, "3.12.0"), Bytes::new()), "version: 1"),
        (frame(&(33, PROTOCOL_VERSION + 1, 1, "3.12.0", ()), Bytes::new()), newer.as_str()),
        // A node that refuses the client's version answers so.
        (frame(&(41, 1, "version 2 is not mine", 0), Bytes::new()), "version 2 is not mine"),
    ] {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (sender, writer, _) = link(Box::new(far), 1 << 20);
        tokio::spawn(write(writer));
        report(&sender, hello);
        let refused = Agent::connect(&pool(), &LaunchId::new("l"), NodeIndex(0), Layout::new(1), Box::new(near)).await;
        let error = refused.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.message().contains(what) && error.hint().unwrap().contains("another version"), "{error}");
    }
}

/// Reports that the worker with this process id has ended.
fn exited(pid: u32) -> Frame {
    frame(&(36, LIFE.0, 0, pid, Some(1), None::<i32>, false, 0), Bytes::new())
}

#[tokio::test]
async fn the_end_of_a_worker_on_a_machine_that_has_left_is_none_of_the_next_machine() {
    for starts in [false, true] {
        let shared = pool();
        let (left, of_left) = agent(&shared).await;
        left.leave_place();
        if starts {
            shared.lock().workers.get_mut(Rank(0)).unwrap().process.on_started(7, String::new());
        }
        report(&of_left, exited(7));
        of_left.close();
        until("the connection has ended", || left.gone().is_some()).await;
        assert!(shared.lock().workers.get(Rank(0)).unwrap().process.exit().is_none(), "started: {starts}");
        let _task = submit(&shared, false).await;
        assert_eq!(shared.lock().scheduler.sent(RANK).count(), 1, "started: {starts}");

        let (_stays, of_new) = agent(&shared).await;
        report(&of_new, exited(7));
        until("the worker has ended", || !shared.lock().scheduler.is_ready(RANK)).await;
    }
}

#[tokio::test]
async fn the_error_of_a_task_has_what_its_worker_wrote_last() {
    let shared = pool();
    shared.lock().workers.get_mut(RANK).unwrap().process.on_started(7, String::new());
    let (_agent, node) = agent(&shared).await;
    let task = submit(&shared, false).await;
    let words = "loading\nFatal Python error: Aborted\n\n\
        Current thread 0x1 (most recent call first):\n  File \"job.py\", line 3 in f\n";
    report(&node, frame(&(36, LIFE.0, 0, 7, None::<i32>, Some(6), false, 1), Bytes::from(words)));
    let error = task.outcome().await.unwrap_err();
    assert_eq!((error.kind(), error.exit()), (ErrorKind::WorkerExited, Some(&WorkerExit::Signal(6))));
    assert_eq!(error.last_lines(), Some("loading\nFatal Python error: Aborted"));
    assert_eq!(error.stacks()[0].place.as_deref(), Some("`f` (job.py:3)"));
    let text = format!("{error:#}");
    assert!(text.contains("\nlast lines of its standard error:\n  loading\n  Fatal"), "{text}");
    assert!(text.contains("\nstacks of rank 0:\n  Current thread"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_charged_for_its_lease_after_the_last_answer_if_its_client_is_suspended() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (shared, outlives) = (pool(), Duration::from_secs(200));
    *shared.account() = Account::new(Budget::default(), Duration::ZERO).outlives(Some(outlives));
    let (launch, offer) = (LaunchId::new("l"), Offer::new("m", "p", 1, 1));
    shared.account().admit(&launch, MachineNumber(0), &offer, 1, clock::now()).unwrap();
    let (_agent, sender, mut reader) = agent_that_reads(&shared).await;
    let mut waiting = VecDeque::new();
    let mut next = async || reader.next(&mut waiting).await.unwrap();
    let hello = next().await;
    let ping = next().await;
    assert!(hello.head.len() > ping.head.len());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let hours = || shared.account().spent(clock::now()).machine_hours;
    clock::SUSPENDED.set(clock::SUSPENDED.get() + HOUR);
    assert!(hours() > 1.0, "nothing has answered yet");
    // The head of a ping is an array of its number, its sequence and the lease.
    let sequence = ping.head[2];
    report(&sender, frame(&(37, sequence), Bytes::new()));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(hours() < 1.0, "its last answer is known");
    clock::SUSPENDED.set(clock::SUSPENDED.get() + HOUR * 7);
    // Pings that are sent now do not reach it.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let charged = hours() * 3600.0;
    assert!(charged > 199.0 && charged < 211.0, "{charged}");
}
