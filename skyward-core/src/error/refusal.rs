//! Why a provider refused to start a machine.

use std::fmt;
use std::time::Duration;

/// Why a provider refused a call. A call that failed with a refusal has started nothing.
///
/// The refusal decides what the pool tries next. After a refusal of one offer, the pool tries the
/// next offer.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::error::{Error, Refusal};
///
/// let error = Error::refused(Refusal::Capacity, "there is no p5.48xlarge in eu-west-1a now");
/// assert_eq!(error.refusal(), Some(&Refusal::Capacity));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The machine type is sold out in this zone now. The pool retries the offer after some
    /// minutes at the earliest.
    Capacity,
    /// The quota of this name is used up. The pool tries no offer of the same
    /// [quota](crate::provider::Offer::quota) for some minutes.
    Quota(String),
    /// The machine type is not sold in this zone. The pool does not retry the offer.
    NotOffered,
    /// The client makes too many calls. The pool makes the same call again, but not before this
    /// time has passed.
    Throttled(Option<Duration>),
    /// The account lacks the permission. The pool tries no further offer.
    Denied,
    /// The request is wrong: it names a network that does not exist, for example. The pool tries no
    /// further offer.
    Misconfigured,
}

impl Refusal {
    /// Whether the refusal concerns one offer, so that the same provider may accept another one.
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
