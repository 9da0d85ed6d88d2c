//! Lists instances.

use aws_sdk_ec2::types::{Filter, Instance};
use skyward_core::error::Result;
use skyward_core::ids::MachineId;

use crate::client::Clients;
use crate::errors::called;
use crate::tags::filter;

/// The instances that match these filters, also terminated ones that EC2 still lists. A call with
/// unknown ids fails, while a filter by id ignores them.
///
/// # Errors
///
/// [`ErrorKind::Provider`](skyward_core::error::ErrorKind::Provider).
///
/// # Cancel safety
///
/// Changes nothing.
pub(crate) async fn instances(clients: &Clients, filters: Vec<Filter>) -> Result<Vec<Instance>> {
    let mut pages =
        clients.ec2.describe_instances().set_filters(Some(filters)).max_results(PAGE).into_paginator().send();
    let mut all = Vec::new();
    while let Some(page) = pages.next().await {
        let reservations = called("DescribeInstances", page)?.reservations.unwrap_or_default();
        all.extend(reservations.into_iter().flat_map(|reservation| reservation.instances.unwrap_or_default()));
    }
    Ok(all)
}

/// The instances with these ids.
///
/// # Errors
///
/// As [`instances`].
///
/// # Cancel safety
///
/// Changes nothing.
pub(crate) async fn by_id(clients: &Clients, machines: &[MachineId]) -> Result<Vec<Instance>> {
    let mut all = Vec::new();
    for some in machines.chunks(MOST_VALUES) {
        let ids = filter("instance-id", some.iter().map(MachineId::as_str));
        all.extend(instances(clients, vec![ids]).await?);
    }
    Ok(all)
}

/// The largest page of EC2.
const PAGE: i32 = 1000;
/// The values of one filter:
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html>.
pub(crate) const MOST_VALUES: usize = 200;
