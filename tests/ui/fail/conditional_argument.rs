#[skyward::compute]
fn inline(a: u32, #[cfg(any())] b: u32) -> u32 {
    "return a"
}

#[skyward::compute(python = "payloads/decorated.py")]
fn optional(count: u32, #[cfg(any())] depth: u32, #[cfg(not(any()))] width: u32) -> u32;

#[skyward::compute(python = "payloads/decorated.py", entry = "optional")]
fn unknown(count: u32, depth: u32, #[cfg(any())] height: u32) -> u32;

fn main() {}
