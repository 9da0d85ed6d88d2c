//! The rules of security groups as a table of nftables. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use super::cgroup::Place;

/// The addresses of a cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// The second number of private addresses, and of public ones.
    pub(crate) private: u8,
    pub(crate) public: u8,
}

/// A table: all that is known of a cloud's machines, interfaces and groups.
#[derive(Debug)]
pub(crate) struct Ruleset {
    table: String,
    network: Network,
    /// By the ids of their instances.
    pub(super) machines: BTreeMap<String, Machine>,
    pub(super) view: View,
    /// Where clients outside of the network come from, if a test has moved them.
    client: Option<Ipv4Addr>,
    /// Where they came from before.
    lost: BTreeSet<Ipv4Addr>,
}

/// A machine: who its processes are, and where their connections come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) group: Place,
    pub(super) private: Option<Ipv4Addr>,
    pub(super) public: Option<Ipv4Addr>,
}

/// What EC2 knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) interfaces: Vec<Interface>,
    /// What each security group lets in.
    pub(crate) groups: BTreeMap<String, Vec<Permit>>,
}

/// A network interface with those of its addresses that are on loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) private: Option<Ipv4Addr>,
    pub(crate) public: Option<Ipv4Addr>,
    pub(crate) groups: Vec<String>,
}

/// A rule of a security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permit {
    /// As EC2 writes it: `tcp`, `udp`, `icmp`, a number, or `-1` for all.
    pub(crate) protocol: String,
    /// Those of TCP and UDP.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) from: Source,
}

/// Where what a rule allows comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Addresses in the notation of networks.
    Network(String),
    /// The private addresses of a group's members, as EC2 documents it:
    /// <https://docs.aws.amazon.com/vpc/latest/userguide/security-group-rules.html>.
    Group(String),
}

impl Network {
    /// Where clients reach private addresses from.
    fn inside(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.private, 255, 250)
    }

    /// The emulator's own server, of moto.
    pub(crate) fn service(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.private, 255, 254)
    }

    /// The service that tells clients their address.
    pub(crate) fn address_service(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.public, 255, 254)
    }

    /// An address to try the firewall with.
    pub(super) fn probe(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.private, 255, 252)
    }
}

impl Ruleset {
    pub(super) fn new(table: &str, network: Network) -> Self {
        Self {
            table: table.to_owned(),
            network,
            machines: BTreeMap::new(),
            view: View::default(),
            client: None,
            lost: BTreeSet::new(),
        }
    }

    pub(super) fn move_client(&mut self, address: Ipv4Addr) {
        self.lost.insert(self.client.unwrap_or(Ipv4Addr::LOCALHOST));
        self.lost.remove(&address);
        self.client = Some(address);
    }

    /// What marks packets of processes of machines.
    fn marks(&self) -> impl Iterator<Item = (u32, &Machine)> {
        ((u32::from(self.network.private) << 16) | 1..).zip(self.machines.values())
    }

    /// The rules of the chain that decides, in their order.
    fn decide(&self) -> Vec<String> {
        let Network { private, public } = self.network;
        let services = format!("{{ {}, {} }}", self.network.service(), self.network.address_service());
        let all = format!("{{ 127.{private}.0.0/16, 127.{public}.0.0/16 }}");
        let mut rules = vec![format!("ct original ip daddr {services} accept")];
        if let Some(lost) = set(&self.lost) {
            rules.push(format!("ct original ip daddr 127.{public}.0.0/16 ct reply ip daddr {lost} drop"));
        }
        rules.push(format!("ip daddr != {all} accept"));
        rules.push("ct state established,related accept".into());
        // A machine reaches itself.
        let own = self.machines.values().map(|machine| (machine.private, machine.public));
        let own = own.chain(self.view.interfaces.iter().map(|interface| (interface.private, interface.public)));
        let own: BTreeSet<String> = own.flat_map(|(private, public)| pairs(private, public)).collect();
        rules.extend(set(&own).map(|own| format!("ip saddr . ip daddr {own} accept")));
        // One without a public address has no way to the public ones of others.
        let marks: BTreeSet<u32> = self.marks().map(|(mark, _)| mark).collect();
        rules.extend(set(&marks).map(|marks| format!("ip saddr 127.0.0.1 meta mark {marks} drop")));
        for (group, permits) in &self.view.groups {
            let Some(members) = set(&self.members(group, true)) else { continue };
            let allowed = permits.iter().filter_map(|permit| self.allow(permit));
            rules.extend(allowed.map(|allowed| format!("ip daddr {members} {allowed} accept")));
        }
        rules.push("drop".into());
        rules
    }

    fn allow(&self, permit: &Permit) -> Option<String> {
        let from = match &permit.from {
            Source::Network(network) if network == "0.0.0.0/0" => String::new(),
            Source::Network(network) => format!("ip saddr {network} "),
            Source::Group(group) => format!("ip saddr {} ", set(&self.members(group, false))?),
        };
        Some(match (permit.protocol.as_str(), permit.ports) {
            ("-1", _) => from,
            (protocol @ ("tcp" | "udp"), Some((first, last))) => format!("{from}{protocol} dport {first}-{last}"),
            (protocol, _) => format!("{from}ip protocol {protocol}"),
        })
    }

    /// The addresses of the interfaces that have a group.
    fn members(&self, group: &str, with_public: bool) -> BTreeSet<Ipv4Addr> {
        let members = self.view.interfaces.iter().filter(|one| one.groups.iter().any(|one| one == group));
        members.flat_map(|one| one.private.into_iter().chain(one.public.filter(|_| with_public))).collect()
    }

    /// The rules that set where a new connection comes from.
    fn translate(&self) -> Vec<String> {
        let Network { private, public } = self.network;
        let map = |address: fn(&Machine) -> Option<Ipv4Addr>| {
            let all = self.marks().filter_map(|(mark, machine)| Some(format!("{mark} : {}", address(machine)?)));
            set(&all.collect())
        };
        let mut rules = vec![format!("ip daddr {} return", self.network.service())];
        let machines = [(private, map(|machine| machine.private)), (public, map(|machine| machine.public))];
        for (number, map) in machines {
            rules.extend(map.map(|map| format!("ip daddr 127.{number}.0.0/16 snat to meta mark map {map}")));
        }
        let marks: BTreeSet<u32> = self.marks().map(|(mark, _)| mark).collect();
        rules.extend(set(&marks).map(|marks| format!("meta mark {marks} return")));
        let inside = self.network.inside();
        rules.push(format!("ip saddr 127.0.0.1 ip daddr 127.{private}.0.0/16 snat to {inside}"));
        if let Some(client) = self.client {
            rules.push(format!("ip saddr 127.0.0.1 ip daddr 127.{public}.0.0/16 snat to {client}"));
        }
        rules
    }
}

impl fmt::Display for Ruleset {
    /// A script that replaces the table by one with these rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, Network { private, public }) = (&self.table, self.network);
        let marked = self.marks().map(|(mark, machine)| {
            let Place { path, level } = &machine.group;
            format!("socket cgroupv2 level {level} \"{path}\" meta mark set {mark} accept")
        });
        let mut mark = vec![format!("ip daddr != {{ 127.{private}.0.0/16, 127.{public}.0.0/16 }} accept")];
        mark.push("ct state != new accept".into());
        mark.extend(marked);
        writeln!(f, "add table ip {table}\nflush table ip {table}\ntable ip {table} {{")?;
        chain(f, "sources", "type filter hook output priority mangle", &mark)?;
        chain(f, "translate", "type nat hook postrouting priority srcnat", &self.translate())?;
        chain(f, "decide", "type filter hook input priority filter", &self.decide())?;
        writeln!(f, "}}")
    }
}

fn chain(f: &mut fmt::Formatter<'_>, name: &str, hook: &str, rules: &[String]) -> fmt::Result {
    writeln!(f, "chain {name} {{\n{hook}; policy accept;")?;
    rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))?;
    writeln!(f, "}}")
}

/// A set as nftables writes it; none if it is empty, which nftables does not allow.
fn set<T: fmt::Display>(items: &BTreeSet<T>) -> Option<String> {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    (!items.is_empty()).then(|| format!("{{ {} }}", items.join(", ")))
}

/// From each of a machine's addresses to each of them.
fn pairs(private: Option<Ipv4Addr>, public: Option<Ipv4Addr>) -> Vec<String> {
    let own = [private, public];
    let own = own.iter().flatten();
    own.clone().flat_map(|from| own.clone().map(move |to| format!("{from} . {to}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Ruleset {
        let mut rules = Ruleset::new("kit", Network { private: 10, public: 60 });
        let [own, other] = [4, 5].map(|last| Ipv4Addr::new(127, 10, 0, last));
        let public = Some(Ipv4Addr::new(127, 60, 0, 2));
        let interface =
            |private, public, group: &str| Interface { private: Some(private), public, groups: vec![group.to_owned()] };
        rules.view.interfaces = vec![interface(own, public, "sg-1"), interface(other, None, "sg-2")];
        let permit = |protocol: &str, ports, from| Permit { protocol: protocol.into(), ports, from };
        let ssh = permit("tcp", Some((22, 22)), Source::Network("127.0.0.1/32".into()));
        let among = permit("-1", None, Source::Group("sg-2".into()));
        let nobody = permit("-1", None, Source::Group("sg-9".into()));
        rules.view.groups = [("sg-1".to_owned(), vec![ssh, among, nobody])].into();
        rules
    }

    #[test]
    fn a_rule_names_the_members_of_its_group_and_of_the_one_it_lets_in() {
        let rules = rules().decide();
        let allowed: Vec<&str> =
            rules.iter().filter(|rule| rule.starts_with("ip daddr {")).map(String::as_str).collect();
        assert_eq!(
            allowed,
            [
                "ip daddr { 127.10.0.4, 127.60.0.2 } ip saddr 127.0.0.1/32 tcp dport 22-22 accept",
                "ip daddr { 127.10.0.4, 127.60.0.2 } ip saddr { 127.10.0.5 }  accept",
            ]
        );
        assert_eq!(rules.last().unwrap(), "drop");
    }

    #[test]
    fn clients_that_move_lose_their_connections_and_may_come_back() {
        let mut rules = rules();
        let [one, two] = [1, 2].map(|last| Ipv4Addr::new(127, 200, 0, last));
        let lost =
            |rules: &Ruleset| rules.decide().into_iter().filter(|rule| rule.contains("ct reply")).collect::<Vec<_>>();
        assert!(lost(&rules).is_empty());
        rules.move_client(one);
        assert!(lost(&rules)[0].contains("{ 127.0.0.1 } drop"), "{:?}", lost(&rules));
        rules.move_client(two);
        assert!(lost(&rules)[0].contains("{ 127.0.0.1, 127.200.0.1 } drop"), "{:?}", lost(&rules));
        rules.move_client(one);
        assert!(lost(&rules)[0].contains("{ 127.0.0.1, 127.200.0.2 } drop"), "{:?}", lost(&rules));
        assert!(rules.translate().last().unwrap().ends_with("snat to 127.200.0.1"));
    }
}
