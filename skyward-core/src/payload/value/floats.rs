//! Floats: an int becomes an `f64` only where that is the same number, an `f32` is rounded from an `f64`, and none becomes infinite.

use super::error::DecodeError;
use super::reader::Token;

/// The double that this number is.
pub(super) fn double(number: &Token<'_>) -> Option<Result<f64, DecodeError>> {
    match *number {
        Token::Unsigned(int) => Some(exactly(int as f64, int.into())),
        Token::Signed(int) => Some(exactly(int as f64, int.into())),
        Token::F32(float) => Some(Ok(float.into())),
        Token::F64(float) => Some(Ok(float)),
        _ => None,
    }
}

/// The single that this number is, rounded from a double, also where it was written as an int.
pub(super) fn single(number: &Token<'_>) -> Option<Result<f32, DecodeError>> {
    match *number {
        Token::Unsigned(int) => Some(exactly(int as f64, int.into()).map(|float| float as f32)),
        Token::Signed(int) => Some(exactly(int as f64, int.into()).map(|float| float as f32)),
        Token::F32(float) => Some(Ok(float)),
        Token::F64(float) if float.is_finite() && (float as f32).is_infinite() => {
            Some(Err(DecodeError::expected("f32", format!("the float {float:?}, which is larger than any"))
                .with_hint("use `f64` in Rust")))
        }
        Token::F64(float) => Some(Ok(float as f32)),
        _ => None,
    }
}

fn exactly(float: f64, int: i128) -> Result<f64, DecodeError> {
    // Within 64 bits, so the way back is exact.
    if float as i128 == int {
        return Ok(float);
    }
    Err(DecodeError::expected("a float", format!("the int {int}, which has more digits than a float"))
        .with_hint("use an integer in Rust, or round it in Python with `float(…)`"))
}
