//! The number of nodes of a pool.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// How many nodes a pool has, and how many it needs to start.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::spec::Nodes;
///
/// assert_eq!(Nodes::from(4), Nodes::fixed(4));
/// assert!(Nodes::fixed(0).validate().is_err());
/// ```
///
/// With serde, they are a number, `{ least, wanted }` or `{ min, max }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nodes(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "the nodes of a pool are a number, `{ least, wanted }` of a partial pool, or `{ min, max }` of an elastic pool"
)]
enum Kind {
    Fixed(u32),
    Partial { least: u32, wanted: u32 },
    Elastic { min: u32, max: u32 },
}

impl Nodes {
    /// Exactly `count` nodes. The pool is ready when all of them are ready.
    pub fn fixed(count: u32) -> Self {
        Self(Kind::Fixed(count))
    }

    /// `wanted` nodes, of which the pool needs `least` to start. When half of
    /// [`Limits::start`](super::Limits::start) has passed, the pool starts with the nodes that are
    /// ready, if there are at least `least`. The others join when they are ready.
    pub fn partial(least: u32, wanted: u32) -> Self {
        Self(Kind::Partial { least, wanted })
    }

    /// Between `min` and `max` nodes. The pool starts with `min`, grows while tasks wait, and
    /// releases nodes (but never node 0) that have been idle for
    /// [`Limits::idle`](super::Limits::idle).
    pub fn elastic(min: u32, max: u32) -> Self {
        Self(Kind::Elastic { min, max })
    }

    /// How many nodes the pool launches at its start.
    pub fn wanted(&self) -> u32 {
        match self.0 {
            Kind::Fixed(count) => count,
            Kind::Partial { wanted, .. } => wanted,
            Kind::Elastic { min, .. } => min,
        }
    }

    /// How many nodes the pool needs to start.
    pub fn least(&self) -> u32 {
        match self.0 {
            Kind::Fixed(count) => count,
            Kind::Partial { least, .. } => least,
            Kind::Elastic { min, .. } => min,
        }
    }

    /// The most nodes that the pool grows to.
    pub fn most(&self) -> u32 {
        match self.0 {
            Kind::Fixed(count) => count,
            Kind::Partial { wanted, .. } => wanted,
            Kind::Elastic { max, .. } => max,
        }
    }

    /// The fewest and the most nodes of an elastic pool; `None` for other pools.
    pub fn bounds(&self) -> Option<(u32, u32)> {
        match self.0 {
            Kind::Elastic { min, max } => Some((min, max)),
            Kind::Fixed(_) | Kind::Partial { .. } => None,
        }
    }

    /// Whether the pool changes its number of nodes by itself.
    pub fn is_elastic(&self) -> bool {
        matches!(self.0, Kind::Elastic { .. })
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for zero nodes, for a range whose first number is the larger one,
    /// and for more than [`Nodes::MOST`] nodes.
    pub fn validate(&self) -> Result<()> {
        let invalid = |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint));
        match self.0 {
            Kind::Fixed(0) => invalid("the pool has 0 nodes".into(), "ask for at least one: `.nodes(1)`"),
            Kind::Partial { least: 0, .. } => invalid(
                "the pool may start with 0 nodes".into(),
                "a pool starts with at least one node: `Nodes::partial(1, …)`",
            ),
            Kind::Elastic { min: 0, .. } => {
                invalid("the elastic pool has at least 0 nodes".into(), "node 0 always exists: `Nodes::elastic(1, …)`")
            }
            Kind::Partial { least, wanted } if least > wanted => invalid(
                format!("the pool has {wanted} nodes and needs at least {least} to start"),
                "the first number is the smaller one: `Nodes::partial(least, wanted)`",
            ),
            Kind::Elastic { min, max } if min > max => invalid(
                format!("the elastic pool has at least {min} and at most {max} nodes"),
                "the first number is the smaller one: `Nodes::elastic(min, max)`",
            ),
            _ if self.most() > Self::MOST => invalid(
                format!("the pool has {} nodes, but at most {} are allowed", self.most(), Self::MOST),
                "split the work over several pools",
            ),
            _ => Ok(()),
        }
    }

    /// The most nodes of one pool.
    pub const MOST: u32 = 10_000;
}

/// `2 nodes`, `4 nodes, at least 2`, `1 to 8 nodes`.
impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Fixed(1) => f.write_str("1 node"),
            Kind::Fixed(count) => write!(f, "{count} nodes"),
            Kind::Partial { least, wanted } => write!(f, "{wanted} nodes, at least {least}"),
            Kind::Elastic { min, max } => write!(f, "{min} to {max} nodes"),
        }
    }
}

/// An elastic pool.
impl From<RangeInclusive<u32>> for Nodes {
    fn from(range: RangeInclusive<u32>) -> Self {
        Self::elastic(*range.start(), *range.end())
    }
}

/// A fixed number of nodes, of any type of number. A number that is too large stays too large, and a
/// negative one counts as 0: [`validate`](Nodes::validate) refuses both.
macro_rules! fixed {
    ($($number:ty),*) => {
        $(
            impl From<$number> for Nodes {
                fn from(count: $number) -> Self {
                    Self::fixed((count as i128).clamp(0, u32::MAX.into()) as u32)
                }
            }
        )*
    };
}

fixed!(u8, u16, u32, u64, usize, i32, i64);

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

    #[test]
    fn nodes_are_what_a_caller_has() {
        let four = Nodes::fixed(4);
        assert_eq!([Nodes::from(4_u8), Nodes::from(4_u64), Nodes::from(4_usize), Nodes::from(4)], [four; 4]);
        assert_eq!(Nodes::from([1, 2, 3, 4].len()), four);
        assert_eq!(Nodes::from(1..=8), Nodes::elastic(1, 8));
        for wrong in [Nodes::from(-1), Nodes::from(i64::MIN), Nodes::from(u64::MAX), Nodes::from(1_i64 << 40)] {
            assert_eq!(wrong.validate().unwrap_err().kind(), ErrorKind::InvalidSpec, "{wrong:?}");
        }
    }

    #[test]
    fn nodes_have_one_form_in_files_and_one_in_words() {
        for (nodes, form, words) in [
            (Nodes::fixed(2), "2", "2 nodes"),
            (Nodes::partial(2, 4), r#"{"least":2,"wanted":4}"#, "4 nodes, at least 2"),
            (Nodes::elastic(1, 8), r#"{"min":1,"max":8}"#, "1 to 8 nodes"),
        ] {
            assert_eq!(serde_json::to_string(&nodes).unwrap(), form);
            assert_eq!(serde_json::from_str::<Nodes>(form).unwrap(), nodes);
            assert_eq!(nodes.to_string(), words);
        }
        for wrong in [r#"{"min":1}"#, r#"{"min":1,"wanted":2}"#, "-1", r#""two""#] {
            let error = serde_json::from_str::<Nodes>(wrong).unwrap_err().to_string();
            assert!(error.contains("`{ min, max }` of an elastic pool"), "{wrong}: {error}");
        }
    }
}
