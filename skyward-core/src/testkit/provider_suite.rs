//! The contract of [`Provider`], one function for each clause.
//!
//! Clones of the value under test must be the same provider; wrap a provider that cannot be cloned
//! in an `Arc`. The suite connects to machines as a pool does: it repeats a `connect` that fails with
//! a temporary error.
//!
//! Each function starts its own pools under fresh ids, and ends everything that it started, also
//! when the clause does not hold. The machines are real ones of the provider under test: with a
//! provider that costs money, the whole suite costs about thirty short-lived machines.
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

mod ends;
mod identities;
mod launches;
mod names;
mod pools;
mod reach;
mod reports;
mod trial;

pub use ends::{
    gone_leaves_nothing, keeper_ends_the_machine, keeper_ends_the_machine_at_its_time, terminate_ends_each,
    terminate_ends_what_runs, terminate_is_idempotent, terminate_is_seen, terminate_may_come_early,
};
pub use identities::{identity_stays_the_same, parts_have_their_machines};
pub use launches::{
    dropped_launch_is_listed, launch_answers_its_request, launch_is_idempotent, launch_is_not_memory, launches_differ,
    list_finds_what_was_launched, list_is_not_memory,
};
pub use names::{
    name_is_one_word, offers_meet_the_requirements, prepare_is_repeatable, teardown_is_idempotent,
    teardown_leaves_other_pools,
};
pub use pools::pools_lists_what_is_there;
pub use reach::{connect_reaches_the_machine, connect_refuses_what_is_gone};
pub use reports::{inspect_answers_in_order, inspect_does_not_give_up_a_new_machine, places_are_given};
pub(super) use trial::{ask, require};

use self::trial::trial;
use super::remote_suite;
use super::violation::{Violation, report};
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
    let mut broken = Vec::new();
    let subject = provider.name().to_owned();
    macro_rules! check {
        ($($clause:ident),+ $(,)?) => {
            $(report(&subject, stringify!($clause), $clause(provider).await, &mut broken);)+
        };
    }
    check!(
        name_is_one_word,
        offers_meet_the_requirements,
        launch_answers_its_request,
        launch_is_idempotent,
        launches_differ,
        dropped_launch_is_listed,
        inspect_answers_in_order,
        inspect_does_not_give_up_a_new_machine,
        places_are_given,
        list_finds_what_was_launched,
        parts_have_their_machines,
    );
    report(&subject, "identity_stays_the_same", identity_stays_the_same(provider, again).await, &mut broken);
    report(&subject, "launch_is_not_memory", launch_is_not_memory(provider, again).await, &mut broken);
    report(&subject, "list_is_not_memory", list_is_not_memory(provider, again).await, &mut broken);
    report(&subject, "pools_lists_what_is_there", pools_lists_what_is_there(provider, again).await, &mut broken);
    check!(
        terminate_is_idempotent,
        terminate_may_come_early,
        terminate_is_seen,
        terminate_ends_each,
        terminate_ends_what_runs,
        gone_leaves_nothing,
        keeper_ends_the_machine,
        keeper_ends_the_machine_at_its_time,
        prepare_is_repeatable,
        teardown_is_idempotent,
        teardown_leaves_other_pools,
        connect_reaches_the_machine,
        connect_refuses_what_is_gone,
    );
    let on_machine = trial("connect_reaches_the_machine", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let (remote, place) = (trial.connect(&machine).await?, trial.there(&machine).await?);
        remote_suite::all(&*remote, &place.folder, &mut broken).await;
        Ok(())
    })
    .await;
    broken.extend(on_machine.err());
    if broken.is_empty() { Ok(()) } else { Err(broken) }
}
