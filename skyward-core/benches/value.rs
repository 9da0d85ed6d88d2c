//! The codec of values beside a plain copy and beside `rmp-serde`.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use skyward_core::payload::{Args, Tensor, value};

#[derive(Clone, Serialize, Deserialize)]
struct Report {
    node: usize,
    samples: usize,
    loss: Vec<f64>,
    test_accuracy: f64,
    weights_digest: String,
}

/// The wire form of one argument.
fn encode<T: Serialize + 'static>(value: &T) -> Bytes {
    let call = Args::new().with("", value).encode().expect("the value is serialisable");
    // The map's header and the empty name.
    call.slice(6..)
}

fn decode<T: DeserializeOwned + 'static>(bytes: &Bytes) -> T {
    value::decode(bytes).expect("the value was just encoded")
}

fn report(criterion: &mut Criterion) {
    let report = Report {
        node: 1,
        samples: 898,
        loss: vec![0.5; 5],
        test_accuracy: 0.97,
        weights_digest: "3f2a9c0d77aa41e6".to_owned(),
    };
    let bytes = encode(&report);
    let mut group = criterion.benchmark_group("report");
    group.bench_function("encode", |bencher| bencher.iter(|| encode(black_box(&report))));
    group.bench_function("decode", |bencher| bencher.iter(|| decode::<Report>(black_box(&bytes))));
    group.bench_function("decode, rmp-serde", |bencher| {
        bencher.iter(|| rmp_serde::from_slice::<Report>(black_box(&bytes)).expect("it is a report"))
    });
    group.finish();
}

fn array(criterion: &mut Criterion) {
    let elements: Vec<f32> = (0..1_000_000_u32).map(|number| number as f32).collect();
    let tensor = Tensor::from_elements([elements.len()], &elements).expect("the shape fits");
    let (bytes, boxed) = (encode(&tensor), encode(&vec![tensor.clone()]));
    let mut group = criterion.benchmark_group("1M float32");
    group.throughput(Throughput::Bytes(4 * elements.len() as u64));
    group.bench_function("copy", |bencher| bencher.iter(|| black_box(&elements).clone()));
    group.bench_function("encode Tensor", |bencher| bencher.iter(|| encode(black_box(&tensor))));
    group.bench_function("decode Tensor", |bencher| bencher.iter(|| decode::<Tensor>(black_box(&bytes))));
    group.bench_function("decode Tensor, to_vec", |bencher| {
        bencher.iter(|| decode::<Tensor>(black_box(&bytes)).to_vec::<f32>().expect("it is float32"))
    });
    group.bench_function("decode Vec, whole", |bencher| bencher.iter(|| decode::<Vec<f32>>(black_box(&bytes))));
    group.bench_function("decode Vec, within", |bencher| bencher.iter(|| decode::<Vec<Vec<f32>>>(black_box(&boxed))));
    group.finish();
}

fn blob(criterion: &mut Criterion) {
    let blob = vec![7_u8; 64 << 20];
    let (bytes, boxed) = (encode(&blob), encode(&vec![Bytes::from(blob.clone())]));
    let mut group = criterion.benchmark_group("64 MiB");
    group.sample_size(10).throughput(Throughput::Bytes(blob.len() as u64));
    group.bench_function("copy", |bencher| bencher.iter(|| black_box(&blob).clone()));
    group.bench_function("encode", |bencher| bencher.iter(|| encode(black_box(&blob))));
    group.bench_with_input(BenchmarkId::new("decode", "Bytes"), &bytes, |bencher, bytes| {
        bencher.iter(|| decode::<Bytes>(black_box(bytes)));
    });
    group.bench_with_input(BenchmarkId::new("decode", "Vec, whole"), &bytes, |bencher, bytes| {
        bencher.iter(|| decode::<Vec<u8>>(black_box(bytes)));
    });
    group.bench_with_input(BenchmarkId::new("decode", "Vec, within"), &boxed, |bencher, boxed| {
        bencher.iter(|| decode::<Vec<Vec<u8>>>(black_box(boxed)));
    });
    group.finish();
}

criterion_group!(benches, report, array, blob);
criterion_main!(benches);
