//! Generators stream.

use skyward::payload::{PendingCompute, Streaming};

#[skyward::compute(python = "payloads/train.py")]
fn losses(epochs: u32) -> Streaming<f64>;

#[skyward::compute]
fn squares(count: u32) -> skyward::payload::Streaming<u64> {
    r#"
    for index in range(count):
        yield index ** 2
    "#
}

fn main() {
    let pending: PendingCompute<Streaming<f64>> = losses(3);
    assert!(pending.into_task().unwrap().streaming);
    assert!(squares(3).into_task().unwrap().streaming);
}
