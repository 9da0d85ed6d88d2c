//! Stand-ins for the values that Python would return. If a type rejects one, the next one is tried.

/// Texts, for types that parse a text.
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

/// Numbers, for types that accept only a range.
pub(super) const INTS: &[u8] = &[1, 0, 2, 10, 100];

/// The kinds of values, for a type that accepts any of them.
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

/// The most tries for one place. For an enum, each variant is a try.
pub(super) const MOST: usize = 16;
