//! A payload defines no name but that of its function, which can be called and re-exported like any
//! other.
#![deny(warnings)]
#![allow(unreachable_pub, reason = "payloads of libraries are public")]

mod train {
    #[skyward::compute]
    pub fn train(epochs: u32) -> u32 {
        "return epochs"
    }
}
pub use train::train;

mod crates {
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub struct Report {
        #[allow(dead_code)]
        loss: f64,
    }

    #[skyward::compute]
    pub fn serde(epochs: u32) -> Report {
        "return {'loss': 1.0 / epochs}"
    }

    #[skyward::compute]
    pub fn skyward() -> u32 {
        "return 1"
    }

    #[skyward::compute]
    pub fn core(std: u32) -> u32 {
        "return std"
    }
}

struct Trainer;

impl Trainer {
    #[skyward::compute(python = "tests/ui/payloads/train.py")]
    fn train(epochs: u32, batch_size: u32) -> std::collections::HashMap<String, f64>;
}

#[test]
fn is_accepted() {
    assert_eq!(train(1).source().entry(), "train");
    assert_eq!(crates::serde(1).source().entry(), "serde");
    assert_eq!(crates::skyward().source().entry(), "skyward");
    assert_eq!(crates::core(1).source().entry(), "core");
    assert_eq!(Trainer::train(1, 2).source().main(), "tests/ui/payloads/train.py");
}
