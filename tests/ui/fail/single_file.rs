#[skyward::compute(python = "payloads/alone.py")]
fn run() -> u32;

// What is wrong with a file is told once.
#[skyward::compute(python = "payloads/alone.py", entry = "run")]
fn again() -> u32;

fn main() {}
