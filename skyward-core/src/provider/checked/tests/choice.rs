//! Which offers fit the requirements, and what the error says when none does.

use super::*;
use crate::provider::{Architecture, Market};
use crate::spec::Accelerator;

fn wants(kind: Option<&str>, cpus: Option<u32>) -> Requirements {
    Requirements { accelerator: kind.map(|kind| Accelerator::new(kind, 1)), cpus, ..Requirements::default() }
}

fn with_offers() -> Scripted {
    let gpu = Offer::new("g5", "here", 8, 32).accelerator(Accelerator::new("A10G", 1)).usd_per_hour(1.006);
    Scripted { offers: vec![Offer::new("m7", "here", 2, 8), gpu], ..Scripted::default() }
}

#[tokio::test]
async fn when_nothing_fits_the_hint_lists_the_offers_and_what_each_lacks() {
    let checked = Checked::new(Arc::new(with_offers()));
    assert_eq!(checked.candidates(&wants(Some("a10g"), Some(4))).await.unwrap()[0].machine_type, "g5");
    let error = checked.candidates(&wants(Some("A10G"), Some(16))).await.unwrap_err();
    assert_eq!(error.message(), "the provider scripted has no offer with 1× A10G and 16 cores");
    assert_eq!(error.hint().unwrap(), "g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h) does not have: 16 cores");
    let error = checked.candidates(&wants(None, Some(16))).await.unwrap_err();
    assert_eq!(
        error.hint().unwrap(),
        "m7 in here (2 cores, 8 GiB) does not have: 16 cores; g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h) does not have: 16 cores"
    );
    let none = Checked::new(Arc::new(Scripted::default()));
    assert!(none.candidates(&wants(None, Some(4))).await.unwrap_err().hint().unwrap().contains("no machine at all"));
}

#[tokio::test]
async fn requirements_that_no_offer_meets_are_named() {
    let wants = || wants(Some("A10G"), None);
    for (wanted, lacks) in [
        (wants().market(Market::Spot), "a spot price"),
        (wants().zones(["eu-west-1a"]), "a zone among eu-west-1a"),
        (wants().disk_gib(500), "500 GiB of disk"),
        (wants().architecture(Architecture::Aarch64), "an aarch64 processor"),
        (wants().most_usd_per_hour(0.5), "a price of at most $0.5/h"),
        (wants().cpus(64).market(Market::Spot), "64 cores, a spot price"),
    ] {
        let mut scripted = with_offers();
        scripted.offers.remove(0);
        let error = Checked::new(Arc::new(scripted)).candidates(&wanted).await.unwrap_err();
        let shown = "g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h)";
        assert_eq!(error.message(), format!("the provider scripted has no offer with {wanted}"));
        assert_eq!(error.hint().unwrap(), format!("{shown} does not have: {lacks}"));
    }
    // An offer that exists as spot only is listed for a request on demand.
    let mut scripted = with_offers();
    scripted.offers.iter_mut().for_each(|offer| offer.spot = true);
    let error = Checked::new(Arc::new(scripted)).candidates(&Requirements::default().cpus(4)).await.unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.starts_with("m7 in here (2 cores, 8 GiB) does not have: 4 cores, an on-demand price; g5"), "{hint}");
}

#[tokio::test]
async fn an_accelerator_is_found_in_any_spelling_of_pool_and_provider() {
    let offer = Offer::new("p3", "here", 8, 61).accelerator(Accelerator::new("V100-SXM2", 1).memory_gib(16));
    let checked = Checked::new(Arc::new(Scripted { offers: vec![offer], ..Scripted::default() }));
    for kind in ["V100", "v100", "Tesla V100-SXM2-16GB"] {
        assert_eq!(checked.candidates(&wants(Some(kind), None)).await.unwrap()[0].machine_type, "p3", "{kind}");
    }
    for kind in ["V100-32GB", "P100", "V10"] {
        checked.candidates(&wants(Some(kind), None)).await.unwrap_err();
    }
}

#[tokio::test]
async fn when_the_accelerator_is_missing_no_offers_without_it_are_listed() {
    for cpus in [None, Some(4)] {
        let scripted = Arc::new(with_offers());
        let error = Checked::new(scripted.clone()).candidates(&wants(Some("H100"), cpus)).await.unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.starts_with("none of its machines has 1× H100:"), "{hint}");
        assert!(!hint.contains("m7") && !hint.contains("g5"), "{hint}");
        // A provider need not look for accelerators when nobody asks for one.
        let asked = scripted.wanted.lock().unwrap().clone();
        assert!(asked.iter().all(|wanted| wanted.accelerator.is_some()), "{asked:?}");
    }
}
