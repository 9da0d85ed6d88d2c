//! The table of all metrics, with unit and meaning; `docs/observability.md` contains the same
//! table.

#![cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only the recorder reads them"))]

/// A metric: one number, or one number for each combination of its labels' values.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    /// Labels besides `provider`, which every metric has; for readers of the table.
    #[cfg_attr(not(test), expect(dead_code, reason = "the guide shows them"))]
    pub(super) labels: &'static [&'static str],
    pub(super) about: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    Count,
    Seconds,
    Bytes,
}

pub(super) const NODES: Metric = gauge(
    "skyward_nodes",
    &["phase"],
    "nodes, by phase: `starting`, `up`, `lost` (until another machine replaces it), `ending`",
);
pub(super) const WORKERS_READY: Metric = gauge("skyward_workers_ready", &[], "workers that take tasks");
pub(super) const TASKS_QUEUED: Metric = gauge(
    "skyward_tasks_queued",
    &[],
    "tasks that wait for a worker, for the first time or for a retry, including calls",
);
pub(super) const TASKS_RUNNING: Metric =
    gauge("skyward_tasks_running", &[], "tasks that a worker has begun, including calls");
pub(super) const CALLS_WAITING: Metric =
    gauge("skyward_calls_waiting", &[], "calls that payloads have made and that no worker has begun yet");
pub(super) const CALLS_RUNNING: Metric = gauge(
    "skyward_calls_running",
    &[],
    "calls that a worker has begun, including calls that a waiting caller helps with",
);
pub(super) const TASKS: Metric = counter(
    "skyward_tasks_total",
    &["outcome", "cause"],
    "tasks that have ended; `outcome` is `returned`, `cancelled` or `failed`; `cause` is why a task failed: one of the causes on the page about recovery, `timeout`, `queue_timeout`, `closed` or `other`; otherwise `none`",
);
pub(super) const RETRIES: Metric =
    counter("skyward_task_retries_total", &["cause"], "failed tries that are retried, by the cause of the failure");
pub(super) const TASK_SECONDS: Metric =
    seconds("skyward_task_seconds", &[], "how long the payload ran, as its worker reports it");
pub(super) const QUEUE_SECONDS: Metric = seconds(
    "skyward_task_queue_seconds",
    &[],
    "time from the submission, or from the failure of the last try, until a worker began the task",
);
pub(super) const OVERHEAD_SECONDS: Metric = seconds(
    "skyward_task_overhead_seconds",
    &[],
    "time from the beginning of a task on a worker, as the client sees it, until the client has read the answer, without the time that the payload ran",
);
pub(super) const SENT_BYTES: Metric =
    bytes("skyward_sent_bytes_total", "arguments and sources that were sent to workers");
pub(super) const RECEIVED_BYTES: Metric =
    bytes("skyward_received_bytes_total", "results and stream items that were received from workers");
pub(super) const OUTPUT_BYTES: Metric =
    bytes("skyward_output_bytes_total", "what workers wrote to standard output and standard error");
pub(super) const START_SECONDS: Metric =
    seconds("skyward_pool_start_seconds", &[], "time from the start of a pool until all of its workers take tasks");
pub(super) const STEP_SECONDS: Metric = seconds(
    "skyward_bring_up_seconds",
    &["step"],
    "duration of a step of making a node ready: `launch`, `wait`, `connect`, the steps of the environment, `workers` (entering the hooks of all workers)",
);
pub(super) const NODES_LOST: Metric = counter(
    "skyward_nodes_lost_total",
    &["cause"],
    "machines that were given up, by cause: `lease` (silent for as long as the lease), `agent` (the agent has ended), `unreachable`, `preempted`, `expired` (the walltime is over), `failed`, `other`",
);
pub(super) const NODES_REPLACED: Metric =
    counter("skyward_nodes_replaced_total", &[], "lost nodes whose replacement takes tasks");
pub(super) const NODES_UNCONFIRMED: Metric =
    counter("skyward_nodes_unconfirmed_total", &[], "lost machines that were not confirmed gone in time");
pub(super) const GENERATIONS: Metric =
    counter("skyward_generations_total", &[], "generations that were started, including the first of each pool");
pub(super) const WORKER_EXITS: Metric = counter(
    "skyward_worker_exits_total",
    &["exit"],
    "worker processes that ended, by the way they ended: `code`, `signal`, `out_of_memory`, `killed` (by the pool), `lost` (with their node), `ended` (with their world)",
);
pub(super) const POOLS_FAILED: Metric = counter(
    "skyward_pools_failed_total",
    &["cause"],
    "pools that have failed (`failed`) or have spent their budget (`budget`); each pool counts once",
);
pub(super) const LEASE_RENEWALS: Metric =
    counter("skyward_lease_renewals_total", &[], "lease renewals that an agent has confirmed");
pub(super) const LEASE_SILENCES: Metric =
    counter("skyward_lease_silences_total", &[], "times that an agent confirmed nothing for as long as its lease");

/// All metrics, in the order of the table in the guide.
pub(super) const ALL: [&Metric; 24] = [
    &NODES,
    &WORKERS_READY,
    &TASKS_QUEUED,
    &TASKS_RUNNING,
    &CALLS_WAITING,
    &CALLS_RUNNING,
    &TASKS,
    &RETRIES,
    &TASK_SECONDS,
    &QUEUE_SECONDS,
    &OVERHEAD_SECONDS,
    &SENT_BYTES,
    &RECEIVED_BYTES,
    &OUTPUT_BYTES,
    &START_SECONDS,
    &STEP_SECONDS,
    &NODES_LOST,
    &NODES_REPLACED,
    &NODES_UNCONFIRMED,
    &GENERATIONS,
    &WORKER_EXITS,
    &POOLS_FAILED,
    &LEASE_RENEWALS,
    &LEASE_SILENCES,
];

const fn counter(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Count, labels, about }
}

const fn bytes(name: &'static str, about: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Bytes, labels: &[], about }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit: Unit::Count, labels, about }
}

const fn seconds(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, unit: Unit::Seconds, labels, about }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as it stands in the guide.
    fn page() -> String {
        let mut text = String::from("| name | kind | labels | what |\n|---|---|---|---|\n");
        for metric in ALL {
            let kind = match (metric.kind, metric.unit) {
                (Kind::Counter, Unit::Bytes) => "counter, bytes",
                (Kind::Counter, _) => "counter",
                (Kind::Gauge, _) => "gauge",
                (Kind::Histogram, _) => "histogram, seconds",
            };
            let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            text += &format!("| `{}` | {kind} | {} | {} |\n", metric.name, labels.join(", "), metric.about);
        }
        text
    }

    #[test]
    fn the_guide_has_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/observability.md");
        let guide = std::fs::read_to_string(path).unwrap();
        assert!(guide.contains(&page()), "put this table into docs/observability.md:\n{}", page());
    }

    #[test]
    fn names_are_valid_for_collectors_and_end_with_their_unit() {
        for metric in ALL {
            let plain = metric.name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(plain && metric.name.starts_with("skyward_"), "{}", metric.name);
            let ends = |end: &str| metric.name.ends_with(end);
            let fits = match (metric.kind, metric.unit) {
                (Kind::Counter, Unit::Bytes) => ends("_bytes_total"),
                (Kind::Counter, _) => ends("_total"),
                (Kind::Histogram, _) => ends("_seconds"),
                (Kind::Gauge, _) => !ends("_total") && !ends("_seconds"),
            };
            assert!(fits, "{}", metric.name);
            assert_eq!(ALL.iter().filter(|other| other.name == metric.name).count(), 1, "{}", metric.name);
        }
    }
}
