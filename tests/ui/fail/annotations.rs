#[skyward::compute(python = "payloads/annotated.py")]
fn train(name: f64, epochs: f64, rate: u32, data: &str) -> f64;

#[skyward::compute(python = "payloads/annotated.py")]
fn score(model: String) -> String;

#[skyward::compute(python = "payloads/annotated.py")]
fn save(path: &str) -> bool;

#[skyward::compute(python = "payloads/annotated.py", entry = "score")]
fn forgotten(model: String);

fn main() {}
