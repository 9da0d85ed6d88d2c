//! Why a provider starts no machine.

use std::fmt;
use std::time::Duration;

/// Why a provider refused a call: an error with a refusal has started nothing.
///
/// The pool acts on it. A refusal of capacity or quota moves the launch on to the next offer.
///
/// ```
/// use skyward_core::error::{Error, Refusal};
///
/// let error = Error::refused(Refusal::Capacity, "there is no p5.48xlarge in eu-west-1a now");
/// assert_eq!(error.refusal(), Some(&Refusal::Capacity));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The machine type is sold out in this place now. The offer is not tried again for some minutes.
    Capacity,
    /// A quota of the account is used up; its name. No offer of the same [quota](crate::provider::Offer::quota) is tried for some minutes.
    Quota(String),
    /// The machine type is not sold in this place. The offer is not tried again.
    NotOffered,
    /// Too many calls. The same call is made again, not before this time has passed.
    Throttled(Option<Duration>),
    /// The account may not do this. No offer is tried any more.
    Denied,
    /// What was asked for is wrong, such as a network that does not exist. No offer is tried any more.
    Misconfigured,
}

impl Refusal {
    /// Whether another offer of the same provider may be accepted.
    pub fn is_of_the_offer(&self) -> bool {
        matches!(self, Self::Capacity | Self::Quota(_) | Self::NotOffered)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capacity => f.write_str("no capacity"),
            Self::Quota(quota) => write!(f, "the quota {quota} is used up"),
            Self::NotOffered => f.write_str("not offered"),
            Self::Throttled(Some(pause)) => write!(f, "throttled for {pause:?}"),
            Self::Throttled(None) => f.write_str("throttled"),
            Self::Denied => f.write_str("denied"),
            Self::Misconfigured => f.write_str("misconfigured"),
        }
    }
}
