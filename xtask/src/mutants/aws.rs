//! The mutants of the provider of EC2.

use super::Mutant;
use super::Test::{EndToEnd, Unit};

/// Each breaks what keeps a machine from being paid for in vain, or from being open to others.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "launches-are-not-recorded",
        file: "skyward-aws/src/launch.rs",
        text: "if !pool.begin(&call) {",
        instead: "if pool.made(&call.requests[0].launch).is_some() {",
        test: EndToEnd("once::a_launch_that_is_dropped_before_its_answer_is_repeated_by_the_same_call"),
    },
    Mutant {
        name: "launches-are-recorded-after-the-call",
        file: "skyward-aws/src/launch.rs",
        text: "    if !pool.begin(&call) {
        return Ok(None);
    }
    answers.extend(run(clients, options, pool, &call).await);
",
        instead: "    answers.extend(run(clients, options, pool, &call).await);
    if !pool.begin(&call) {
        return Ok(None);
    }
",
        test: EndToEnd("once::a_launch_that_is_dropped_before_its_answer_is_repeated_by_the_same_call"),
    },
    Mutant {
        name: "answered-machines-are-not-recorded",
        file: "skyward-aws/src/pool.rs",
        text: "state.made.insert(machine.launch.clone(), machine.clone());",
        instead: "",
        test: EndToEnd("once::a_launch_that_was_answered_is_not_made_again_while_its_machine_is_not_listed"),
    },
    Mutant {
        name: "another-processs-launch-is-a-failure",
        file: "skyward-aws/src/doubt.rs",
        text: "let is_others = failure.has_code(\"IdempotentParameterMismatch\");",
        instead: "let is_others = failure.has_code(\"\");",
        test: EndToEnd("once::a_launch_that_another_process_has_made_returns_its_machine_as_soon_as_it_is_listed"),
    },
    Mutant {
        name: "a-refused-token-is-used-again",
        file: "skyward-aws/src/call.rs",
        text: "while pool.was_refused(&token) {",
        instead: "while pool.was_refused(&token) && token.is_empty() {",
        test: EndToEnd("once::a_call_that_named_something_that_is_gone_is_followed_by_one_with_another_token"),
    },
    Mutant {
        name: "a-machine-that-is-not-listed-is-gone",
        file: "skyward-aws/src/aws.rs",
        text: "let settled = known.is_some() || clock::since(first) >= LISTED_LATE;",
        instead: "let settled = known.is_some() || clock::since(first) < LISTED_LATE * 1000;",
        test: EndToEnd("once::a_machine_of_another_process_that_is_not_listed_is_not_gone_before_ec2_must_list_it"),
    },
    Mutant {
        name: "volumes-that-stay-are-not-reported",
        file: "skyward-aws/src/teardown.rs",
        text: "volume.state() == Some(&VolumeState::Available)",
        instead: "volume.state() == Some(&VolumeState::Error)",
        test: EndToEnd("once::a_volume_that_stays_is_named_with_the_command_that_removes_it"),
    },
    Mutant {
        name: "volumes-are-reported-before-ec2-deletes-them",
        file: "skyward-aws/src/teardown.rs",
        text: "staying.retain(|id| again.contains(id));",
        instead: "drop(again);",
        test: EndToEnd("once::a_volume_that_is_deleted_a_moment_after_its_instance_is_no_error"),
    },
    Mutant {
        name: "no-code-has-a-meaning",
        file: "skyward-aws/src/errors/codes.rs",
        text: "CODES.iter().find(|(known, _)| *known == code)",
        instead: "CODES.iter().find(|(known, _)| known.is_empty() && *known == code)",
        test: EndToEnd("refusals::a_launch_is_refused_by_the_meaning_of_the_code"),
    },
    Mutant {
        name: "no-dry-run",
        file: "skyward-aws/src/launch.rs",
        text: "if pool.is_unchecked() {",
        instead: "if pool.is_unchecked() && options.subnets.len() > 99 {",
        test: TABLE,
    },
    Mutant {
        name: "spot-requests-are-persistent",
        file: "skyward-aws/src/call.rs",
        text: "SpotInstanceType::OneTime",
        instead: "SpotInstanceType::Persistent",
        test: TABLE,
    },
    Mutant {
        name: "spot-instances-are-stopped",
        file: "skyward-aws/src/call.rs",
        text: "InstanceInterruptionBehavior::Terminate",
        instead: "InstanceInterruptionBehavior::Stop",
        test: TABLE,
    },
    Mutant {
        name: "spot-requests-have-no-tags",
        file: "skyward-aws/src/call.rs",
        text: "tags::specification(ResourceType::SpotInstancesRequest, &self.tags)",
        instead: "tags::specification(ResourceType::SpotInstancesRequest, &Tags::new())",
        test: TABLE,
    },
    Mutant {
        name: "interfaces-have-no-tags",
        file: "skyward-aws/src/call.rs",
        text: "
            .tag_specifications(tags::specification(ResourceType::NetworkInterface, &self.tags))",
        instead: "",
        test: TABLE,
    },
    Mutant {
        name: "a-part-of-a-gang-is-launched",
        file: "skyward-aws/src/call.rs",
        text: "least: if all_or_none { count } else { 1 },",
        instead: "least: if all_or_none { count.min(1) } else { 1 },",
        test: TABLE,
    },
    Mutant {
        name: "further-disks-stay",
        file: "skyward-aws/src/call.rs",
        text: "EbsBlockDevice::builder().encrypted(true).delete_on_termination(true)",
        instead: "EbsBlockDevice::builder().encrypted(true).delete_on_termination(false)",
        test: TABLE,
    },
    Mutant {
        name: "a-shutdown-stops-the-instance",
        file: "skyward-aws/src/call.rs",
        text: "ShutdownBehavior::Terminate",
        instead: "ShutdownBehavior::Stop",
        test: TABLE,
    },
    Mutant {
        name: "machines-do-not-reach-each-other",
        file: "skyward-aws/src/network.rs",
        text: "allow(clients, &group, among).await?;",
        instead: "drop(among);",
        test: TABLE,
    },
    Mutant {
        name: "tags-are-not-renewed",
        file: "skyward-aws/src/lease.rs",
        text: "for some in resources.chunks(MOST) {",
        instead: "for some in resources.chunks(MOST).skip(MOST) {",
        test: TABLE,
    },
    Mutant {
        name: "nothing-ends-a-shutdown-that-hangs",
        file: "skyward-core/src/provider/scripts/keeper.sh",
        text: "attempt 'force_off &' || :",
        instead: ":",
        test: Unit("user_data::systemd::a_machine_powers_off_although_one_of_its_services_does_not_stop"),
    },
    Mutant {
        name: "what-ends-it-ends-with-the-keeper",
        file: "skyward-aws/src/scripts/keeper.service",
        text: "KillMode=process\n",
        instead: "KillMode=control-group\n",
        test: Unit("user_data::systemd::a_machine_powers_off_although_one_of_its_services_does_not_stop"),
    },
    Mutant {
        name: "an-orderly-shutdown-waits-for-what-would-end-it",
        file: "skyward-core/src/provider/scripts/keeper.sh",
        text: "    trap - TERM INT\n",
        instead: "    trap '' TERM INT\n",
        test: Unit("user_data::systemd::a_machine_whose_services_stop_powers_off_in_order"),
    },
];

/// The table of all parameters.
const TABLE: super::Test =
    EndToEnd("parameters::what_a_call_costs_or_opens_is_in_the_table_and_all_of_the_table_is_sent");
