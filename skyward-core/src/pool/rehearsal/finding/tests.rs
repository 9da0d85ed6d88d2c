//! Tests of how errors become findings.

use std::time::Duration;

use super::*;
use crate::error::Exception;
use crate::ids::NodeIndex;
use crate::pool::Rehearsal;

fn failure(stage: Stage, ranks: &[u32], error: Error) -> Failure {
    Failure { stage, ranks: ranks.iter().copied().map(Rank).collect(), error }
}

fn raised(type_name: &str, rank: u32) -> Error {
    Error::raised(Exception {
        type_name: type_name.into(),
        message: "no\n".into(),
        traceback: "Traceback (most recent call last):\n  File \"a.py\", line 2, in f\n".into(),
        node: NodeIndex(rank),
        rank: Rank(rank),
    })
}

fn ended(rank: u32, exit: WorkerExit) -> Error {
    Error::worker_exited(Rank(rank), exit)
}

fn only(failures: Vec<Failure>, exits: &[(Rank, WorkerExit)]) -> Finding {
    let mut findings = findings(failures, exits);
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[test]
fn the_kind_of_a_finding_follows_from_the_error_and_its_stage() {
    let of = |kind: ErrorKind| Error::new(kind, "it broke");
    let oom = || ended(0, WorkerExit::OutOfMemory);
    let table = [
        (Stage::Declared, of(ErrorKind::Plugins), FindingKind::Refused),
        (Stage::Declared, of(ErrorKind::Payload), FindingKind::Refused),
        (Stage::Rehearsed, of(ErrorKind::InvalidSpec), FindingKind::Refused),
        (Stage::Start, of(ErrorKind::Environment), FindingKind::Environment),
        (Stage::Start, of(ErrorKind::Bootstrap), FindingKind::Environment),
        (Stage::Start, of(ErrorKind::Hook), FindingKind::Hook),
        (Stage::Start, of(ErrorKind::Timeout), FindingKind::Deadline),
        (Stage::Start, of(ErrorKind::Provider), FindingKind::Start),
        (Stage::Start, of(ErrorKind::Ledger), FindingKind::Start),
        (Stage::Start, ended(0, WorkerExit::Code(1)), FindingKind::WorkerLost),
        (Stage::Start, oom(), FindingKind::OutOfMemory),
        (Stage::Call, raised("ValueError", 0), FindingKind::Raised),
        (Stage::Call, of(ErrorKind::Hook), FindingKind::Hook),
        (Stage::Call, Error::stalled(Duration::from_secs(60), Vec::new()), FindingKind::Stalled),
        (Stage::Call, of(ErrorKind::Timeout), FindingKind::Deadline),
        (Stage::Call, of(ErrorKind::QueueTimeout), FindingKind::Deadline),
        (Stage::Call, ended(0, WorkerExit::Signal(11)), FindingKind::WorkerLost),
        (Stage::Call, ended(0, WorkerExit::AgentGone), FindingKind::WorkerLost),
        (Stage::Call, of(ErrorKind::Poisoned), FindingKind::WorkerLost),
        (Stage::Call, oom(), FindingKind::OutOfMemory),
        (Stage::Call, of(ErrorKind::Decode), FindingKind::Result),
        (Stage::Call, of(ErrorKind::Encode), FindingKind::Result),
        (Stage::Call, of(ErrorKind::Payload), FindingKind::Payload),
        (Stage::Call, of(ErrorKind::Argument), FindingKind::Payload),
        (Stage::Call, of(ErrorKind::InvalidSpec), FindingKind::Refused),
        (Stage::Call, of(ErrorKind::Protocol), FindingKind::Other),
        (Stage::End, of(ErrorKind::Timeout), FindingKind::Cleanup),
        (Stage::End, of(ErrorKind::Provider), FindingKind::Cleanup),
    ];
    for (stage, error, kind) in table {
        let finding = only(vec![failure(stage, &[0], error.clone())], &[]);
        assert_eq!(finding.kind, kind, "{stage:?}: {error}");
        assert!(!finding.hint.is_empty() && !finding.is_hint() && finding.error.is_some(), "{finding}");
        assert!(finding.message.contains(error.message()), "{finding}");
    }
}

#[test]
fn the_same_failure_on_several_ranks_is_one_finding() {
    let same: Vec<_> = [2, 0, 1].map(|rank| failure(Stage::Call, &[rank], raised("ValueError", rank))).into();
    let finding = only(same, &[]);
    assert_eq!(finding.ranks, [Rank(0), Rank(1), Rank(2)]);
    assert_eq!(finding.message, "the payload raised ValueError on ranks 0 to 2: no");
    let lines: Vec<String> = finding.to_string().lines().map(str::to_owned).collect();
    assert_eq!(
        lines[..2],
        [
            "raised, ranks 0 to 2: the payload raised ValueError on ranks 0 to 2: no",
            "Traceback (most recent call last):"
        ]
    );
    assert!(lines.len() == 4 && lines[3].starts_with("hint: the traceback shows where"), "{lines:?}");
    let differing = vec![
        failure(Stage::Call, &[1], raised("ValueError", 1)),
        failure(Stage::Call, &[0], raised("ConnectionError", 0)),
    ];
    let found = findings(differing, &[]);
    assert_eq!(found.iter().map(|one| one.ranks.clone()).collect::<Vec<_>>(), [[Rank(1)], [Rank(0)]], "in their order");
}

#[test]
fn only_the_worker_that_ended_its_world_is_named() {
    let error = ended(1, WorkerExit::Code(9));
    let exits = [(Rank(1), WorkerExit::Code(9))];
    let world = [0, 1, 2].map(|rank| failure(Stage::Call, &[rank], error.clone()));
    assert_eq!(only(world.to_vec(), &exits).ranks, [Rank(1)]);
    // The task of rank 1 may have been given up before, so that its failure is not in the list.
    assert_eq!(only(world[..1].to_vec(), &exits).ranks, [Rank(1)]);
    // Without a world, each rank has an end of its own.
    let each = [0, 1].map(|rank| failure(Stage::Call, &[rank], ended(rank, WorkerExit::Code(9)))).to_vec();
    let exits = [(Rank(1), WorkerExit::Code(9)), (Rank(0), WorkerExit::Code(9))];
    let found = findings(each, &exits);
    assert_eq!(found.iter().map(|one| one.ranks.clone()).collect::<Vec<_>>(), [[Rank(0)], [Rank(1)]]);
}

#[test]
fn an_exception_is_reported_only_for_the_rank_that_raised_it() {
    let error = raised("ValueError", 1);
    let found = only([1, 0].map(|rank| failure(Stage::Call, &[rank], error.clone())).to_vec(), &[]);
    assert_eq!(found.ranks, [Rank(1)]);
}

#[test]
fn an_error_before_a_retry_names_the_rank_of_its_exception() {
    let finding = only(vec![failure(Stage::Call, &[], raised("ValueError", 3))], &[]);
    assert_eq!(finding.ranks, vec![Rank(3)]);
    assert_eq!(finding.message.as_str(), "the payload raised ValueError on rank 3: no");
}

#[test]
fn a_stall_reports_where_each_rank_was_and_does_not_name_the_limits_of_the_pool() {
    let text = "Current thread 0x1 (most recent call first):\n  File \"a.py\", line 5 in meet\n";
    let stacks = [0, 1].map(|rank| RankStacks::new(Rank(rank), text, 1000)).to_vec();
    let error = Error::stalled(Duration::from_secs(60), stacks);
    let finding = only([0, 1].map(|rank| failure(Stage::Call, &[rank], error.clone())).to_vec(), &[]);
    assert_eq!(finding.message, "no progress for 60s: rank 0 was in `meet` (a.py:5), rank 1 was in `meet` (a.py:5)");
    assert_eq!(finding.ranks.len(), 2);
    assert_eq!(finding.stacks().len(), 2);
    assert!(finding.hint.contains("RehearsalLimits::stall") && !finding.hint.contains("`Limits::stall`"), "{finding}");
    assert!(finding.to_string().contains("\nstacks of rank 0, 1:\n  Current thread"), "{finding}");
}

#[test]
fn hints_say_what_to_do_in_a_rehearsal() {
    let hint = |stage, error| only(vec![failure(stage, &[], error)], &[]).hint;
    let said = Error::new(ErrorKind::InvalidSpec, "it cannot be").with_hint("do that");
    assert_eq!(hint(Stage::Declared, said.clone()), "do that");
    assert!(hint(Stage::Rehearsed, said).starts_with("do that\na rehearsal has one worker on each"));
    let missing = raised("ModuleNotFoundError", 0);
    assert!(!hint(Stage::Call, missing.clone()).contains("add"));
    assert_eq!(hint(Stage::Call, missing.with_hint("name the folder")), "name the folder");
    assert!(hint(Stage::Call, ended(0, WorkerExit::OutOfMemory)).contains("memory of this host"));
}

#[test]
fn ranks_are_formatted_briefly() {
    for (ranks, text) in [
        (&[1][..], "rank 1"),
        (&[0, 1], "ranks 0, 1"),
        (&[0, 1, 2, 3], "ranks 0 to 3"),
        (&[0, 2, 3], "ranks 0, 2, 3"),
        (&[], "ranks "),
    ] {
        assert_eq!(of_ranks(&ranks.iter().copied().map(Rank).collect::<Vec<_>>()), text);
    }
}

#[test]
fn a_rehearsal_is_clean_if_it_returned_and_has_only_hints() {
    let hint = Finding {
        kind: FindingKind::NoGang,
        ranks: Vec::new(),
        message: "each by itself".into(),
        hint: "add a plugin".into(),
        error: None,
    };
    let mut rehearsal = Rehearsal {
        entry: "train".into(),
        ranks: 2,
        devices: 1,
        findings: vec![hint],
        results: Some(vec![1, 2]),
        start_took: Some(Duration::from_millis(1200)),
        run_took: Some(Duration::from_secs(3)),
        pool: None,
    };
    assert!(rehearsal.is_clean());
    assert_eq!(
        rehearsal.to_string(),
        "rehearsal of `train` on 2 ranks × 1 device: no problem was found\nready after 1.2s, ran for 3.0s\n\n\
         1. no gang: each by itself\n   hint: add a plugin"
    );
    rehearsal.findings.insert(0, only(vec![failure(Stage::Call, &[1], raised("ValueError", 1))], &[]));
    assert!(!rehearsal.is_clean());
    assert!(
        rehearsal.to_string().contains(": 1 problem\n") && rehearsal.to_string().contains("\n   Traceback"),
        "{rehearsal}"
    );
    (rehearsal.findings, rehearsal.results) = (Vec::new(), None);
    assert!(!rehearsal.is_clean(), "nothing returned");
}
