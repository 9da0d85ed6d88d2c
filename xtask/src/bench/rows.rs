//! What is measured, what of it is promised, and how it is told.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// One thing that is measured.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Whether the peers have such a thing.
    pub(crate) peers: bool,
    budget: Budget,
}

/// What is promised (docs/decisions and ARCHITECTURE.md say why).
enum Budget {
    None,
    /// At most this, and at most Ray's divided by this.
    AtMost(f64, Option<f64>),
    /// At least this, and at least Ray's times this.
    AtLeast(f64, Option<f64>),
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

    /// For people.
    pub(crate) fn table(&self, rows: &[&Row]) -> String {
        let mut text = format!("{:<20}", "");
        for system in SYSTEMS.iter().chain(&["budget"]) {
            let _ = write!(text, "{system:>14}");
        }
        for row in rows {
            let _ = write!(text, "\n{:<20}", row.name);
            for system in SYSTEMS {
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

    /// For programs.
    pub(crate) fn json(&self, rows: &[&Row]) -> Value {
        let rows = rows.iter().map(|row| {
            let mut told = Map::new();
            told.insert("name".to_owned(), row.name.into());
            for system in SYSTEMS {
                told.insert((*system).to_owned(), self.median(system, row).into());
            }
            told.insert("budget".to_owned(), self.budget(row).into());
            told.insert("met".to_owned(), self.met(row).into());
            Value::Object(told)
        });
        json!({ "rows": rows.collect::<Vec<_>>() })
    }

    /// Of all rounds.
    fn median(&self, system: &str, row: &Row) -> Option<f64> {
        let mut values = self.0.get(&(system.to_owned(), row.name.to_owned()))?.clone();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.get((values.len() - 1) / 2)?, values.get(values.len() / 2)?);
        Some(f64::midpoint(*low, *high))
    }

    /// The threshold in force, by what Ray took in the same run.
    fn budget(&self, row: &Row) -> Option<f64> {
        let ray = self.median("ray_actor", row);
        match row.budget {
            Budget::None => None,
            Budget::AtMost(most, part) => Some(ray.zip(part).map_or(most, |(ray, part)| most.min(ray / part))),
            Budget::AtLeast(least, times) => {
                let least = ray.zip(times).map_or(least, |(ray, times)| least.max(ray * times));
                (least > 0.0).then_some(least)
            }
        }
    }

    fn met(&self, row: &Row) -> Option<bool> {
        let (ours, budget) = self.median("skyward", row).zip(self.budget(row))?;
        Some(match row.budget {
            Budget::AtLeast(..) => ours >= budget,
            _ => ours <= budget,
        })
    }
}

fn shown(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// What a row's name ends with is its unit.
pub(crate) const ROWS: &[Row] = &[
    Row { name: "call_p50_us", peers: true, budget: Budget::AtMost(60.0, Some(10.0)) },
    Row { name: "calls_per_s", peers: true, budget: Budget::AtLeast(200_000.0, Some(50.0)) },
    Row { name: "bytes_64mib_gib_s", peers: true, budget: Budget::AtLeast(0.0, Some(1.0)) },
    Row { name: "numpy_64mib_gib_s", peers: true, budget: Budget::None },
    Row { name: "warm_start_s", peers: true, budget: Budget::AtMost(0.4, Some(10.0)) },
    Row { name: "train_overhead_pct", peers: false, budget: Budget::AtMost(2.0, None) },
    Row { name: "map_1m_s", peers: false, budget: Budget::None },
    Row { name: "broadcast_8_p50_us", peers: false, budget: Budget::None },
    Row { name: "idle_1000_ready_s", peers: false, budget: Budget::AtMost(2.0, None) },
    Row { name: "idle_kib_per_node", peers: false, budget: Budget::AtMost(100.0, None) },
];

const SYSTEMS: &[&str] = &["skyward", "ray_actor", "dask", "process_pool"];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(values: &[(&str, &str, f64)]) -> Map<String, Value> {
        let mut measured = Measured::default();
        for (system, row, value) in values {
            measured.add(system, &Map::from_iter([((*row).to_owned(), json!(value))]));
        }
        let row = ROWS.iter().find(|row| row.name == values[0].1).unwrap();
        assert!(measured.table(&[row]).contains(row.name));
        measured.json(&[row])["rows"][0].as_object().unwrap().clone()
    }

    #[test]
    fn the_harder_of_both_budgets_counts() {
        let row = told(&[("skyward", "call_p50_us", 50.0), ("ray_actor", "call_p50_us", 400.0)]);
        assert_eq!((&row["budget"], &row["met"], &row["dask"]), (&json!(40.0), &json!(false), &Value::Null));
        let row = told(&[("skyward", "call_p50_us", 50.0), ("ray_actor", "call_p50_us", 4000.0)]);
        assert_eq!((&row["budget"], &row["met"]), (&json!(60.0), &json!(true)));
        let row = told(&[("skyward", "calls_per_s", 2e5), ("ray_actor", "calls_per_s", 5e3)]);
        assert_eq!((&row["budget"], &row["met"]), (&json!(250_000.0), &json!(false)));
        let row = told(&[("skyward", "bytes_64mib_gib_s", 1.5), ("ray_actor", "bytes_64mib_gib_s", 1.5)]);
        assert_eq!((&row["budget"], &row["met"]), (&json!(1.5), &json!(true)));
    }

    #[test]
    fn without_a_peer_only_what_is_absolute_is_promised() {
        let row = told(&[("skyward", "bytes_64mib_gib_s", 1.5)]);
        assert_eq!((&row["budget"], &row["met"]), (&Value::Null, &Value::Null));
        let row = told(&[("skyward", "warm_start_s", 0.5)]);
        assert_eq!((&row["budget"], &row["met"]), (&json!(0.4), &json!(false)));
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let round = |value| ("skyward", "train_overhead_pct", value);
        assert_eq!(told(&[round(9.0), round(1.0), round(-1.0)])["skyward"], json!(1.0));
        assert_eq!(told(&[round(1.0), round(2.0)])["skyward"], json!(1.5));
    }
}
