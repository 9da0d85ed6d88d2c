//! A private network whose packets a test can drop.

use std::process::Command;

use crate::sshd::Options;

/// A network namespace and the link to it. Dropping the value removes both.
pub(crate) struct Cut {
    name: String,
    /// The third byte of the addresses, `10.213.N.1` here and `10.213.N.2` in the namespace.
    number: u32,
}

impl Cut {
    pub(crate) fn new() -> Self {
        let id = std::process::id();
        let cut = Self { name: format!("skycut{id}"), number: id % 250 };
        let (name, number) = (&cut.name, cut.number);
        for line in [
            format!("ip netns add {name}"),
            format!("ip link add {name}a type veth peer name {name}b netns {name}"),
            format!("ip addr add 10.213.{number}.1/30 dev {name}a"),
            format!("ip link set {name}a up"),
            format!("ip -n {name} addr add 10.213.{number}.2/30 dev {name}b"),
            format!("ip -n {name} link set {name}b up"),
            format!("ip -n {name} link set lo up"),
        ] {
            run(&line).unwrap_or_else(|why| panic!("cannot make a private network; run this test as root: {why}"));
        }
        cut
    }

    /// Options of a server inside the namespace.
    pub(crate) fn options(&self) -> Options {
        Options::new().address(format!("10.213.{}.2", self.number)).within(&["ip", "netns", "exec", &self.name])
    }

    /// Sets whether packets to the namespace are dropped silently.
    pub(crate) fn drop_packets(&self, dropped: bool) {
        let (name, number) = (&self.name, self.number);
        // No device has this hardware address.
        let line = if dropped {
            format!("ip neigh replace 10.213.{number}.2 lladdr 02:00:00:00:00:99 dev {name}a nud permanent")
        } else {
            format!("ip neigh del 10.213.{number}.2 dev {name}a")
        };
        run(&line).unwrap();
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        let _ = run(&format!("ip link del {}a", self.name));
        let _ = run(&format!("ip netns del {}", self.name));
    }
}

fn run(line: &str) -> Result<(), String> {
    let words: Vec<_> = line.split(' ').collect();
    match Command::new(words[0]).args(&words[1..]).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("`{line}`: {error}")),
    }
}
