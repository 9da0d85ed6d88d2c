//! A part of a provider that has several.

use std::sync::Arc;

use super::Provider;

/// A part of a provider whose machines are in several places, each with records of its own: a host
/// of a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Part {
    /// The part's name, for people. It decides nothing, because a name may change.
    pub name: String,
    /// The part as a provider of its own, which has an identity, and no parts.
    pub provider: Arc<dyn Provider>,
}

impl Part {
    /// Creates a part.
    pub fn new(name: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        Self { name: name.into(), provider }
    }
}
