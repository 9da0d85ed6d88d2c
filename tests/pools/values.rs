//! Values that go to Python and come back unchanged.

use std::borrow::Cow;
use std::collections::BTreeMap;

use indoc::indoc;
use serde::Deserialize;

use crate::common::{pool, python};
use skyward::compute::PendingCompute;
use skyward::error::ErrorKind;
use skyward::payload::Streaming;

/// The fields are in another order than in Python.
#[derive(Debug, PartialEq, Deserialize)]
struct Score {
    accuracy: f64,
    loss: f64,
}

#[skyward::compute(python = "tests/payloads/fields.py", entry = "scores", payload = Scores)]
fn scores(count: u32) -> Streaming<Score>;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "scores")]
fn pairs(count: u32) -> Streaming<(f64, f64)>;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "kind")]
fn defaulted(data: Option<Vec<u8>>) -> String;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "kind_of")]
fn required(data: Option<Vec<u8>>) -> String;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "kind_of")]
fn array(data: [u8; 3]) -> String;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "kind_of")]
fn cow(data: Cow<'_, [u8]>) -> String;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "kind_of")]
fn boxed(data: Option<Box<[u8]>>) -> String;

#[skyward::compute(python = "tests/payloads/fields.py", entry = "kind_of")]
fn inside(data: Vec<Vec<u8>>) -> String;

#[tokio::test]
async fn names_and_bytes_arrive_unchanged() {
    pool(1)
        .payload::<Scores>()
        .scope(async |pool| {
            let expected: Vec<_> = (0..3).map(|loss| Score { accuracy: 0.5, loss: f64::from(loss) }).collect();
            assert_eq!(scores(3).run(pool).await?.collect().await?, expected);
            assert_eq!(pairs(2).run(pool).await?.collect().await?, [(0.0, 0.5), (1.0, 0.5)]);

            let bytes = vec![1, 2, 3];
            for kind in [
                defaulted(Some(bytes.clone())),
                required(Some(bytes.clone())),
                array([1, 2, 3]),
                cow(Cow::Borrowed(&bytes)),
                boxed(Some(bytes.clone().into())),
            ] {
                assert_eq!(kind.run(pool).await?, "bytes");
            }
            assert_eq!(required(None).run(pool).await?, "NoneType");
            assert_eq!(inside(vec![bytes]).run(pool).await?, "list");

            let tuple: PendingCompute<Score> = python(indoc! {"
                def f():
                    return (0.9, 0.5)
            "})
            .into();
            let error = tuple.run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Decode);
            assert!(error.message().contains("found a list of 2"), "{error}");

            let keys = indoc! {"
                import enum
                class C(enum.Enum):
                    RED = 'red'
                def f():
                    return {'a': {C.RED: 1, 'red': 2}}
            "};
            let lost: PendingCompute<BTreeMap<String, BTreeMap<String, u8>>> = python(keys).into();
            let error = lost.run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Encode);
            assert!(format!("{error:#}").contains("<C.RED: 'red'> and 'red' both become 'red'"), "{error}");
            Ok(())
        })
        .await
        .unwrap();
}
