#[skyward::compute(python = "payloads/train.py")]
fn trian(epochs: u32) -> u32;

#[skyward::compute(python = "payloads/train.py", entry = "evaluate")]
fn train(epochs: u32) -> u32;

#[skyward::compute(python = "payloads/train.py", entry = "Iterator")]
fn imported() -> u32;

fn main() {}
