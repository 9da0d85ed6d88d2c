//! A training: its request, its payload, and the items that the payload yields.

use serde::{Deserialize, Serialize};
use skyward::prelude::*;

use super::problem::Problem;

/// Trains on scikit-learn's digits. A generator, which yields an item for each epoch and then the
/// report.
#[skyward::compute(python = "examples/payloads/logistic_digits.py", payload = Train)]
pub(crate) fn train(epochs: u32, batch_size: u32, learning_rate: f64, seed: u64) -> Streaming<Step>;

/// The body of `POST /trainings`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) epochs: u32,
    #[serde(default = "default_batch_size")]
    pub(crate) batch_size: u32,
    #[serde(default = "default_learning_rate")]
    pub(crate) learning_rate: f64,
    #[serde(default)]
    pub(crate) seed: u64,
}

/// An item of the payload's stream.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Step {
    Epoch(Epoch),
    Report(Report),
}

/// Loss and accuracy after an epoch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Epoch {
    pub(crate) epoch: u32,
    pub(crate) loss: f64,
    pub(crate) accuracy: f64,
}

/// The result of a training.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) epochs: u32,
    pub(crate) samples: u32,
    pub(crate) loss: f64,
    pub(crate) accuracy: f64,
    pub(crate) seconds: f64,
}

impl Request {
    /// Reads and checks a body, so that a wrong request takes no worker's time.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Problem> {
        // Serde would take a list of values for a struct, too.
        let read = serde_json::from_slice::<serde_json::Map<_, _>>(body);
        let request: Self = read.and_then(|map| serde_json::from_value(map.into())).map_err(|error| {
            Problem::invalid(format!("the body is not a training request: {error}"), None)
                .hint(r#"send JSON such as {"epochs": 20, "batch_size": 64, "learning_rate": 0.5, "seed": 1}; only `epochs` must be there"#)
        })?;
        let wrong = |field, what: String, hint: &str| Err(Problem::invalid(what, Some(field)).hint(hint));
        if !(1..=MOST_EPOCHS).contains(&request.epochs) {
            let what = format!("`epochs` is {}", request.epochs);
            return wrong("epochs", what, &format!("from 1 to {MOST_EPOCHS}"));
        }
        if !(1..=IMAGES).contains(&request.batch_size) {
            let what = format!("`batch_size` is {}", request.batch_size);
            return wrong("batch_size", what, &format!("from 1 to {IMAGES}, the number of images"));
        }
        if !(request.learning_rate > 0.0 && request.learning_rate.is_finite()) {
            let what = format!("`learning_rate` is {}", request.learning_rate);
            return wrong("learning_rate", what, "a positive number; 0.5 suits these data");
        }
        Ok(request)
    }

    /// The call of the payload.
    pub(crate) fn call(&self) -> PendingCompute<Streaming<Step>> {
        train(self.epochs, self.batch_size, self.learning_rate, self.seed)
    }
}

fn default_batch_size() -> u32 {
    64
}

fn default_learning_rate() -> f64 {
    0.5
}

const MOST_EPOCHS: u32 = 100_000;
const IMAGES: u32 = 1408;
