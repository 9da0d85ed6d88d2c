#[skyward::compute(python = "payloads/decorated.py")]
fn draw(count: u32) -> Vec<u32>;

#[skyward::compute(python = "payloads/decorated.py", entry = "drawn")]
fn assigned(count: u32) -> Vec<u32>;

fn main() {}
