//! Providers whose faults take time, another value, or a failure of the service to show.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use skyward_core::ids::{MachineId, PoolId};
use skyward_core::provider::{PoolRequest, Provider};
use skyward_core::testkit::Violation;
use skyward_core::testkit::fake_provider::FakeProvider;
use skyward_core::testkit::fake_worker::Faultless;
use skyward_core::testkit::provider_suite::{self as suite, Service};
use tokio::time::Instant;

use super::Folder;
use super::center::Center;
use super::cloud::{Cloud, Fault};

/// The center as the tests see and control it, and a provider of another one.
#[derive(Debug)]
struct Scene {
    center: Arc<Center>,
    elsewhere: Cloud,
}

impl Scene {
    fn new(fault: Fault) -> Self {
        let center = || Arc::new(Center::new(Folder::new().0.clone()));
        Self { center: center(), elsewhere: Cloud::new(&center(), fault, 2) }
    }

    /// The provider, and another value of it.
    fn clouds(&self, fault: Fault) -> (Cloud, Cloud) {
        (Cloud::new(&self.center, fault, 0), Cloud::new(&self.center, fault, 1))
    }
}

#[async_trait]
impl Service for Scene {
    async fn leftovers(&self, pool: &PoolId) -> Option<Vec<String>> {
        let machines = self.center.all().into_iter().filter(|rented| rented.machine.pool == *pool);
        let prepared = self.center.pools().into_keys().filter(|prepared| prepared == pool);
        Some(
            machines.map(|rented| rented.machine.id.to_string()).chain(prepared.map(|pool| pool.to_string())).collect(),
        )
    }

    async fn fail(&self, fails: bool) -> bool {
        self.center.fail(fails);
        true
    }

    async fn limit(&self, machines: Option<u32>) -> bool {
        self.center.limit(machines);
        true
    }

    async fn hold(&self, holds: bool) -> bool {
        self.center.hold(holds);
        true
    }

    async fn preempt(&self, machine: &MachineId, ends_in: Duration) -> bool {
        self.center.change(machine, |rented| rented.preempted = Some(Instant::now() + ends_in));
        true
    }

    fn elsewhere(&self) -> Option<Arc<dyn Provider>> {
        Some(Arc::new(self.elsewhere.clone()))
    }
}

/// Checks that each clause finds a fault, says which, and cites the contract, and that it holds
/// without one: also where lists are late, within the time that the provider asks for.
macro_rules! finds {
    ($($fault:ident => $clause:ident($($more:ident),*): $words:literal),+ $(,)?) => {
        $({
            let check = async |fault: Fault| {
                let scene = Scene::new(fault);
                #[allow(unused_variables, reason = "not each clause takes all of them")]
                let ((provider, again), service) = (scene.clouds(fault), &scene);
                suite::$clause(&provider $(, at!($more, again, service))*).await
            };
            let violation = check(Fault::$fault).await.expect_err(stringify!($fault));
            is(&violation, stringify!($clause), $words);
            for fault in [Fault::None, Fault::LateList] {
                check(fault).await.unwrap_or_else(|violation| panic!("{fault:?}: {violation}"));
            }
        })+
    };
}

macro_rules! at {
    (again, $again:ident, $service:ident) => {
        &$again
    };
    (service, $again:ident, $service:ident) => {
        $service
    };
}

#[track_caller]
fn is(violation: &Violation, clause: &str, words: &str) {
    assert_eq!(violation.clause, clause, "{violation}");
    assert!(violation.found.contains(words), "{violation}");
    assert!(violation.to_string().ends_with(&format!("(the contract of `Provider`: \"{}\")", violation.contract)));
}

#[tokio::test(start_paused = true)]
async fn machines_that_appear_after_a_dropped_launch_are_found() {
    finds! {
        LateDrop => dropped_launch_is_listed(): "within `settles_in`, 400ms",
        LateDropNearTheEnd => dropped_launch_is_listed(): "after the begin of a launch of",
        LateDropOfTheSecond => dropped_launch_is_listed(): "a launch of 2 machines",
        LateDropBySeconds => dropped_launch_is_listed(): "did not have the machine",
        DropIsForgotten => dropped_launch_is_listed(): "has started two machines",
        RecordedLater => dropped_launch_leaves_nothing(service): "the service still has",
        ListBeyondSettling => list_finds_what_was_launched(): "must have them within `settles_in`, 400ms",
    }
}

#[tokio::test(start_paused = true)]
async fn places_that_change_are_found() {
    finds! {
        FlipsAfterMoments => places_are_given(): "must be there for its whole life",
        FlipsAfterSeconds => places_are_given(): "must be there for its whole life",
        FlipsAfterConnect => places_are_given(): ", after `connect`,",
        PlaceOfMemory => values_are_one_provider(again): "another value reports it",
    }
}

#[tokio::test(start_paused = true)]
async fn guesses_while_the_service_fails_are_found() {
    finds! {
        SwallowsErrors => failures_are_told(service): "`terminate` of the machine",
        EmptyListOnFailure => failures_are_told(service): "`list` must fail",
        NoPoolsOnFailure => failures_are_told(service): "`pools` must fail",
        GoneOnFailure => failures_are_told(service): "`inspect` must fail or report `Unknown`",
        TornDownOnFailure => failures_are_told(service): "`teardown` returned `Ok`",
    }
}

// The clause runs commands, for which no paused clock waits.
#[tokio::test]
async fn pools_that_are_not_taken_over_are_found() {
    finds! {
        AdoptsWithoutKeys => adopt_takes_over(again): "another process has the keys",
        AdoptEndsMachines => adopt_takes_over(again): "after `adopt` [] are listed",
        RefusesToAdoptForNow => adopt_takes_over(again): "must refuse `adopt` for good",
    }
}

#[tokio::test(start_paused = true)]
async fn batches_whose_machines_share_a_fate_are_found() {
    finds! {
        BatchOfOneKind => batches_have_a_result_for_each(service): "there are no machines left",
        BatchIsRefusedWhole => batches_have_a_result_for_each(service): "the service had one machine",
        GoneSpoilsTheBatch => batches_have_a_result_for_each(service): "one of the machines is not known",
    }
}

#[tokio::test(start_paused = true)]
async fn gangs_in_part_and_machines_that_leave_the_queue_wrongly_are_found() {
    finds! {
        PartOfGang => gangs_are_whole(service): "none may be launched",
        GangEndsTogether => gang_machines_end_alone(): "must run on",
        HidesQueued => queued_machines_wait(service): "must be listed",
        QueuedIsGone => queued_machines_wait(service): "must be reported as queued",
        QueuedStartsAgain => queued_machines_wait(service): "must not start later",
    }
}

#[tokio::test(start_paused = true)]
async fn ends_that_are_told_wrongly_or_not_are_found() {
    finds! {
        NoNotice => preemptions_are_told(service): "`inspect` must tell before that it is preempted: it told nothing",
        SilentWatch => preemptions_are_told(service): "the watch command of its place must tell before",
        EndsEarly => ends_in_is_true(): "it ended too early",
        EndsNever => ends_in_is_true(): "it did not end",
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_identities_and_ids_are_found() {
    finds! {
        SameIdentity => identities_differ(service): "must have another identity",
        OtherIdentity => identity_stays_the_same(again): "to another value",
        ReusesIds => ids_are_not_used_again(): "must have an id of its own",
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_comes_back_is_found() {
    let scene = Scene::new(Fault::None);
    let (cloud, pool) = (scene.clouds(Fault::None).0, PoolId::random());
    suite::nothing_is_left(&cloud, &scene, std::slice::from_ref(&pool)).await.unwrap();
    cloud.prepare(&PoolRequest::new(pool.clone(), Duration::from_secs(60))).await.unwrap();
    let violation = suite::nothing_is_left(&cloud, &scene, &[pool]).await.unwrap_err();
    is(&violation, "nothing_is_left", "`pools` may not list it again");
}

/// Its machines run no commands, so the clauses that need one are left out.
#[tokio::test(start_paused = true)]
async fn the_fake_provider_meets_its_contract() {
    let fake = FakeProvider::new(Arc::new(Faultless));
    macro_rules! holds {
        ($($clause:ident),+ $(,)?) => {
            $(suite::$clause(&fake).await.unwrap();)+
        };
    }
    holds! {
        name_is_one_word,
        offers_meet_the_requirements,
        launch_answers_its_request,
        launch_is_idempotent,
        launches_differ,
        ids_are_not_used_again,
        dropped_launch_is_listed,
        inspect_answers_in_order,
        inspect_does_not_give_up_a_new_machine,
        places_are_given,
        list_finds_what_was_launched,
        ends_in_is_true,
        terminate_is_idempotent,
        terminate_may_come_early,
        terminate_is_seen,
        terminate_ends_each,
        prepare_is_repeatable,
        teardown_is_idempotent,
        teardown_leaves_other_pools,
    }
    suite::identity_stays_the_same(&fake, &fake.clone()).await.unwrap();
    suite::pools_lists_what_is_there(&fake, &fake.clone()).await.unwrap();
    suite::values_are_one_provider(&fake, &fake.clone()).await.unwrap();
}

#[tokio::test]
async fn a_provider_without_faults_meets_its_contract() {
    let scene = Scene::new(Fault::LateList);
    let (cloud, again) = scene.clouds(Fault::LateList);
    suite::all_with(&cloud, &again, &scene).await.unwrap();
}
