#[skyward::compute]
fn add(a: u32, b: u32) -> u32 {
    "a + b"
}

#[skyward::compute]
fn documented(a: u32) -> u32 {
    r#""""Says what it does, and does it not.""""#
}

fn main() {}
