//! What a user can say about a pool on EC2.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::remote::ssh::Target;
use skyward_core::spec::Secret;

use crate::images::ImageChoice;

/// The options of a provider.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) region: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) endpoint_url: Option<String>,
    pub(crate) expect_account: Option<String>,
    pub(crate) image: ImageChoice,
    pub(crate) user: Option<String>,
    pub(crate) disk_gib: Option<u32>,
    pub(crate) subnets: Vec<String>,
    pub(crate) security_group: Option<String>,
    pub(crate) ssh_from: Vec<String>,
    pub(crate) address_service: String,
    pub(crate) addressing: Addressing,
    pub(crate) ssh_port: u16,
    pub(crate) bastion: Option<Target>,
    pub(crate) public_keys: Vec<String>,
    pub(crate) instance_profile: Option<String>,
    pub(crate) placement_group: bool,
    pub(crate) capacity: Option<Capacity>,
    pub(crate) look_up_quotas: bool,
    pub(crate) replace_on_rebalance: bool,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) cache: CacheIn,
}

/// By which address the client reaches an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Addressing {
    /// By a public address, which EC2 gives each instance.
    #[default]
    Public,
    /// By its private address: the client is in the network, or reaches it by a bastion, a VPN or
    /// peering. Instances get no public address, so the subnet needs another way to the internet
    /// for packages, such as a NAT gateway.
    Private,
}

/// An access key of AWS.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: Secret,
    pub(crate) session_token: Option<Secret>,
}

/// Where types and prices are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CacheIn {
    /// In the user's cache folder.
    User,
    Folder(PathBuf),
    /// In this process alone.
    Memory,
}

/// Reserved capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// A capacity reservation, by its id.
    Reservation(String),
    /// A capacity block, by its id. Its machines are paid for, and end with the block.
    Block(String),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            region: None,
            profile: None,
            credentials: None,
            endpoint_url: None,
            expect_account: None,
            image: ImageChoice::Auto,
            user: None,
            disk_gib: None,
            subnets: Vec::new(),
            security_group: None,
            ssh_from: Vec::new(),
            address_service: ADDRESS_SERVICE.to_owned(),
            addressing: Addressing::Public,
            ssh_port: 22,
            bastion: None,
            public_keys: Vec::new(),
            instance_profile: None,
            placement_group: false,
            capacity: None,
            look_up_quotas: false,
            replace_on_rebalance: false,
            tags: BTreeMap::new(),
            cache: CacheIn::User,
        }
    }
}

impl Options {
    /// The networks that may log in, as far as the user has named any.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for what is no network.
    pub(crate) fn ssh_from(&self) -> Result<Vec<IpNet>> {
        self.ssh_from.iter().map(|text| network(text)).collect()
    }

    /// Checks the options as far as possible without a call of AWS.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] with the option that is wrong.
    pub(crate) fn check(&self) -> Result<()> {
        self.ssh_from()?;
        let wrong = |what: String, hint: &str| Err(Error::new(ErrorKind::InvalidSpec, what).with_hint(hint));
        for (key, value) in &self.tags {
            if key.to_ascii_lowercase().starts_with("aws:") || key.starts_with(crate::tags::PREFIX) {
                return wrong(
                    format!("the tag `{key}` cannot be set"),
                    "tags that begin with `aws:` are AWS's own, and those with `skyward:` this provider's",
                );
            }
            if key.is_empty() || key.len() > 128 || value.len() > 256 {
                return wrong(
                    format!("the tag `{key}` is too long"),
                    "a tag's name has 1 to 128 bytes, its value up to 256",
                );
            }
        }
        if self.tags.len() > MOST_TAGS {
            return wrong(
                format!("{} tags are too many", self.tags.len()),
                "EC2 takes 50 for one resource, and this provider needs some itself: give at most 30",
            );
        }
        for key in &self.public_keys {
            if !key.starts_with("ssh-") && !key.starts_with("ecdsa-") && !key.starts_with("sk-") || key.contains('\n') {
                return wrong(
                    "a public key is not one line as in ~/.ssh/id_ed25519.pub".to_owned(),
                    "give the whole line, such as `ssh-ed25519 AAAA… me@host`",
                );
            }
        }
        for subnet in &self.subnets {
            if !subnet.starts_with("subnet-") {
                return wrong(format!("`{subnet}` is no subnet's id"), "a subnet's id begins with `subnet-`");
            }
        }
        Ok(())
    }
}

/// Reads a network such as `203.0.113.7/32`, or an address alone.
///
/// # Errors
///
/// [`ErrorKind::InvalidSpec`] for what is neither.
pub(crate) fn network(text: &str) -> Result<IpNet> {
    let alone = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse().or_else(|_| alone()).map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, format!("`{text}` is no network"))
            .with_hint("a network is `203.0.113.7/32`, `10.0.0.0/8` or `2001:db8::/48`; `0.0.0.0/0` is every address")
    })
}

/// AWS's service that answers with the address of the client: <https://checkip.amazonaws.com>.
const ADDRESS_SERVICE: &str = "https://checkip.amazonaws.com";
/// The most tags of a user; the provider adds its own.
const MOST_TAGS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_read_as_it_is_written() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("203.0.113.7", "203.0.113.7/32"),
            ("2001:db8::/48", "2001:db8::/48"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(network(text).unwrap().to_string(), shown);
        }
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "everybody", "1.2.3.4/"] {
            assert_eq!(network(bad).unwrap_err().kind(), ErrorKind::InvalidSpec, "{bad}");
        }
    }

    #[test]
    fn options_that_ec2_would_refuse_are_refused_before() {
        Options::default().check().unwrap();
        let mut cases: Vec<(&str, Options)> = Vec::new();
        let mut add = |word, change: &dyn Fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            cases.push((word, options));
        };
        add("aws:x", &|options| drop(options.tags.insert("aws:x".into(), String::new())));
        add("skyward:pool", &|options| drop(options.tags.insert("skyward:pool".into(), String::new())));
        add("too long", &|options| drop(options.tags.insert("k".into(), "v".repeat(257))));
        add("too many", &|options| options.tags.extend((0..31).map(|n| (format!("k{n}"), String::new()))));
        add("public key", &|options| options.public_keys.push("~/.ssh/id.pub".into()));
        add("10.0.0.0/33", &|options| options.ssh_from.push("10.0.0.0/33".into()));
        add("vpc-1", &|options| options.subnets.push("vpc-1".into()));
        for (word, options) in cases {
            let error = options.check().unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidSpec && format!("{error:#}").contains(word), "{word}: {error}");
        }
    }
}
