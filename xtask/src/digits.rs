//! What the main example promises in its JSON: nodes that trained as one.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::examples::Built;
use crate::process::Run;
use crate::step::Checks;

/// The last line of `keras_digits -- --json`.
#[derive(Deserialize)]
struct Digits {
    nodes: usize,
    reports: Vec<Report>,
    seconds: Seconds,
}

#[derive(Deserialize)]
struct Report {
    node: usize,
    samples: usize,
    loss: Vec<f64>,
    test_accuracy: f64,
    weights_digest: String,
}

#[derive(Deserialize)]
struct Seconds {
    start: f64,
    train: f64,
}

/// Runs the example on one, two and four nodes, on none, and with a budget that is too short to
/// start.
pub(crate) fn check(built: &Built, checks: &mut Checks, deadline: Duration) -> Result<()> {
    let mut whole = None;
    for nodes in [1, 2, 4] {
        let output = checks.run_leaving_nothing(run(built, nodes).deadline(deadline))?;
        let samples = read(&output).and_then(|digits| digits.samples(nodes, whole));
        match samples {
            Ok(samples) => whole = whole.or(Some(samples)),
            Err(error) => checks.fail(format!("{EXAMPLE} on {nodes} nodes: {error:#}")),
        }
    }
    let none = run(built, 0).deadline(deadline).finish()?;
    if none.status.success() || !none.output.contains("0 nodes") {
        checks.fail(format!("{EXAMPLE} on 0 nodes does not fail with an error that names the 0 nodes"));
    }
    let poor = built.run(EXAMPLE).args(["--budget-hours", "0.001"]).deadline(deadline).finish()?;
    if poor.status.success() || !poor.output.contains("budget of 0.001 h") || !poor.output.contains(".budget(") {
        checks.fail(format!(
            "{EXAMPLE} with a budget of 3.6 s does not fail with an error that names the budget and `.budget(…)`"
        ));
    }
    Ok(())
}

/// Whether the last line of its output is what it promises for so many nodes.
pub(crate) fn check_reports(output: &str, nodes: usize) -> Result<()> {
    let digits = read(output)?;
    digits.samples(nodes, None)?;
    Ok(())
}

fn run(built: &Built, nodes: usize) -> Run {
    built.run(EXAMPLE).args(["--json", "--nodes", &nodes.to_string()])
}

fn read(output: &str) -> Result<Digits> {
    let last = output.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("the last line is not the JSON of the example: {last}"))
}

impl Digits {
    /// The samples of all nodes, if the reports are those of `nodes` equal parts of one training.
    fn samples(&self, nodes: usize, whole: Option<usize>) -> Result<usize> {
        ensure!(self.nodes == nodes, "the output reports {} nodes, not {nodes}", self.nodes);
        let indices: Vec<usize> = self.reports.iter().map(|report| report.node).collect();
        ensure!(indices == (0..nodes).collect::<Vec<_>>(), "the reports are those of the nodes {indices:?}");
        let digests: BTreeSet<&str> = self.reports.iter().map(|report| report.weights_digest.as_str()).collect();
        ensure!(digests.len() == 1, "the weights differ: {digests:?}");
        let first = &self.reports[0];
        ensure!(!first.loss.is_empty() && !first.weights_digest.is_empty(), "the first report is empty");
        for report in &self.reports {
            let (node, accuracy) = (report.node, report.test_accuracy);
            ensure!(
                report.loss == first.loss,
                "node {node} reports the losses {:?}, not {:?}",
                report.loss,
                first.loss
            );
            ensure!(
                report.samples == first.samples,
                "node {node} has {} samples, not {}",
                report.samples,
                first.samples
            );
            ensure!(accuracy >= 0.93, "node {node} has an accuracy of {accuracy}");
        }
        ensure!(
            self.seconds.start > 0.0 && self.seconds.train > 0.0,
            "the output reports no time for the start or the training"
        );
        let samples = first.samples * nodes;
        // What does not divide is left out.
        let whole = whole.unwrap_or(samples);
        ensure!(samples <= whole && whole - samples < nodes, "the parts have {samples} samples of {whole}");
        Ok(samples)
    }
}

pub(crate) const EXAMPLE: &str = "keras_digits";

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second_loss: f64, second_samples: usize, accuracy: f64, second_digest: &str) -> String {
        format!(
            "progress\n{{\"nodes\":2,\"reports\":[\
             {{\"node\":0,\"samples\":704,\"loss\":[1.5,0.5],\"test_accuracy\":{accuracy},\"weights_digest\":\"ab\"}},\
             {{\"node\":1,\"samples\":{second_samples},\"loss\":[1.5,{second_loss}],\"test_accuracy\":{accuracy},\"weights_digest\":\"{second_digest}\"}}],\
             \"seconds\":{{\"start\":1.0,\"train\":2.0}}}}\n"
        )
    }

    fn samples(text: &str, whole: Option<usize>) -> Result<usize> {
        read(text)?.samples(2, whole)
    }

    #[test]
    fn equal_halves_with_equal_weights_hold() {
        assert_eq!(samples(&line(0.5, 704, 0.98, "ab"), Some(1409)).unwrap(), 1408);
    }

    #[test]
    fn whatever_differs_is_reported() {
        for (text, whole, expected) in [
            (line(0.6, 704, 0.98, "ab"), None, "losses"),
            (line(0.5, 703, 0.98, "ab"), None, "samples"),
            (line(0.5, 704, 0.90, "ab"), None, "accuracy"),
            (line(0.5, 704, 0.98, "cd"), None, "weights"),
            (line(0.5, 704, 0.98, "ab"), Some(1500), "of 1500"),
            ("nothing\n".to_owned(), None, "JSON"),
        ] {
            let error = format!("{:#}", samples(&text, whole).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
