//! `unchecked` accepts entries that Python makes at run time; code that does not run binds no name.
#![deny(warnings)]

#[skyward::compute(python = "tests/ui/payloads/decorated.py", unchecked)]
fn draw(count: u32) -> Vec<u32>;

#[skyward::compute(python = "tests/ui/payloads/decorated.py", entry = "drawn", unchecked)]
fn assigned(count: u32, times: Option<u32>) -> Vec<u32>;

// The entry may come from a star import.
#[skyward::compute(python = "tests/ui/payloads/decorated.py")]
fn imported(count: u32) -> u32;

#[skyward::compute(python = "tests/ui/payloads/decorated.py")]
fn entry(count: u32) -> u32;

#[skyward::compute(python = "tests/ui/payloads/decorated.py")]
fn optional(count: u32, depth: u32, #[cfg(any())] width: Missing) -> u32;

#[test]
fn is_accepted() {
    assert!(draw(1).into_task().is_ok());
    assert!(assigned(1, None).into_task().is_ok());
    assert!(imported(1).into_task().is_ok());
    assert!(entry(1).into_task().is_ok());
    assert!(optional(1, 2).into_task().unwrap().args.ends_with(b"\xa5depth\x02"));
}
