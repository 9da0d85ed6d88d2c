//! What the macro makes takes no name of the user's, and asks no lint to be quiet that the user
//! forbids.
#![forbid(
    dead_code,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    unsafe_code,
    unused_imports,
    unused_variables
)]

use skyward::payload::ComputeFn;

/// Constants with names that the macro could have chosen.
mod names {
    pub(super) const SOURCE: usize = 2;
    pub(super) const SHAPE: usize = 3;
    pub(super) const KIND: usize = 4;
    pub(super) const REST: usize = 5;
}
use names::{KIND, REST, SHAPE, SOURCE};

#[skyward::compute(payload = Taken)]
fn taken(epochs: [u8; SOURCE]) -> ([f64; SOURCE], [f64; SHAPE]) {
    "return [[0.0, 0.0], [float(epochs[0])] * 3]"
}

#[skyward::compute(python = "tests/ui/payloads/reports.py", payload = Reported)]
fn report(epochs: [u8; SHAPE]) -> Report<SHAPE>;

#[skyward::compute]
fn other(values: Option<[u8; KIND]>) -> [u8; REST] {
    "return [len(values or [])] * 5"
}

#[derive(serde::Deserialize)]
struct Report<const N: usize> {
    losses: [f64; 3],
}

/// Ordinary names that mean something else here.
mod shadows {
    pub(super) struct Result;
    pub(super) struct Option;
    pub(super) struct Some;
    pub(super) struct String;
    pub(super) trait Fn {}

    #[skyward::compute(payload = Args)]
    pub(super) fn args(build: u8, value: ::core::option::Option<u8>) -> u8 {
        "return build + (value or 0)"
    }

    #[skyward::compute]
    pub(super) fn source(a: &[u8]) -> ::std::string::String {
        "return str(len(a))"
    }

    impl Fn for (Result, Option, Some, String) {}
}

/// A type that no builder names.
#[skyward::compute(payload = Unused)]
fn unused() -> u8 {
    "return 1"
}

#[test]
fn is_accepted() {
    assert!(format!("{:?}", None::<Taken>).contains("None"));
    assert!(Taken::source().main_text().contains("def taken"));
    assert!(Reported::source().main_text().contains("def report"));
    assert!(shadows::Args::source().main_text().contains("def args"));
    assert_eq!(taken([1, 2]).source().entry(), "taken");
    assert_eq!(report([1, 2, 3]).source().entry(), "report");
    assert_eq!(other(None).source().entry(), "other");
    assert_eq!(shadows::args(1, None).source().entry(), "args");
    assert_eq!(shadows::source(b"x").source().entry(), "source");
    assert_eq!(unused().source().entry(), "unused");
    let _: fn(Report<SHAPE>) -> [f64; 3] = |report| report.losses;
    let _ = |all: (shadows::Result, shadows::Option, shadows::Some, shadows::String)| {
        fn known(_: impl shadows::Fn) {}
        known(all);
    };
}
