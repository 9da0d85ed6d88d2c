//! `PoolPlan`: what a pool would launch and cost, made without launching anything.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::blueprint::Blueprint;
use super::fleet::shortlist::Shortlist;
use crate::bootstrap;
use crate::provider::{Offer, Place, Provider};
use crate::spec::{Budget, Image, Limits, Nodes, Python};

/// What a pool would launch and what that would cost, made by
/// [`PoolBuilder::plan`](super::PoolBuilder::plan). `Display` formats it as a table.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PoolPlan {
    /// The provider's name.
    pub provider: String,
    /// The number of nodes.
    pub nodes: Nodes,
    /// Worker processes on each node.
    pub workers_per_node: u32,
    /// Whether the workers form one world.
    pub joined: bool,
    /// The offers that meet the requirements, in the order in which the pool would try them.
    pub candidates: Vec<Candidate>,
    /// The environment of the workers, including what plugins add to it.
    pub image: Image,
    /// The plugins' names, the outermost first.
    pub plugins: Vec<String>,
    /// The names of the steps that make a machine ready, in order. A step is skipped on a machine
    /// that already has the step's result.
    pub steps: Vec<String>,
    /// The threads of each numeric library in a worker, at the first candidate: its share of the
    /// cores, or what the image sets by `OMP_NUM_THREADS`. `None` where one worker has all cores of a
    /// host, or the variable is no number: each library then chooses by itself.
    pub threads: Option<u32>,
    /// The price in US dollars per hour of the machines that the pool has at first, by the first
    /// candidate; `None` if the price is not known.
    pub usd_per_hour: Option<f64>,
    /// The pool's budget.
    pub budget: Budget,
}

/// An offer that meets the requirements of a pool.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// The offer, with its price.
    pub offer: Offer,
    /// The age of the price; `None` if the provider does not report when it read the price.
    pub price_age: Option<Duration>,
    /// Why the pool would not take the offer; `None` if it would.
    pub left_out: Option<String>,
}

impl PoolPlan {
    pub(super) fn new(
        blueprint: &Blueprint,
        shortlist: &Shortlist,
        inputs: &bootstrap::Inputs,
        limits: &Limits,
        budget: Budget,
    ) -> Self {
        let now = SystemTime::now();
        let age = |offer: &Offer| offer.priced_at.map(|at| now.duration_since(at).unwrap_or_default());
        let candidates: Vec<Candidate> = shortlist
            .offers()
            .map(|(offer, out)| Candidate {
                offer: offer.clone(),
                price_age: age(offer),
                left_out: out.map(str::to_owned),
            })
            .collect();
        let first = candidates.iter().find(|candidate| candidate.left_out.is_none());
        let threads = first.and_then(|candidate| threads(blueprint, &candidate.offer));
        let price = first.and_then(|candidate| candidate.offer.usd_per_hour);
        let setup = blueprint.plugins.bootstrap(&blueprint.cluster);
        let plan = bootstrap::Plan::new(&blueprint.image, inputs, &Place::new("", "/skyward"), &setup, limits);
        let steps = plan.steps.iter().chain(&plan.setup).chain([&plan.start]);
        Self {
            provider: blueprint.provider.name().to_owned(),
            nodes: blueprint.nodes,
            workers_per_node: blueprint.cluster.workers_per_node,
            joined: blueprint.declared.joined,
            candidates,
            image: blueprint.image.clone(),
            plugins: blueprint.plugins.iter().map(|plugin| plugin.name().to_owned()).collect(),
            steps: steps.map(|step| step.name.to_owned()).collect(),
            threads,
            usd_per_hour: price.map(|price| price * f64::from(blueprint.nodes.wanted())),
            budget,
        }
    }

    /// The offer that would be tried first; `None` if all candidates are left out.
    pub fn first(&self) -> Option<&Offer> {
        self.candidates.iter().find(|candidate| candidate.left_out.is_none()).map(|candidate| &candidate.offer)
    }
}

impl fmt::Display for PoolPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = if self.joined { "one world" } else { "independent workers" };
        let nodes = self.nodes.wanted();
        let plural = |count: u32, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
        writeln!(
            f,
            "{} of {} at the provider {}, {world}",
            plural(nodes, "node"),
            plural(self.workers_per_node, "worker"),
            self.provider
        )?;
        writeln!(f, "{:10} {}", "python", python(&self.image))?;
        for (name, list) in [
            ("packages", &self.image.pip),
            ("apt", &self.image.apt),
            ("plugins", &self.plugins),
            ("steps", &self.steps),
        ] {
            if !list.is_empty() {
                writeln!(f, "{name:10} {}", list.join(", "))?;
            }
        }
        if let Some(threads) = self.threads {
            writeln!(f, "{:10} {threads} in each worker", "threads")?;
        }
        let rate = match self.usd_per_hour {
            Some(rate) => format!("${rate:.2}/h for {}", plural(nodes, "machine")),
            None => "not known".to_owned(),
        };
        writeln!(f, "{:10} {rate}", "price")?;
        if self.budget != Budget::default() {
            writeln!(f, "{:10} {}", "budget", self.budget)?;
        }
        let rows: Vec<[String; 7]> = self.candidates.iter().map(row).collect();
        let widths: Vec<usize> = (0..HEADER.len())
            .map(|column| {
                rows.iter().map(|row| row[column].chars().count()).chain([HEADER[column].len()]).max().unwrap_or(0)
            })
            .collect();
        for row in std::iter::once(HEADER.map(str::to_owned)).chain(rows) {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        f.write_str("nothing was started")
    }
}

const HEADER: [&str; 7] = ["offer", "zone", "price", "cores", "memory", "accelerators", "taken"];

fn row(candidate: &Candidate) -> [String; 7] {
    let Candidate { offer, price_age, left_out } = candidate;
    let price = match offer.usd_per_hour {
        Some(0.0) => "free".to_owned(),
        Some(price) => format!("${price:.2}/h{}", if offer.spot { " spot" } else { "" }),
        None => "not known".to_owned(),
    };
    let age = price_age.map(|age| format!(", {:.0?} old", Duration::from_secs(age.as_secs()))).unwrap_or_default();
    [
        offer.machine_type.clone(),
        offer.zone.clone(),
        format!("{price}{age}"),
        offer.cpus.to_string(),
        format!("{} GiB", offer.memory_gib),
        offer.accelerator.as_ref().map_or("none".to_owned(), ToString::to_string),
        left_out.as_ref().map_or("yes".to_owned(), |why| format!("no: {why}")),
    ]
}

/// The threads of each numeric library in a worker on such a machine; the agent counts the real cores.
fn threads(blueprint: &Blueprint, offer: &Offer) -> Option<u32> {
    if let Some(set) = blueprint.image.env.get("OMP_NUM_THREADS") {
        return set.parse().ok();
    }
    let cluster = &blueprint.cluster;
    let nodes = if cluster.shared_host { blueprint.nodes.wanted() } else { 1 };
    let workers = cluster.workers_per_node.saturating_mul(nodes).max(1);
    (workers > 1).then(|| (offer.cpus / workers).max(1))
}

fn python(image: &Image) -> String {
    match &image.python {
        Python::Auto if image.requires_python.is_empty() => "any that suits the image".to_owned(),
        Python::Auto => image.requires_python.join(", "),
        Python::Version(version) => version.clone(),
        Python::Interpreter(path) => path.display().to_string(),
    }
}
