//! The contract of [`Provider`], one function for each clause.
//!
//! Clones of the value under test must be the same provider; wrap a provider that cannot be cloned
//! in an `Arc`. The suite connects to machines as a pool does: it repeats a `connect` that fails with
//! a temporary error.
//!
//! Each function starts its own pools under fresh ids, and ends everything that it started, also
//! when the clause does not hold. The machines are real ones of the provider under test: with a
//! provider that costs money, the whole suite costs about seventy short-lived machines.
//!
//! Some faults cannot be seen through the provider: a machine that no list shows, or an error that
//! is swallowed while the service fails. [`all_with`] takes a [`Service`], by which the tests of a
//! provider count what is really there and make the service fail. [`all`] leaves these clauses out.
//!
//! A provider is given the time that it asks for: what `launch` starts must be listed within
//! [`settles_in`](crate::provider::Capabilities::settles_in). Where the suite looks for what must
//! not happen, it looks longer than that.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # use skyward_core as skyward;
//! use skyward::provider::Local;
//! use skyward::testkit::provider_suite;
//!
//! provider_suite::list_finds_what_was_launched(&Local::new()).await.unwrap();
//! # }
//! ```

mod adopts;
mod batches;
pub(super) mod contract;
mod drops;
mod ends;
mod failures;
mod gangs;
mod identities;
mod launches;
mod left;
mod names;
mod notices;
mod pools;
mod queue;
mod reach;
mod recorded;
mod reports;
mod service;
mod timing;
mod trial;

pub use adopts::adopt_takes_over;
pub use batches::batches_have_a_result_for_each;
pub use drops::{dropped_launch_is_listed, dropped_launch_leaves_nothing};
pub use ends::{
    gone_leaves_nothing, keeper_ends_the_machine, keeper_ends_the_machine_at_its_time, terminate_ends_each,
    terminate_ends_what_runs, terminate_is_idempotent, terminate_is_seen, terminate_may_come_early,
};
pub use failures::failures_are_told;
pub use gangs::{gang_machines_end_alone, gangs_are_whole};
pub use identities::{identities_differ, identity_stays_the_same, parts_have_their_machines, values_are_one_provider};
pub use launches::{
    ids_are_not_used_again, launch_answers_its_request, launch_is_idempotent, launch_is_not_memory, launches_differ,
    list_finds_what_was_launched, list_is_not_memory,
};
pub use left::nothing_is_left;
pub use names::{
    name_is_one_word, offers_meet_the_requirements, prepare_is_repeatable, teardown_is_idempotent,
    teardown_leaves_other_pools,
};
pub use notices::{ends_in_is_true, preemptions_are_told};
pub use pools::{launch_needs_no_memory, pools_lists_what_is_there};
pub use queue::queued_machines_wait;
pub use reach::{connect_reaches_the_machine, connect_refuses_what_is_gone};
pub use reports::{inspect_answers_in_order, inspect_does_not_give_up_a_new_machine, lived_is_true, places_are_given};
pub use service::{Service, Unseen};
pub(super) use trial::{ask, require};

use self::recorded::Recorded;
use self::trial::trial;
use super::remote_suite;
use super::violation::{Violation, report};
use crate::ids::PoolId;
use crate::provider::Provider;

/// Checks every clause, those of [`Remote`](crate::remote::Remote) on one of the provider's
/// machines included, and prints a line for each. `again` is another value of the same provider, as
/// another process would make it.
///
/// # Errors
///
/// A [`Violation`] for each clause that does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines of one clause; the provider's `list` finds them.
pub async fn all(provider: &(impl Provider + Clone), again: &(impl Provider + Clone)) -> Result<(), Vec<Violation>> {
    all_with(provider, again, &Unseen).await
}

/// Checks every clause as [`all`] does, and those that need to see or control the service behind
/// the provider.
///
/// # Errors
///
/// A [`Violation`] for each clause that does not hold.
///
/// # Cancel safety
///
/// As [`all`]. The service may also stay as a clause has set it.
pub async fn all_with(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
    service: &dyn Service,
) -> Result<(), Vec<Violation>> {
    let (provider, again) = (&Recorded::new(provider.clone()), &again.clone());
    let mut broken = Vec::new();
    let subject = provider.name().to_owned();
    macro_rules! check {
        ($($values:tt $($clause:ident),+;)+) => {
            $($(report(&subject, stringify!($clause), $clause $values.await, &mut broken);)+)+
        };
    }
    check! {
        (provider) name_is_one_word, offers_meet_the_requirements, launch_answers_its_request, launch_is_idempotent,
            launches_differ, ids_are_not_used_again, inspect_answers_in_order,
            inspect_does_not_give_up_a_new_machine, places_are_given, list_finds_what_was_launched,
            parts_have_their_machines;
        (provider, again) identity_stays_the_same, values_are_one_provider, launch_is_not_memory, list_is_not_memory,
            pools_lists_what_is_there, launch_needs_no_memory, adopt_takes_over;
        (provider, service) identities_differ, failures_are_told, batches_have_a_result_for_each, gangs_are_whole,
            queued_machines_wait, preemptions_are_told;
        (provider) gang_machines_end_alone, ends_in_is_true, lived_is_true, terminate_is_idempotent, terminate_may_come_early,
            terminate_is_seen, terminate_ends_each, terminate_ends_what_runs, gone_leaves_nothing,
            keeper_ends_the_machine, keeper_ends_the_machine_at_its_time, prepare_is_repeatable,
            teardown_is_idempotent, teardown_leaves_other_pools, connect_reaches_the_machine,
            connect_refuses_what_is_gone;
    }
    match service.leftovers(&PoolId::random()).await {
        Some(_) => {
            check! { (provider, service) dropped_launch_leaves_nothing; }
        }
        None => {
            check! { (provider) dropped_launch_is_listed; }
        }
    }
    let on_machine = trial("connect_reaches_the_machine", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let (remote, place) = (trial.connect(&machine).await?, trial.there(&machine).await?);
        remote_suite::all(&*remote, &place.folder, &mut broken).await;
        Ok(())
    })
    .await;
    broken.extend(on_machine.err());
    let left = nothing_is_left(provider, service, &provider.prepared()).await;
    report(&subject, "nothing_is_left", left, &mut broken);
    if broken.is_empty() { Ok(()) } else { Err(broken) }
}
