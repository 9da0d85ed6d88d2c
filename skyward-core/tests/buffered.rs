//! Where Serde or another crate reads a value by its own rules, it is exact or refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skyward_core::error::ErrorKind;
use skyward_core::payload::{Args, value};

fn refused<T: DeserializeOwned + 'static>(bytes: &[u8], words: &str) {
    let Err(error) = value::decode::<T>(&Bytes::copy_from_slice(bytes)) else {
        panic!("{bytes:x?} became a {}", std::any::type_name::<T>())
    };
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.message().contains(words), "{error}");
}

fn read<T: DeserializeOwned + 'static>(bytes: &[u8]) -> T {
    value::decode(&Bytes::copy_from_slice(bytes)).unwrap()
}

fn float(number: f64) -> Vec<u8> {
    [&[0xcb][..], &number.to_be_bytes()].concat()
}

/// A vector in extension 1.
fn vector(number: f64) -> Vec<u8> {
    [&b"\xc7\x13\x01\x92\xa7float64\x91\x01"[..], &number.to_le_bytes()].concat()
}

#[test]
fn what_json_has_no_number_for_is_no_null() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        refused::<Value>(&float(number), "JSON");
        refused::<Vec<Value>>(&[&[0x91][..], &float(number)].concat(), "JSON");
        refused::<Option<Value>>(&float(number), "JSON");
        refused::<HashMap<String, Value>>(&[&b"\x81\xa1x"[..], &float(number)].concat(), "JSON");
        refused::<Value>(&vector(number), "JSON");
        refused::<Value>(&[&[0xca][..], &(number as f32).to_be_bytes()].concat(), "JSON");
        assert!(read::<f64>(&float(number)).to_bits() == number.to_bits());
    }
    assert_eq!(read::<Value>(&float(0.5)), Value::from(0.5));
    assert_eq!(read::<Value>(&float(1e300)), Value::from(1e300));
}

#[derive(Debug, Deserialize)]
struct Typed {
    loss: f64,
}

#[derive(Debug, Deserialize)]
struct Metrics {
    node: u8,
    #[serde(flatten)]
    typed: Typed,
    #[serde(flatten)]
    rest: HashMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Closed {
    #[serde(flatten)]
    typed: Typed,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Loose {
    Number(f64),
    Text(String),
}

#[test]
fn what_json_has_no_number_for_is_no_null_where_serde_buffers_it() {
    let metrics = |loss: f64, name: &str, more: &[u8]| {
        [&b"\x83\xa4node\x01\xa4loss"[..], &float(loss), &[0xa1], name.as_bytes(), more].concat()
    };
    let read_loss = |loss| read::<Metrics>(&metrics(loss, "x", b"\x01"));
    assert!(read_loss(f64::NAN).typed.loss.is_nan());
    assert!(read_loss(f64::INFINITY).typed.loss.is_infinite());
    let found = read_loss(0.5);
    assert_eq!(found.node, 1);
    assert_eq!(&found.rest["x"], &Value::from(1));
    for number in [f64::NAN, f64::NEG_INFINITY] {
        refused::<Metrics>(&metrics(0.5, "x", &float(number)), "JSON");
        refused::<Metrics>(&metrics(f64::NAN, "x", &float(number)), "JSON");
        refused::<Vec<Metrics>>(&[&[0x91][..], &metrics(0.5, "x", &vector(number))].concat(), "JSON");
        refused::<Metrics>(&metrics(0.5, "x", &[&[0x91][..], &float(number)].concat()), "JSON");
        // What nothing reads is not lost.
        assert!(read::<Closed>(&metrics(number, "x", &float(number))).typed.loss.to_bits() == number.to_bits());
        let Loose::Number(loose) = read::<Loose>(&float(number)) else { panic!("a float became a text") };
        assert!(loose.to_bits() == number.to_bits());
    }
    assert!(matches!(read::<Loose>(b"\xa1x"), Loose::Text(text) if text == "x"));
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Single { x: f32 },
    Double { x: f64 },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Single(f32),
}

fn tagged(kind: &str, number: f64) -> Vec<u8> {
    [&b"\x82\xa1x"[..], &float(number), &b"\xa4kind\xa6"[..], kind.as_bytes()].concat()
}

#[test]
fn a_float_behind_a_tag_stays_finite() {
    refused::<Tagged>(&tagged("Single", 1e300), "1e300");
    refused::<Untagged>(&float(-1e300), "-1e300");
    refused::<Vec<Untagged>>(&vector(1e300), "1e300");
    assert_eq!(read::<Tagged>(&tagged("Double", 0.5)), Tagged::Double { x: 0.5 });
    assert_eq!(read::<Tagged>(&tagged("Single", f64::INFINITY)), Tagged::Single { x: f32::INFINITY });
    let Untagged::Single(single) = read::<Untagged>(&float(0.5));
    assert_eq!(single, 0.5);
    // Read by its own type, it is exact.
    assert_eq!(read::<BTreeMap<String, f64>>(&[&b"\x81\xa1x"[..], &float(1e300)].concat())["x"], 1e300);
}

#[derive(Debug, Serialize, Deserialize)]
struct Open {
    x: u8,
    #[serde(flatten)]
    rest: BTreeMap<String, u8>,
}

#[test]
fn no_entry_replaces_another() {
    // Python's keys 1 and '1', which are one name of a field.
    refused::<Open>(b"\x83\xa1x\x01\x01\x02\xa11\x03", "\"1\"");
    refused::<HashMap<String, u8>>(b"\x82\xa1a\x01\xa1a\x02", "\"a\"");
    refused::<HashMap<u8, u8>>(b"\x82\x01\x01\x01\x02", "1");
    refused::<Value>(b"\x82\xa1a\x01\xa1a\x02", "\"a\"");
    let numbers: Vec<u8> = (0..100).chain([7]).flat_map(|key: u8| [key, 0]).collect();
    refused::<HashMap<u8, u8>>(&[&b"\xde\x00\x65"[..], &numbers].concat(), "7");
    assert_eq!(read::<Open>(b"\x82\xa1x\x01\x01\x02").rest["1"], 2);
}

#[test]
fn no_argument_has_an_entry_twice() {
    let open = Open { x: 1, rest: BTreeMap::from([("x".to_owned(), 2)]) };
    let error = Args::new().with("open", &open).encode().unwrap_err();
    assert!(error.message().contains("\"x\""), "{error}");
    let inside = Args::new().with("list", &vec![open]).encode().unwrap_err();
    assert!(inside.message().contains("[0]"), "{inside}");
    let error = Args::new().with("x", &1).with("y", &2).with("x", &3).encode().unwrap_err();
    assert!(error.message().contains("`x`"), "{error}");
    let error = Args::new().with_bytes("x", &vec![0; 8 << 20]).with("x", &3).encode().unwrap_err();
    assert!(error.message().contains("`x`"), "{error}");
    let many: BTreeMap<String, u8> = (0..100).map(|key: u8| (key.to_string(), key)).collect();
    Args::new().with("open", &Open { x: 1, rest: many }).encode().unwrap();
}

#[test]
fn some_of_nothing_is_not_none() {
    for error in [
        Args::new().with("x", &Some(None::<u8>)).encode().unwrap_err(),
        Args::new().with("x", &[Some(Some(None::<u8>))]).encode().unwrap_err(),
        Args::new().with("x", &Some(())).encode().unwrap_err(),
        Args::new().with("x", &HashMap::from([("a", Some(Value::Null))])).encode().unwrap_err(),
    ] {
        assert!(error.message().contains("`Some`"), "{error}");
    }
    Args::new().with("x", &Some(Some(1_u8))).with("y", &None::<Option<u8>>).with("z", &()).encode().unwrap();
}
