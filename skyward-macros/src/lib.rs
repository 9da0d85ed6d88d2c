//! The `#[skyward::compute]` attribute.
