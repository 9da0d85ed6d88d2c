//! A coroutine is awaited on the worker.

#[skyward::compute(python = "payloads/train.py")]
fn later(epochs: u32) -> u32;

fn main() {
    assert_eq!(later(1).source().entry(), "later");
}
