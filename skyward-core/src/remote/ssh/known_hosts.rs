//! Lines of `known_hosts` files.

use ring::hmac;
use russh::keys::PublicKey;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
use wildmatch::WildMatch;

/// A line about a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) role: Role,
    pub(super) key: PublicKey,
}

/// The role of a key for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Own,
    Authority,
    Revoked,
}

/// The name of a host in such files.
pub(super) fn name(address: &str, port: u16) -> String {
    let address = address.to_lowercase();
    if port == 22 { address } else { format!("[{address}]:{port}") }
}

/// The lines about the host with this name. A line that cannot be parsed is ignored, as OpenSSH
/// does: it may have a newer or an older type of key.
pub(super) fn lines(text: &str, name: &str) -> Vec<Line> {
    let numbered = text.lines().enumerate();
    numbered
        .filter_map(|(index, line)| about(line.trim(), name).map(|(role, key)| Line { number: index + 1, role, key }))
        .collect()
}

fn about(line: &str, name: &str) -> Option<(Role, PublicKey)> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    // The parser requires single spaces.
    let line = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let entry: Entry = line.parse().ok()?;
    let role = match entry.marker() {
        None => Role::Own,
        Some(Marker::CertAuthority) => Role::Authority,
        Some(Marker::Revoked) => Role::Revoked,
    };
    let is_meant = match entry.host_patterns() {
        HostPatterns::Patterns(patterns) => is_listed(patterns, name),
        HostPatterns::HashedName { salt, hash } => {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
            hmac::verify(&key, name.as_bytes(), hash).is_ok()
        }
    };
    is_meant.then(|| (role, entry.public_key().clone()))
}

/// A negated pattern that matches excludes the host, whatever else matches.
fn is_listed(patterns: &[String], name: &str) -> bool {
    let mut listed = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(excluded) if fits(excluded, name) => return false,
            Some(_) => {}
            None => listed |= fits(pattern, name),
        }
    }
    listed
}

/// `*` matches any text, `?` any character. A hostile pattern costs no more than the product of the
/// lengths.
fn fits(pattern: &str, name: &str) -> bool {
    WildMatch::new(&pattern.to_lowercase()).matches(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    fn roles(text: &str, name: &str) -> Vec<(usize, Role)> {
        lines(text, name).into_iter().map(|line| (line.number, line.role)).collect()
    }

    #[test]
    fn lines_of_a_host_are_found_by_name_pattern_port_and_hash() {
        let hashed = "|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak=";
        let text = format!(
            "# a comment\n\ngpu1,10.0.0.1 {KEY}\n*.lab.org,!gate.lab.org {KEY} a comment\n[gpu1]:2222 {KEY}\n{hashed} {KEY}\nGPU2\t {KEY}\n"
        );
        for (name, numbers) in [
            ("gpu1", vec![3]),
            ("10.0.0.1", vec![3]),
            ("a.lab.org", vec![4]),
            ("gate.lab.org", vec![]),
            ("[gpu1]:2222", vec![5]),
            ("example.com", vec![6]),
            ("gpu2", vec![7]),
            ("gpu", vec![]),
            ("[gpu2]:2222", vec![]),
        ] {
            let found: Vec<_> = roles(&text, name).into_iter().map(|(number, _)| number).collect();
            assert_eq!(found, numbers, "{name}");
        }
    }

    #[test]
    fn markers_are_distinguished_and_invalid_lines_are_ignored() {
        let text = format!(
            "@revoked * {KEY}\n@cert-authority *.org {KEY}\n@other a.org {KEY}\na.org ssh-dss notbase64\na.org {KEY}\n"
        );
        assert_eq!(roles(&text, "a.org"), [(1, Role::Revoked), (2, Role::Authority), (5, Role::Own)]);
    }

    #[test]
    fn a_host_is_named_with_its_port_unless_that_is_22() {
        assert_eq!(name("GPU1", 22), "gpu1");
        assert_eq!(name("gpu1", 2222), "[gpu1]:2222");
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, does) in [
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("**a**", "bab", true),
            ("", "a", false),
            ("?", "", false),
            ("A*.Org", "a.b.org", true),
        ] {
            assert_eq!(fits(pattern, text), does, "{pattern} {text}");
        }
    }
}
