//! Chooses the offer by which a machine is bought: refusals go in, offers come out. No I/O, no
//! clock.
//!
//! Offers are tried in order. An offer that was refused is excluded for a while or for good,
//! depending on the reason of the refusal. The first machine that is bought fixes what all further
//! machines of the pool must have in common with it: accelerators and architecture, and in a world
//! the zone.

use std::fmt;
use std::time::Instant;

use super::timing::REFUSAL_LASTS;
use crate::error::{Error, ErrorKind, Refusal};
use crate::ids::OfferId;
use crate::provider::{Architecture, Offer};
use crate::spec::Accelerator;

/// The offers that a pool may use, the best first.
#[derive(Debug)]
pub(crate) struct Shortlist {
    provider: String,
    candidates: Vec<Candidate>,
    same_zone: bool,
    shape: Option<Shape>,
}

/// An offer with its state.
#[derive(Debug)]
struct Candidate {
    offer: Offer,
    out: Option<Out>,
    /// Whether the offer was tried.
    tried: bool,
    /// Until this time the offer comes after all others, because a machine of it was taken back.
    preempted: Option<Instant>,
}

/// Why an offer is excluded.
#[derive(Debug, Clone)]
struct Out {
    why: String,
    /// What to do about it.
    hint: Option<String>,
    kind: ErrorKind,
    refusal: Option<Refusal>,
    /// The end of the exclusion; `None` if the offer is excluded for the life of the pool.
    until: Option<Instant>,
}

/// What all machines of a pool have in common.
#[derive(Debug, Clone, PartialEq)]
struct Shape {
    accelerator: Option<Accelerator>,
    architecture: Option<Architecture>,
    zone: Option<String>,
}

/// What to do next to buy a machine.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Try(Box<Offer>),
    /// No offer is left now; one may be available again at this time.
    Wait(Instant),
    /// No offer is left.
    Nothing,
}

impl Shortlist {
    pub(crate) fn new(provider: &str, offers: Vec<Offer>, same_zone: bool) -> Self {
        let candidate = |offer| Candidate { offer, out: None, tried: false, preempted: None };
        let candidates = offers.into_iter().map(candidate).collect();
        Self { provider: provider.to_owned(), candidates, same_zone, shape: None }
    }

    /// Excludes the offers for which `reason` returns a reason.
    pub(crate) fn exclude(&mut self, kind: ErrorKind, reason: impl Fn(&Offer) -> Option<String>) {
        for candidate in &mut self.candidates {
            if candidate.out.is_none()
                && let Some(why) = reason(&candidate.offer)
            {
                candidate.out = Some(Out { why, hint: None, kind, refusal: None, until: None });
            }
        }
    }

    /// The offers, each with the reason why it is excluded, if it is.
    pub(crate) fn offers(&self) -> impl Iterator<Item = (&Offer, Option<&str>)> {
        self.candidates.iter().map(|candidate| (&candidate.offer, candidate.out.as_ref().map(|out| out.why.as_str())))
    }

    /// Whether the first machine that is bought excludes other offers, so that it must be bought
    /// before other machines are.
    pub(crate) fn is_open(&self) -> bool {
        let mut shapes = self.candidates.iter().filter(|one| one.out.is_none()).map(|one| self.shape_of(&one.offer));
        let first = shapes.next();
        self.shape.is_none() && shapes.any(|shape| Some(shape) != first)
    }

    /// Whether more than one offer is available.
    pub(crate) fn has_choice(&self) -> bool {
        self.candidates.iter().filter(|candidate| candidate.out.is_none()).count() > 1
    }

    /// The offer to try now, among those that `allowed` accepts. An offer of which a machine was
    /// taken back a short time ago comes last.
    pub(crate) fn next(&mut self, now: Instant, allowed: impl Fn(&Offer) -> bool) -> Next {
        let mut wait: Option<Instant> = None;
        let (mut chosen, mut last) = (None, None);
        let shape = self.shape.clone();
        let same_zone = self.same_zone;
        for (index, candidate) in self.candidates.iter_mut().enumerate() {
            let fits = shape.as_ref().is_none_or(|shape| *shape == shape_of(&candidate.offer, same_zone));
            match candidate.out.as_ref().map(|out| out.until) {
                Some(None) => continue,
                Some(Some(until)) if until > now => {
                    if fits {
                        wait = Some(wait.map_or(until, |wait| wait.min(until)));
                    }
                    continue;
                }
                Some(Some(_)) => candidate.out = None,
                None => {}
            }
            if fits && allowed(&candidate.offer) {
                if candidate.preempted.is_none_or(|until| until <= now) {
                    chosen = Some(index);
                    break;
                }
                last.get_or_insert(index);
            }
        }
        match chosen.or(last).and_then(|index| self.candidates.get_mut(index)) {
            Some(candidate) => {
                candidate.tried = true;
                Next::Try(Box::new(candidate.offer.clone()))
            }
            None => wait.map_or(Next::Nothing, Next::Wait),
        }
    }

    /// A machine of this offer was bought.
    pub(crate) fn on_bought(&mut self, offer: &Offer) {
        if self.shape.is_none() {
            self.shape = Some(self.shape_of(offer));
        }
    }

    /// A machine of this offer is being taken back, or was: other offers are tried before it for a
    /// while.
    pub(crate) fn on_preempted(&mut self, offer: &OfferId, now: Instant) {
        let until = now.checked_add(REFUSAL_LASTS);
        self.candidates.iter_mut().filter(|one| one.offer.id == *offer).for_each(|one| one.preempted = until);
    }

    /// An offer was refused. Returns whether another offer may be accepted.
    pub(crate) fn on_refused(&mut self, offer: &OfferId, error: &Error, now: Instant) -> bool {
        let Some(refusal) = error.refusal().filter(|refusal| refusal.is_of_the_offer()) else { return false };
        let quota = match refusal {
            Refusal::Quota(name) => Some(name.as_str()),
            _ => None,
        };
        let until = match refusal {
            Refusal::NotOffered => None,
            _ => now.checked_add(REFUSAL_LASTS),
        };
        for candidate in &mut self.candidates {
            let same_quota = quota.is_some() && candidate.offer.quota.as_deref() == quota;
            if candidate.offer.id == *offer
                || same_quota && candidate.out.as_ref().is_none_or(|out| out.until.is_some())
            {
                let why = format!("{refusal}: {}", error.message());
                let kind = ErrorKind::Provider;
                let hint = error.hint().map(str::to_owned);
                candidate.out = Some(Out { why, hint, kind, refusal: Some(refusal.clone()), until });
            }
        }
        true
    }

    /// The error for a machine that no offer is left for. It lists each offer with its reason.
    pub(crate) fn exhausted(&self) -> Error {
        let listed: Vec<String> = self.candidates.iter().take(MOST_LISTED).map(|one| self.line(one)).collect();
        let more = self.candidates.len().saturating_sub(MOST_LISTED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let name = &self.provider;
        let count = match self.candidates.iter().filter(|candidate| candidate.tried).count() {
            0 => "none of its offers can be taken".to_owned(),
            1 => "the offer that was tried was refused".to_owned(),
            count => format!("the {count} offers that were tried were refused"),
        };
        let what = format!("the provider {name} has no machine for this pool now: {count}");
        let refusal = self.candidates.iter().rev().find_map(|one| one.out.as_ref()?.refusal.clone());
        let error = match refusal {
            Some(refusal) => Error::refused(refusal, what),
            None => Error::new(
                self.candidates.iter().find_map(|one| Some(one.out.as_ref()?.kind)).unwrap_or(ErrorKind::Provider),
                what,
            ),
        };
        let mut hints: Vec<&str> = Vec::new();
        for hint in self.candidates.iter().filter_map(|one| one.out.as_ref()?.hint.as_deref()) {
            if hints.len() < MOST_HINTS && !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        hints.push(
            "ask for another accelerator, zone or market, raise the limits that exclude offers, or try again later",
        );
        error.with_context("candidates", format!("{}{more}", listed.join("; "))).with_hint(hints.join("; or "))
    }

    fn line(&self, candidate: &Candidate) -> String {
        let Candidate { offer, out, .. } = candidate;
        let name = format!("{} in {}{}", offer.machine_type, offer.zone, if offer.spot { " (spot)" } else { "" });
        match (out, &self.shape) {
            (Some(out), _) => format!("{name}: {}", out.why),
            (None, Some(shape)) if *shape != self.shape_of(offer) => {
                format!("{name}: it differs from the pool's first machine, {shape}")
            }
            (None, _) => format!("{name}: not tried"),
        }
    }

    fn shape_of(&self, offer: &Offer) -> Shape {
        shape_of(offer, self.same_zone)
    }
}

fn shape_of(offer: &Offer, same_zone: bool) -> Shape {
    let (accelerator, architecture) = (offer.accelerator.clone(), offer.architecture);
    Shape { accelerator, architecture, zone: same_zone.then(|| offer.zone.clone()) }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        parts.push(self.accelerator.as_ref().map_or("no accelerator".to_owned(), ToString::to_string));
        parts.extend(self.architecture.map(|architecture| architecture.to_string()));
        parts.extend(self.zone.as_ref().map(|zone| format!("in {zone}")));
        f.write_str(&parts.join(", "))
    }
}

/// The most offers that an error lists.
const MOST_LISTED: usize = 16;
/// The most hints of refusals that an error repeats.
const MOST_HINTS: usize = 3;

#[cfg(test)]
mod tests;
