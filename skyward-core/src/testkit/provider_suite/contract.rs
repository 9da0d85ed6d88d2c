//! Which line of the contract each clause checks.

/// The line of the contract of [`Provider`](crate::provider::Provider) that a clause checks, as the
/// trait's documentation has it; empty for a clause of another suite.
pub(in crate::testkit) fn of(clause: &str) -> &'static str {
    let line = LINES.iter().find(|(_, clauses)| clauses.contains(&clause));
    line.map_or("", |(line, _)| line)
}

/// The lines, without links, and the clauses that check them.
const LINES: &[(&str, &[&str])] = &[
    ("`name` is one word in lower case, and never changes.", &["name_is_one_word"]),
    (
        "`identity` is not empty, and stays the same for as long as the machines are the same.",
        &["identity_stays_the_same"],
    ),
    (
        "Two values with one identity are one provider: each lists, inspects and ends the machines of the other. \
         Providers with machines elsewhere have other identities.",
        &["values_are_one_provider", "identities_differ"],
    ),
    (
        "`parts` is empty, or each machine is in one of the parts, its id ends with `@` and the identity of that \
         part, and the `list` of that part has it.",
        &["parts_have_their_machines"],
    ),
    ("Every offer meets the requirements. What nobody has is not offered.", &["offers_meet_the_requirements"]),
    (
        "`launch` returns one result for each request of its batch, in order, with the launch id, pool, number and \
         offer of the request. Two numbers are two machines.",
        &["launch_answers_its_request", "launches_differ"],
    ),
    (
        "`launch` with the same `LaunchId` returns the same machine, however often it is called.",
        &["launch_is_idempotent", "launch_is_not_memory"],
    ),
    (
        "`launch` creates again what `prepare` created, where that is gone. The request has what that takes: the pool, \
         its owner, its lease and its labels.",
        &["launch_needs_no_memory"],
    ),
    ("A machine's id is never the id of another machine of its pool, also not later.", &["ids_are_not_used_again"]),
    (
        "Dropping the future of `launch` leaves at most machines that `list` finds within `Capabilities::settles_in`.",
        &["dropped_launch_is_listed", "dropped_launch_leaves_nothing"],
    ),
    (
        "With `Capabilities::batches`, the requests of a batch may differ in all but pool and offer, and may be partly \
         launched already; a machine that is refused or unknown changes no other result of its call.",
        &["batches_have_a_result_for_each"],
    ),
    (
        "With `Capabilities::gangs`, a batch that is all or none starts all of its machines or none, and each of them \
         ends alone.",
        &["gangs_are_whole", "gang_machines_end_alone"],
    ),
    (
        "`terminate` returns one result for each machine, in order. The result for an unknown or ended machine is \
         `Ok(())`. It may be called before `launch` has returned.",
        &["terminate_is_idempotent", "terminate_may_come_early", "terminate_ends_each"],
    ),
    (
        "When `terminate` has returned, `inspect` reports the machine as ending, released or gone, and soon as gone.",
        &["terminate_is_seen"],
    ),
    (
        "When a machine is gone, so are all processes and files on it, and it can no longer be reached.",
        &["terminate_ends_what_runs", "gone_leaves_nothing", "connect_refuses_what_is_gone"],
    ),
    ("`prepare` may be called more than once.", &["prepare_is_repeatable"]),
    (
        "With `Capabilities::adopts`, `adopt` makes the value as able to launch, list, inspect, reach, end and tear \
         down the machines of a pool as the one that prepared the pool, also in another process. It starts and ends \
         nothing, may be called more than once, and creates again what `prepare` created, where that is gone. Without \
         the capability, it fails, and the error is final.",
        &["adopt_takes_over"],
    ),
    (
        "`teardown` may be called more than once, and without `prepare` or `launch` having finished. It does not \
         touch other pools. After it, nothing of the pool is left but machines that are released. While such a \
         machine holds something, the error is temporary.",
        &["teardown_is_idempotent", "teardown_leaves_other_pools", "nothing_is_left"],
    ),
    (
        "`list` finds every live machine of a pool within `Capabilities::settles_in`, from the provider's own \
         records, not from this process's memory, with the values that `launch` returned. It returns no machine of \
         another pool.",
        &["list_finds_what_was_launched", "list_is_not_memory"],
    ),
    (
        "`pools` has every pool of which something is left, with its owner, to every process. A pool with a live \
         machine has not expired.",
        &["pools_lists_what_is_there"],
    ),
    ("`inspect` returns one report for each machine, in the given order.", &["inspect_answers_in_order"]),
    (
        "`inspect` gives each running machine a place, with an absolute folder of at most 60 bytes and an address, \
         and never another place later.",
        &["places_are_given"],
    ),
    (
        "`inspect` never reports `Gone` for a machine that may still be starting.",
        &["inspect_does_not_give_up_a_new_machine"],
    ),
    (
        "`inspect` reports a machine that is held back as `Queued`. Such a machine is listed, and can be ended.",
        &["queued_machines_wait"],
    ),
    (
        "Where the provider cannot be asked, no call guesses: `list`, `pools` and `teardown` fail, and `terminate` \
         fails for each machine of which it is not certain that it is ending.",
        &["failures_are_told"],
    ),
    ("A machine ends when the time that a report gives as `ends_in` is over, and not before.", &["ends_in_is_true"]),
    (
        "The time that a report gives as `lived` is the time from the launch of a machine until its end.",
        &["lived_is_true"],
    ),
    (
        "With `Capabilities::preemptible`, `inspect` reports that a machine is taken back before it is. So does a \
         `watch` command of the machine's place.",
        &["preemptions_are_told"],
    ),
    (
        "`connect` fails with a temporary error while the machine may still be starting.",
        &["connect_reaches_the_machine"],
    ),
    (
        "With `Capabilities::keeper`, a machine whose lease is not renewed ends by itself.",
        &["keeper_ends_the_machine", "keeper_ends_the_machine_at_its_time"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_in_the_documentation_of_the_trait() {
        let source = include_str!("../../provider/mod.rs");
        let words = source.lines().filter_map(|line| line.trim().strip_prefix("///"));
        let mut text = words.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        while let Some((before, rest)) = text.split_once('[') {
            let (shown, rest) = rest.split_once(']').unwrap();
            let rest = rest.strip_prefix('(').map_or(rest, |link| link.split_once(')').unwrap().1);
            text = format!("{before}{shown}{rest}");
        }
        for (line, _) in LINES {
            assert!(text.contains(line), "the documentation of `Provider` does not say: {line}");
        }
    }

    #[test]
    fn each_clause_has_its_line() {
        let source = include_str!("../provider_suite.rs");
        let exported = source.split("pub use ").skip(1).filter_map(|item| item.split_once(';')).map(|(item, _)| item);
        let names = exported.flat_map(|item| item.split(|c: char| !c.is_ascii_alphabetic() && c != '_'));
        let clauses: Vec<&str> = names.filter(|name| name.contains('_')).collect();
        assert!(clauses.len() > 35, "{clauses:?}");
        for clause in clauses {
            assert!(!of(clause).is_empty(), "{clause} checks no line of the contract");
        }
    }
}
