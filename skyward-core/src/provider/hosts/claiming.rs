//! Which host a node gets a slot on.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::timeout;

use super::facts;
use super::refusal::{Refusal, none_free};
use super::site::{Claim, Site};
use super::timing::CLAIM_ELSEWHERE;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{LaunchRequest, Machine, Offer};

/// The error of a host that cannot be distinguished from one before it in the list, as far as they
/// have answered.
pub(super) fn clash(sites: &[Arc<Site>], site: &Arc<Site>) -> Option<Error> {
    let identity = site.identity()?;
    let before = sites.iter().take_while(|other| !Arc::ptr_eq(other, site));
    before.filter_map(|other| Some((other, other.identity()?.clash(&identity)?))).next().map(|(other, clash)| {
        let (message, hint) = clash.describe(&other.label, &site.label);
        Error::new(ErrorKind::InvalidSpec, message).with_hint(hint)
    })
}

/// Claims a slot on one of the hosts. Nodes with consecutive numbers begin with different hosts, so
/// that the nodes of a pool do not compete. A host that was unreachable a moment ago comes last.
pub(super) async fn claim(sites: Vec<Arc<Site>>, offer: Offer, request: LaunchRequest) -> Result<Machine> {
    let first = request.number.0 as usize % sites.len();
    let mut order: Vec<_> = sites[first..].iter().chain(&sites[..first]).collect();
    order.sort_by_key(|site| site.unreachable().is_some());
    let needs = facts::needs(&offer);
    let mut refused = Vec::new();
    // A host that does not answer does not delay a claim on the others: the claim waits for it only
    // when those have no free slot. A slot that it claims after all ends with its lease.
    let mut left: VecDeque<_> = order.into_iter().map(|site| (site, true)).collect();
    while let Some((site, is_first)) = left.pop_front() {
        let claimed = async {
            let facts = site.known(needs.accelerator.is_some()).await?;
            if let Some(error) = clash(&sites, site) {
                return Err(error);
            }
            if !needs.are_met_by(&facts.share(&site.host)) {
                return Ok(Claim::Refused(Refusal::Short("it does not meet the requirements".into())));
            }
            site.claim(&offer, &request, &facts.devices(&site.host)).await
        };
        let claimed = match is_first && !left.is_empty() {
            true => timeout(CLAIM_ELSEWHERE, claimed).await,
            false => Ok(claimed.await),
        };
        match claimed {
            Err(_) => left.push_back((site, false)),
            Ok(Ok(Claim::Made(machine))) => return Ok(machine),
            Ok(Ok(Claim::Refused(why))) => refused.push((site.label.clone(), why)),
            Ok(Err(error)) => refused.push((site.label.clone(), Refusal::Failed(error))),
        }
    }
    let later = refused.iter().any(|(_, why)| why.is_temporary());
    let error = none_free(&format!("no host has a free slot for machine {}", request.number), &refused);
    Err(if later { error.temporary() } else { error })
}
