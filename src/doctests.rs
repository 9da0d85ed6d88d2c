//! The pages that are not in the guide, as doc tests, so that their code matches what the crate
//! offers.

#[doc = include_str!("../README.md")]
mod readme {}

#[doc = include_str!("../docs/reference.md")]
mod reference {}
