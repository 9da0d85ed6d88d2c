#[skyward::compute(pyhton = "payloads/train.py")]
fn train(epochs: u32) -> u32;

#[skyward::compute("payloads/train.py")]
fn unnamed(epochs: u32) -> u32;

#[skyward::compute(python = 5, gpu = true)]
fn several(epochs: u32) -> u32;

fn main() {}
