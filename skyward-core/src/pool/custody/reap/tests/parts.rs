//! Pools of a provider with parts, such as a list of hosts: each part is looked for by itself.

use std::time::Duration;

use super::*;
use crate::pool::custody::ledger::PoolLedger;

/// A part with a machine, or one that does not answer.
fn host(identity: &'static str, machine: Option<&Machine>) -> Arc<Cloud> {
    let machines = Mutex::new(machine.into_iter().cloned().collect());
    Arc::new(Cloud { name: "list", identity: Some(identity), machines, outlives: true, ..Cloud::default() })
}

fn list(parts: &[(&str, &Arc<Cloud>)]) -> Arc<Cloud> {
    let parts = parts.iter().map(|(name, part)| Part::new(*name, Arc::clone(*part) as Arc<dyn Provider>)).collect();
    Arc::new(Cloud { name: "list", identity: Some("none of one"), outlives: true, parts, ..Cloud::default() })
}

/// A machine of a launch in a part.
fn machine_in(pool: &PoolId, number: u32, part: &str) -> Machine {
    let one = machine(pool, number);
    Machine { id: MachineId::new(format!("{}@{part}", one.launch)), ..one }
}

/// The ledger of a dead client with a machine in each of two parts.
async fn left_in_two_parts() -> (Scratch, PoolId, [Machine; 2]) {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let machines = [machine_in(&pool, 0, "aa"), machine_in(&pool, 1, "bb")];
    let given = list(&[("one", &host("aa", None)), ("two", &host("bb", None))]);
    let ledger = PoolLedger::default();
    ledger.open(scratch.0.clone(), &pool, given.as_ref()).await.unwrap();
    ledger.intend(machines.iter().map(|one| (one.launch.clone(), one.number)).collect()).await.unwrap();
    for machine in &machines {
        ledger.fact(machine.clone()).await.unwrap();
    }
    drop(ledger);
    (scratch, pool, machines)
}

#[tokio::test]
async fn a_list_with_other_names_another_order_and_more_parts_ends_the_pool() {
    let (scratch, pool, machines) = left_in_two_parts().await;
    let down = Arc::new(Cloud { name: "list", silent: true, ..Cloud::default() });
    let (first, second, third) = (host("aa", Some(&machines[0])), host("bb", Some(&machines[1])), host("cc", None));
    let given = list(&[("three", &third), ("down", &down), ("zwei", &second), ("eins", &first)]);
    let reaped = reap_with(&scratch, &[&given]).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(scratch.files(), 0, "{reaped}");
    assert_eq!(&reaped.ended[0].pool, &pool, "{reaped}");
    assert_eq!(reaped.ended[0].machines.len(), 2, "{reaped}");
    assert!(first.torn_down.load(Ordering::Relaxed) > 0);
    assert_eq!(third.looks.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_part_that_is_not_listed_any_more_is_named_and_keeps_the_record() {
    let (scratch, _, machines) = left_in_two_parts().await;
    let (first, second, third) = (host("aa", Some(&machines[0])), host("bb", Some(&machines[1])), host("cc", None));
    // Another host has the name of the one that is gone.
    let reaped = reap_with(&scratch, &[&list(&[("one", &first), ("two", &third)])]).await;
    assert!(first.machines.lock().unwrap().is_empty() && scratch.files() == 1, "{reaped}");
    let error = &reaped.unconfirmed[0].error;
    let text = format!("{error:#}");
    assert_eq!(error.kind(), ErrorKind::Identity, "{text}");
    assert!(text.contains("its machines are at `list` (two), but only `list` (one), `list` (two)"), "{text}");
    assert!(text.contains("the record is kept") && text.contains(machines[0].id.as_str()), "{text}");
    // It may be in any of the given lists.
    let reaped = reap_with(&scratch, &[&list(&[("one", &first)]), &list(&[("two", &second)])]).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(scratch.files(), 0, "{reaped}");
    assert!(second.machines.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_part_that_does_not_answer_is_reported_with_its_error_and_the_others_are_ended() {
    let (scratch, _, machines) = left_in_two_parts().await;
    let down = Arc::new(Cloud { name: "list", silent: true, ..Cloud::default() });
    let first = host("aa", Some(&machines[0]));
    let reaped = reap_with(&scratch, &[&list(&[("two", &down), ("one", &first)])]).await;
    let text = format!("{:#}", reaped.unconfirmed[0].error);
    assert!(text.contains("it is down") && text.contains("`list` (two)"), "{text}");
    assert!(first.machines.lock().unwrap().is_empty() && scratch.files() == 1, "{reaped}");
}

#[tokio::test]
async fn a_part_that_did_not_answer_at_the_start_is_known_by_its_machines_and_by_its_name() {
    let down = Arc::new(Cloud { name: "list", silent: true, ..Cloud::default() });
    for machines_are_known in [true, false] {
        let (scratch, pool) = (Scratch::new(), PoolId::random());
        let lost = machine_in(&pool, 0, "aa");
        let ledger = PoolLedger::default();
        ledger.open(scratch.0.clone(), &pool, list(&[("one", &down)]).as_ref()).await.unwrap();
        if machines_are_known {
            ledger.intend(vec![(lost.launch.clone(), lost.number)]).await.unwrap();
            ledger.fact(lost.clone()).await.unwrap();
        }
        drop(ledger);
        let first = host("aa", Some(&lost));
        let reaped = reap_with(&scratch, &[&list(&[("other", &host("cc", None))])]).await;
        assert_eq!(reaped.unconfirmed.len(), 1, "{reaped}");
        assert_eq!(scratch.files(), 1, "{reaped}");
        let reaped = reap_with(&scratch, &[&list(&[("one", &first)])]).await;
        assert_eq!(reaped.ended.len(), 1, "{reaped}");
        assert_eq!(scratch.files(), 0, "{reaped}");
        assert!(first.machines.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_record_of_an_older_version_is_read_by_the_names_in_it() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let machines = [machine_in(&pool, 0, "one"), machine_in(&pool, 1, "two")];
    let Record::Pool(mut first) = head(&pool, "hosts", None) else { unreachable!() };
    first.version = 2;
    first.identity = Some(format!("one,two from {}", crate::provider::client::machine()));
    let facts = machines.iter().map(crate::pool::custody::ledger::tests::fact);
    scratch.write(&pool, &lines([Record::Pool(first)].into_iter().chain(facts).collect()));
    let part = |identity, machine| {
        Arc::new(Cloud {
            name: "hosts",
            identity: Some(identity),
            machines: Mutex::new(vec![machine]),
            ..Cloud::default()
        })
    };
    let [one, two] = machines;
    let (one, two) = (part("aa", one), part("bb", two));
    let all = |parts: &[(&str, &Arc<Cloud>)]| {
        let parts = parts.iter().map(|(name, part)| Part::new(*name, Arc::clone(*part) as Arc<dyn Provider>)).collect();
        Arc::new(Cloud { name: "hosts", parts, ..Cloud::default() })
    };
    let reaped = reap_with(&scratch, &[&all(&[("one", &one), ("zwei", &two)])]).await;
    assert!(format!("{:#}", reaped.unconfirmed[0].error).contains("`hosts` (two)"), "{reaped}");
    assert!(one.machines.lock().unwrap().is_empty() && !two.machines.lock().unwrap().is_empty(), "{reaped}");
    let reaped = reap_with(&scratch, &[&all(&[("two", &two), ("one", &one)])]).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(scratch.files(), 0, "{reaped}");
}

#[tokio::test]
async fn an_expired_pool_stays_on_record_where_a_part_of_it_is_not_listed() {
    let (scratch, pool, machines) = left_in_two_parts().await;
    let first = host("aa", Some(&machines[0]));
    let mut given = Arc::into_inner(list(&[("one", &first)])).unwrap();
    given.machines = Mutex::new(vec![machines[0].clone()]);
    given.pools = Mutex::new(vec![PoolRecord::new(pool, SystemTime::now() - Duration::from_secs(86_400))]);
    let reaped = expired::reap_expired_in(scratch.0.clone(), Arc::new(given)).await.unwrap();
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!(scratch.files(), 1, "{reaped}");
}
