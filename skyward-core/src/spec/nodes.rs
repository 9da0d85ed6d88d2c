//! How many nodes a pool has.

use std::ops::RangeInclusive;

use crate::error::{Error, ErrorKind, Result};

/// How many nodes a pool has, and with how many it may start.
///
/// ```
/// use skyward_core::spec::Nodes;
///
/// assert_eq!(Nodes::from(4), Nodes::fixed(4));
/// assert!(Nodes::fixed(0).validate().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nodes {
    /// Just so many: the pool is ready when all of them are.
    Fixed(u32),
    /// `wanted` nodes; the pool starts with those that are ready when the start deadline's half has passed, if they are at least `least`. The others join when they are ready.
    Partial {
        /// With fewer than this the pool does not start.
        least: u32,
        /// What is asked for.
        wanted: u32,
    },
    /// Between `min` and `max` nodes: the pool starts with `min`, grows while tasks wait, and gives back nodes that have been idle for [`Limits::idle`](super::Limits::idle); never node 0.
    Elastic {
        /// The fewest.
        min: u32,
        /// The most.
        max: u32,
    },
}

impl Nodes {
    /// Just `count` nodes.
    pub fn fixed(count: u32) -> Self {
        Self::Fixed(count)
    }

    /// `wanted` nodes, content with `least`.
    pub fn partial(least: u32, wanted: u32) -> Self {
        Self::Partial { least, wanted }
    }

    /// Between `min` and `max` nodes.
    pub fn elastic(min: u32, max: u32) -> Self {
        Self::Elastic { min, max }
    }

    /// How many are started.
    pub fn wanted(&self) -> u32 {
        match *self {
            Self::Fixed(count) => count,
            Self::Partial { wanted, .. } => wanted,
            Self::Elastic { min, .. } => min,
        }
    }

    /// With how many the pool is content.
    pub fn least(&self) -> u32 {
        match *self {
            Self::Fixed(count) => count,
            Self::Partial { least, .. } => least,
            Self::Elastic { min, .. } => min,
        }
    }

    /// The most that it comes to.
    pub fn most(&self) -> u32 {
        match *self {
            Self::Fixed(count) => count,
            Self::Partial { wanted, .. } => wanted,
            Self::Elastic { max, .. } => max,
        }
    }

    /// Whether the number changes by itself during the pool's life.
    pub fn is_elastic(&self) -> bool {
        matches!(self, Self::Elastic { .. })
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for zero nodes, a range that is the wrong way round, or more than [`Nodes::MOST`].
    pub fn validate(&self) -> Result<()> {
        let invalid = |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint));
        match *self {
            Self::Fixed(0) => invalid("the pool has 0 nodes".into(), "ask for at least one: `.nodes(1)`"),
            Self::Partial { least: 0, .. } => invalid(
                "the pool may start with 0 nodes".into(),
                "be content with at least one: `Nodes::partial(1, …)`",
            ),
            Self::Elastic { min: 0, .. } => {
                invalid("the elastic pool has at least 0 nodes".into(), "node 0 always exists: `Nodes::elastic(1, …)`")
            }
            Self::Partial { least, wanted } if least > wanted => invalid(
                format!("the pool wants {wanted} nodes and is content with no fewer than {least}"),
                "the first number is the smaller one: `Nodes::partial(least, wanted)`",
            ),
            Self::Elastic { min, max } if min > max => invalid(
                format!("the elastic pool has at least {min} and at most {max} nodes"),
                "the first number is the smaller one: `Nodes::elastic(min, max)`",
            ),
            nodes if nodes.most() > Self::MOST => invalid(
                format!("the pool has {} nodes, and {} is the most", nodes.most(), Self::MOST),
                "start several pools",
            ),
            _ => Ok(()),
        }
    }

    /// The most nodes of one pool.
    pub const MOST: u32 = 10_000;
}

impl From<u32> for Nodes {
    fn from(count: u32) -> Self {
        Self::Fixed(count)
    }
}

impl From<RangeInclusive<u32>> for Nodes {
    fn from(range: RangeInclusive<u32>) -> Self {
        Self::Elastic { min: *range.start(), max: *range.end() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_are_refused_with_a_hint() {
        for nodes in [
            Nodes::fixed(0),
            Nodes::partial(0, 2),
            Nodes::partial(3, 2),
            Nodes::elastic(0, 4),
            Nodes::elastic(4, 2),
            Nodes::fixed(Nodes::MOST + 1),
            Nodes::elastic(1, Nodes::MOST + 1),
        ] {
            let error = nodes.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{nodes:?}");
            assert!(error.hint().is_some(), "{nodes:?}");
        }
        assert!(Nodes::partial(1, 2).validate().is_ok());
        assert!(Nodes::elastic(2, 2).validate().is_ok());
    }
}
