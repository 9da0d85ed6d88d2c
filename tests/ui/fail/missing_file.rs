#[skyward::compute(python = "payloads/trian.py")]
fn train(epochs: u32) -> u32;

#[skyward::compute(python = "paylods/train.py")]
fn train_again(epochs: u32) -> u32;

fn main() {}
