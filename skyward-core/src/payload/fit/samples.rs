//! Values that stand in for those which Python would return. One that a type rejects is followed by the next.

/// Text, as types with a text form read it.
pub(super) const TEXTS: &[&str] = &[
    "",
    "a",
    "1",
    "2020-01-02T03:04:05Z",
    "2020-01-02T03:04:05",
    "2020-01-02",
    "03:04:05",
    "00000000-0000-0000-0000-000000000001",
    "127.0.0.1",
    "::1",
    "127.0.0.1:80",
    "127.0.0.0/8",
    "1.0.0",
    "https://a.example/",
    "UTC",
];

/// Numbers, which some types bound.
pub(super) const INTS: &[u8] = &[1, 0, 2, 10, 100];

/// For a type that takes whatever comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Any {
    Unit,
    Int,
    Float,
    Text,
    Bool,
    Map,
    Seq,
}

pub(super) const ANY: &[Any] = &[Any::Unit, Any::Int, Any::Float, Any::Text, Any::Bool, Any::Map, Any::Seq];

/// How many tries a place has: an enum has as many as it has variants.
pub(super) const MOST: usize = 16;
