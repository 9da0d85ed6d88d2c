//! Converts numbers to floats. An int becomes an `f64` only if the `f64` is the same number. An
//! `f32` is rounded from an `f64`. No finite number becomes infinite.

use serde::de::Visitor;

use super::doubt::StandIn;
use super::error::DecodeError;
use super::reader::Token;
use super::shared::Shared;

/// The number as an `f64`; `None` if the token is not a number.
pub(super) fn double(number: &Token<'_>) -> Option<Result<f64, DecodeError>> {
    match *number {
        Token::Unsigned(int) => Some(exactly(int as f64, int.into())),
        Token::Signed(int) => Some(exactly(int as f64, int.into())),
        Token::F32(float) => Some(Ok(float.into())),
        Token::F64(float) => Some(Ok(float)),
        _ => None,
    }
}

/// The number as an `f32`, rounded from an `f64`, also if it is an int; `None` if the token is not
/// a number.
pub(super) fn single(number: &Token<'_>) -> Option<Result<f32, DecodeError>> {
    match *number {
        Token::Unsigned(int) => Some(exactly(int as f64, int.into()).map(|float| float as f32)),
        Token::Signed(int) => Some(exactly(int as f64, int.into()).map(|float| float as f32)),
        Token::F32(float) => Some(Ok(float)),
        Token::F64(float) if is_beyond_single(float) => {
            Some(Err(DecodeError::expected("f32", format!("the float {float:?}, which is larger than any `f32`"))
                .with_hint("use `f64` in Rust")))
        }
        Token::F64(float) => Some(Ok(float as f32)),
        _ => None,
    }
}

/// Visits a float by its own type. `at` begins with its bytes.
pub(super) fn visit_single<'de, V: Visitor<'de>>(
    float: f32,
    at: &'de [u8],
    shared: &Shared,
    visitor: V,
) -> Result<V::Value, DecodeError> {
    match check_untyped::<V::Value>(float.into(), at, shared)? {
        None => visitor.visit_f32(float),
        Some(stand_in) => stand_in.visit(visitor),
    }
}

/// Visits a float by its own type. `at` begins with its bytes.
pub(super) fn visit_double<'de, V: Visitor<'de>>(
    float: f64,
    at: &'de [u8],
    shared: &Shared,
    visitor: V,
) -> Result<V::Value, DecodeError> {
    match check_untyped::<V::Value>(float, at, shared)? {
        None => visitor.visit_f64(float),
        Some(stand_in) => stand_in.visit(visitor),
    }
}

/// Refuses a float that a reader of any type would change without an error: JSON has no number for
/// NaN and infinities and reads null, and Serde makes infinity of a large float that it buffers for
/// an `f32`. Returns what stands in for the float in a trial.
fn check_untyped<T>(float: f64, at: &[u8], shared: &Shared) -> Result<Option<StandIn>, DecodeError> {
    if float.is_finite() && !is_beyond_single(float) {
        return Ok(None);
    }
    let reader = std::any::type_name::<T>();
    if float.is_finite() {
        return if reader.contains(BUFFER) { Err(beyond_single(float)) } else { Ok(None) };
    }
    match reader {
        JSON => Err(not_json(&format!("the float {float:?}"))),
        _ if reader.contains(BUFFER) => Ok(shared.doubt(at.as_ptr().addr())),
        _ => Ok(None),
    }
}

#[cold]
pub(super) fn not_json(found: &str) -> DecodeError {
    DecodeError::expected("a number of JSON", format!("{found}, of which JSON makes null"))
        .with_hint("read it as an `f64`, or return None from Python where the number is not finite")
}

#[cold]
fn beyond_single(float: f64) -> DecodeError {
    DecodeError::expected(
        "a float that an `f32` can hold too",
        format!("the float {float:?}, which Serde would read as infinity for an `f32`"),
    )
    .with_hint(
        "remove `tag`, `untagged` or `flatten` from the Rust type: behind them Serde forgets the type of a number",
    )
}

fn is_beyond_single(float: f64) -> bool {
    float.is_finite() && (float as f32).is_infinite()
}

fn exactly(float: f64, int: i128) -> Result<f64, DecodeError> {
    // The int has at most 64 bits, so the conversion back to an int is exact.
    if float as i128 == int {
        return Ok(float);
    }
    Err(DecodeError::expected("a float", format!("the int {int}, which has more digits than a float can hold"))
        .with_hint("use an integer in Rust, or round it in Python with `float(…)`"))
}

/// The type of `serde_json` that takes any value.
const JSON: &str = "serde_json::value::Value";
/// The end of the path of Serde's own type for values whose type is not known yet.
const BUFFER: &str = "::content::Content";
