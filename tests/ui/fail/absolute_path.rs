#[skyward::compute(python = "/srv/payloads/train.py")]
fn train(epochs: u32) -> u32;

fn main() {}
