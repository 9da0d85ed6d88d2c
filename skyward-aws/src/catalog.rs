//! What EC2 sells in a region: instance types, and the zones of each.

pub(crate) mod instance_type;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{Filter, InstanceTypeOffering, LocationType};
use serde::{Deserialize, Serialize};
use skyward_core::error::{Error, ErrorKind, Result};
use tokio::sync::Mutex;
use tokio::time::timeout;

use self::instance_type::InstanceType;
use crate::cache::{Cache, Kept};
use crate::errors;
use crate::timing::{CATALOG_ANSWERS, CATALOG_KEPT};

/// The instance types of a region, asked for once a day.
#[derive(Debug)]
pub(crate) struct Catalog {
    ec2: Client,
    cache: Cache,
    /// Each selection is locked while a call reads it, so that all who need it wait for one answer.
    accelerated: Mutex<Option<Arc<Kept<Listing>>>>,
    plain: Mutex<Option<Arc<Kept<Listing>>>>,
}

/// A part of the region's types. Each takes several pages of answers, and few pools need both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Those of the series that have accelerators, of any generation.
    Accelerated,
    /// Those of the current generation but for bare metal; with accelerators or without.
    Plain,
}

/// Instance types, and the zones in which each is sold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Listing {
    pub(crate) types: Vec<InstanceType>,
    zones: BTreeMap<String, BTreeSet<String>>,
}

impl Catalog {
    pub(crate) fn new(ec2: Client, cache: Cache) -> Self {
        Self { ec2, cache, accelerated: Mutex::default(), plain: Mutex::default() }
    }

    /// The types of a selection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`] when neither the cache nor EC2 has an answer.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing; another caller asks instead.
    pub(crate) async fn listing(&self, selection: Selection, now: SystemTime) -> Result<Arc<Kept<Listing>>> {
        let slot = match selection {
            Selection::Accelerated => &self.accelerated,
            Selection::Plain => &self.plain,
        };
        let mut slot = slot.lock().await;
        if let Some(kept) = slot.as_ref().filter(|kept| kept.is_fresh(now, CATALOG_KEPT)) {
            return Ok(kept.clone());
        }
        let kept = match self.cache.read(selection.file(), now, CATALOG_KEPT).await {
            Some(kept) => kept,
            None => {
                let listing =
                    timeout(CATALOG_ANSWERS, self.fetch(selection)).await.unwrap_or_else(|_| Err(too_slow()))?;
                let kept = Kept::new(listing, now);
                self.cache.write(selection.file(), &kept).await;
                kept
            }
        };
        Ok(slot.insert(Arc::new(kept)).clone())
    }

    async fn fetch(&self, selection: Selection) -> Result<Listing> {
        let types = self.types(selection.filters()).await?;
        let names: Vec<&str> = types.iter().map(|one| &*one.name).collect();
        let mut zones = BTreeMap::new();
        for names in names.chunks(MOST_VALUES) {
            add_zones(&mut zones, &self.offerings(names).await?);
        }
        tracing::debug!(?selection, types = types.len(), "the instance types of the region were read");
        Ok(Listing { types, zones })
    }

    /// The type with this name, of any generation; none where the region does not have it. One type
    /// is one short answer, which is not kept.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`] when EC2 has no answer.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub(crate) async fn one(&self, name: &str) -> Result<Option<InstanceType>> {
        let asked = self.types(vec![filter("instance-type", &[name])]);
        let types = timeout(CATALOG_ANSWERS, asked).await.unwrap_or_else(|_| Err(too_slow()))?;
        Ok(types.into_iter().find(|one| one.name == name))
    }

    async fn types(&self, filters: Vec<Filter>) -> Result<Vec<InstanceType>> {
        let call = self.ec2.describe_instance_types().set_filters(Some(filters));
        let mut pages = call.into_paginator().send();
        let mut types = Vec::new();
        while let Some(page) = pages.next().await {
            let page = errors::called("DescribeInstanceTypes", page)?;
            types.extend(page.instance_types().iter().filter_map(InstanceType::read));
        }
        types.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(types)
    }

    /// The filter lists names, because a pattern can match more types than intended.
    async fn offerings(&self, names: &[&str]) -> Result<Vec<InstanceTypeOffering>> {
        let call = self.ec2.describe_instance_type_offerings().location_type(LocationType::AvailabilityZone);
        let mut pages = call.filters(filter("instance-type", names)).into_paginator().send();
        let mut offerings = Vec::new();
        while let Some(page) = pages.next().await {
            let page = errors::called("DescribeInstanceTypeOfferings", page)?;
            offerings.extend_from_slice(page.instance_type_offerings());
        }
        Ok(offerings)
    }
}

impl Selection {
    fn file(self) -> &'static str {
        match self {
            Self::Accelerated => "types-accelerated",
            Self::Plain => "types-plain",
        }
    }

    fn filters(self) -> Vec<Filter> {
        match self {
            // GPUs, Trainium and Inferentia; and those that only refusals name: Gaudi and Qualcomm
            // (dl), media (vt) and FPGAs (f).
            Self::Accelerated => vec![filter("instance-type", &["g*", "p*", "trn*", "inf*", "dl*", "vt*", "f*"])],
            Self::Plain => vec![
                filter("current-generation", &["true"]),
                filter("bare-metal", &["false"]),
                filter("processor-info.supported-architecture", &["x86_64", "arm64"]),
            ],
        }
    }
}

impl Listing {
    #[cfg(test)]
    pub(crate) fn new(types: Vec<InstanceType>, zones: BTreeMap<String, BTreeSet<String>>) -> Self {
        Self { types, zones }
    }

    /// The zones in which a type is sold.
    pub(crate) fn zones_of(&self, name: &str) -> impl Iterator<Item = &str> {
        self.zones.get(name).into_iter().flatten().map(String::as_str)
    }
}

fn filter(name: &str, values: &[&str]) -> Filter {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

fn add_zones(zones: &mut BTreeMap<String, BTreeSet<String>>, offerings: &[InstanceTypeOffering]) {
    for offering in offerings {
        if let (Some(name), Some(zone)) = (offering.instance_type(), offering.location()) {
            zones.entry(name.as_str().to_owned()).or_default().insert(zone.to_owned());
        }
    }
}

fn too_slow() -> Error {
    Error::new(
        ErrorKind::Provider,
        format!("EC2 has not listed the instance types of the region in {CATALOG_ANSWERS:?}"),
    )
    .temporary()
    .with_hint("try again; `aws ec2 describe-instance-types` shows whether EC2 answers")
}

/// How many values a filter may have.
const MOST_VALUES: usize = 200;

#[cfg(test)]
mod tests;
