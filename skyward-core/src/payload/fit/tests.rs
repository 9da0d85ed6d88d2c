use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;

use super::{Class, PANICS_END, PanicsEnd, Structure, check, check_where};
use crate::payload::{Output as _, Streaming, Tensor};

const REPORT: Class = Class {
    name: "Report",
    place: "train.py:5:7",
    fields: &[
        ("loss", Structure::Unknown),
        ("accuracy", Structure::Unknown),
        ("history", Structure::List(&Structure::Class(&POINT))),
        ("best", Structure::Class(&POINT)),
        ("by_name", Structure::Dict(&Structure::Class(&POINT))),
    ],
};
const POINT: Class =
    Class { name: "Point", place: "train.py:1:7", fields: &[("x", Structure::Unknown), ("y", Structure::Unknown)] };
const WHOLE: Structure = Structure::Class(&REPORT);

/// The error's message, path and hint; empty if the type fits.
fn misfit<T: serde::de::DeserializeOwned>(structure: Structure) -> String {
    let Err(error) = check::<T>("train", structure) else { return String::new() };
    assert_eq!(error.kind(), crate::error::ErrorKind::InvalidSpec);
    let path = error.context().iter().map(|(_, path)| format!(" at {path}")).collect::<String>();
    format!("{}{path}; {}", error.message(), error.hint().unwrap_or_default())
}

#[test]
fn a_field_that_the_class_does_not_have_is_named_with_the_nearest_one() {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Report {
        loss: f64,
        acuracy: f64,
    }
    assert_eq!(
        misfit::<Report>(WHOLE),
        "the result of `train` does not fit its Rust type: `Report` requires the field `acuracy`, which the class `Report` (train.py:5:7) does not have; \
         did you mean `accuracy`? rename one of the two fields, for example with `#[serde(rename = \"accuracy\")]`, or mark the Rust field `#[serde(default)]`"
    );

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Point {
        x: f64,
        weight: f64,
    }
    let found = misfit::<Point>(Structure::Class(&POINT));
    assert!(
        found.contains("the field `weight`")
            && found.ends_with(
                "the class has `x`, `y`; add the field in Python, or mark the Rust field `#[serde(default)]`"
            ),
        "{found}"
    );

    for found in [
        misfit::<Vec<Point>>(Structure::List(&Structure::Class(&POINT))),
        misfit::<[Point; 2]>(Structure::List(&Structure::Class(&POINT))),
        misfit::<HashMap<u32, Point>>(Structure::Dict(&Structure::Class(&POINT))),
        misfit::<Option<Box<Point>>>(Structure::Class(&POINT)),
        format!(
            "{:#}",
            Streaming::<Point>::check_structure("train", Structure::List(&Structure::Class(&POINT))).unwrap_err()
        ),
    ] {
        assert!(found.contains("`weight`"), "{found}");
    }
}

#[test]
fn classes_inside_classes_are_compared() {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Report {
        when: Option<String>,
        history: Vec<Point>,
        best: Wrapped,
        by_name: BTreeMap<String, Point>,
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Point {
        x: f32,
        y: f32,
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Wrapped(Deep);
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Deep {
        x: f32,
        z: f32,
    }
    let found = misfit::<Report>(WHOLE);
    assert!(
        found.contains("`Deep` requires the field `z`, which the class `Point` (train.py:1:7)")
            && found.contains("at .best"),
        "{found}"
    );
}

#[test]
fn fields_that_serde_fills_in_or_renames_fit() {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Renamed {
        #[serde(rename = "loss")]
        error: f64,
        #[serde(alias = "best")]
        finest_point: serde_json::Value,
        #[serde(default)]
        seed: u64,
        #[serde(skip)]
        skipped: u8,
        none: Option<u8>,
        #[serde(default = "forty")]
        other: u8,
    }
    fn forty() -> u8 {
        40
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct AllDefault {
        anything: u8,
    }

    for found in [misfit::<Renamed>(WHOLE), misfit::<AllDefault>(WHOLE)] {
        assert_eq!(found, "");
    }
}

#[test]
fn types_whose_fields_are_not_certain_fit() {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Flat {
        missing: u8,
        #[serde(flatten)]
        rest: HashMap<String, serde_json::Value>,
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    enum Either {
        One { missing: u8 },
        Two { also_missing: u8 },
    }

    #[derive(Deserialize)]
    #[serde(tag = "kind")]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    enum Tagged {
        One { missing: u8 },
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    enum Outside {
        One { missing: u8 },
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Strict {
        missing: u8,
    }

    #[derive(Deserialize)]
    #[serde(try_from = "u32")]
    struct Picky;
    impl TryFrom<u32> for Picky {
        type Error = String;
        fn try_from(_: u32) -> Result<Self, String> {
            Err("never".to_owned())
        }
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Undecided {
        loss: Picky,
        missing: u8,
    }

    for found in [
        misfit::<Flat>(WHOLE),
        misfit::<Either>(WHOLE),
        misfit::<Tagged>(WHOLE),
        misfit::<Outside>(WHOLE),
        misfit::<Strict>(WHOLE),
        misfit::<Undecided>(WHOLE),
        misfit::<Flat>(Structure::Unknown),
        misfit::<Strict>(Structure::List(&WHOLE)),
    ] {
        assert_eq!(found, "");
    }
}

#[test]
fn types_without_fields_of_their_own_fit() {
    for found in [
        misfit::<serde_json::Value>(WHOLE),
        misfit::<HashMap<String, f64>>(WHOLE),
        misfit::<(f64, f64)>(Structure::Class(&POINT)),
        misfit::<Vec<f64>>(Structure::Class(&POINT)),
        misfit::<f64>(WHOLE),
        misfit::<()>(WHOLE),
        misfit::<Tensor>(WHOLE),
    ] {
        assert_eq!(found, "");
    }
}

#[test]
fn a_missing_field_is_found_after_fields_of_any_type() {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Report {
        loss: (NonZeroU32, i8, char, [u8; 3], (), bool, f32, i128),
        accuracy: (IpAddr, PathBuf, Duration, Kind, Tensor, bytes::Bytes, Picked, Tree),
        zzz: u8,
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    enum Kind {
        Deep { value: Inner },
        Unit,
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Inner {
        required: IpAddr,
        #[serde(flatten)]
        rest: HashMap<String, u8>,
    }
    #[derive(Deserialize)]
    #[serde(try_from = "String")]
    struct Picked;
    impl TryFrom<String> for Picked {
        type Error = String;
        fn try_from(text: String) -> Result<Self, String> {
            if text == "1.0.0" { Ok(Self) } else { Err(text) }
        }
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Tree {
        next: Option<Box<Tree>>,
        children: Vec<Tree>,
    }
    assert!(misfit::<Report>(WHOLE).contains("`zzz`"), "{}", misfit::<Report>(WHOLE));
}

#[test]
fn a_type_that_no_stand_in_fits_counts_as_fitting() {
    #[derive(Debug)]
    struct Panics;
    impl<'de> Deserialize<'de> for Panics {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            assert_eq!(text, "never");
            Ok(Self)
        }
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Endless {
        next: Box<Endless>,
        missing: u8,
    }
    assert_eq!(misfit::<Panics>(WHOLE), "");
    assert_eq!(
        misfit::<Endless>(Structure::Class(&Class {
            name: "Endless",
            place: "",
            fields: &[("next", Structure::Unknown)]
        })),
        ""
    );
}

#[test]
fn no_code_of_a_type_runs_if_a_panic_ends_the_process() {
    struct Counted;
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            TRIES.fetch_add(1, Ordering::Relaxed);
            Err(serde::de::Error::missing_field("part"))
        }
    }
    check_where::<Counted>(PanicsEnd::TheProcess, "train", WHOLE).unwrap();
    assert_eq!(TRIES.load(Ordering::Relaxed), 0);
    check_where::<Counted>(PanicsEnd::TheTry, "train", WHOLE).unwrap();
    assert_eq!(TRIES.load(Ordering::Relaxed), 1);
    assert_eq!(PANICS_END, PanicsEnd::TheTry, "tests are built to unwind");
}

#[test]
fn a_field_that_is_missing_in_a_parsed_text_is_not_reported() {
    struct Parsed;
    impl<'de> Deserialize<'de> for Parsed {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            String::deserialize(deserializer)?;
            Err(serde::de::Error::missing_field("part"))
        }
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields' names are looked at")]
    struct Report {
        loss: Parsed,
        accuracy: Vec<Parsed>,
        best: Option<Parsed>,
    }
    assert_eq!(misfit::<Report>(WHOLE), "");
    assert_eq!(misfit::<Parsed>(WHOLE), "");
}
