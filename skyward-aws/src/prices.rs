//! What instance types cost. A type whose price cannot be read is offered all the same, without a
//! price.

pub(crate) mod on_demand;
pub(crate) mod spot;

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// A price, and when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Price {
    pub(crate) usd_per_hour: f64,
    pub(crate) read_at: SystemTime,
}

/// A price in the decimal notation of AWS; none where it is no price.
fn usd(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_a_positive_number() {
        assert_eq!(usd("1.0060000000"), Some(1.006));
        assert_eq!(usd("0.000010"), Some(0.00001));
        for text in ["0.0000000000", "-1", "", "NaN", "inf", "1,50", "free"] {
            assert_eq!(usd(text), None, "{text}");
        }
    }
}
