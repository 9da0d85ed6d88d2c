//! Keeps the testkit from connecting to any address outside of this machine.

use std::net::IpAddr;

use anyhow::{Result, bail};

/// Fails for addresses outside of loopback, which would reach a network.
pub(crate) fn loopback(address: IpAddr) -> Result<()> {
    if !address.is_loopback() {
        bail!("{address} is not an address of the loopback interface, and the loopback EC2 reaches no other");
    }
    Ok(())
}

/// Those of the addresses that are on loopback; instances in EC2's default VPC have others.
pub(crate) fn only_loopback<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Vec<IpAddr> {
    addresses.into_iter().filter_map(|address| address.parse().ok()).filter(IpAddr::is_loopback).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_pass() {
        assert!(loopback("127.10.0.4".parse().unwrap()).is_ok());
        for other in ["54.214.1.2", "172.31.0.4", "169.254.169.254", "0.0.0.0"] {
            assert!(loopback(other.parse().unwrap()).unwrap_err().to_string().contains(other));
        }
        assert_eq!(only_loopback(["172.31.0.4", "127.54.0.2", "none"]).len(), 1);
    }
}
