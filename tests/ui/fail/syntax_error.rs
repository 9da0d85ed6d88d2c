#[skyward::compute(python = "payloads/syntax_error.py")]
fn train(epochs: u32) -> u32;

fn main() {
    let _ = train(5);
}
