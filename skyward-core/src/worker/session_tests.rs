use proptest::prelude::*;

use super::*;
use crate::payload::Args;
use crate::worker::payload_numbers::PAYLOADS;

fn task(text: &str) -> Task {
    Task::new(Arc::new(Source::file("a.py", text.to_owned(), "f")), Args::new().encode().unwrap())
}

fn call(task: &Task) -> Call<'_> {
    Call { task, granted: 0, gang: None, depth: 0 }
}

/// A frame's message number, and the number of its run or payload.
fn said(frame: &Outgoing) -> (u8, u64) {
    let mut head = &frame.0[1..];
    let mut next = || rmp::decode::read_int::<u64, _>(&mut head).unwrap();
    (next() as u8, next())
}

fn run(session: &mut Session, id: u64, task: &Task) -> Vec<(u8, u64)> {
    let mut frames = Vec::new();
    session.run(TaskId(id), call(task), Some(|frame| frames.push(said(&frame)))).unwrap();
    frames
}

fn reconnect(
    session: &mut Session,
    received: u64,
    wanted: impl Fn(TaskId) -> Option<Task>,
) -> (Vec<(u8, u64)>, Vec<u64>) {
    let mut frames = Vec::new();
    let tasks: Vec<(TaskId, Option<Task>)> = session.sent().map(|(_, id)| (id, wanted(id))).collect();
    let find = |id: TaskId| tasks.iter().find(|(of, _)| *of == id).and_then(|(_, task)| task.as_ref()).map(call);
    let unsent = session.on_connected(received, find, |frame| frames.push(said(&frame)));
    (frames, unsent.into_iter().map(|(id, _)| id.0).collect())
}

#[test]
fn withheld_reports_are_not_acknowledged_until_their_run_is_over() {
    let mut session = Session::new(1 << 20);
    let one = task("def f(): pass");
    run(&mut session, 1, &one);
    for sequence in 1..=ACK_REPORTS {
        assert!(session.on_report(sequence, 1));
    }
    assert!(!session.on_report(ACK_REPORTS, 1), "it is a repeated report");
    assert!(session.is_report_due());
    session.withhold(1);
    // The head of a run contains an acknowledgement.
    run(&mut session, 2, &one);
    assert_eq!(session.acknowledged, 0);
    assert!(!session.is_report_due());
    let answer = session.on_result(ACK_REPORTS + 1, 1, ACK_BYTES);
    assert_eq!(answer.task, Some(TaskId(1)));
    assert_eq!(answer.acknowledge, Some(ACK_REPORTS + 1));
    // The reports of the next run are independent.
    for sequence in 1..=ACK_REPORTS {
        session.on_report(ACK_REPORTS + 1 + sequence, 1);
    }
    assert!(session.is_report_due());
    session.withhold(2);
    session.release(1);
    assert!(!session.is_report_due());
    session.release(2);
    assert!(session.is_report_due());
}

#[test]
fn a_payload_is_sent_once_also_over_a_new_connection() {
    let mut session = Session::new(1 << 20);
    let (one, two) = (task("def f(): pass"), task("def f(): 1"));
    assert_eq!(run(&mut session, 1, &one), [(66, 0), (67, 1)]);
    assert_eq!(run(&mut session, 2, &one), [(67, 2)]);
    assert_eq!(run(&mut session, 3, &two), [(66, 1), (67, 3)]);
    // Everything has arrived.
    assert_eq!(reconnect(&mut session, 3, |_| None), (vec![], vec![]));
    assert_eq!(run(&mut session, 4, &two), [(67, 4)]);
    assert_eq!(run(&mut session, 5, &one), [(67, 5)]);
}

#[test]
fn runs_that_did_not_arrive_are_sent_again_unless_they_are_cancelled() {
    let mut session = Session::new(1 << 20);
    let (one, two) = (task("def f(): pass"), task("def f(): 1"));
    run(&mut session, 10, &one);
    run(&mut session, 11, &two);
    run(&mut session, 12, &one);
    run(&mut session, 13, &two);
    // Without a connection it is only noted.
    session.run(TaskId(14), call(&one), None::<fn(Outgoing)>).unwrap();
    let again = reconnect(&mut session, 1, |id| match id.0 {
        12 => None,
        11 | 13 => Some(two.clone()),
        _ => Some(one.clone()),
    });
    assert_eq!(again, (vec![(66, 1), (67, 2), (67, 4), (67, 5)], vec![12]));
    assert_eq!(
        session.sent().collect::<Vec<_>>(),
        [1, 2, 4, 5].map(|run| (run, TaskId(if run == 1 { 10 } else { run + 9 })))
    );
    assert_eq!(run(&mut session, 15, &one), [(67, 6)]);
}

#[test]
fn only_the_task_that_cannot_be_sent_after_a_reconnect_fails() {
    let (small, large) = (task("def f(): pass"), task(&format!("def f(): {}", " ".repeat(1000))));
    // The source fits into a frame, but not together with the rest of the frame.
    let mut session = Session::new(large.source.size());
    for (id, task) in [(1, &small), (2, &large), (3, &small)] {
        session.run(TaskId(id), call(task), None::<fn(Outgoing)>).unwrap();
    }
    let again = reconnect(&mut session, 0, |id| Some(if id.0 == 2 { large.clone() } else { small.clone() }));
    assert_eq!(again, (vec![(66, 0), (67, 1), (67, 3)], vec![2]));
    assert_eq!(session.sent().collect::<Vec<_>>(), [(1, TaskId(1)), (3, TaskId(3))]);
}

#[test]
fn a_repeated_result_is_dropped_and_large_ones_are_acknowledged() {
    let mut session = Session::new(1 << 20);
    let one = task("def f(): pass");
    (1..=3).for_each(|id| drop(run(&mut session, id, &one)));
    assert!(session.expects(1) && !session.expects(2));
    let answer = |task: Option<u64>, acknowledge| Answer { task: task.map(TaskId), acknowledge };
    assert_eq!(session.on_result(1, 1, 10), answer(Some(1), None));
    assert!(session.expects(1) && session.expects(2) && !session.expects(u64::MAX));
    assert_eq!(session.on_result(1, 1, 10), answer(None, None));
    assert_eq!(session.on_result(2, 3, ACK_BYTES), answer(Some(3), Some(2)));
    assert_eq!(session.on_result(3, 7, 0), answer(None, None));
    assert_eq!(session.sent().collect::<Vec<_>>(), [(2, TaskId(2))]);
}

#[test]
fn runs_that_were_not_begun_are_taken_back() {
    let mut session = Session::new(1 << 20);
    let one = task("def f(): pass");
    (1..=6).for_each(|id| drop(run(&mut session, id, &one)));
    session.on_result(1, 1, 0);
    assert_eq!(session.take_back(4, 5), [TaskId(5)]);
    assert_eq!(session.take_back(4, 5), []);
    assert_eq!(session.take_back(9, 5), []);
    // The answer to a run that was taken back belongs to no task.
    assert_eq!(session.on_result(2, 5, 0).task, None);
    assert_eq!(session.take_back(2, u64::MAX), [3, 4, 6].map(TaskId));
    assert_eq!(session.task(2), Some(TaskId(2)));
    assert_eq!(session.run_of(TaskId(3)), None);
}

#[test]
fn a_task_that_does_not_fit_a_frame_fails_before_it_is_sent() {
    let mut session = Session::new(8);
    let one = task("def f(): pass");
    let error = session.run(TaskId(1), call(&one), Some(|_| panic!("sent"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Payload);
    assert_eq!(session.last(), 0);
    assert_eq!(session.run(TaskId(1), call(&one), None::<fn(Outgoing)>).unwrap_err().kind(), ErrorKind::Payload);
    assert_eq!(session.sent().count(), 0);
}

#[test]
fn the_hello_of_another_worker_is_refused() {
    let due = WorkerHello {
        version: PROTOCOL_VERSION,
        pid: 4,
        generation: 2,
        rank: 1,
        python: "3.12.1".into(),
        received: 0,
        failure: None,
    };
    let check = |hello: WorkerHello| check_hello(&hello, 4, Generation(2), Rank(1));
    check(due.clone()).unwrap();
    for (wrong, what) in [
        (WorkerHello { version: 1, ..due.clone() }, "protocol version"),
        (WorkerHello { pid: 5, ..due.clone() }, "process"),
        (WorkerHello { generation: 1, ..due.clone() }, "generation"),
        (WorkerHello { rank: 0, ..due }, "rank"),
    ] {
        let error = check(wrong).unwrap_err();
        assert!(error.kind() == ErrorKind::Protocol && error.message().contains(what), "{what}: {error}");
    }
}

/// A worker as a session sees it: what it has, and what it has answered.
#[derive(Debug, Default)]
struct Worker {
    payloads: std::collections::BTreeMap<u64, String>,
    received: u64,
    ran: Vec<(u64, String)>,
}

impl Worker {
    fn take(&mut self, (head, body): &Outgoing) {
        let mut head = &head[1..];
        let mut next = || rmp::decode::read_int::<u64, _>(&mut head).unwrap();
        match next() {
            66 => drop(self.payloads.insert(next(), String::from_utf8_lossy(body).into_owned())),
            67 => {
                let (run, payload) = (next(), next());
                assert!(payload < PAYLOADS as u64);
                if run > self.received {
                    self.received = run;
                    self.ran.push((run, self.payloads[&payload].clone()));
                }
            }
            _ => {}
        }
    }
}

proptest! {
    /// Whichever frames of whichever connections are lost, each task reaches the worker once, in
    /// order and with its own payload.
    #[test]
    fn each_run_arrives_once_with_its_payload_through_any_cuts(
        steps in prop::collection::vec((0_u64..400, prop_oneof![3 => Just(None), 1 => (0_usize..8).prop_map(Some)]), 1..300)
    ) {
        let mut session = Session::new(1 << 20);
        let mut worker = Worker::default();
        let mut tasks: Vec<Task> = Vec::new();
        let mut wire: VecDeque<Outgoing> = VecDeque::new();
        for (number, cut) in steps {
            tasks.push(task(&format!("def f(): {number}")));
            let call = call(tasks.last().unwrap());
            session.run(TaskId(tasks.len() as u64 - 1), call, Some(|frame| wire.push_back(frame))).unwrap();
            if let Some(arrives) = cut {
                let arrives = arrives.min(wire.len());
                wire.drain(..arrives).for_each(|frame| worker.take(&frame));
                wire.clear();
                let call = |id: TaskId| Some(self::call(&tasks[id.0 as usize]));
                assert!(session.on_connected(worker.received, call, |frame| wire.push_back(frame)).is_empty());
            }
        }
        wire.drain(..).for_each(|frame| worker.take(&frame));
        prop_assert_eq!(worker.ran.len(), tasks.len());
        for ((run, payload), (number, task)) in worker.ran.iter().zip(tasks.iter().enumerate()) {
            prop_assert_eq!(*run, number as u64 + 1);
            prop_assert!(payload.contains(&*task.source.files()[0].text));
        }
    }
}
