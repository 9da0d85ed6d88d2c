use super::*;

fn offer(id: &str, zone: &str) -> Offer {
    Offer::new(id, zone, 8, 32).id(OfferId::new(format!("{id}/{zone}")))
}

fn gpu(id: &str, zone: &str, kind: &str, quota: &str) -> Offer {
    offer(id, zone).accelerator(Accelerator::new(kind, 8)).quota(quota)
}

fn shortlist(offers: Vec<Offer>, same_zone: bool) -> Shortlist {
    Shortlist::new("cloud", offers, same_zone)
}

/// Refuses one offer after another for this reason; returns the ids of the offers that were tried.
fn refused(shortlist: &mut Shortlist, now: Instant, refusal: &Refusal) -> Vec<String> {
    let mut tried = Vec::new();
    while let Next::Try(offer) = shortlist.next(now, |_| true) {
        tried.push(offer.id.to_string());
        assert!(tried.len() < 20, "an offer is tried again: {tried:?}");
        if !shortlist.on_refused(&offer.id, &Error::refused(refusal.clone(), "no"), now) {
            break;
        }
    }
    tried
}

#[test]
fn offers_are_tried_in_their_order_and_again_after_some_minutes() {
    let now = Instant::now();
    let mut shortlist = shortlist(vec![offer("a", "1"), offer("b", "1"), offer("a", "2")], false);
    assert_eq!(refused(&mut shortlist, now, &Refusal::Capacity), ["a/1", "b/1", "a/2"]);
    assert_eq!(shortlist.next(now, |_| true), Next::Wait(now + REFUSAL_LASTS));
    assert_eq!(refused(&mut shortlist, now + REFUSAL_LASTS, &Refusal::NotOffered), ["a/1", "b/1", "a/2"]);
    assert_eq!(shortlist.next(now + REFUSAL_LASTS * 9, |_| true), Next::Nothing);
}

#[test]
fn an_offer_of_which_a_machine_was_taken_back_comes_last_for_some_minutes() {
    let now = Instant::now();
    let mut shortlist = shortlist(vec![offer("a", "1"), offer("b", "1")], false);
    let next = |shortlist: &mut Shortlist, now| match shortlist.next(now, |_| true) {
        Next::Try(offer) => offer.id.to_string(),
        other => format!("{other:?}"),
    };
    shortlist.on_preempted(&OfferId::new("a/1"), now);
    assert_eq!(next(&mut shortlist, now), "b/1");
    shortlist.on_refused(&OfferId::new("b/1"), &Error::refused(Refusal::Capacity, "no"), now);
    assert_eq!(next(&mut shortlist, now), "a/1", "no other offer is left");
    assert_eq!(next(&mut shortlist, now + REFUSAL_LASTS), "a/1");
}

#[test]
fn the_final_error_has_the_hints_of_the_refusals() {
    let now = Instant::now();
    let mut shortlist = shortlist(vec![offer("a", "1"), offer("b", "1"), offer("c", "1")], false);
    for (id, hint) in [("a/1", "raise the quota"), ("b/1", "raise the quota"), ("c/1", "wait")] {
        let error = Error::refused(Refusal::Capacity, "no").with_hint(hint);
        shortlist.on_refused(&OfferId::new(id), &error, now);
    }
    let error = shortlist.exhausted();
    let hint = error.hint().unwrap();
    assert!(hint.starts_with("raise the quota; or wait; or ask for another"), "{hint}");
}

#[test]
fn a_quota_leaves_out_all_offers_that_count_against_it() {
    let offers =
        vec![gpu("p5", "1", "H100", "P"), gpu("p5", "2", "H100", "P"), gpu("g6", "1", "L4", "G"), offer("m7", "1")];
    let tried = refused(&mut shortlist(offers, false), Instant::now(), &Refusal::Quota("P".into()));
    assert_eq!(tried, ["p5/1", "g6/1", "m7/1"]);
}

#[test]
fn a_problem_of_the_account_or_of_the_request_ends_the_search() {
    for refusal in [Refusal::Denied, Refusal::Misconfigured] {
        let mut shortlist = shortlist(vec![offer("a", "1"), offer("b", "1")], false);
        assert_eq!(refused(&mut shortlist, Instant::now(), &refusal), ["a/1"]);
    }
    let mut shortlist = shortlist(vec![offer("a", "1")], false);
    assert!(!shortlist.on_refused(&OfferId::new("a/1"), &Error::new(ErrorKind::Provider, "broken"), Instant::now()));
}

#[test]
fn the_first_machine_fixes_the_accelerators_and_in_a_world_the_zone() {
    let now = Instant::now();
    let offers = || vec![gpu("p5", "1", "H100", "P"), gpu("p5", "2", "H100", "P"), gpu("g6", "1", "L4", "G")];
    for (same_zone, left) in [(false, vec!["p5/1", "p5/2"]), (true, vec!["p5/1"])] {
        let mut shortlist = shortlist(offers(), same_zone);
        assert!(shortlist.is_open());
        let Next::Try(first) = shortlist.next(now, |_| true) else { panic!("nothing to try") };
        shortlist.on_bought(&first);
        assert!(!shortlist.is_open());
        assert_eq!(refused(&mut shortlist, now, &Refusal::Capacity), left);
        let error = shortlist.exhausted();
        assert_eq!(error.refusal(), Some(&Refusal::Capacity));
        assert!(format!("{error:#}").contains("g6 in 1: it differs from the pool's first machine"), "{error}");
    }
    assert!(!shortlist(vec![offer("a", "1"), offer("b", "2")], false).is_open());
}

#[test]
fn the_error_lists_each_offer_with_its_reason() {
    let now = Instant::now();
    let mut shortlist = shortlist(vec![offer("a", "1"), offer("b", "1"), offer("c", "1")], false);
    shortlist.exclude(ErrorKind::Budget, |offer| {
        (offer.machine_type == "c").then(|| "$9.00/h is above the budget".to_owned())
    });
    assert_eq!(refused(&mut shortlist, now, &Refusal::Capacity), ["a/1", "b/1"]);
    let text = shortlist.exhausted().to_string();
    for part in ["the 2 offers that were tried", "a in 1: no capacity: no", "c in 1: $9.00/h is above the budget"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}
