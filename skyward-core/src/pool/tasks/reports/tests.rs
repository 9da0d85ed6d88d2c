use std::collections::VecDeque;

use bytes::Bytes;

use crate::event::{EventItem, PoolEvent};
use crate::payload::{Args, Reports, Source, Target, Task, TaskHandle};
use crate::pool::tasks::replies::tests::{LIFE, RANK, frame, next, pool, wire};
use crate::pool::tasks::shared::Shared;
use crate::worker::codec::Frame;

/// Submits a task whose reports are read as bytes.
async fn submit(shared: &std::sync::Arc<Shared>) -> (TaskHandle, Reports<serde::de::IgnoredAny>) {
    let source = std::sync::Arc::new(Source::file("a.py", "def f(): pass".to_owned(), "f"));
    let (sender, reports) = crate::payload::ReportSender::new();
    let task = Task::new(source, Args::new().encode().unwrap()).with_reports(Some(sender));
    (shared.submit(task, Target::Any).await.unwrap(), reports)
}

/// A report with this number, of this run, with `size` bytes.
fn report(sequence: u64, run: u64, size: u32) -> Vec<Frame> {
    let mut body = vec![0xc6];
    body.extend(size.to_be_bytes());
    body.resize(5 + size as usize, 0);
    vec![frame(&(101, sequence, run), body.into())]
}

#[tokio::test]
async fn a_report_that_arrives_twice_is_passed_on_once() {
    let shared = pool();
    let (_task, mut reports) = submit(&shared).await;
    let (worker, _writers, _reader) = wire();
    let connection = shared.on_worker_connected(RANK, LIFE, &worker, 0).unwrap();
    for sequence in [1, 2, 1, 2, 3] {
        shared.on_frames(RANK, LIFE, connection, &mut report(sequence, 1, 1)).unwrap();
    }
    let mut answer = vec![frame(&(98, 4, 1, 0, 0, 5), Bytes::from_static(b"\xc0"))];
    shared.on_frames(RANK, LIFE, connection, &mut answer).unwrap();
    let mut count = 0;
    while let Some(report) = reports.next().await {
        report.unwrap();
        count += 1;
    }
    assert_eq!(count, 3);
    let gap = shared.on_frames(RANK, LIFE, connection, &mut report(6, 1, 1)).unwrap_err();
    assert!(gap.message().contains("sent result 6 after result 4"), "{gap}");
}

#[tokio::test]
async fn a_report_of_a_hook_is_an_event_and_a_report_of_an_ended_run_is_not() {
    let shared = pool();
    let (worker, _writers, _reader) = wire();
    let connection = shared.on_worker_connected(RANK, LIFE, &worker, 0).unwrap();
    let mut events = shared.events();
    for (sequence, run) in [(1, 0), (2, 7)] {
        shared.on_frames(RANK, LIFE, connection, &mut report(sequence, run, 1)).unwrap();
    }
    shared.emit(PoolEvent::Draining);
    let mut tasks = Vec::new();
    while let Some(EventItem::Event(event)) = events.next().await {
        match &*event {
            PoolEvent::Report(report) => tasks.push(report.task),
            PoolEvent::Draining => break,
            _ => {}
        }
    }
    assert_eq!(tasks, [None]);
}

#[tokio::test]
async fn reports_are_acknowledged_in_time_and_unread_ones_when_they_are_read() {
    let shared = pool();
    let (_task, mut reports) = submit(&shared).await;
    let (worker, _writers, mut reader) = wire();
    let connection = shared.on_worker_connected(RANK, LIFE, &worker, 0).unwrap();
    let mut waiting = VecDeque::new();
    // The messages Size, Load and Run.
    next(&mut reader, &mut waiting).await;
    next(&mut reader, &mut waiting).await;
    next(&mut reader, &mut waiting).await;
    for sequence in 1..=64 {
        shared.on_frames(RANK, LIFE, connection, &mut report(sequence, 1, 1)).unwrap();
    }
    assert_eq!(next(&mut reader, &mut waiting).await, [68, 64]);
    for sequence in 65..=68 {
        shared.on_frames(RANK, LIFE, connection, &mut report(sequence, 1, 15 << 20)).unwrap();
        assert_eq!(next(&mut reader, &mut waiting).await, [68, sequence]);
    }
    for sequence in 69..=71 {
        shared.on_frames(RANK, LIFE, connection, &mut report(sequence, 1, 15 << 20)).unwrap();
    }
    let more = tokio::time::timeout(std::time::Duration::from_millis(100), next(&mut reader, &mut waiting)).await;
    assert!(more.is_err(), "60 MiB and more are unread: {more:?}");
    for _ in 0..71 {
        reports.next().await.unwrap().unwrap();
    }
    assert_eq!(next(&mut reader, &mut waiting).await, [68, 71]);
}
