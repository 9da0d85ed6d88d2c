use bytes::Bytes;

use super::*;
use crate::pool::tasks::replies::tests::{LIFE, RANK, frame, pool, submit};

/// The connection to an agent of the pool's node, and the agent's end of it.
async fn agent(shared: &Arc<Shared>) -> (Agent, Sender) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (sender, writer, _) = link(Box::new(far), 1 << 20);
    tokio::spawn(write(writer));
    let installed = Bytes::from_static(&[0x80]);
    report(&sender, frame(&(33, PROTOCOL_VERSION, 1, "3.12.0"), installed));
    (Agent::connect(shared, NodeIndex(0), Layout::new(1), Box::new(near)).await.unwrap(), sender)
}

fn report(sender: &Sender, frame: Frame) {
    sender.push(&frame.head, frame.body).unwrap();
    sender.flush();
}

#[tokio::test]
async fn an_agent_of_another_version_is_refused() {
    for (hello, what) in [
        (frame(&(33, 1, 1, "3.12.0"), Bytes::new()), "version: 1"),
        (frame(&(33, PROTOCOL_VERSION + 1, 1, "3.12.0", ()), Bytes::new()), "version: 3"),
        // A node that refuses the client's version answers so.
        (frame(&(41, 1, "version 2 is not mine", 0), Bytes::new()), "version 2 is not mine"),
    ] {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (sender, writer, _) = link(Box::new(far), 1 << 20);
        tokio::spawn(write(writer));
        report(&sender, hello);
        let refused = Agent::connect(&pool(), NodeIndex(0), Layout::new(1), Box::new(near)).await;
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
            shared.lock().workers[0].process.on_started(7, String::new());
        }
        report(&of_left, exited(7));
        of_left.close();
        while left.gone().is_none() {
            tokio::task::yield_now().await;
        }
        assert!(shared.lock().workers[0].process.exit().is_none(), "started: {starts}");
        let _task = submit(&shared, false).await;
        assert_eq!(shared.lock().scheduler.sent(RANK).count(), 1, "started: {starts}");

        let (_stays, of_new) = agent(&shared).await;
        report(&of_new, exited(7));
        while shared.lock().scheduler.is_ready(RANK) {
            tokio::task::yield_now().await;
        }
    }
}
