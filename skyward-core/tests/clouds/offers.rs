//! The machines that a pool buys when offers are refused.

use std::time::Duration;

use skyward_core::compute::{ComputePool, PoolPhase};
use skyward_core::error::{ErrorKind, Refusal};
use skyward_core::event::PoolEvent;
use skyward_core::ids::NodeIndex;
use skyward_core::payload::Target;
use skyward_core::plugin::plugin;
use skyward_core::pool::Pool;
use skyward_core::provider::{Architecture, Market};
use skyward_core::spec::Image;
use skyward_core::testkit::fake_provider::{Death, Turn};
use tokio::time::Instant;

use super::cloud::{Cloud, all, offer, task, tried};

const SHUTDOWN: Duration = Duration::from_secs(60);

fn three() -> Cloud {
    Cloud { offers: vec![offer("a", "1", 6.0), offer("b", "1", 6.0), offer("c", "1", 6.0)], ..Cloud::default() }
}

#[tokio::test(start_paused = true)]
async fn after_an_offer_without_capacity_the_next_is_tried_and_the_first_not_for_minutes() {
    let cloud = Cloud { refusal: |offer, _| (offer == "a").then_some(Refusal::Capacity), ..three() };
    let provider = cloud.provider();
    let pool = Pool::builder().provider(provider.clone()).nodes(1).start().await.unwrap();
    let events = tokio::spawn(all(pool.events()));
    assert_eq!(tried(&provider), ["a", "b"]);
    assert_eq!(provider.machines()[0].launch.as_str(), format!("{}-n0-a2", pool.id()), "each try has an id of its own");
    pool.resize(2).await.unwrap();
    assert_eq!(tried(&provider), ["a", "b", "b"], "the refusal is remembered");
    tokio::time::sleep(Duration::from_secs(301)).await;
    pool.resize(3).await.unwrap();
    assert_eq!(tried(&provider)[3..], ["a", "b"]);
    task(1).run(&pool).await.unwrap();
    pool.shutdown(SHUTDOWN).await.unwrap();
    let refused =
        events.await.unwrap().iter().filter(|event| matches!(***event, PoolEvent::OfferRefused { .. })).count();
    assert_eq!(refused, 1, "the first refusal came before the test listened");
    assert!(provider.machines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn when_all_offers_are_refused_the_error_lists_each_with_its_reason() {
    let refusal = |offer: &str, _| {
        Some(match offer {
            "a" => Refusal::Capacity,
            "b" => Refusal::NotOffered,
            _ => Refusal::Quota("C instances".to_owned()),
        })
    };
    let provider = Cloud { refusal, ..three() }.provider();
    let error = Pool::builder().provider(provider.clone()).nodes(2).start().await.unwrap_err();
    let text = format!("{error:#}");
    for part in ["a in 1: no capacity", "b in 1: not offered", "c in 1: the quota C instances is used up"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(error.refusal().is_some());
    assert_eq!(provider.launched(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_used_up_quota_skips_its_offers_and_a_wrong_request_ends_the_search() {
    let offers = || vec![offer("a1", "1", 6.0), offer("a2", "1", 6.0), offer("b1", "1", 6.0)];
    let quota = |offer: &str, _| (offer == "a1").then(|| Refusal::Quota("a".to_owned()));
    let provider = Cloud { offers: offers(), refusal: quota, ..Cloud::default() }.provider();
    let pool = Pool::builder().provider(provider.clone()).start().await.unwrap();
    assert_eq!(tried(&provider), ["a1", "b1"]);
    pool.shutdown(SHUTDOWN).await.unwrap();
    for refusal in [(|_, _| Some(Refusal::Misconfigured)) as fn(&str, u32) -> _, |_, _| Some(Refusal::Denied)] {
        let provider = Cloud { offers: offers(), refusal, ..Cloud::default() }.provider();
        let error = Pool::builder().provider(provider.clone()).start().await.unwrap_err();
        assert_eq!(tried(&provider), ["a1"], "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_throttles_is_asked_again_after_the_time_it_names() {
    let refusal = |_: &str, call| (call < 10).then_some(Refusal::Throttled(Some(Duration::from_secs(20))));
    let provider = Cloud { refusal, ..Cloud::default() }.provider();
    let began = Instant::now();
    let pool = Pool::builder().provider(provider.clone()).start().await.unwrap();
    assert_eq!(tried(&provider).len(), 11);
    assert_eq!(provider.launched(), 1);
    assert!(began.elapsed() >= Duration::from_secs(200), "{:?}", began.elapsed());
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_launch_never_answered_is_found_in_the_providers_list() {
    let launch = |_, call| if call < 20 { Turn::Never } else { Turn::Works(Duration::ZERO) };
    let provider = Cloud { launch, ..three() }.provider();
    let pool = Pool::builder().provider(provider.clone()).start().await.unwrap();
    assert_eq!(provider.launched(), 1);
    assert_eq!(provider.machines().len(), 1);
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn later_machines_have_the_architecture_of_the_first() {
    let mut cloud = three();
    for (offer, architecture) in
        cloud.offers.iter_mut().zip([Architecture::Aarch64, Architecture::X86_64, Architecture::Aarch64])
    {
        offer.architecture = Some(architecture);
    }
    // The first offer is sold out after the first machine.
    cloud.refusal = |offer, call| (offer == "a" && call > 0).then_some(Refusal::Capacity);
    let provider = cloud.provider();
    let pool = Pool::builder().provider(provider.clone()).nodes(3).start().await.unwrap();
    assert_eq!(tried(&provider).iter().filter(|tried| *tried == "b").count(), 0, "{:?}", tried(&provider));
    assert_eq!(provider.machines().iter().filter(|machine| machine.offer.as_str() == "c").count(), 2);
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_world_is_bought_with_one_offer_and_machines_of_a_partial_launch_are_released() {
    // The first offer has two machines, and the world needs three.
    let cloud = Cloud { refusal: |offer, call| (offer == "a" && call >= 2).then_some(Refusal::Capacity), ..three() };
    let provider = cloud.provider();
    let world = Pool::builder().provider(provider.clone()).nodes(3).plugin(plugin("world").joins_world());
    let pool = world.start().await.unwrap();
    assert_eq!(provider.launched(), 5);
    assert!(provider.machines().iter().all(|machine| machine.offer.as_str() == "b"), "{:?}", provider.machines());
    task(1).broadcast(&pool).await.unwrap();
    let spent = pool.status().spent;
    assert!((spent.usd_per_hour - 18.0).abs() < 1e-6, "{spent:?}");
    pool.shutdown(SHUTDOWN).await.unwrap();
    assert!(provider.machines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_machine_is_replaced_once_a_refused_offer_may_be_tried_again() {
    let cloud = Cloud {
        refusal: |_, call| (1..3).contains(&call).then_some(Refusal::Capacity),
        death: |_, machine| (machine == 0).then_some((Duration::from_secs(60), Death::Machine)),
        ..Cloud::default()
    };
    let provider = cloud.provider();
    let pool = Pool::builder().provider(provider.clone()).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let waits = format!("{:?}", pool.status().waiting_for);
    task(1).run(&pool).await.unwrap();
    assert_eq!(provider.launched(), 2, "{waits}");
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_market_orders_the_offers_and_a_plan_tries_none_of_them() {
    let offers = vec![offer("a", "1", 6.0), offer("b", "1", 2.0), offer("c", "1", 3.0).spot(true)];
    let cloud = Cloud { offers, ..three() };
    let provider = cloud.provider();
    for (market, order) in [
        (Market::OnDemand, vec!["a", "b"]),
        (Market::Spot, vec!["c"]),
        (Market::SpotOrOnDemand, vec!["c", "a", "b"]),
        (Market::Cheapest, vec!["b", "c", "a"]),
    ] {
        let plan = Pool::builder().provider(provider.clone()).nodes(2).market(market).plan().await.unwrap();
        let ids: Vec<_> = plan.candidates.iter().map(|candidate| candidate.offer.id.as_str()).collect();
        assert_eq!(ids, order, "{market:?}");
        assert_eq!(plan.usd_per_hour, plan.first().unwrap().usd_per_hour.map(|price| price * 2.0));
        assert!(plan.to_string().ends_with("nothing was started"), "{plan}");
    }
    assert!(provider.tried().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_how_many_threads_a_library_has_in_a_worker() {
    let provider = three().provider();
    let threads = async |workers, image: Image| {
        let plan = Pool::builder().provider(provider.clone()).workers_per_node(workers).image(image);
        let plan = plan.plan().await.unwrap();
        assert_eq!(plan.threads.is_some(), plan.to_string().contains("\nthreads    "), "{plan}");
        plan.threads
    };
    assert_eq!(threads(1, Image::new()).await, None);
    assert_eq!(threads(2, Image::new()).await, Some(4));
    assert_eq!(threads(3, Image::new()).await, Some(2));
    assert_eq!(threads(99, Image::new()).await, Some(1));
    assert_eq!(threads(2, Image::new().env("OMP_NUM_THREADS", "7")).await, Some(7));
    assert_eq!(threads(2, Image::new().env("OMP_NUM_THREADS", "many")).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_pool_has_ended_when_its_machines_are_released_although_they_are_listed() {
    let provider = Cloud { lingers: Duration::from_secs(120), ..Cloud::default() }.provider();
    let pool = Pool::builder().provider(provider.clone()).nodes(2).start().await.unwrap();
    let (id, began) = (pool.id().clone(), Instant::now());
    pool.shutdown(SHUTDOWN).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let listed = || async { skyward_core::provider::Provider::list(&provider, &id).await.unwrap().len() };
    assert_eq!(provider.machines().len(), 0);
    assert_eq!(listed().await, 2);
    tokio::time::sleep(Duration::from_secs(121)).await;
    assert_eq!(listed().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_that_the_provider_does_not_replace_leaves_the_others_at_work() {
    const HOUR: Duration = Duration::from_secs(3600);
    // The last call of each kind is refused for good, or for a while.
    let refusals: [fn(&str, u32) -> Option<Refusal>; 4] = [
        |_, call| (call >= 2).then_some(Refusal::NotOffered),
        |_, call| (call >= 2).then_some(Refusal::Denied),
        |_, call| (call >= 2).then_some(Refusal::Misconfigured),
        |_, call| (2..20).contains(&call).then(|| Refusal::Quota("a".into())),
    ];
    for refusal in refusals {
        let death: fn(u32, u32) -> _ = |node, machine| (node == 1 && machine == 0).then_some((HOUR, Death::Machine));
        let provider = Cloud { refusal, death, ..Cloud::default() }.provider();
        let pool = Pool::builder().provider(provider.clone()).nodes(2).start().await.unwrap();
        let began = Instant::now();
        // Where the refusal passes, tasks that name the node wait for its machine.
        let (passes, mut named) = (refusal("a", 20).is_none(), vec![true]);
        while began.elapsed() < HOUR * 3 {
            task(200).run(&pool).await.unwrap();
            if passes {
                continue;
            }
            let of_the_lost = pool.submit(task(1).into_task().unwrap(), Target::Node(NodeIndex(1))).await.unwrap();
            let outcome = tokio::time::timeout(Duration::from_secs(120), of_the_lost.outcome()).await;
            named.push(outcome.expect("no task waits for a node that may never come").is_ok());
        }
        assert_eq!(named.contains(&false), !passes, "a task that names the node fails while it is lost");
        let status = pool.status();
        assert_eq!(status.phase, PoolPhase::Ready, "{:?}", status.failure);
        assert_eq!(provider.machines().len(), if passes { 2 } else { 1 }, "{:?}", refusal("a", 2));
        pool.shutdown(SHUTDOWN).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_only_node_the_provider_does_not_replace_fails_with_the_reason() {
    let cloud = Cloud {
        refusal: |_, call| (call >= 1).then_some(Refusal::Denied),
        death: |_, machine| (machine == 0).then_some((Duration::from_secs(60), Death::Machine)),
        ..Cloud::default()
    };
    let provider = cloud.provider();
    let pool = Pool::builder().provider(provider.clone()).start().await.unwrap();
    let error = loop {
        if let Err(error) = task(1).run(&pool).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Failed, "{error:#}");
    assert!(format!("{error:?}").contains("a is not available"), "{error:?}");
    pool.shutdown(SHUTDOWN).await.unwrap();
}
