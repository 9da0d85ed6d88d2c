use skyward::payload::Streaming;

#[skyward::compute(python = "payloads/train.py")]
fn losses(epochs: u32) -> Vec<f64>;

#[skyward::compute]
fn squares(count: u32) -> u64 {
    "for index in range(count): yield index ** 2"
}

#[skyward::compute(python = "payloads/train.py", entry = "train")]
fn no_generator(epochs: u32, batch_size: u32) -> Streaming<f64>;

fn main() {}
