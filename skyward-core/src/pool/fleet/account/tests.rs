use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const SHUTDOWN: Duration = Duration::from_secs(30);

fn at(price: Option<f64>) -> Offer {
    Offer::new("m", "p", 1, 1).usd_per_hour(price)
}

fn launch(number: u32) -> LaunchId {
    LaunchId::new(format!("l{number}"))
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-6
}

#[test]
fn machines_cost_from_their_launch_to_their_release() {
    let (mut account, now) = (Account::new(Budget::default(), SHUTDOWN), Instant::now());
    account.admit(&launch(0), MachineNumber(0), &at(Some(2.0)), 1, now).unwrap();
    account.admit(&launch(1), MachineNumber(0), &at(Some(4.0)), 1, now + HOUR).unwrap();
    account.admit(&launch(2), MachineNumber(0), &at(None), 1, now + HOUR).unwrap();
    account.on_released(&launch(0), now + HOUR * 2);
    account.on_released(&launch(0), now + HOUR * 3);
    let spent = account.spent(now + HOUR * 3);
    assert!(near(spent.usd, 12.0) && near(spent.usd_per_hour, 4.0) && near(spent.machine_hours, 6.0), "{spent:?}");
    account.admit(&launch(3), MachineNumber(0), &at(Some(9.0)), 1, now + HOUR * 3).unwrap();
    account.on_refused(&launch(3));
    assert!(near(account.spent(now + HOUR * 4).usd, 16.0));
    assert_eq!(account.ends_at(now), None);
}

#[test]
fn no_machine_is_launched_above_the_rate() {
    let (mut account, now) = (Account::new(Budget::usd_per_hour(8.0), SHUTDOWN), Instant::now());
    assert!(account.objection(&at(Some(4.0)), 2).is_none());
    assert!(account.objection(&at(Some(4.0)), 3).unwrap().contains("3 machines at $4.00/h"));
    assert!(account.objection(&at(None), 1).unwrap().contains("not known"));
    for number in 0..2 {
        assert_eq!(account.admit(&launch(number), MachineNumber(0), &at(Some(4.0)), 1, now).unwrap(), None);
    }
    let error = account.admit(&launch(2), MachineNumber(0), &at(Some(4.0)), 1, now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    account.admit(&launch(2), MachineNumber(0), &at(None), 1, now).unwrap_err();
    account.on_released(&launch(0), now);
    account.admit(&launch(2), MachineNumber(0), &at(Some(4.0)), 1, now).unwrap();
}

#[test]
fn the_nodes_of_a_pool_that_keeps_its_size_cost_no_more_than_the_budget_in_all() {
    let (mut account, now) = (Account::new(Budget::default().usd(50.0), SHUTDOWN), Instant::now());
    // Four nodes, launched at different times and prices.
    let mut most = 0.0;
    for (number, (price, hours)) in [(2.0, 0), (3.0, 1), (2.0, 1), (5.0, 2)].into_iter().enumerate() {
        let ends_in =
            account.admit(&launch(number as u32), MachineNumber(0), &at(Some(price)), 4, now + HOUR * hours).unwrap();
        most += price * super::hours(ends_in.unwrap());
    }
    assert!(most > 45.0 && most <= 50.0, "{most}");
}

#[test]
fn a_pool_that_grows_divides_the_rest_among_its_nodes_and_grows_no_further_than_the_rest_covers() {
    for most in [2, 8, 64] {
        let (mut account, now) = (Account::new(Budget::default().usd(500.0), SHUTDOWN), Instant::now());
        let first = account.admit(&launch(0), MachineNumber(0), &at(Some(10.0)), 1, now).unwrap().unwrap();
        assert!(near(hours(first), 50.0), "nobody else is there or coming");
        let now = now + HOUR;
        for number in 1..most {
            let ends_in = account.admit(&launch(number), MachineNumber(number), &at(Some(10.0)), most, now);
            assert!(near(hours(ends_in.unwrap().unwrap()), 49.0 / f64::from(most)), "of {most}");
        }
        assert!(near(hours(account.lasts(now).unwrap()), 49.0 / f64::from(most)), "of {most}");
        // 2000 nodes would be paid for less time than the pool needs to end.
        let error = account.allows(&at(Some(10.0)), 2000, now).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        assert!(!error.is_temporary());
        assert!(error.message().contains("$490.00") && error.message().contains("2000 nodes"), "{error}");
    }
}

#[test]
fn a_machine_that_replaces_another_has_the_share_of_a_node_in_the_rest() {
    let (mut account, now) = (Account::new(Budget::default().usd(50.0), SHUTDOWN), Instant::now());
    for number in 0..2 {
        account.admit(&launch(number), MachineNumber(number), &at(Some(5.0)), 2, now).unwrap();
    }
    let ends_in = account.admit(&launch(2), MachineNumber(2), &at(Some(5.0)), 2, now + HOUR).unwrap().unwrap();
    assert!(near(hours(ends_in), 4.0), "{ends_in:?}");
}

#[test]
fn a_pool_whose_rest_does_not_cover_a_machine_that_it_needs_ends_now_and_says_why() {
    let (mut account, now) = (Account::new(Budget::default().usd(1.0), SHUTDOWN), Instant::now());
    account.admit(&launch(0), MachineNumber(0), &at(Some(10.0)), 1, now).unwrap();
    assert!(!account.is_spent(now) && account.is_spent(now + HOUR / 10));
    let now = now + HOUR / 11;
    account.on_released(&launch(0), now);
    assert_eq!(account.ends_at(now), None, "nothing is paid");
    let refused = account.allows(&at(Some(10.0)), 1, now).unwrap_err();
    account.close(refused.clone());
    assert_eq!(account.ends_at(now), Some(now));
    assert_eq!(account.exhausted(now).message(), refused.message());
}

#[test]
fn the_pool_begins_to_end_while_the_budget_still_covers_its_end() {
    let now = Instant::now();
    let mut hours = Account::new(Budget::default().hours(1.0), SHUTDOWN);
    assert_eq!(hours.admit(&launch(0), MachineNumber(0), &at(Some(1.0)), 1, now).unwrap(), Some(HOUR));
    assert_eq!(hours.ends_at(now), Some(now + HOUR - SHUTDOWN - ENDING_MARGIN));
    assert_eq!(hours.ends_at(now + HOUR * 2), Some(now + HOUR * 2));
    let error = hours.exhausted(now + HOUR);
    assert!(format!("{error:#}").contains("1 h") && error.hint().unwrap().contains(".budget("), "{error}");
    let mut dollars = Account::new(Budget::default().usd(10.0), SHUTDOWN);
    for number in 0..2 {
        dollars.admit(&launch(number), MachineNumber(0), &at(Some(5.0)), 2, now).unwrap();
    }
    assert_eq!(dollars.ends_at(now), Some(now + HOUR - SHUTDOWN - ENDING_MARGIN));
    // One of the two machines is gone after half of the time, so the other machine has the rest.
    dollars.on_released(&launch(0), now + HOUR / 2);
    assert_eq!(dollars.lasts(now + HOUR / 2), Some(HOUR));
}

#[test]
fn half_of_a_short_budget_is_kept_for_the_end() {
    let (mut account, now) = (Account::new(Budget::default().hours(0.001), SHUTDOWN), Instant::now());
    let ends_in = account.admit(&launch(0), MachineNumber(0), &at(Some(0.0)), 1, now).unwrap().unwrap();
    assert_eq!(ends_in, Duration::from_millis(3600));
    assert_eq!(account.ends_at(now), Some(now + ends_in / 2));
    account.admit(&launch(1), MachineNumber(0), &at(Some(0.0)), 1, now + ends_in * 3 / 4).unwrap_err();
    let mut nothing = Account::new(Budget::default().usd(0.0), SHUTDOWN);
    assert_eq!(
        nothing.admit(&launch(0), MachineNumber(0), &at(Some(1.0)), 1, now).unwrap_err().kind(),
        ErrorKind::Budget
    );
}

const MINUTE: Duration = Duration::from_secs(60);
/// The client of a machine renews its lease until one minute after the launch, and is then suspended
/// for 8 hours.
const NIGHT: Duration = Duration::from_secs(8 * 3600);

/// The account of a machine at 60 dollars an hour, whose lease was renewed a minute after its launch.
fn renewed(outlives: Option<Duration>) -> (Account, Instant) {
    let (mut account, now) = (Account::new(Budget::default(), SHUTDOWN).outlives(outlives), Instant::now());
    account.admit(&launch(0), MachineNumber(0), &at(Some(60.0)), 1, now).unwrap();
    account.on_renewing(&launch(0), now + MINUTE);
    account.on_renewed(&launch(0), now + MINUTE);
    (account, now)
}

#[test]
fn a_machine_that_ended_while_the_client_was_suspended_is_paid_for_until_its_reported_end() {
    for (lived, paid) in [
        (Some(MINUTE * 2), MINUTE * 2),
        (None, NIGHT),
        // What cannot be: it ended before the last sign of its life, and after now.
        (Some(Duration::ZERO), MINUTE),
        (Some(Duration::MAX), NIGHT),
    ] {
        let (mut account, now) = renewed(None);
        if let Some(lived) = lived {
            account.on_ended(&launch(0), lived);
        }
        for released in [false, true] {
            if released {
                account.on_released(&launch(0), now + NIGHT);
            }
            let Spent { usd, machine_hours, .. } = account.spent(now + NIGHT);
            assert!(near(machine_hours, super::hours(paid)) && near(usd, machine_hours * 60.0), "{lived:?}: {usd}");
        }
    }
}

#[test]
fn a_machine_with_a_keeper_is_paid_for_until_the_end_of_its_lease_if_its_end_is_not_known() {
    let outlives = MINUTE * 3;
    for (lived, paid) in [(None, MINUTE + outlives), (Some(MINUTE * 2), MINUTE * 2), (Some(MINUTE * 30), MINUTE * 30)] {
        let (mut account, now) = renewed(Some(outlives));
        // When the client wakes, its connection still seems to be there.
        account.on_renewing(&launch(0), now + NIGHT);
        if let Some(lived) = lived {
            account.on_ended(&launch(0), lived);
        }
        account.on_released(&launch(0), now + NIGHT);
        let spent = account.spent(now + NIGHT);
        assert!(near(spent.machine_hours, super::hours(paid)), "{lived:?}: {spent:?}");
    }
}

#[test]
fn a_renewal_that_can_have_arrived_counts_and_a_machine_that_answers_is_paid_for_until_now() {
    let outlives = MINUTE * 3;
    let (mut account, now) = renewed(Some(outlives));
    for minutes in [3, 5, 9] {
        account.on_renewing(&launch(0), now + MINUTE * minutes);
    }
    // The renewal after 9 minutes came too late for the one after 5 minutes.
    let hours = |account: &Account, at| account.spent(at).machine_hours;
    assert!(near(hours(&account, now + NIGHT), super::hours(MINUTE * 8)));
    account.on_renewed(&launch(0), now + NIGHT);
    assert!(near(hours(&account, now + NIGHT), super::hours(NIGHT)), "it lives, so somebody kept it");
    // A machine that is being made ready has not answered yet.
    account.admit(&launch(1), MachineNumber(1), &at(None), 2, now + NIGHT).unwrap();
    account.on_renewing(&launch(1), now + NIGHT);
    assert!(near(hours(&account, now + NIGHT * 2), super::hours(NIGHT + outlives + NIGHT)));
}
