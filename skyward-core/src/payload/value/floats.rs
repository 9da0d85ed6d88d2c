//! Converts numbers to floats. An int becomes an `f64` only if the `f64` is the same number. An
//! `f32` is rounded from an `f64`. No finite number becomes infinite.

use super::error::DecodeError;
use super::reader::Token;

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
        Token::F64(float) if float.is_finite() && (float as f32).is_infinite() => {
            Some(Err(DecodeError::expected("f32", format!("the float {float:?}, which is larger than any `f32`"))
                .with_hint("use `f64` in Rust")))
        }
        Token::F64(float) => Some(Ok(float as f32)),
        _ => None,
    }
}

fn exactly(float: f64, int: i128) -> Result<f64, DecodeError> {
    // The int has at most 64 bits, so the conversion back to an int is exact.
    if float as i128 == int {
        return Ok(float);
    }
    Err(DecodeError::expected("a float", format!("the int {int}, which has more digits than a float can hold"))
        .with_hint("use an integer in Rust, or round it in Python with `float(…)`"))
}
