//! The hypervisor's own calls of EC2, past the proxy.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_ec2::types::{Filter, Instance, InstanceAttributeName, InstanceLifecycleType, InstanceStateName};

use super::machine::Facts;
use crate::moto::TRUSTED_KEY;

/// A client of EC2 for the hypervisor.
#[derive(Debug, Clone)]
pub(crate) struct Ec2 {
    pub(crate) client: Client,
    region: String,
}

/// An instance of EC2's list.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) id: String,
    instance: Instance,
}

impl Ec2 {
    pub(crate) fn new(moto: SocketAddr, region: &str) -> Self {
        let config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .endpoint_url(format!("http://{moto}"))
            .credentials_provider(Credentials::new(TRUSTED_KEY, "secret", None, None, "testkit"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .build();
        Self { client: Client::from_conf(config), region: region.to_owned() }
    }

    /// The instances that have a machine. The filter matters: moto keeps terminated instances for
    /// ever, and takes longer and longer to list all.
    pub(crate) async fn running(&self) -> Result<Vec<Listed>> {
        let states = [InstanceStateName::Pending, InstanceStateName::Running];
        let states = states.map(|state| state.as_str().to_owned()).to_vec();
        let wanted = Filter::builder().name("instance-state-name").set_values(Some(states)).build();
        self.list(Some(wanted)).await
    }

    async fn list(&self, wanted: Option<Filter>) -> Result<Vec<Listed>> {
        let asked = self.client.describe_instances().set_filters(wanted.map(|wanted| vec![wanted])).send().await;
        let reservations = asked.context("cannot list the instances")?.reservations.unwrap_or_default();
        let instances = reservations.into_iter().flat_map(|one| one.instances.unwrap_or_default());
        Ok(instances.filter_map(|instance| Some(Listed { id: instance.instance_id()?.to_owned(), instance })).collect())
    }

    /// What a machine boots from.
    pub(crate) async fn facts(&self, listed: &Listed) -> Result<Facts> {
        let instance = &listed.instance;
        let data = self.client.describe_instance_attribute().instance_id(&listed.id);
        let data = data.attribute(InstanceAttributeName::UserData).send().await;
        let data = data.with_context(|| format!("cannot read the user data of {}", listed.id))?;
        let key = match instance.key_name().filter(|name| !name.is_empty() && *name != "None") {
            Some(name) => self.key(name).await?,
            None => None,
        };
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        Ok(Facts {
            id: listed.id.clone(),
            instance_type: instance.instance_type().map(|kind| kind.as_str().to_owned()).unwrap_or_default(),
            region: self.region.clone(),
            zone: text(instance.placement().and_then(|placement| placement.availability_zone())),
            is_spot: instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot),
            private: text(instance.private_ip_address()),
            public: instance.public_ip_address().filter(|address| !address.is_empty()).map(str::to_owned),
            user_data: text(data.user_data().and_then(|data| data.value())),
            key,
        })
    }

    /// Whether EC2 terminates an instance that shuts itself down; otherwise EC2 stops it.
    pub(crate) async fn terminates_at_shutdown(&self, id: &str) -> Result<bool> {
        let attribute = self.client.describe_instance_attribute().instance_id(id);
        let attribute = attribute.attribute(InstanceAttributeName::InstanceInitiatedShutdownBehavior).send().await;
        let attribute = attribute.with_context(|| format!("cannot read the shutdown behaviour of {id}"))?;
        let behaviour = attribute.instance_initiated_shutdown_behavior().and_then(|behaviour| behaviour.value());
        Ok(behaviour == Some("terminate"))
    }

    pub(crate) async fn stop(&self, id: &str) -> Result<()> {
        let call = self.client.stop_instances().instance_ids(id).send().await;
        call.map(drop).with_context(|| format!("cannot stop {id}"))
    }

    /// The states of all instances by their ids.
    pub(crate) async fn states(&self) -> Result<HashMap<String, String>> {
        let states = self.list(None).await?.into_iter().map(|listed| {
            let state = listed.instance.state().and_then(|state| state.name());
            (listed.id, state.map(|state| state.as_str().to_owned()).unwrap_or_default())
        });
        Ok(states.collect())
    }

    async fn key(&self, name: &str) -> Result<Option<String>> {
        let answer = self.client.describe_key_pairs().key_names(name).include_public_key(true).send().await;
        let answer = answer.with_context(|| format!("cannot read the key pair {name}"))?;
        Ok(answer.key_pairs().first().and_then(|pair| pair.public_key()).map(str::to_owned))
    }
}
