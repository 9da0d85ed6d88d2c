//! The journal of the example, without the rest of the service.

use std::pin::pin;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};

use super::example::journal::{Event, Journal};

fn line(number: u64) -> Event {
    Event::Output { stream: "stdout", line: number.to_string() }
}

#[test]
fn a_slow_follower_learns_what_it_missed_and_goes_on() {
    let journal = Arc::new(Journal::new(4));
    journal.tell(line(1));
    let mut slow = pin!(Arc::clone(&journal).follow(0));
    let mut next =
        || slow.next().now_or_never().map(|told| told.map(|(number, event)| (number, event.name().to_owned())));
    let told = |number, name: &str| Some(Some((number, name.to_owned())));
    assert_eq!(next(), told(1, "output"));
    assert_eq!(next(), None, "it waits for the next event");
    for number in 2..=10 {
        journal.tell(line(number));
    }
    assert_eq!(next(), told(6, "missed"), "events 2 to 6 are dropped");
    assert_eq!(next(), told(7, "output"));
    journal.end(Event::Cancelled);
    assert_eq!([next(), next(), next()], [told(8, "output"), told(9, "output"), told(10, "output")]);
    assert_eq!(next(), told(11, "cancelled"));
    assert_eq!(next(), Some(None), "that was the last");
}

#[test]
fn a_follower_that_has_seen_all_or_more_gets_nothing() {
    let journal = Arc::new(Journal::new(4));
    journal.tell(line(1));
    journal.end(Event::Cancelled);
    for seen in [2, 3, u64::MAX] {
        let mut follower = pin!(Arc::clone(&journal).follow(seen));
        assert!(matches!(follower.next().now_or_never(), Some(None)), "{seen}");
    }
}
