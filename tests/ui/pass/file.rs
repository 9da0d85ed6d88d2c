//! A Python file: the entry has the function's name, or another one; parameters with defaults need
//! no argument.

use skyward::compute::PendingCompute;

#[derive(serde::Deserialize)]
struct Report {
    #[allow(dead_code)]
    loss: f64,
}

#[skyward::compute(python = "tests/ui/payloads/train.py")]
fn train(epochs: u32, batch_size: u32) -> Report;

#[skyward::compute(python = "tests/ui/payloads/train.py", entry = "train")]
pub fn train_named(batch_size: u32, epochs: u32, name: Option<String>) -> Report;

#[test]
fn is_accepted() {
    let pending: PendingCompute<Report> = train(5, 64);
    assert_eq!(pending.source().entry(), "train");
    assert_eq!(pending.source().main(), "tests/ui/payloads/train.py");
    assert!(pending.source().main_text().contains("Trains nothing"));
    assert_eq!(train_named(64, 5, None).source().digest(), train(5, 64).source().digest());
}
