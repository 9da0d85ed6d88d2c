//! Generators stream, whatever name the stream type has.

use skyward::payload::Streaming as S;
use skyward::compute::PendingCompute;
use skyward::payload::Streaming;

type Losses = Streaming<f64>;

/// A result type that is no stream.
#[derive(serde::Deserialize)]
struct Report {}

mod other {
    #[derive(serde::Deserialize)]
    pub(crate) struct Streaming {}
}

#[skyward::compute(python = "tests/ui/payloads/train.py")]
fn losses(epochs: u32) -> Streaming<f64>;

#[skyward::compute(python = "tests/ui/payloads/train.py", entry = "losses")]
fn renamed(epochs: u32) -> S<f64>;

#[skyward::compute(python = "tests/ui/payloads/train.py", entry = "losses")]
fn aliased(epochs: u32) -> Losses;

#[skyward::compute(python = "tests/ui/payloads/train.py", entry = "losses")]
fn generic<T: serde::de::DeserializeOwned + Send + 'static>(epochs: u32) -> S<T>;

#[skyward::compute]
fn squares(count: u32) -> skyward::payload::Streaming<u64> {
    r#"
    for index in range(count):
        yield index ** 2
    "#
}

#[skyward::compute]
fn report() -> Report {
    "return {}"
}

#[skyward::compute]
fn no_stream() -> other::Streaming {
    "return {}"
}

#[skyward::compute]
fn whole<T: serde::de::DeserializeOwned + Send + 'static>() -> T {
    "return {}"
}

#[test]
fn is_accepted() {
    let pending: PendingCompute<Streaming<f64>> = losses(3);
    assert!(pending.into_task().unwrap().streaming);
    assert!(renamed(3).into_task().unwrap().streaming);
    assert!(aliased(3).into_task().unwrap().streaming);
    assert!(generic::<f64>(3).into_task().unwrap().streaming);
    assert!(squares(3).into_task().unwrap().streaming);
    assert!(!report().into_task().unwrap().streaming);
    assert!(!no_stream().into_task().unwrap().streaming);
    assert!(!whole::<u8>().into_task().unwrap().streaming);
}
