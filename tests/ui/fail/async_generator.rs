use skyward::payload::Streaming;

#[skyward::compute(python = "payloads/train.py")]
fn ticks(count: u32) -> Streaming<u32>;

#[skyward::compute(python = "payloads/train.py", entry = "ticks")]
fn all_ticks(count: u32) -> Vec<u32>;

fn main() {}
