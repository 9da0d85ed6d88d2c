//! The SSH server of a machine: OpenSSH's, on the addresses of the machine alone.

use std::net::IpAddr;

/// Its configuration. What the machine's user adds to the folder that it includes comes first, as
/// on Ubuntu.
pub(crate) fn config(addresses: &[IpAddr], port: u16, environment: &[(String, String)], allows_root: bool) -> String {
    let mut lines = vec!["Include /etc/ssh/sshd_config.d/*.conf".to_owned(), format!("Port {port}")];
    lines.extend(addresses.iter().map(|address| format!("ListenAddress {address}")));
    let root = if allows_root { "prohibit-password" } else { "no" };
    lines.push(format!("PermitRootLogin {root}"));
    lines.extend(FIXED.map(str::to_owned));
    // OpenSSH takes the first line of these alone.
    let variables = environment.iter().map(|(name, value)| format!("\"{name}={value}\""));
    lines.push(format!("SetEnv {}", variables.collect::<Vec<_>>().join(" ")));
    lines.join("\n") + "\n"
}

const FIXED: [&str; 12] = [
    "PubkeyAuthentication yes",
    "PasswordAuthentication no",
    "KbdInteractiveAuthentication no",
    "UsePAM no",
    "UseDNS no",
    "PrintMotd no",
    "PidFile /run/sshd.pid",
    "AcceptEnv LANG LC_*",
    "Subsystem sftp internal-sftp",
    "MaxStartups 200",
    "PerSourceMaxStartups none",
    "LogLevel INFO",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_the_machines_addresses_alone() {
        let addresses = ["127.10.0.4".parse().unwrap(), "127.54.0.2".parse().unwrap()];
        let text = config(&addresses, 2222, &[("A".into(), "b".into()), ("C".into(), "d".into())], false);
        let listens: Vec<&str> = text.lines().filter(|line| line.starts_with("ListenAddress")).collect();
        assert_eq!(listens, ["ListenAddress 127.10.0.4", "ListenAddress 127.54.0.2"]);
        assert!(text.contains("\nPort 2222\n") && text.contains("\nSetEnv \"A=b\" \"C=d\"\n"));
        assert!(text.contains("\nPermitRootLogin no\n"));
    }
}
