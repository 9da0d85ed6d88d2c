use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{decode, failure, wire};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Report {
    node: usize,
    losses: Vec<Point>,
    note: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Event {
    Started,
    Loss(f32),
    Pair(i8, String),
    Named { a: u8, b: Option<u8> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(Vec<Point>);

#[derive(Debug, PartialEq, Deserialize)]
struct Flat {
    id: u8,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Either {
    Number(i64),
    Text(String),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Tagged {
    Circle { radius: f64 },
    Square { side: f64 },
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "u32")]
struct Even;

impl TryFrom<u32> for Even {
    type Error = String;

    fn try_from(value: u32) -> Result<Self, String> {
        if value.is_multiple_of(2) { Ok(Self) } else { Err(format!("{value} is odd")) }
    }
}

#[test]
fn structs_enums_and_options_are_read_from_dicts_strs_and_none() {
    let report = Report { node: 3, losses: vec![Point { x: 0.5 }], note: None };
    assert_eq!(decode::<Report>(&wire(&report)).unwrap(), report);
    for event in [Event::Started, Event::Loss(0.25), Event::Pair(-1, "a".into()), Event::Named { a: 1, b: Some(2) }] {
        assert_eq!(decode::<Event>(&wire(&json!(event))).unwrap(), event);
    }
    assert_eq!(decode::<Wrapped>(&wire(&json!([{"x": 1}]))).unwrap(), Wrapped(vec![Point { x: 1.0 }]));
    decode::<()>(b"\xc0").unwrap();
    assert_eq!(decode::<Option<u8>>(b"\xc0").unwrap(), None);
    assert_eq!(decode::<Option<u8>>(b"\x05").unwrap(), Some(5));
    assert_eq!(decode::<Flat>(&wire(&json!({"id": 1, "x": [1, "a"]}))).unwrap().rest["x"], json!([1, "a"]));
    assert_eq!(decode::<Either>(&wire(&"a")).unwrap(), Either::Text("a".into()));
    assert_eq!(
        decode::<Tagged>(&wire(&json!({"radius": 1, "type": "circle"}))).unwrap(),
        Tagged::Circle { radius: 1.0 }
    );
    assert_eq!(decode::<Tagged>(&wire(&json!({"type": "square", "side": 2}))).unwrap(), Tagged::Square { side: 2.0 });
}

#[test]
fn ints_are_read_as_floats_and_floats_never_as_ints() {
    assert_eq!(decode::<Vec<f64>>(b"\x93\x01\xff\xcb\x3f\xe0\0\0\0\0\0\0").unwrap(), [1.0, -1.0, 0.5]);
    assert_eq!(decode::<f32>(b"\xcd\x01\0").unwrap(), 256.0);
    assert_eq!(failure::<i32>(b"\xcb\x3f\xf0\0\0\0\0\0\0").1, "expected i32, found the float 1.0");
    assert_eq!(failure::<u8>(b"\xcd\x01\0").1, "expected u8, found the int 256");
    assert_eq!(failure::<u64>(b"\xff").1, "expected u64, found the int -1");
    assert_eq!(failure::<u8>(b"\xc3").1, "expected u8, found True");
    assert_eq!(decode::<i128>(b"\xff").unwrap(), -1);
    assert!(decode::<f64>(b"\xca\x7f\xc0\0\0").unwrap().is_nan());
}

#[test]
fn an_int_that_a_float_cannot_hold_is_refused() {
    let wide = b"\xcf\x00\x20\x00\x00\x00\x00\x00\x01";
    assert_eq!(decode::<u64>(wide).unwrap(), (1 << 53) + 1);
    let words = "which has more digits than a float can hold";
    assert_eq!(failure::<f64>(wide).1, format!("expected a float, found the int 9007199254740993, {words}"));
    assert_eq!(
        failure::<Vec<f32>>(&[b"\x91", &wide[..]].concat()),
        ("[0]".into(), format!("expected a float, found the int 9007199254740993, {words}"))
    );
    assert!(failure::<f64>(b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff").1.contains(words));
    assert_eq!(decode::<f64>(b"\xd3\x80\0\0\0\0\0\0\0").unwrap(), -(2_f64.powi(63)));
    assert_eq!(decode::<f64>(b"\xce\x01\x00\x00\x01").unwrap(), 16_777_217.0);
    let array = super::array("int64", &[1], &((1_i64 << 53) + 1).to_le_bytes());
    assert!(failure::<Vec<f64>>(&array).1.contains(words));
    assert_eq!(
        decode::<Vec<f64>>(&super::array("int64", &[1], &(1_i64 << 53).to_le_bytes())).unwrap(),
        [2_f64.powi(53)]
    );
}

#[test]
fn an_f32_is_rounded_from_ints_as_from_floats() {
    let (int, float) = (b"\x91\xce\x01\x00\x00\x01", [&b"\x91\xcb"[..], &16_777_217_f64.to_be_bytes()].concat());
    assert_eq!(decode::<Vec<f32>>(int).unwrap(), decode::<Vec<f32>>(&float).unwrap());
    assert_eq!(decode::<Vec<f32>>(int).unwrap(), [16_777_216.0]);
    assert_eq!(decode::<f32>(b"\xd2\xfe\xff\xff\xff").unwrap(), -16_777_216.0);
    assert_eq!(decode::<f32>(b"\xd3\x80\0\0\0\0\0\0\0").unwrap(), -(2_f32.powi(63)));
    for (dtype, bytes) in [("int64", &16_777_217_i64.to_le_bytes()[..]), ("uint32", &16_777_217_u32.to_le_bytes())] {
        assert_eq!(decode::<Vec<f32>>(&super::array(dtype, &[1], bytes)).unwrap(), [16_777_216.0], "{dtype}");
    }
}

#[test]
fn a_finite_float_stays_finite() {
    let large = b"\xcb\x7e\x37\xe4\x3c\x88\x00\x75\x9c";
    assert_eq!(decode::<f64>(large).unwrap(), 1e300);
    assert_eq!(failure::<f32>(large).1, "expected f32, found the float 1e300, which is larger than any `f32`");
    assert!(decode::<f32>(b"\xcb\x7f\xf0\0\0\0\0\0\0").unwrap().is_infinite());
    let array = super::array("float64", &[1], &1e300_f64.to_le_bytes());
    assert!(failure::<Vec<f32>>(&array).1.contains("larger than any"));
}

#[test]
fn text_forms_are_read() {
    assert_eq!(decode::<IpAddr>(&wire(&"127.0.3.1")).unwrap(), IpAddr::from([127, 0, 3, 1]));
    assert_eq!(decode::<char>(&wire(&"ä")).unwrap(), 'ä');
    assert!(failure::<IpAddr>(&wire(&"nowhere")).1.ends_with(r#"found the str "nowhere""#));
}

#[test]
fn dict_keys_may_be_ints() {
    let bytes = b"\x82\x01\xa1a\xfe\xa1b";
    assert_eq!(decode::<HashMap<i64, String>>(bytes).unwrap()[&-2], "b");
    assert_eq!(failure::<HashMap<String, String>>(bytes).1, "expected a string, found the int 1");
    // An int key is not the number of a field.
    assert_eq!(failure::<Point>(b"\x81\x00\x01").1, r#"expected the key "x", found a dict with the key 0"#);
}

#[test]
fn bytes_are_read_as_bytes_and_lists_of_u8_only() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Blob {
        list: Vec<u8>,
        bytes: Bytes,
    }
    let bytes = b"\x82\xa4list\xc4\x03abc\xa5bytes\xc4\x02xy";
    assert_eq!(decode::<Blob>(bytes).unwrap(), Blob { list: b"abc".to_vec(), bytes: Bytes::from_static(b"xy") });
    assert_eq!(decode::<Vec<u8>>(b"\xc4\x03abc").unwrap(), b"abc");
    assert_eq!(decode::<[u8; 3]>(b"\xc4\x03abc").unwrap(), *b"abc");
    assert_eq!(decode::<Vec<u8>>(b"\x93\x01\x02\x03").unwrap(), [1, 2, 3]);
    assert_eq!(failure::<Vec<f32>>(b"\xc4\x03abc").1, "expected f32, found bytes of length 3");
    assert_eq!(failure::<[u8; 2]>(b"\xc4\x03abc").1, "expected 2 elements, found bytes of length 3");
    assert_eq!(failure::<String>(b"\xc4\x03abc").1, "expected a string, found bytes of length 3");
}

#[test]
fn whole_bytes_share_the_frame() {
    let frame = Bytes::from_static(b"\xc4\x03abc");
    let bytes: Bytes = super::super::decode(&frame).unwrap();
    assert_eq!(bytes.as_ptr(), frame[2..].as_ptr());
}

#[test]
fn an_error_has_path_expected_and_found() {
    let report = json!({"node": 1, "note": null, "losses": [{"x": 1.0}, {"x": null}]});
    assert_eq!(failure::<Report>(&wire(&report)), (".losses[1].x".into(), "expected f64, found None".into()));

    let report = json!({"node": 1, "note": 7, "losses": []});
    assert_eq!(failure::<Report>(&wire(&report)), (".note".into(), "expected a string, found the int 7".into()));

    let report = json!({"node": 1, "loss": []});
    let expected = r#"expected the key "losses", found a dict with the keys "loss", "node""#;
    assert_eq!(failure::<Report>(&wire(&report)), (String::new(), expected.into()));

    let report = json!({"node": 1, "losses": {"x": 1}});
    let expected = r#"expected a sequence, found a dict with the key "x""#;
    assert_eq!(failure::<Report>(&wire(&report)), (".losses".into(), expected.into()));

    assert_eq!(failure::<[u8; 3]>(b"\x92\x01\x02").1, "expected an array of length 3, found a list of 2");
    assert_eq!(failure::<(u8, u8)>(b"\x93\x01\x02\x03").1, "expected 2 elements, found a list of 3");
    assert_eq!(
        failure::<Event>(&wire(&"Stopped")).1,
        r#"expected one of the variants "Started", "Loss", "Pair", "Named", found the str "Stopped""#
    );
    assert_eq!(
        failure::<Event>(&wire(&json!({"Named": {"a": 1, "b": "x"}}))),
        (".Named.b".into(), r#"expected u8, found the str "x""#.into())
    );
    assert_eq!(failure::<Vec<Even>>(b"\x92\x02\x03"), ("[1]".into(), "3 is odd, found the int 3".into()));
    assert_eq!(
        failure::<HashMap<String, Vec<bool>>>(&wire(&json!({"a b": [true, 1]}))),
        (r#"["a b"][1]"#.into(), "expected a boolean, found the int 1".into())
    );
    assert!(failure::<Either>(b"\xc0").1.ends_with("found None"));
}

#[test]
fn the_hint_fits_the_mistake() {
    let hint = |error: crate::Error| error.hint().unwrap().to_owned();
    assert!(hint(decode::<f64>(b"\xc0").unwrap_err()).contains("`return`"));
    assert!(hint(decode::<Vec<f64>>(b"\x91\xc0").unwrap_err()).contains("`Option<…>`"));
    assert!(hint(decode::<i32>(b"\xca\0\0\0\0").unwrap_err()).contains("int(…)"));
    assert!(hint(decode::<Point>(b"\x80").unwrap_err()).contains("serde(default)"));
}

#[test]
fn malformed_bytes_are_errors() {
    assert!(failure::<u8>(b"").1.contains("ends in the middle"));
    assert!(failure::<u8>(b"\xc1").1.contains("0xc1"));
    assert_eq!(failure::<u8>(b"\x01\x02\x03").1, "expected one value, found 2 more bytes after it");
    assert_eq!(failure::<Vec<u8>>(b"\xc4\x01a\0").1, "expected one value, found 1 more bytes after it");
    assert!(failure::<String>(b"\xa2\xff\xfe").1.contains("not UTF-8"));
    assert!(failure::<Vec<u64>>(b"\xdd\xff\xff\xff\xff\x01").1.contains("ends in the middle"));
    assert!(failure::<u8>(b"\xd4\x05\0").1.contains("extension of type 5"));
}

#[test]
fn depth_is_bounded() {
    let mut deep = vec![0x91; 100];
    deep.push(0xc0);
    decode::<serde_json::Value>(&deep).unwrap();
    let mut deep = vec![0x91; 100_000];
    deep.push(0xc0);
    assert!(failure::<serde_json::Value>(&deep).1.starts_with("expected at most 128 levels"));
    decode::<serde::de::IgnoredAny>(&deep).unwrap();
}
