//! Machines that end before their pool does.

use std::time::Duration;

use indoc::indoc;
use skyward_core::compute::ComputePool;
use skyward_core::event::{DrainReason, PoolEvent};
use skyward_core::ids::NodeIndex;
use skyward_core::payload::Target;
use skyward_core::pool::Pool;
use skyward_core::provider::Market;
use skyward_core::spec::Budget;

use crate::scene::{PATIENCE, SEVEN, Scene, event, limits, python, until};

/// A task runs.
fn began(event: &PoolEvent) -> Option<()> {
    matches!(event, PoolEvent::TaskStarted { .. }).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn an_instance_that_somebody_terminates_is_replaced_and_its_task_is_tried_again() {
    let scene = Scene::new().await;
    let pool = scene.pool(1).start().await.unwrap();
    let mut events = pool.events();
    let call = python::<String>(indoc! {"
        import socket, time
        import skyward as sky

        def f():
            time.sleep(3)
            return socket.gethostname()
    "});
    let first = scene.instances();
    let running = pool.submit(call.into_task().unwrap(), Target::Any).await.unwrap();
    event(&mut events, began).await;
    scene.cloud.kill(&first[0]).await.unwrap();
    event(&mut events, |event| matches!(event, PoolEvent::NodeReplaced { .. }).then_some(())).await;
    running.outcome().await.unwrap();
    assert_ne!(scene.instances(), first);
    pool.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_spot_instance_that_is_taken_back_gives_notice_and_its_tasks_run_elsewhere() {
    let scene = Scene::new().await;
    let pool = Pool::builder().provider(scene.aws()).limits(limits()).market(Market::Spot).start().await.unwrap();
    let mut events = pool.events();
    let heeds = python::<(f64, String)>(
        r#"
import socket
import time
import skyward as sky

def f():
    told = []
    sky.on_notice(told.append)
    while not told:
        # A loop that sleeps asks; one that computes is interrupted.
        sky.notice()
        time.sleep(0.05)
    return told[0], socket.gethostname()
"#,
    );
    let heeding = pool.submit(heeds.into_task().unwrap(), Target::Any).await.unwrap();
    let first = scene.cloud.instances()[0].clone();
    assert_eq!(scene.launches()[0].get("InstanceMarketOptions.MarketType"), "spot");
    // The task has begun: one that has not is given to the successor, which gets no notice.
    event(&mut events, began).await;
    scene.cloud.interrupt(&first.id, Duration::from_secs(100)).unwrap();
    let (reason, ends_in) = event(&mut events, |event| match event {
        PoolEvent::NodeDraining { reason, ends_in, .. } => Some((*reason, *ends_in)),
        _ => None,
    })
    .await;
    assert!(
        reason == DrainReason::Preempted && ends_in.is_some_and(|left| left <= Duration::from_secs(100)),
        "{ends_in:?}"
    );
    let outcome = tokio::time::timeout(PATIENCE, heeding.outcome()).await.expect("it heeds the notice").unwrap();
    let (left, _): (f64, String) = skyward_core::payload::value::decode(&outcome.bytes).unwrap();
    assert!(0.0 < left && left <= 100.0, "{left}");
    event(&mut events, |event| matches!(event, PoolEvent::NodeReplaced { .. }).then_some(())).await;
    let call = python::<u32>(SEVEN);
    assert_eq!(call.run(&pool).await.unwrap(), 7);
    // The successor was bought elsewhere than where the last one was taken.
    let zones: Vec<String> =
        scene.launches().iter().map(|call| call.get("NetworkInterface.1.SubnetId").to_owned()).collect();
    assert_ne!(zones[0], zones[1], "{zones:?}");
    pool.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_machine_whose_server_crashes_with_all_connections_goes_on_with_its_task() {
    let scene = Scene::new().await;
    let pool = scene.pool(1).start().await.unwrap();
    let mut events = pool.events();
    let call = python::<u32>(indoc! {"
        import time

        def f():
            time.sleep(5)
            return 7
    "});
    let first = scene.instances();
    let running = pool.submit(call.into_task().unwrap(), Target::Any).await.unwrap();
    event(&mut events, began).await;
    scene.cloud.restart_sshd(&first[0]).await.unwrap();
    let outcome = running.outcome().await.unwrap();
    assert_eq!(skyward_core::payload::value::decode::<u32>(&outcome.bytes).unwrap(), 7);
    assert_eq!(scene.instances(), first, "on the same machine");
    assert_eq!(scene.launches().len(), 1, "on the same machine");
    pool.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_rebalance_recommendation_moves_a_node_only_where_that_is_asked_for() {
    let scene = Scene::new().await;
    for (is_asked_for, expected) in [(true, DrainReason::Preempted), (false, DrainReason::Expired)] {
        let aws = scene.aws().replace_on_rebalance(is_asked_for);
        let pool = Pool::builder().provider(aws).limits(limits()).market(Market::Spot).start().await.unwrap();
        let mut events = pool.events();
        let first = scene.instances().remove(0);
        scene.cloud.rebalance(&first).unwrap();
        // It comes after the recommendation in what the machine looks at.
        scene.cloud.schedule(&first, "instance-retirement", Duration::from_secs(30)).unwrap();
        let reason = event(&mut events, |event| match event {
            PoolEvent::NodeDraining { reason, .. } => Some(*reason),
            _ => None,
        })
        .await;
        assert_eq!(reason, expected);
        event(&mut events, |event| matches!(event, PoolEvent::NodeReplaced { .. }).then_some(())).await;
        until("the machine is gone that EC2 recommends to leave", async || !scene.instances().contains(&first)).await;
        let call = python::<u32>(SEVEN);
        assert_eq!(call.run(&pool).await.unwrap(), 7);
        pool.shutdown(PATIENCE).await.unwrap();
    }
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_machine_that_does_not_boot_is_reported_with_its_console() {
    let scene = Scene::new().await;
    scene.cloud.fail_boots(1).unwrap();
    let mut limits = limits();
    limits.start = Duration::from_secs(20);
    let error = Pool::builder().provider(scene.aws()).limits(limits).start().await.unwrap_err();
    let told = format!("{error:?}");
    assert!(told.contains("console"), "{told}");
    scene.until_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_pool_ends_before_its_budget_is_spent() {
    let scene = Scene::new().await;
    let budget = Budget::default().hours(45.0 / 3600.0);
    let pool = scene.pool(1).budget(budget).start().await.unwrap();
    let mut events = pool.events();
    let sleeps = python::<()>(indoc! {"
        import time

        def f():
            time.sleep(3600)
    "});
    let running = pool.submit(sleeps.into_task().unwrap(), Target::Node(NodeIndex(0))).await.unwrap();
    event(&mut events, |event| matches!(event, PoolEvent::Closed).then_some(())).await;
    let error = running.outcome().await.unwrap_err();
    assert_eq!(error.kind(), skyward_core::ErrorKind::Budget, "{error}");
    until("all machines are gone", async || scene.instances().is_empty()).await;
    scene.until_nothing_left().await;
}
