//! Files with a part that no worker runs, with half a block of metadata, or with a byte order mark.
#![deny(warnings)]

use skyward::payload::Streaming;

#[skyward::compute(python = "tests/ui/payloads/script.py")]
fn stream(count: u32) -> Streaming<u32>;

#[skyward::compute(python = "tests/ui/payloads/script.py", entry = "second", unchecked)]
fn doubled(count: u32) -> u32;

#[skyward::compute(python = "tests/ui/payloads/script.py")]
fn start(pool: u32) -> u32;

#[skyward::compute(python = "tests/ui/payloads/marked.py")]
fn marked(a: u32) -> u32;

#[test]
fn is_accepted() {
    assert!(stream(3).into_task().unwrap().streaming);
    assert!(doubled(3).into_task().is_ok());
    assert!(start(3).into_task().is_ok());
    assert!(marked(3).source().main_text().starts_with("\"\"\"A file"), "without the mark");
}
