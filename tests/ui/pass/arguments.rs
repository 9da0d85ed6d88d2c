//! Arguments may be owned or borrowed, optional, generic, and of any name.
#![allow(non_snake_case, reason = "a parameter may have a name that is unusual in Rust")]
#![allow(clippy::multiple_bound_locations, reason = "bounds may stand in both places")]

use std::borrow::Cow;
use std::collections::HashMap;

#[derive(serde::Serialize)]
struct Config<'a> {
    name: &'a str,
}

#[skyward::compute]
fn borrowed<'a>(text: &str, values: &[f64], bytes: &[u8], config: &Config<'a>, label: Cow<'_, str>) -> usize {
    "return len(text) + len(values) + len(bytes) + len(config['name']) + len(label)"
}

#[skyward::compute]
fn optional(first: Option<&str>, second: Option<&[u8]>, third: Option<u8>) -> Vec<Option<u8>> {
    "return [None, None, third]"
}

#[skyward::compute]
fn generic<T: serde::Serialize + 'static>(value: T, values: [u8; 3], rest: HashMap<String, Vec<T>>) -> bool
where
    T: Clone,
{
    "return bool(value)"
}

#[skyward::compute]
fn names(args: u8, value: Option<u8>, build: u8, source: u8, Self_: u8) -> u8 {
    "return args + build + source + Self_"
}

#[skyward::compute(python = "tests/ui/payloads/train.py")]
fn options(name: &'static str, depth: Option<u32>, width: u32) -> usize;

#[test]
fn is_accepted() {
    let config = Config { name: "c" };
    let text = String::from("ab");
    let call = borrowed(&text, &[1.0], b"xyz", &config, "l".into());
    drop((text, config));
    assert!(call.into_task().unwrap().args.ends_with(b"\xa1l"));
    assert!(optional(None, Some(b"x"), None).into_task().is_ok());
    assert!(generic(1_u8, [1, 2, 3], HashMap::from([("a".to_owned(), vec![1_u8])])).into_task().is_ok());
    assert!(names(1, None, 2, 3, 4).into_task().is_ok());
    assert!(options("a", None, 1).into_task().is_ok());
}
