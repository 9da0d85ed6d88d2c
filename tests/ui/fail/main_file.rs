#[skyward::compute(python = "payloads/no_init")]
fn first() -> u8;

#[skyward::compute(python = "payloads/no_init", main = "frist.py", entry = "first")]
fn again() -> u8;

#[skyward::compute(python = "payloads/train.py", main = "train.py")]
fn losses(epochs: u32) -> u8;

fn main() {}
