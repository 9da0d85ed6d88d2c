//! What a call costs on its way: frames, messages, and the scheduler with a long queue.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use skyward_core::ids::{Rank, TaskId};
use skyward_core::payload::{Target, TaskOptions, Value};
use skyward_core::scheduler::{Scheduler, TaskData};
use skyward_core::spec::Limits;
use skyward_core::worker::codec::{Decoder, Frame};
use skyward_core::worker::message::{FromWorker, ToWorker};

/// A frame with the answer to a call that does nothing.
fn answer() -> Vec<u8> {
    // Number, sequence, task, both offsets, microseconds.
    let head = [0x96, 98, 1, 1, 0, 0, 3];
    let mut frame = Frame::prefix(&head, 1).expect("it is small").to_vec();
    frame.push(0xc0);
    frame
}

fn run() -> ToWorker<'static> {
    let args = Bytes::from_static(b"\xdf\0\0\0\0");
    ToWorker::Run { run: 70_000, payload: 1, acknowledged: 69_000, granted: 0, trace: None, gang: None, depth: 0, args }
}

fn frames(criterion: &mut Criterion) {
    let stream = answer().repeat(FRAMES);
    let mut group = criterion.benchmark_group("frames");
    group.throughput(Throughput::Elements(FRAMES as u64));
    group.bench_function("decode answers", |bencher| {
        let mut decoder = Decoder::new(1 << 20);
        bencher.iter(|| {
            decoder.buffer().extend_from_slice(&stream);
            let mut count = 0;
            while let Some(frame) = decoder.next_frame().expect("they are whole") {
                count += usize::from(FromWorker::decode(frame).is_ok());
            }
            assert_eq!(count, FRAMES);
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("encode Run", |bencher| {
        bencher.iter(|| {
            let (head, body) = run().encode().expect("it is small");
            Frame::prefix(black_box(&head), body.len())
        });
    });
    group.finish();
}

/// Takes a task, gives it to a worker and takes its answer, with ten thousand others in the queue.
fn scheduler(criterion: &mut Criterion) {
    let now = Instant::now();
    let full = || {
        let mut scheduler = Scheduler::new(2, 1, false, Limits::default());
        (0..2).for_each(|rank| scheduler.on_ready(now, Rank(rank), Duration::ZERO));
        for task in 0..QUEUED {
            scheduler
                .submit(now, TaskId(task), Target::Any, TaskOptions::default(), TaskData::default())
                .expect("it is taken");
        }
        scheduler
    };
    let mut group = criterion.benchmark_group("scheduler, 10 000 queued");
    group.throughput(Throughput::Elements(STEPS));
    group.bench_function("submit and return", |bencher| {
        bencher.iter_batched_ref(
            full,
            |scheduler| {
                let mut actions = Vec::new();
                for step in 0..STEPS {
                    scheduler
                        .submit(now, TaskId(QUEUED + step), Target::Any, TaskOptions::default(), TaskData::default())
                        .expect("it is taken");
                    let rank = Rank((step % 2) as u32);
                    let running = scheduler.sent(rank).next().expect("each worker has one");
                    let outcome = Ok(Value::new(Bytes::from_static(b"\xc0"), rank));
                    scheduler.on_returned(now, rank, running, outcome, 3);
                    scheduler.take_actions(&mut actions);
                    actions.clear();
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, frames, scheduler);
criterion_main!(benches);

const FRAMES: usize = 1000;
const QUEUED: u64 = 10_000;
const STEPS: u64 = 1000;
