//! What a value takes in memory is bounded by its bytes, and how deep it is where it is made.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::collections::HashMap;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use skyward_core::error::ErrorKind;
use skyward_core::payload::{Args, Tensor, value};

/// An array without elements, of this many rows, in extension 1.
fn empty_rows(rows: u32) -> Vec<u8> {
    let mut body = b"\x92\xa7float32\x92\xce".to_vec();
    body.extend(rows.to_be_bytes());
    body.push(0);
    [&[0xc7, body.len() as u8, 1][..], &body].concat()
}

/// A list, of at most 2^16 elements.
fn list(elements: &[Vec<u8>]) -> Vec<u8> {
    [&[0xdc][..], &(elements.len() as u16).to_be_bytes(), &elements.concat()].concat()
}

fn refused<T: DeserializeOwned + 'static>(bytes: Vec<u8>) -> String {
    let length = bytes.len();
    let Err(error) = value::decode::<T>(&bytes.into()) else {
        panic!("{length} bytes became a {}", std::any::type_name::<T>())
    };
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.hint().is_some());
    error.to_string()
}

/// A type of 4 KiB that one byte makes.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(from = "u8")]
struct Page(#[expect(dead_code, reason = "only its size matters")] [u64; 512]);

impl From<u8> for Page {
    fn from(byte: u8) -> Self {
        Self([byte.into(); 512])
    }
}

#[test]
fn many_arrays_of_empty_rows_share_one_budget() {
    let bytes = list(&vec![empty_rows(1 << 20); 40]);
    assert!(bytes.len() < 1000);
    let words = refused::<Vec<Vec<Vec<f32>>>>(bytes);
    assert!(words.contains("MiB of memory"), "{words}");
}

#[test]
fn values_of_every_kind_share_the_budget() {
    let named = [&b"\x81\xa1x"[..], &empty_rows(u32::MAX)].concat();
    refused::<HashMap<String, Vec<()>>>(named);
    refused::<serde_json::Value>(list(&vec![empty_rows(1 << 20); 8]));
    let bytes = [&[0xc6][..], &100_000_u32.to_be_bytes(), &[7; 100_000]].concat();
    assert!(refused::<Vec<Page>>(bytes.clone()).contains("MiB of memory"));
    refused::<Vec<Page>>(list(&vec![vec![7]; 60_000]));
    refused::<HashMap<u32, Page>>({
        let entries: Vec<u8> =
            (0..60_000_u32).flat_map(|key| [&[0xce][..], &key.to_be_bytes(), &[7]].concat()).collect();
        [&[0xde][..], &60_000_u16.to_be_bytes(), &entries].concat()
    });
    let row = b"\x92\xc7\x03\x02\x91\xa1x\x07".to_vec();
    refused::<Vec<Vec<Page>>>(list(&vec![row; 60_000]));
}

#[test]
fn values_in_proportion_to_their_bytes_are_read() {
    let rows: Vec<Vec<f32>> = value::decode(&empty_rows(1 << 20).into()).unwrap();
    assert_eq!(rows.len(), 1 << 20);
    let nones: Vec<Option<[u64; 16]>> = value::decode(&list(&vec![vec![0xc0]; 60_000]).into()).unwrap();
    assert_eq!(nones.len(), 60_000);
    assert_eq!(value::decode::<Tensor>(&empty_rows(u32::MAX).into()).unwrap().shape(), [u32::MAX as usize, 0]);
    let bytes = Bytes::from([&[0xc6][..], &(1_u32 << 20).to_be_bytes(), &[1; 1 << 20]].concat());
    assert_eq!(value::decode::<Vec<u8>>(&bytes).unwrap().len(), 1 << 20);
}

fn nested(levels: u32) -> serde_json::Value {
    (0..levels).fold(serde_json::Value::Null, |inner, _| serde_json::json!({ "key": inner }))
}

#[test]
fn an_argument_has_at_most_the_depth_that_a_result_may_have() {
    Args::new().with("x", &nested(128)).encode().unwrap();
    let error = Args::new().with("x", &nested(129)).encode().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.message().contains("128 levels"), "{error}");
    assert!(error.message().contains('…') && error.message().len() < 400, "{error}");

    #[derive(serde::Serialize)]
    enum Chain {
        End,
        Link(Box<Chain>),
    }
    let chain = |links| (0..links).fold(Chain::End, |inner, _| Chain::Link(Box::new(inner)));
    Args::new().with("x", &chain(128)).encode().unwrap();
    assert!(Args::new().with("x", &chain(129)).encode().is_err());
    // Neighbours do not add to the depth.
    Args::new().with("x", &vec![chain(100), chain(100)]).encode().unwrap();
    let lists = |levels: u32| (0..levels).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner, [inner]]));
    Args::new().with("x", &lists(12)).encode().unwrap();
}

#[test]
fn a_result_is_read_at_every_depth_that_an_argument_may_have() {
    let mut bytes = vec![0x91; 128];
    bytes.push(0xc0);
    value::decode::<serde_json::Value>(&bytes.clone().into()).unwrap();
    bytes.insert(0, 0x91);
    let words = refused::<serde_json::Value>(bytes);
    assert!(words.contains("128 levels") && words.len() < 600, "{words}");
    // The dimensions of an array are levels too, where it is read as lists.
    let array = |levels| [vec![0x91; levels], empty_rows(1)].concat();
    value::decode::<serde_json::Value>(&array(126).into()).unwrap();
    assert!(refused::<serde_json::Value>(array(127)).contains("128 levels"));
}
