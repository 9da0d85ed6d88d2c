#[skyward::compute(python = "payloads/alone.py")]
fn run() -> u32;

// The errors of a file are reported once.
#[skyward::compute(python = "payloads/alone.py", entry = "run")]
fn again() -> u32;

fn main() {}
