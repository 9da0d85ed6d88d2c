#[skyward::compute(python = "payloads/train.py", entry = "train")]
fn close(epochs: u32, batchsize: u32) -> f64;

#[skyward::compute(python = "payloads/train.py", entry = "train")]
fn far(epochs: u32, batch_size: u32, momentum: f64) -> f64;

fn main() {}
