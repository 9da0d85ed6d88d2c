#[skyward::compute]
fn add(a: u32, b: u32) -> u32 {
    "a + b"
}

#[skyward::compute]
fn documented(a: u32) -> u32 {
    r#""""Says what it does, and does it not.""""#
}

type Count = u32;
type Perhaps = Option<u32>;

#[skyward::compute]
fn aliased(a: u32) -> Count {
    "a + 1"
}

#[skyward::compute]
fn aliased_and_empty(a: u32) -> Count {
    "pass"
}

#[skyward::compute]
fn perhaps(a: u32) -> Perhaps {
    "a + 1"
}

fn main() {}
