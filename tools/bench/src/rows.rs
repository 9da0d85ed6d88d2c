//! The rows of each suite, their budgets, and the tables of results.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// A suite: the rows of one run, and the systems.
#[derive(Debug, PartialEq)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// The columns of the table: ours first.
    pub(crate) systems: &'static [&'static str],
    pub(crate) rows: &'static [Row],
}

/// A figure that a suite measures.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Whether the peers have this figure.
    pub(crate) peers: bool,
    budget: Budget,
}

/// A budget; docs/decisions and ARCHITECTURE.md have the reasons.
#[derive(Debug, PartialEq)]
enum Budget {
    None,
    AtMost(Bound),
    AtLeast(Bound),
}

/// A fixed figure, and the figures of other systems in the same run times a factor. The strictest
/// of them counts.
#[derive(Debug, PartialEq)]
struct Bound {
    figure: Option<f64>,
    times: &'static [(&'static str, f64)],
}

/// The values of all rounds, by system and row.
#[derive(Default)]
pub(crate) struct Measured(BTreeMap<(String, String), Vec<f64>>);

impl Measured {
    pub(crate) fn add(&mut self, system: &str, rows: &Map<String, Value>) {
        for (row, value) in rows {
            if let Some(value) = value.as_f64() {
                self.0.entry((system.to_owned(), row.clone())).or_default().push(value);
            }
        }
    }

    /// The results as a table.
    pub(crate) fn table(&self, systems: &[&str], rows: &[&Row]) -> String {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default() + 2;
        let mut text = format!("{:<width$}", "");
        for system in systems.iter().chain(&["budget"]) {
            let _ = write!(text, "{system:>14}");
        }
        for row in rows {
            let _ = write!(text, "\n{:<width$}", row.name);
            for system in systems {
                let _ = write!(text, "{:>14}", shown(self.median(system, row)));
            }
            let _ = write!(text, "{:>14}", shown(self.budget(row)));
            let _ = match self.met(row) {
                Some(true) => write!(text, "  met"),
                Some(false) => write!(text, "  MISSED"),
                None => Ok(()),
            };
        }
        text
    }

    /// The results as JSON.
    pub(crate) fn json(&self, systems: &[&str], rows: &[&Row]) -> Value {
        let rows = rows.iter().map(|row| {
            let mut entry = Map::new();
            entry.insert("name".to_owned(), row.name.into());
            for system in systems {
                entry.insert((*system).to_owned(), self.median(system, row).into());
            }
            entry.insert("budget".to_owned(), self.budget(row).into());
            entry.insert("met".to_owned(), self.met(row).into());
            Value::Object(entry)
        });
        json!({ "rows": rows.collect::<Vec<_>>() })
    }

    /// The median of all rounds.
    fn median(&self, system: &str, row: &Row) -> Option<f64> {
        let mut values = self.0.get(&(system.to_owned(), row.name.to_owned()))?.clone();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.get((values.len() - 1) / 2)?, values.get(values.len() / 2)?);
        Some(f64::midpoint(*low, *high))
    }

    /// The budget in force, with the other systems' figures of this run.
    fn budget(&self, row: &Row) -> Option<f64> {
        let (bound, harder): (_, fn(f64, f64) -> f64) = match &row.budget {
            Budget::None => return None,
            Budget::AtMost(bound) => (bound, f64::min),
            Budget::AtLeast(bound) => (bound, f64::max),
        };
        let relative = bound.times.iter().filter_map(|(system, factor)| Some(self.median(system, row)? * factor));
        relative.chain(bound.figure).reduce(harder)
    }

    fn met(&self, row: &Row) -> Option<bool> {
        let (ours, budget) = self.median("skyward", row).zip(self.budget(row))?;
        Some(match row.budget {
            Budget::AtLeast(_) => ours >= budget,
            _ => ours <= budget,
        })
    }
}

impl Suite {
    /// Whether it is measured beside programs of others.
    pub(crate) fn has_peers(&self) -> bool {
        self.rows.iter().any(|row| row.peers)
    }
}

impl Row {
    const fn new(name: &'static str, budget: Budget) -> Self {
        Self { name, peers: false, budget }
    }

    const fn with_peers(name: &'static str, budget: Budget) -> Self {
        Self { name, peers: true, budget }
    }
}

const fn at_most(figure: f64) -> Budget {
    Budget::AtMost(Bound { figure: Some(figure), times: &[] })
}

const fn at_least(figure: f64) -> Budget {
    Budget::AtLeast(Bound { figure: Some(figure), times: &[] })
}

fn shown(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

const fn within(times: &'static [(&'static str, f64)]) -> Budget {
    Budget::AtMost(Bound { figure: None, times })
}

const fn beyond(times: &'static [(&'static str, f64)]) -> Budget {
    Budget::AtLeast(Bound { figure: None, times })
}

const RAY: &str = "ray_actor";

/// Units, by the ends of rows' names.
pub(crate) const LOCAL: Suite = Suite {
    name: "local",
    systems: &["skyward", RAY, "dask", "process_pool"],
    rows: &[
        Row::with_peers("call_p50_us", Budget::AtMost(Bound { figure: Some(60.0), times: &[(RAY, 0.1)] })),
        Row::with_peers("calls_per_s", Budget::AtLeast(Bound { figure: Some(200_000.0), times: &[(RAY, 50.0)] })),
        Row::with_peers("bytes_64mib_gib_s", beyond(&[(RAY, 1.0)])),
        Row::with_peers("numpy_64mib_gib_s", Budget::None),
        Row::new("shard_shuffle_10m_s", at_most(3.0)),
        Row::with_peers("warm_start_s", Budget::AtMost(Bound { figure: Some(0.4), times: &[(RAY, 0.1)] })),
        Row::new("train_overhead_pct", at_most(2.0)),
        Row::new("map_1m_s", Budget::None),
        Row::new("broadcast_8_p50_us", Budget::None),
        Row::new("idle_1000_ready_s", at_most(2.0)),
        Row::new("queue_1m_hold_ms", at_most(20.0)),
        Row::new("ends_1000_gap_ms", at_most(100.0)),
        Row::new("ends_1000_hold_ms", at_most(20.0)),
        Row::new("ends_1000_notices", at_most(1000.0)),
        Row::new("ends_1000_lists", at_most(100.0)),
        Row::new("idle_kib_per_node", at_most(100.0)),
    ],
};

/// Beside `ssh`, and beside the same processes started by hand on this host.
pub(crate) const SSH: Suite = Suite {
    name: "ssh",
    systems: &["skyward", "openssh", "by_hand"],
    rows: &[
        Row::new("ssh_call_p50_us", within(&[("openssh", 2.0)])),
        Row::new("ssh_bulk_mib_s", beyond(&[("openssh", 0.8)])),
        Row::new("ssh_warm_start_s", at_most(1.5)),
        Row::new("ssh_32_nodes_ready_s", within(&[("by_hand", 1.5)])),
        Row::new("ssh_1000_nodes_cpu_s", at_most(2.0)),
        Row::new("ssh_idle_kib_per_node", at_most(100.0)),
    ],
};

/// Beside programs that copy files over `ssh`, and beside a training's own write.
pub(crate) const DATA: Suite = Suite {
    name: "data",
    systems: &["skyward", "rsync", "scp", "tar", "alone"],
    rows: &[
        Row::new("data_1_file_in_s", within(COPIERS)),
        Row::new("data_1_file_again_s", at_most(0.2)),
        Row::new("data_10000_files_in_s", within(COPIERS)),
        Row::new("data_10000_files_again_s", at_most(0.2)),
        Row::new("artifact_out_s", within(COPIERS)),
        Row::new("save_wait_s", within(&[("alone", 1.05)])),
        Row::new("save_committed_s", Budget::None),
    ],
};

/// At least 0.9 of the best.
const COPIERS: &[(&str, f64)] = &[("rsync", 1.0 / 0.9), ("scp", 1.0 / 0.9), ("tar", 1.0 / 0.9)];

/// Beside what the engine does alone: a bare exec stream to `cat`, `docker run`, `docker rm`.
pub(crate) const DOCKER: Suite = Suite {
    name: "docker",
    systems: &["skyward", "docker"],
    rows: &[
        Row::new("docker_call_p50_us", within(&[("docker", 2.0)])),
        Row::new("docker_call_per_s", at_least(20_000.0)),
        Row::new("docker_bytes_64mib_gib_s", at_least(0.2)),
        Row::new("docker_warm_start_s", at_most(2.0)),
        Row::new("docker_teardown_s", at_most(1.0)),
    ],
};

/// Beside the same agent and worker started over `ssh` on such an instance. Calls are those of an
/// EC2 on loopback, in pages as EC2's; those of pools of many nodes are made for instances without
/// machines, whose nodes are simulated: the pool and the provider launch, look at and end them as
/// others.
pub(crate) const AWS: Suite = Suite {
    name: "aws",
    systems: &["skyward", "by_hand"],
    rows: &[
        Row::new("aws_1_node_calls", Budget::None),
        Row::new("aws_10_nodes_calls", Budget::None),
        Row::new("aws_100_nodes_calls", at_most(60.0)),
        Row::new("aws_100_idle_calls_per_min", at_most(2.0)),
        Row::new("aws_100_idle_cpu_s", Budget::None),
        Row::new("aws_first_result_s", within(&[("by_hand", 2.0)])),
        Row::new("aws_offers_cold_ms", Budget::None),
        Row::new("aws_offers_warm_ms", Budget::None),
    ],
};

/// Beside other backends of joblib with two workers each, in calls of the same functions. One that
/// a backend has no such thing for has no figure.
pub(crate) const PYTHON: Suite = Suite {
    name: "python",
    systems: &["skyward", "loky", "dask", "ray"],
    rows: &[
        Row::with_peers("py_tiny_ms", within(&[("loky", 1.5), ("dask", 0.2)])),
        Row::with_peers("py_one_by_one_s", within(&[("loky", 1.5), ("ray", 0.2), ("dask", 1.0 / 15.0)])),
        Row::with_peers("py_10ms_of_ideal", at_most(1.05)),
        Row::with_peers("py_grid_s", within(&[("loky", 1.0), ("dask", 0.9), ("ray", 0.9)])),
        Row::with_peers("py_array_first_s", within(&[("loky", 0.6)])),
        Row::with_peers("py_array_again_s", Budget::None),
        Row::new("py_nested_call_p50_us", at_most(200.0)),
        Row::with_peers("py_recursion_s", within(&[("ray", 0.2)])),
        Row::new("py_cancel_tree_ms", at_most(100.0)),
    ],
};

/// `cargo check` of a crate with 200 payloads, which are functions of one file of 100 KB, or of a
/// folder of 100 files, beside the same crate without payloads.
pub(crate) const MACRO: Suite = Suite {
    name: "macro",
    systems: &["skyward", "empty"],
    rows: &[Row::new("macro_file_s", at_most(2.0)), Row::new("macro_folder_s", at_most(6.0))],
};

/// All of them.
pub(crate) const SUITES: &[Suite] = &[LOCAL, PYTHON, MACRO, SSH, DATA, DOCKER, AWS];

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(values: &[(&str, &str, f64)]) -> Map<String, Value> {
        let mut measured = Measured::default();
        for (system, row, value) in values {
            measured.add(system, &Map::from_iter([((*row).to_owned(), json!(value))]));
        }
        let suite = SUITES.iter().find(|suite| suite.rows.iter().any(|row| row.name == values[0].1)).unwrap();
        let row = suite.rows.iter().find(|row| row.name == values[0].1).unwrap();
        assert!(measured.table(suite.systems, &[row]).contains(row.name));
        measured.json(suite.systems, &[row])["rows"][0].as_object().unwrap().clone()
    }

    #[test]
    fn the_harder_of_both_budgets_counts() {
        let row = entry(&[("skyward", "call_p50_us", 50.0), ("ray_actor", "call_p50_us", 400.0)]);
        assert_eq!(&row["budget"], &json!(40.0));
        assert_eq!(&row["met"], &json!(false));
        assert_eq!(&row["dask"], &Value::Null);
        let row = entry(&[("skyward", "call_p50_us", 50.0), ("ray_actor", "call_p50_us", 4000.0)]);
        assert_eq!(&row["budget"], &json!(60.0));
        assert_eq!(&row["met"], &json!(true));
        let row = entry(&[("skyward", "calls_per_s", 2e5), ("ray_actor", "calls_per_s", 5e3)]);
        assert_eq!(&row["budget"], &json!(250_000.0));
        assert_eq!(&row["met"], &json!(false));
        let row = entry(&[("skyward", "bytes_64mib_gib_s", 1.5), ("ray_actor", "bytes_64mib_gib_s", 1.5)]);
        assert_eq!(&row["budget"], &json!(1.5));
        assert_eq!(&row["met"], &json!(true));
    }

    #[test]
    fn without_a_peer_only_what_is_absolute_is_promised() {
        let row = entry(&[("skyward", "bytes_64mib_gib_s", 1.5)]);
        assert_eq!(&row["budget"], &Value::Null);
        assert_eq!(&row["met"], &Value::Null);
        let row = entry(&[("skyward", "warm_start_s", 0.5)]);
        assert_eq!(&row["budget"], &json!(0.4));
        assert_eq!(&row["met"], &json!(false));
    }

    #[test]
    fn what_is_promised_beside_another_system_counts_when_that_was_measured() {
        let row = entry(&[("skyward", "ssh_call_p50_us", 150.0), ("openssh", "ssh_call_p50_us", 80.0)]);
        assert_eq!(&row["budget"], &json!(160.0));
        assert_eq!(&row["met"], &json!(true));
        assert_eq!(&row["openssh"], &json!(80.0));
        let row = entry(&[("skyward", "ssh_bulk_mib_s", 300.0), ("openssh", "ssh_bulk_mib_s", 400.0)]);
        assert_eq!(&row["budget"], &json!(320.0));
        assert_eq!(&row["met"], &json!(false));
        let row = entry(&[("skyward", "ssh_32_nodes_ready_s", 6.0), ("openssh", "ssh_32_nodes_ready_s", 9.0)]);
        assert_eq!(&row["budget"], &Value::Null);
        assert_eq!(&row["met"], &Value::Null);
        let row = entry(&[("skyward", "aws_first_result_s", 5.0), ("by_hand", "aws_first_result_s", 3.0)]);
        assert_eq!(&row["budget"], &json!(6.0));
        assert_eq!(&row["met"], &json!(true));
        let row = entry(&[("skyward", "docker_call_per_s", 19_000.0)]);
        assert_eq!(&row["budget"], &json!(20_000.0));
        assert_eq!(&row["met"], &json!(false));
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let round = |value| ("skyward", "train_overhead_pct", value);
        assert_eq!(entry(&[round(9.0), round(1.0), round(-1.0)])["skyward"], json!(1.0));
        assert_eq!(entry(&[round(1.0), round(2.0)])["skyward"], json!(1.5));
    }
}
