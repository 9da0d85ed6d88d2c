//! The order in which a pool tries offers, and the error when there is none.

use super::Checked;
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::provider::{Market, Offer, Provider, Requirements};
use crate::spec::Accelerator;

impl Checked {
    /// The offers that meet the requirements, the best first: at least one. In a market with a
    /// choice, the preferred offers come first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`] when nothing fits. The hint lists the provider's other offers, each
    /// with the requirements that it does not meet. Where no machine has the accelerator, the hint
    /// says so.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub async fn candidates(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let nothing = || {
            let name = self.name();
            Error::new(ErrorKind::Provider, format!("the provider {name} has no offer with {requirements}"))
        };
        let mut offers = match self.offers(requirements).await {
            // The provider's own words say more than a list of its offers.
            Err(error) if error.refusal() == Some(&Refusal::NotOffered) => {
                return Err(nothing().with_hint(error.message()));
            }
            offers => offers?,
        };
        match requirements.market {
            Market::SpotOrOnDemand => offers.sort_by_key(|offer| !offer.spot),
            Market::Cheapest => offers.sort_by(|a, b| {
                let price = |offer: &Offer| offer.usd_per_hour.unwrap_or(f64::INFINITY);
                price(a).total_cmp(&price(b))
            }),
            Market::OnDemand | Market::Spot => {}
        }
        if !offers.is_empty() {
            return Ok(offers);
        }
        Err(nothing().with_hint(self.nearest(requirements).await))
    }

    /// The provider's other offers, and the requirements that each does not meet. The request keeps
    /// the accelerator: a provider need not look for accelerators that nobody asks for, so offers
    /// without one would wrongly suggest that it has none.
    async fn nearest(&self, requirements: &Requirements) -> String {
        let accelerator = requirements.accelerator.clone();
        let relaxed =
            Requirements { accelerator: accelerator.clone(), market: Market::Cheapest, ..Requirements::default() };
        // An identical request has just returned nothing. If this request fails, there is nothing
        // to list, and the error about the first request stands.
        let offers = match *requirements == relaxed {
            true => Vec::new(),
            false => self.offers(&relaxed).await.unwrap_or_default(),
        };
        if !offers.is_empty() {
            let listed: Vec<_> = offers.iter().take(SHOWN).map(|offer| unfit(offer, requirements)).collect();
            let more =
                if offers.len() > SHOWN { format!("; and {} more", offers.len() - SHOWN) } else { String::new() };
            return format!("{}{more}", listed.join("; "));
        }
        match accelerator {
            Some(accelerator) => {
                let wanted = of_memory(&accelerator);
                format!(
                    "none of its machines has {wanted}: check the accelerator's name and count, or use another provider"
                )
            }
            None => "it offers no machine at all now: use another provider, or try later".to_owned(),
        }
    }
}

/// An offer with the requirements that it does not meet.
fn unfit(offer: &Offer, requirements: &Requirements) -> String {
    let unmet = requirements.unmet_by(offer);
    match unmet.is_empty() {
        // The offer appeared meanwhile, or the provider knows more than the offer shows.
        true => format!("{} may fit: try again", shown(offer)),
        false => format!("{} does not have: {}", shown(offer), unmet.join(", ")),
    }
}

fn shown(offer: &Offer) -> String {
    let accelerator = offer.accelerator.as_ref().map(|accelerator| format!(", {accelerator}")).unwrap_or_default();
    let price = match offer.usd_per_hour {
        Some(price) if price > 0.0 => format!(", ${price:.2}/h"),
        Some(_) => String::new(),
        None => ", price not known".to_owned(),
    };
    format!(
        "{} in {} ({} cores, {} GiB{accelerator}{price})",
        offer.machine_type, offer.zone, offer.cpus, offer.memory_gib
    )
}

fn of_memory(accelerator: &Accelerator) -> String {
    let memory = accelerator.memory_gib.map(|memory| format!(" of {memory} GiB")).unwrap_or_default();
    format!("{accelerator}{memory}")
}

/// How many offers an error lists.
const SHOWN: usize = 8;
