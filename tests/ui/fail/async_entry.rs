#[skyward::compute(python = "payloads/train.py")]
fn later(epochs: u32) -> u32;

fn main() {}
