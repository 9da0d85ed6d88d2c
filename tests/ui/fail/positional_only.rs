#[skyward::compute(python = "payloads/train.py")]
fn by_position(first: u32, second: u32) -> u32;

#[skyward::compute(python = "payloads/train.py", entry = "by_position")]
fn without_it(second: u32) -> u32;

fn main() {}
