//! The partitions of AWS, each with accounts, services and a console of its own:
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html>.

/// A group of regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partition {
    Standard,
    China,
    GovCloud,
}

impl Partition {
    /// The partition of a region.
    pub(crate) fn of(region: &str) -> Self {
        match region.split('-').take(2).collect::<Vec<_>>().as_slice() {
            ["cn", ..] => Self::China,
            ["us", "gov"] => Self::GovCloud,
            _ => Self::Standard,
        }
    }

    /// The region that serves the price list; none where no price list in dollars is served to the
    /// partition's accounts: that of China has prices in CNY, and GovCloud has no such service. See
    /// <https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html>.
    pub(crate) fn price_list(self) -> Option<&'static str> {
        (self == Self::Standard).then_some("us-east-1")
    }

    /// The host of the console.
    pub(crate) fn console(self) -> &'static str {
        match self {
            Self::Standard => "console.aws.amazon.com",
            Self::China => "console.amazonaws.cn",
            Self::GovCloud => "console.amazonaws-us-gov.com",
        }
    }

    /// Canonical's account:
    /// <https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/>.
    pub(crate) fn canonical(self) -> &'static str {
        match self {
            Self::Standard => "099720109477",
            Self::China => "837727238323",
            Self::GovCloud => "513442679011",
        }
    }

    /// AWS's account for Deep Learning images; none where it is not known.
    pub(crate) fn deep_learning(self) -> Option<&'static str> {
        (self == Self::Standard).then_some("898082745236")
    }
}

#[cfg(test)]
mod tests {
    use skyward_core::provider::{Provider, Requirements};

    use super::*;
    use crate::loopback::{Loopback, ec2};

    #[test]
    fn a_region_is_of_the_partition_that_its_name_begins_with() {
        for (region, partition) in [
            ("eu-west-1", Partition::Standard),
            ("us-east-1", Partition::Standard),
            ("us-gov-west-1", Partition::GovCloud),
            ("cn-northwest-1", Partition::China),
            ("", Partition::Standard),
        ] {
            assert_eq!(Partition::of(region), partition, "{region}");
        }
    }

    #[tokio::test]
    async fn no_price_list_is_asked_for_where_the_partition_has_none() {
        for (region, is_asked) in [("eu-west-1", true), ("cn-north-1", false), ("us-gov-west-1", false)] {
            let service = Loopback::start(ec2::answer);
            let offers = service.aws().region(region).offers(&Requirements::default()).await.unwrap();
            assert!(offers.iter().all(|offer| offer.usd_per_hour.is_none()), "{offers:?}");
            // The price list alone is asked by JSON.
            let asked = service.asked().iter().any(|body| body.contains("AmazonEC2"));
            assert_eq!(asked, is_asked, "{region}");
        }
    }
}
