use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::super::encode_into;
use super::{ours, wire};

#[derive(Serialize)]
struct Config {
    rate: f64,
    layers: Vec<Layer>,
    host: IpAddr,
    nothing: Option<()>,
    #[serde(flatten)]
    more: BTreeMap<String, i64>,
}

#[derive(Serialize)]
enum Layer {
    Flatten,
    Dense(u32),
    Conv(u8, u8),
    Pool { size: u8, name: &'static str },
}

fn refusal(value: &impl Serialize) -> String {
    encode_into(&mut Vec::new(), value).unwrap_err().to_string()
}

#[test]
fn values_are_encoded_as_by_rmp_serde() {
    let config = Config {
        rate: f64::INFINITY,
        layers: vec![Layer::Flatten, Layer::Dense(300), Layer::Conv(1, 2), Layer::Pool { size: 2, name: "p" }],
        host: IpAddr::from([127, 0, 0, 1]),
        nothing: None,
        more: BTreeMap::from([("a".into(), i64::MIN), ("b".into(), -1)]),
    };
    // The length of a flattened struct is not known beforehand, so its header differs.
    let (theirs, ours) = (wire(&config), ours(&config));
    assert_eq!(theirs[0], 0x86);
    assert_eq!(ours[0], 0xdf);
    assert_eq!(ours[1..5], [0, 0, 0, 6]);
    assert_eq!(ours[5..], theirs[1..]);
}

#[test]
fn keys_are_strs_and_ints() {
    assert_eq!(ours(&BTreeMap::from([(1, 'a'), (-1, 'b')])), b"\x82\xff\xa1b\x01\xa1a");
    assert_eq!(ours(&BTreeMap::from([(Some("k"), ())])), b"\x81\xa1k\xc0");
    assert_eq!(refusal(&HashMap::from([((1, 2), 3)])), "a key of a dict must be a str or an int, not a tuple");
    assert_eq!(refusal(&HashMap::from([(true, 3)])), "a key of a dict must be a str or an int, not a bool");
    assert_eq!(
        refusal(&[BTreeMap::from([(u128::MAX, 3)])]),
        "at `[0]`: a key of a dict must be a str or an int, not a u128"
    );
    struct Floats;
    impl Serialize for Floats {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry(&0.5, "x")?;
            map.end()
        }
    }
    assert_eq!(refusal(&Floats), "a key of a dict must be a str or an int, not a float");
}

#[test]
fn ints_beyond_64_bits_are_refused_with_their_path() {
    #[derive(Serialize)]
    struct Wide {
        seeds: BTreeMap<&'static str, Vec<i128>>,
    }
    let wide = Wide { seeds: BTreeMap::from([("first one", vec![1])]) };
    let error = refusal(&wide);
    assert!(error.starts_with(r#"at `.seeds["first one"][0]`: i128 is wider"#), "{error}");
    assert!(refusal(&1_u128).starts_with("u128 is wider"));
}

#[test]
fn a_wrong_declared_length_is_an_error() {
    struct Liar;
    impl Serialize for Liar {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut list = serializer.serialize_seq(Some(3))?;
            list.serialize_element(&1)?;
            list.end()
        }
    }
    assert_eq!(refusal(&Liar), "its `Serialize` declared 3 elements and wrote 1");
}

#[test]
fn the_length_of_a_list_of_unknown_length_is_set_at_its_end() {
    struct Evens;
    impl Serialize for Evens {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq((0_u8..6).filter(|number| number % 2 == 0))
        }
    }
    assert_eq!(ours(&(Evens, 7)), b"\x92\xdd\0\0\0\x03\x00\x02\x04\x07");
}
