#[skyward::compute]
fn none(epochs: u32) -> u32;

#[skyward::compute(python = "payloads/train.py")]
fn python_twice(epochs: u32) -> u32 {
    "return epochs"
}

#[skyward::compute(python = "payloads/train.py")]
fn rust_too(epochs: u32) -> skyward::payload::Payload<u32> {
    todo!()
}

#[skyward::compute(entry = "train")]
fn entry_alone(epochs: u32) -> u32;

fn main() {}
