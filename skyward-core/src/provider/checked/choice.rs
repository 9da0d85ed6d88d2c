//! Which offer a pool takes, and what it says when there is none.

use super::{Checked, Offer, Provider, Requirements};
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::provider::Market;
use crate::spec::Accelerator;

impl Checked {
    /// The offers that meet the requirements, the best first: at least one. Of a market with a choice, those that it prefers come first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`] when nothing fits. The hint lists what the provider has, and what of the requirements each of it does not have; where no machine of it has the accelerator, it says that.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub async fn candidates(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let nothing = || {
            let name = self.name();
            Error::new(ErrorKind::Provider, format!("the provider {name} has nothing with {requirements}"))
        };
        let mut offers = match self.offers(requirements).await {
            // It knows better than a list of its offers what there is instead.
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

    /// What the provider has instead, and why it does not do. Asked for is everything that has the accelerator: a provider that is not asked for one need not look for it, and its offers would
    /// then seem to say that there is none.
    async fn nearest(&self, requirements: &Requirements) -> String {
        let accelerator = requirements.accelerator.clone();
        let relaxed =
            Requirements { accelerator: accelerator.clone(), market: Market::Cheapest, ..Requirements::default() };
        // What was asked already has no answer. Without one to this there is nothing to list; the error is about the offers that were asked for.
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
                    "no machine of it has {wanted}: check the accelerator's name and count, or ask another provider"
                )
            }
            None => "it offers nothing at all now: ask another provider, or later".to_owned(),
        }
    }
}

/// An offer, and what of the requirements it does not have.
fn unfit(offer: &Offer, requirements: &Requirements) -> String {
    let unmet = requirements.unmet_by(offer);
    match unmet.is_empty() {
        // It has come meanwhile, or the provider knows more than it says.
        true => format!("{} may do: try again", shown(offer)),
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
        offer.machine_type, offer.place, offer.cpus, offer.memory_gib
    )
}

fn of_memory(accelerator: &Accelerator) -> String {
    let memory = accelerator.memory_gib.map(|memory| format!(" of {memory} GiB")).unwrap_or_default();
    format!("{accelerator}{memory}")
}

/// How many offers an error lists.
const SHOWN: usize = 8;
