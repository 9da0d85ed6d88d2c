use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{array, decode, ours, wire};
use crate::payload::Tensor;

/// Any kind of value.
#[derive(Debug, Clone, PartialEq)]
enum Any {
    None,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Any>),
    Dict(BTreeMap<String, Any>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Variants {
    Unit,
    New(Box<Typed>),
    Tuple(i8, f32),
    Struct { text: String, flag: bool },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Typed {
    number: i64,
    optional: Option<u16>,
    variants: Vec<Variants>,
    map: BTreeMap<i32, Vec<u8>>,
    bytes: Bytes,
    unit: (),
    tuple: (char, f64),
}

fn anything() -> impl Strategy<Value = Any> {
    let leaf = prop_oneof![
        Just(Any::None),
        any::<bool>().prop_map(Any::Bool),
        any::<u64>().prop_map(Any::Unsigned),
        (i64::MIN..0).prop_map(Any::Signed),
        (-1e300..1e300).prop_map(Any::Float),
        any::<String>().prop_map(Any::Text),
        vec(any::<u8>(), 0..300).prop_map(Any::Bytes),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..20).prop_map(Any::List),
            btree_map(any::<String>(), inner, 0..20).prop_map(Any::Dict),
        ]
    })
}

fn variants() -> impl Strategy<Value = Variants> {
    let leaf = prop_oneof![
        Just(Variants::Unit),
        (any::<i8>(), -1e30_f32..1e30).prop_map(|(a, b)| Variants::Tuple(a, b)),
        (any::<String>(), any::<bool>()).prop_map(|(text, flag)| Variants::Struct { text, flag }),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        (
            any::<i64>(),
            any::<Option<u16>>(),
            vec(inner, 0..3),
            btree_map(any::<i32>(), vec(any::<u8>(), 0..9), 0..4),
            any::<char>(),
        )
            .prop_map(|(number, optional, variants, map, letter)| {
                let bytes = Bytes::copy_from_slice(&number.to_le_bytes());
                Variants::New(Box::new(Typed {
                    number,
                    optional,
                    variants,
                    map,
                    bytes,
                    unit: (),
                    tuple: (letter, 0.5),
                }))
            })
    })
}

proptest! {
    #[test]
    fn values_of_another_encoder_are_decoded(value in anything()) {
        prop_assert_eq!(decode::<Any>(&wire(&value)).unwrap(), value);
    }

    #[test]
    fn another_decoder_reads_our_values(value in anything()) {
        prop_assert_eq!(&ours(&value), &wire(&value));
        prop_assert_eq!(rmp_serde::from_slice::<Any>(&ours(&value)).unwrap(), value);
    }

    #[test]
    fn typed_values_survive(value in variants()) {
        prop_assert_eq!(&decode::<Variants>(&wire(&value)).unwrap(), &value);
        prop_assert_eq!(decode::<Variants>(&ours(&value)).unwrap(), value);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        read_in_every_way(&bytes);
    }

    #[test]
    fn damaged_values_never_panic(value in variants(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = ours(&value);
        let (at, cut) = (at.index(bytes.len()), cut.index(bytes.len()));
        prop_assert!(decode::<Variants>(&bytes[..cut]).is_err());
        // After the change, the bytes can be a shorter value that is complete.
        bytes[at] = byte;
        read_in_every_way(&bytes);
        read_in_every_way(&bytes[..cut]);
    }

    #[test]
    fn damaged_arrays_never_panic(
        dtype in prop::sample::select(vec!["float32", "bool", "complex128", "bfloat16", "unheard"]),
        shape in vec(prop_oneof![0_u64..5, any::<u64>()], 0..5),
        data in vec(any::<u8>(), 0..100),
    ) {
        read_in_every_way(&array(dtype, &shape, &data));
    }

    #[test]
    fn arrays_survive(rows in 0_usize..6, columns in 0_usize..6, start in any::<i64>()) {
        let elements: Vec<i64> = (0..(rows * columns) as i64).map(|step| start.wrapping_add(step)).collect();
        let tensor = Tensor::from_elements([rows, columns], &elements).unwrap();
        let bytes = ours(&tensor);
        prop_assert_eq!(&decode::<Tensor>(&bytes).unwrap(), &tensor);
        prop_assert_eq!(tensor.to_vec::<i64>().unwrap(), elements.clone());
        let nested = decode::<Vec<Vec<i64>>>(&bytes).unwrap();
        prop_assert_eq!(nested.len(), rows);
        prop_assert_eq!(nested.concat(), elements);
    }
}

fn read_in_every_way(bytes: &[u8]) {
    let _ = decode::<Any>(bytes);
    let _ = decode::<Variants>(bytes);
    let _ = decode::<Tensor>(bytes);
    let _ = decode::<Vec<u8>>(bytes);
    let _ = decode::<Vec<Vec<f32>>>(bytes);
    let _ = decode::<serde_json::Value>(bytes);
    let _ = decode::<serde::de::IgnoredAny>(bytes);
}

impl Serialize for Any {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_bytes(value),
            Self::List(value) => value.serialize(serializer),
            Self::Dict(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyVisitor;
        impl<'de> Visitor<'de> for AnyVisitor {
            type Value = Any;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_unit<E>(self) -> Result<Any, E> {
                Ok(Any::None)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Any, E> {
                Ok(Any::Bool(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Any, E> {
                Ok(Any::Unsigned(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Any, E> {
                Ok(Any::Signed(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Any, E> {
                Ok(Any::Float(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Any, E> {
                Ok(Any::Text(value.to_owned()))
            }
            fn visit_bytes<E>(self, value: &[u8]) -> Result<Any, E> {
                Ok(Any::Bytes(value.to_vec()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Any, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Any::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut dict: A) -> Result<Any, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = dict.next_entry()? {
                    entries.insert(key, value);
                }
                Ok(Any::Dict(entries))
            }
        }
        deserializer.deserialize_any(AnyVisitor)
    }
}
