#[skyward::compute(python = "payloads/train.py")]
fn train(rate: f64) -> f64;

fn main() {}
