//! Which offer a pool takes, and what it says when there is none.

use super::{Checked, Offer, Provider, Requirements};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::Accelerator;

impl Checked {
    /// The best offer that meets the requirements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`] when nothing fits. The hint names the requirement that nothing meets; where only cores or memory are short, it lists the offers that meet the rest.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub async fn choose(&self, requirements: &Requirements) -> Result<Offer> {
        if let Some(offer) = self.offers(requirements).await?.into_iter().next() {
            return Ok(offer);
        }
        let name = self.name();
        let error =
            Error::new(ErrorKind::Provider, format!("the provider {name} has nothing with {}", wanted(requirements)));
        Err(error.with_hint(self.nearest(requirements).await))
    }

    /// What the provider has instead. Offers for other requirements than these are not listed: a provider that is not asked for an accelerator need not look for one, and its offers
    /// would then seem to say that there is none.
    async fn nearest(&self, requirements: &Requirements) -> String {
        let accelerator = requirements.accelerator.clone();
        let is_sized = requirements.cpus.is_some() || requirements.memory_gib.is_some();
        let offers = match is_sized {
            true => {
                let of_any_size = Requirements { accelerator: accelerator.clone(), ..Requirements::default() };
                // Without an answer there is nothing to list; the error is about the offers that were asked for.
                self.offers(&of_any_size).await.unwrap_or_default()
            }
            false => Vec::new(),
        };
        if !offers.is_empty() {
            let listed: Vec<_> = offers.iter().take(SHOWN).map(shown).collect();
            let more = if offers.len() > SHOWN { format!(" and {} more", offers.len() - SHOWN) } else { String::new() };
            return format!("it has: {}{more}", listed.join("; "));
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

fn wanted(requirements: &Requirements) -> String {
    let mut parts = Vec::new();
    if let Some(accelerator) = &requirements.accelerator {
        parts.push(of_memory(accelerator));
    }
    parts.extend(requirements.cpus.map(|cpus| format!("{cpus} cores")));
    parts.extend(requirements.memory_gib.map(|memory| format!("{memory} GiB of memory")));
    if parts.is_empty() { "any machine".into() } else { parts.join(" and ") }
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
