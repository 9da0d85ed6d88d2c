// Whatever is wrong is told in one go, and the calls of a wrong declaration are not wrong because of it.
#[skyward::compute(python = "payloads/train.py")]
fn train(epoch: u32, momentum: f64) -> skyward::payload::Streaming<f64>;

fn main() {
    let _ = train(5, 0.9);
}
