use skyward::payload::Streaming;
use skyward::payload::Streaming as S;

#[derive(serde::Deserialize)]
struct Report {}

type Losses = Streaming<f64>;

#[skyward::compute(python = "payloads/train.py")]
fn losses(epochs: u32) -> Vec<f64>;

#[skyward::compute]
fn squares(count: u32) -> u64 {
    "for index in range(count): yield index ** 2"
}

#[skyward::compute(python = "payloads/train.py", entry = "losses")]
fn report(epochs: u32) -> Report;

#[skyward::compute(python = "payloads/train.py", entry = "train")]
fn no_generator(epochs: u32, batch_size: u32) -> Streaming<f64>;

#[skyward::compute(python = "payloads/train.py", entry = "train")]
fn renamed(epochs: u32, batch_size: u32) -> S<f64>;

#[skyward::compute]
fn aliased(count: u32) -> Losses {
    "return [1.0] * count"
}

fn main() {}
