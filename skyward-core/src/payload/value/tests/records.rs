//! Tuples with names, and lists in the place of structs.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::{array, decode, failure, wire};

/// A tuple with names: a list that begins with them.
fn named(items: &[(&str, &[u8])]) -> Vec<u8> {
    let names = wire(&items.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let mut bytes = Vec::new();
    rmp::encode::write_array_len(&mut bytes, items.len() as u32 + 1).unwrap();
    rmp::encode::write_ext_meta(&mut bytes, names.len() as u32, 2).unwrap();
    bytes.extend(names);
    for (_, item) in items {
        bytes.extend(*item);
    }
    bytes
}

/// The order of the fields differs from the order in Python.
#[derive(Debug, PartialEq, Deserialize)]
struct Score {
    accuracy: f64,
    loss: f64,
}

#[derive(Debug, PartialEq, Deserialize)]
enum Event {
    Scored { accuracy: f64, loss: f64 },
    Pair(f64, f64),
}

fn score() -> Vec<u8> {
    named(&[("loss", b"\x01"), ("accuracy", b"\x02")])
}

#[test]
fn fields_are_read_by_name_in_any_order() {
    let expected = Score { accuracy: 2.0, loss: 1.0 };
    assert_eq!(decode::<Score>(&score()).unwrap(), expected);
    let list = [&b"\x91"[..], &score()].concat();
    assert_eq!(decode::<Vec<Score>>(&list).unwrap(), [expected]);
    assert_eq!(
        decode::<BTreeMap<String, u8>>(&score()).unwrap(),
        BTreeMap::from([("loss".into(), 1), ("accuracy".into(), 2)])
    );
    assert_eq!(decode::<serde_json::Value>(&score()).unwrap(), json!({"loss": 1, "accuracy": 2}));
    let event = [&b"\x81\xa6Scored"[..], &score()].concat();
    assert_eq!(decode::<Event>(&event).unwrap(), Event::Scored { accuracy: 2.0, loss: 1.0 });

    #[derive(Debug, PartialEq, Deserialize)]
    struct Flat {
        loss: f64,
        #[serde(flatten)]
        rest: BTreeMap<String, f64>,
    }
    assert_eq!(decode::<Flat>(&score()).unwrap().rest, BTreeMap::from([("accuracy".into(), 2.0)]));

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Score(Score),
        Number(f64),
    }
    assert_eq!(decode::<Either>(&score()).unwrap(), Either::Score(Score { accuracy: 2.0, loss: 1.0 }));
}

#[test]
fn sequences_are_read_by_position() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Pair(f64, f64);
    assert_eq!(decode::<(f64, f64)>(&score()).unwrap(), (1.0, 2.0));
    assert_eq!(decode::<Vec<u8>>(&score()).unwrap(), [1, 2]);
    assert_eq!(decode::<[u8; 2]>(&score()).unwrap(), [1, 2]);
    assert_eq!(decode::<Option<Pair>>(&score()).unwrap(), Some(Pair(1.0, 2.0)));
    let event = [&b"\x81\xa4Pair"[..], &score()].concat();
    assert_eq!(decode::<Event>(&event).unwrap(), Event::Pair(1.0, 2.0));
    decode::<(IgnoredAny, u8)>(&named(&[("a", &score()), ("b", b"\x07")])).unwrap();
    assert_eq!(decode::<Vec<u8>>(&named(&[])).unwrap(), [0; 0]);
    assert_eq!(decode::<serde_json::Value>(&named(&[])).unwrap(), json!({}));
}

#[test]
fn the_paths_of_errors_have_the_names() {
    let nested = named(&[("best", &score()), ("when", b"\xc0")]);
    #[derive(Debug, Deserialize)]
    struct Report {
        #[expect(dead_code, reason = "only decoded")]
        best: (f64, String),
    }
    assert_eq!(failure::<Report>(&nested), (".best.accuracy".into(), "expected a string, found the int 2".into()));
    let words = r#"found a tuple with the names "loss", "accuracy""#;
    assert_eq!(failure::<(f64,)>(&score()).1, format!("expected 1 element, {words}"));
    assert_eq!(failure::<[f64; 3]>(&score()).1, format!("expected an array of length 3, {words}"));
    assert_eq!(failure::<u32>(&score()).1, format!("expected u32, {words}"));
    assert_eq!(failure::<Event>(&score()).1, format!("expected the name of a variant, {words}"));

    #[derive(Debug, Deserialize)]
    struct Other {
        #[expect(dead_code, reason = "only decoded")]
        looss: f64,
    }
    assert_eq!(failure::<Other>(&score()).1, format!(r#"expected the key "looss", {words}"#));
}

#[test]
fn a_struct_is_never_read_by_position() {
    let words = "expected named fields: a dict, a dataclass or a NamedTuple, found";
    assert_eq!(failure::<Score>(b"\x92\x01\x02").1, format!("{words} a list of 2"));
    assert_eq!(failure::<Vec<Score>>(b"\x91\x92\x01\x02"), ("[0]".into(), format!("{words} a list of 2")));
    assert_eq!(failure::<Score>(&array("uint8", &[2], b"\x01\x02")).1, format!("{words} an array uint8[2]"));
    let event = b"\x81\xa6Scored\x92\x01\x02";
    assert_eq!(failure::<Event>(event), (".Scored".into(), format!("{words} a list of 2")));
    let error = decode::<Score>(b"\x92\x01\x02").unwrap_err();
    assert!(error.hint().unwrap().contains("NamedTuple"), "{error}");
}

#[test]
fn neither_a_row_of_an_array_nor_a_complex_number_is_a_struct() {
    let words = "expected named fields: a dict, a dataclass or a NamedTuple, found";
    let floats: Vec<u8> = [1.0_f64, 2.0].iter().flat_map(|element| element.to_le_bytes()).collect();
    let row = ("[0]".to_owned(), format!("{words} an array float64[1, 2]"));
    assert_eq!(failure::<Vec<Score>>(&array("float64", &[1, 2], &floats)), row);
    assert_eq!(failure::<Vec<Option<Box<Score>>>>(&array("float64", &[1, 2], &floats)), row);
    let complex = array("complex128", &[1], &floats);
    assert_eq!(failure::<Vec<Score>>(&complex), ("[0]".into(), format!("{words} an array complex128[1]")));
    assert_eq!(failure::<Score>(&array("complex128", &[], &floats)).1, format!("{words} an array complex128[]"));
    let error = decode::<Vec<Score>>(&complex).unwrap_err();
    assert!(error.hint().unwrap().contains("make the Rust type a tuple"), "{error}");
    let number = failure::<Vec<Score>>(&array("float64", &[2], &floats)).1;
    assert_eq!(number, "expected struct Score, found the float 1.0 in an array float64[2]");

    #[derive(Debug, PartialEq, Deserialize)]
    struct Pair(f64, f64);
    assert_eq!(decode::<Vec<Pair>>(&array("float64", &[1, 2], &floats)).unwrap(), [Pair(1.0, 2.0)]);
    assert_eq!(decode::<Vec<Pair>>(&complex).unwrap(), [Pair(1.0, 2.0)]);
}

/// Checks what `docs/payloads.md` says of such enums. The rules are Serde's, and may change.
#[test]
fn internally_tagged_enums_follow_serdes_rules() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged<T> {
        A { data: T },
    }
    let tagged = |data: &[u8]| [&b"\x82\xa4kind\xa1A\xa4data"[..], data].concat();
    let bytes = tagged(b"\xc4\x02ab");
    assert_eq!(decode::<Tagged<bytes::Bytes>>(&bytes).unwrap(), Tagged::A { data: bytes::Bytes::from_static(b"ab") });
    failure::<Tagged<Vec<u8>>>(&bytes);
    let numbers = tagged(&array("uint8", &[1, 2], b"\x01\x02"));
    assert_eq!(decode::<Tagged<Vec<Vec<f32>>>>(&numbers).unwrap(), Tagged::A { data: vec![vec![1.0, 2.0]] });
    failure::<Tagged<crate::payload::Tensor>>(&numbers);
    let score = Score { accuracy: 1.0, loss: 2.0 };
    assert_eq!(decode::<Tagged<Vec<Score>>>(&numbers).unwrap(), Tagged::A { data: vec![score] });
    let wide = tagged(b"\xcf\x00\x20\x00\x00\x00\x00\x00\x01");
    assert_eq!(decode::<Tagged<f64>>(&wide).unwrap(), Tagged::A { data: 2_f64.powi(53) });
}

#[test]
fn malformed_names_are_refused() {
    for bytes in [
        &b"\x92\xd4\x02\x90\x01"[..],        // no name for an item
        b"\x92\xd5\x02\x91\x01\x01",         // a name that is not a text
        b"\x92\xc7\x03\x02\x91\xa1\xff\x01", // a name that is not UTF-8
        b"\x92\xd5\x02\x91\xa5\x01",         // a name that is cut off
        b"\x92\xc7\x00\x02\x01",             // an empty extension
        b"\x91\xd4\x02\x91",                 // a name without an item
    ] {
        failure::<serde_json::Value>(bytes);
        failure::<Vec<u8>>(bytes);
        failure::<Score>(bytes);
    }
    // The extension alone is not a value.
    failure::<serde_json::Value>(b"\xd4\x02\x90");
    let deep = (0..200).fold(vec![0xc0], |inner, _| named(&[("a", &inner)]));
    assert!(failure::<serde_json::Value>(&deep).1.starts_with("expected at most 128 levels"));
}
