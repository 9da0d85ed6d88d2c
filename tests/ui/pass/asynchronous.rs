//! A coroutine is awaited on the worker.

#[skyward::compute(python = "tests/ui/payloads/train.py")]
fn later(epochs: u32) -> u32;

#[test]
fn is_accepted() {
    assert_eq!(later(1).source().entry(), "later");
}
