//! The quotas of an account: how many processors of a family may run at once, on demand and as spot
//! instances.

use std::collections::BTreeMap;

use aws_sdk_servicequotas::Client;
use futures_util::future::join_all;
use skyward_core::provider::Offer;
use tokio::time::timeout;

use crate::errors;
use crate::partition::Partition;
use crate::timing::QUOTA_ANSWERS;

/// A quota of EC2, which counts virtual processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    /// `L-DB2E81BA`; none where it is not known.
    code: Option<&'static str>,
    /// As the console shows it.
    name: &'static str,
}

/// The quotas of a family of instance types. None: the family is not sold so.
#[derive(Debug)]
struct Family {
    /// The letters that the names of its types begin with, some with a generation.
    series: &'static [&'static str],
    on_demand: Option<Quota>,
    spot: Option<Quota>,
}

/// The message and the hint for a launch that a quota has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Explained {
    /// The quota's name for the pool: offers with the same one count against it too.
    pub(crate) quota: String,
    pub(crate) words: String,
    pub(crate) hint: String,
}

impl Quota {
    /// The quota that machines of an instance type count against; none for families that the table
    /// does not have.
    pub(crate) fn of(instance_type: &str, spot: bool) -> Option<Self> {
        let letters = instance_type.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(instance_type.len());
        let rest = &instance_type[letters..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let generation = &instance_type[..letters + digits];
        let series = &instance_type[..letters];
        let family = |wanted: &str| FAMILIES.iter().find(|family| family.series.contains(&wanted));
        let family = family(generation).or_else(|| family(series))?;
        if spot { family.spot } else { family.on_demand }
    }

    /// The value of [`Offer::quota`]: the code, which commands take as the quota's name.
    pub(crate) fn key(&self) -> &'static str {
        self.code.unwrap_or(self.name)
    }

    fn by_key(key: &str) -> Option<Self> {
        let all = FAMILIES.iter().flat_map(|family| [family.on_demand, family.spot]);
        all.flatten().find(|quota| quota.key() == key)
    }
}

/// Looks up quotas before a launch, for users who want that.
#[derive(Debug)]
pub(crate) struct Quotas {
    client: Client,
}

impl Quotas {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// How many processors these quotas allow. Quotas that the service does not return are missing.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub(crate) async fn values(&self, keys: &[&str]) -> BTreeMap<String, u32> {
        let asked = keys.iter().filter_map(|key| Quota::by_key(key)?.code);
        let asked: Vec<_> = asked.map(|code| self.value(code)).collect();
        let answers = timeout(QUOTA_ANSWERS, join_all(asked)).await.unwrap_or_else(|_| {
            tracing::debug!(within = ?QUOTA_ANSWERS, "the quotas of the account are unknown: the service has not returned them in time");
            Vec::new()
        });
        answers.into_iter().flatten().map(|(code, value)| (code.to_owned(), value)).collect()
    }

    async fn value(&self, code: &'static str) -> Option<(&'static str, u32)> {
        let answer = self.client.get_service_quota().service_code("ec2").quota_code(code).send().await;
        match errors::called("GetServiceQuota", answer) {
            Ok(answer) => {
                let value = answer.quota()?.value().filter(|value| *value >= 0.0)?;
                // Saturates.
                Some((code, value as u32))
            }
            Err(error) => {
                tracing::debug!(quota = code, %error, "the value of a quota is not known");
                None
            }
        }
    }
}

/// A kind of things of which an account has a limited number, besides processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resource {
    /// EC2's code where there are too many.
    code: &'static str,
    things: &'static str,
    /// The service whose quotas limit them; none where no quota does.
    service: Option<&'static str>,
}

impl Resource {
    /// The things that an error code is about; none for codes about processors.
    pub(crate) fn of(code: &str) -> Option<Self> {
        RESOURCES.iter().find(|resource| resource.code == code).copied()
    }

    /// How to have more.
    pub(crate) fn hint(&self, region: Option<&str>) -> String {
        let Self { things, service, .. } = self;
        let Some(service) = service else {
            return format!(
                "ask for fewer {things} at once; machines that are not one world are launched by several calls"
            );
        };
        let console = Partition::of(region.unwrap_or_default()).console();
        let region = region.map(|region| format!("?region={region}")).unwrap_or_default();
        format!(
            "remove {things} that nobody uses, or ask for more: \
             https://{console}/servicequotas/home/services/{service}/quotas{region}"
        )
    }
}

/// What a refusal by a limit means, by the code of EC2's error, and how to raise the limit.
pub(crate) fn explain(code: &str, offer: &Offer, region: &str) -> Explained {
    let what = format!("{} in {}", offer.machine_type, offer.zone);
    if let Some(resource) = Resource::of(code) {
        let things = resource.things;
        return Explained {
            quota: code.to_owned(),
            words: format!("the account may not have more {things} in {region}, which {what} needs ({code})"),
            hint: resource.hint(Some(region)),
        };
    }
    let quota = offer.quota.as_deref().unwrap_or(code).to_owned();
    let console = Partition::of(region).console();
    match Quota::of(&offer.machine_type, offer.spot) {
        Some(Quota { code: Some(id), name }) => Explained {
            quota,
            words: format!(
                "the quota `{name}` ({id}) of the account in {region} has no room for the {} vCPUs of {what} ({code})",
                offer.cpus
            ),
            hint: format!(
                "ask for more at https://{console}/servicequotas/home/services/ec2/quotas/{id}?region={region}, or: \
                 `aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {id} --desired-value {} --region {region}`; \
                 the value is the sum of vCPUs of all machines that run at once. New accounts have a quota of 0 vCPUs for accelerators; \
                 on-demand and spot instances have separate quotas",
                offer.cpus
            ),
        },
        family => Explained {
            quota,
            words: format!(
                "the account may not run more machines of the family of {what} ({code}{})",
                family.map(|quota| format!(", {}", quota.name)).unwrap_or_default()
            ),
            hint: format!(
                "ask for more at https://{console}/servicequotas/home/services/ec2/quotas?region={region}: \
                 the quota is named by the family of {} and {}",
                offer.machine_type,
                if offer.spot { "`Spot Instance Requests`" } else { "`Running On-Demand`" }
            ),
        },
    }
}

const fn quota(code: &'static str, name: &'static str) -> Option<Quota> {
    Some(Quota { code: Some(code), name })
}

/// Codes:
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html>. Services:
/// <https://docs.aws.amazon.com/ebs/latest/userguide/ebs-resource-quotas.html> and
/// <https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html>.
static RESOURCES: &[Resource] = &[
    Resource { code: "VolumeLimitExceeded", things: "disks", service: Some("ebs") },
    Resource { code: "MaxIOPSLimitExceeded", things: "disks", service: Some("ebs") },
    Resource { code: "AddressLimitExceeded", things: "public addresses", service: Some("ec2") },
    Resource { code: "NetworkInterfaceLimitExceeded", things: "network interfaces", service: Some("vpc") },
    Resource { code: "SecurityGroupLimitExceeded", things: "security groups", service: Some("vpc") },
    Resource { code: "SecurityGroupsPerInstanceLimitExceeded", things: "security groups", service: Some("vpc") },
    Resource { code: "SecurityGroupsPerInterfaceLimitExceeded", things: "security groups", service: Some("vpc") },
    Resource { code: "RulesPerSecurityGroupLimitExceeded", things: "rules of a security group", service: Some("vpc") },
    Resource { code: "PlacementGroupLimitExceeded", things: "placement groups", service: Some("ec2") },
    Resource { code: "ResourceLimitExceeded", things: "resources of EC2", service: Some("ec2") },
    Resource { code: "ResourceCountExceeded", things: "machines in one call", service: None },
    Resource { code: "RequestResourceCountExceeded", things: "machines in one call", service: None },
];

/// Codes and names are those of
/// <https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html>. They were not
/// compared with those of an account.
static FAMILIES: &[Family] = &[
    Family {
        // `im`, `is` and `zn` are variants of I and M; `mac` runs on dedicated hosts alone and is
        // never offered.
        series: &["a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"],
        on_demand: quota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
        spot: quota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
    },
    Family {
        series: &["g", "gr", "vt"],
        on_demand: quota("L-DB2E81BA", "Running On-Demand G and VT instances"),
        spot: quota("L-3819A6DF", "All G and VT Spot Instance Requests"),
    },
    Family {
        series: &["p2", "p3", "p4"],
        on_demand: quota("L-417A185B", "Running On-Demand P instances"),
        spot: quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    },
    Family {
        series: &["p5"],
        on_demand: quota("L-417A185B", "Running On-Demand P instances"),
        spot: quota("L-C4BD4855", "All P5 Spot Instance Requests"),
    },
    Family {
        // The page has no quota for spot instances of P6 and later.
        series: &["p"],
        on_demand: quota("L-417A185B", "Running On-Demand P instances"),
        spot: Some(Quota { code: None, name: "Spot Instance Requests of P6 and later" }),
    },
    Family {
        series: &["inf"],
        on_demand: quota("L-1945791B", "Running On-Demand Inf instances"),
        spot: quota("L-B5D1601B", "All Inf Spot Instance Requests"),
    },
    Family {
        series: &["trn"],
        on_demand: quota("L-2C3B7624", "Running On-Demand Trn instances"),
        spot: quota("L-6B0D517C", "All Trn Spot Instance Requests"),
    },
    Family {
        series: &["dl"],
        on_demand: quota("L-6E869C2A", "Running On-Demand DL instances"),
        spot: quota("L-85EED4F7", "All DL Spot Instance Requests"),
    },
    Family {
        series: &["f"],
        on_demand: quota("L-74FC7D96", "Running On-Demand F instances"),
        spot: quota("L-88CF9481", "All F Spot Instance Requests"),
    },
    Family {
        series: &["x"],
        on_demand: quota("L-7295265B", "Running On-Demand X instances"),
        spot: quota("L-E3A00192", "All X Spot Instance Requests"),
    },
    Family { series: &["u"], on_demand: quota("L-43DA4232", "Running On-Demand High Memory instances"), spot: None },
    Family { series: &["hpc"], on_demand: quota("L-F7808C92", "Running On-Demand HPC instances"), spot: None },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, spot: bool) -> Option<&'static str> {
        Quota::of(name, spot).map(|quota| quota.key())
    }

    #[test]
    fn each_family_counts_against_its_quotas() {
        for (name, on_demand, spot) in [
            ("m7i.large", Some("L-1216C47A"), Some("L-34B43A08")),
            ("c7i-flex.large", Some("L-1216C47A"), Some("L-34B43A08")),
            ("im4gn.large", Some("L-1216C47A"), Some("L-34B43A08")),
            ("t3.micro", Some("L-1216C47A"), Some("L-34B43A08")),
            ("g5.xlarge", Some("L-DB2E81BA"), Some("L-3819A6DF")),
            ("g4dn.metal", Some("L-DB2E81BA"), Some("L-3819A6DF")),
            ("gr6.4xlarge", Some("L-DB2E81BA"), Some("L-3819A6DF")),
            ("vt1.3xlarge", Some("L-DB2E81BA"), Some("L-3819A6DF")),
            ("p3dn.24xlarge", Some("L-417A185B"), Some("L-7212CCBC")),
            ("p4de.24xlarge", Some("L-417A185B"), Some("L-7212CCBC")),
            ("p5.48xlarge", Some("L-417A185B"), Some("L-C4BD4855")),
            ("p5en.48xlarge", Some("L-417A185B"), Some("L-C4BD4855")),
            ("p6-b200.48xlarge", Some("L-417A185B"), Some("Spot Instance Requests of P6 and later")),
            ("inf2.xlarge", Some("L-1945791B"), Some("L-B5D1601B")),
            ("trn1n.32xlarge", Some("L-2C3B7624"), Some("L-6B0D517C")),
            ("dl1.24xlarge", Some("L-6E869C2A"), Some("L-85EED4F7")),
            ("f2.6xlarge", Some("L-74FC7D96"), Some("L-88CF9481")),
            ("x2idn.16xlarge", Some("L-7295265B"), Some("L-E3A00192")),
            ("u-6tb1.56xlarge", Some("L-43DA4232"), None),
            ("u7i-12tb.224xlarge", Some("L-43DA4232"), None),
            ("hpc7a.96xlarge", Some("L-F7808C92"), None),
            ("q1.large", None, None),
            ("", None, None),
        ] {
            assert_eq!(key(name, false), on_demand, "{name}");
            assert_eq!(key(name, true), spot, "{name}");
        }
    }

    #[test]
    fn a_key_stands_for_one_quota() {
        let mut names = BTreeMap::new();
        for quota in FAMILIES.iter().flat_map(|family| [family.on_demand, family.spot]).flatten() {
            assert_eq!(*names.entry(quota.key()).or_insert(quota.name), quota.name);
            assert_eq!(Quota::by_key(quota.key()), Some(quota));
        }
        assert_eq!(names.len(), 20);
        assert_eq!(Quota::by_key("L-00000000"), None);
    }

    fn offer(name: &str, spot: bool) -> Offer {
        Offer::new(name, "eu-west-1a", 48, 192).spot(spot)
    }

    #[test]
    fn a_refusal_names_the_quota_and_how_to_have_more() {
        let Explained { words, hint, .. } = explain("VcpuLimitExceeded", &offer("g5.12xlarge", false), "eu-west-1");
        assert_eq!(
            words,
            "the quota `Running On-Demand G and VT instances` (L-DB2E81BA) of the account in eu-west-1 has no room for \
             the 48 vCPUs of g5.12xlarge in eu-west-1a (VcpuLimitExceeded)"
        );
        for part in [
            "https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-DB2E81BA?region=eu-west-1,",
            "--quota-code L-DB2E81BA --desired-value 48 --region eu-west-1`",
            "quota of 0 vCPUs for accelerators",
        ] {
            assert!(hint.contains(part), "{hint}");
        }
        let spot = explain("MaxSpotInstanceCountExceeded", &offer("g5.12xlarge", true), "eu-west-1");
        assert!(spot.words.contains("`All G and VT Spot Instance Requests` (L-3819A6DF)"), "{}", spot.words);
    }

    #[test]
    fn what_has_no_code_is_explained_all_the_same() {
        let new = explain("MaxSpotInstanceCountExceeded", &offer("p6-b200.48xlarge", true), "us-east-2");
        assert!(new.words.contains("Spot Instance Requests of P6 and later"), "{}", new.words);
        assert!(!new.hint.contains("--quota-code") && new.hint.contains("`Spot Instance Requests`"), "{}", new.hint);
        let volume = explain("VolumeLimitExceeded", &offer("g5.12xlarge", false), "us-east-2");
        assert!(volume.words.contains("disks") && volume.hint.contains("/services/ebs/"), "{volume:?}");
        assert_eq!(volume.quota.as_str(), "VolumeLimitExceeded", "no offer of another type has more room for disks");
        let china = explain("VcpuLimitExceeded", &offer("g5.12xlarge", false), "cn-north-1");
        assert!(china.hint.contains("https://console.amazonaws.cn/servicequotas/"), "{}", china.hint);
    }
}
