//! Which of the given providers have the machines of a pool.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::error::{Error, ErrorKind, Result};
use crate::pool::custody::ledger::{Head, PartRecord, identity, part_of};
use crate::provider::{Checked, Local, Machine, Part, Provider};

/// The providers that have the machines of a pool. What another provider says about these machines
/// does not count.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Each provider, with those of the machines on record that are there.
    pub(super) found: Vec<(Arc<dyn Provider>, Vec<Machine>)>,
    /// Why some machines cannot be ended here.
    pub(super) missing: Option<Error>,
}

/// A given provider, or a part of one.
struct Candidate {
    /// Empty for a provider without parts.
    name: String,
    identity: Result<String>,
    provider: Arc<dyn Provider>,
}

impl Holders {
    /// Looks for the provider on record among those given, and where this user's own pools are.
    pub(super) async fn find(head: &Head, machines: &[Machine], given: &[Arc<dyn Provider>]) -> Self {
        let found = Self::among(head, machines, given).await;
        if found.missing.is_none() {
            return found;
        }
        let local = match &head.identity {
            Some(identity) => Local::of_identity(identity),
            None if head.parts.is_empty() => Some(Local::new()),
            None => None,
        };
        match local.filter(|local| local.name() == head.provider) {
            Some(local) => Self { found: vec![(Arc::new(local), machines.to_vec())], missing: None },
            None => found,
        }
    }

    /// Looks for the provider on record among those given.
    pub(super) async fn among(head: &Head, machines: &[Machine], given: &[Arc<dyn Provider>]) -> Self {
        let alike = given.iter().filter(|provider| provider.name() == head.provider);
        let candidates: Vec<Candidate> = join_all(alike.map(candidates)).await.into_iter().flatten().collect();
        let mut wanted = head.whereabouts();
        if wanted.is_empty() {
            // Without an identity on record, the name decides.
            return match candidates.into_iter().next() {
                Some(first) => Self { found: vec![(first.provider, machines.to_vec())], missing: None },
                None => Self { found: Vec::new(), missing: Some(not_here(head, &[], &[], given).await) },
            };
        }
        let divided = !head.parts.is_empty() || wanted.iter().any(|part| part.identity.is_none());
        if divided {
            // Parts that did not answer when the pool was started have machines on record all the same.
            for part in machines.iter().filter_map(part_of) {
                let is_known = |wanted: &PartRecord| wanted.identity.as_deref() == Some(part) || wanted.name == part;
                if !wanted.iter().any(is_known) {
                    wanted.push(PartRecord { name: part.to_owned(), identity: Some(part.to_owned()) });
                }
            }
        }
        let mut holders = Self::default();
        let (mut absent, mut asked) = (Vec::new(), Vec::new());
        for part in wanted {
            let Some(candidate) = candidates.iter().find(|candidate| candidate.is(&part)) else {
                absent.push(part);
                continue;
            };
            // Two names of one host are asked once.
            let identity = candidate.identity.as_ref().ok().cloned().unwrap_or_default();
            if asked.contains(&identity) {
                continue;
            }
            let is_there = |one: &&Machine| !divided || part.has(one) || part_of(one) == Some(identity.as_str());
            let there = machines.iter().filter(is_there).cloned().collect();
            asked.push(identity.clone());
            holders.found.push((Arc::clone(&candidate.provider), there));
        }
        if !absent.is_empty() {
            holders.missing = Some(not_here(head, &absent, &candidates, given).await);
        }
        holders
    }
}

impl Candidate {
    /// Whether this is the part on record. A part that has no identity on record is known by its
    /// name.
    fn is(&self, part: &PartRecord) -> bool {
        match (&self.identity, &part.identity) {
            (Ok(identity), Some(wanted)) => identity == wanted,
            (Ok(_), None) => self.name == part.name,
            (Err(_), _) => false,
        }
    }
}

async fn candidates(provider: &Arc<dyn Provider>) -> Vec<Candidate> {
    let parts = provider.parts();
    if parts.is_empty() {
        let identity = Checked::new(Arc::clone(provider)).identity().await;
        return vec![Candidate { name: String::new(), identity, provider: Arc::clone(provider) }];
    }
    let candidate =
        async |part: Part| Candidate { identity: identity(&part).await, name: part.name, provider: part.provider };
    join_all(parts.into_iter().map(candidate)).await
}

/// The error of parts on record that are none of those given.
async fn not_here(head: &Head, absent: &[PartRecord], candidates: &[Candidate], given: &[Arc<dyn Provider>]) -> Error {
    let names = absent.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(", ");
    let wanted = shown(&head.provider, Some(names.as_str()).filter(|names| !names.is_empty()));
    let silent = candidates.iter().filter_map(|candidate| Some((candidate, candidate.identity.as_ref().err()?)));
    // Without its identity, it is not known whether it is the right provider.
    let (silent, mut errors): (Vec<_>, Vec<_>) =
        silent.map(|(candidate, error)| (&candidate.name, error.clone())).unzip();
    let of_absent = silent.iter().position(|name| name.is_empty() || absent.iter().any(|part| part.name == **name));
    if let Some(place) = of_absent {
        let error = errors.swap_remove(place);
        return match silent[place].is_empty() {
            true => error,
            false => error.with_context("machines of the pool may be at", wanted),
        };
    }
    let local = Local::new();
    let mut others: Vec<String> = candidates
        .iter()
        .map(|candidate| match (&candidate.identity, candidate.name.is_empty()) {
            (Ok(identity), true) => shown(&head.provider, Some(identity)),
            _ => shown(&head.provider, Some(&candidate.name)),
        })
        .collect();
    if head.provider == local.name()
        && let Ok(identity) = local.identity().await
    {
        others.push(shown(local.name(), Some(&identity)));
    }
    if !others.is_empty() {
        let message = format!("its machines are at {wanted}, but only {} is available", others.join(", "));
        let error = Error::new(ErrorKind::Identity, message);
        return match head.parts.is_empty() {
            true => error.with_hint("the record is kept: call `reap` where the pool was started, with the provider that it was started with; if that provider is gone for good, remove the pool's file from the ledger"),
            false => error.with_hint("the record is kept: call `reap` with a list that has these too, by whatever names they have now; if one is gone for good, remove the pool's file from the ledger"),
        };
    }
    let mut others: Vec<String> = given.iter().map(|provider| shown(provider.name(), None)).collect();
    if let Ok(identity) = local.identity().await {
        others.push(shown(local.name(), Some(&identity)));
    }
    Error::new(ErrorKind::NotFound, format!("its machines are at {wanted}, but that provider was not given"))
        .with_context("providers given", others.join(", "))
        .with_hint(format!("pass the provider {wanted} to `reap`"))
}

fn shown(name: &str, identity: Option<&str>) -> String {
    match identity {
        Some(identity) => format!("`{name}` ({identity})"),
        None => format!("`{name}`"),
    }
}
