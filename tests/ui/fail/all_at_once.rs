// All errors are reported at once, and calls of a wrong declaration cause no errors of their own.
#[skyward::compute(python = "payloads/train.py")]
fn train(epoch: u32, momentum: f64) -> skyward::payload::Streaming<f64>;

fn main() {
    let _ = train(5, 0.9);
}
