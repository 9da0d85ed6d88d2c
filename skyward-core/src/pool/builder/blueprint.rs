//! Checks the whole configuration, and makes the blueprint of the pool from it.

use std::sync::Arc;

use super::PoolBuilder;
use super::devices::with_cpu_devices;
use crate::data::check_name;
use crate::error::{Error, ErrorKind, Result};
use crate::payload::metadata::Metadata;
use crate::pool::blueprint::decorated::Decorated;
use crate::pool::blueprint::{Blueprint, Declared, check_workers};
use crate::provider::{Checked, client};
use crate::spec::ClusterInfo;

impl PoolBuilder {
    /// The blueprint of the pool, if the configuration is valid.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub(super) fn blueprint(&self) -> Result<Blueprint> {
        self.nodes.validate()?;
        self.budget.check()?;
        let workers = match self.workers_per_node {
            Some(workers) => workers,
            None => self.plugins.workers_per_node(self.requirements.accelerator.as_ref())?.unwrap_or(1),
        };
        if workers == 0 {
            return Err(Error::new(ErrorKind::InvalidSpec, "each node has 0 workers")
                .with_hint("a node without workers runs nothing: `.workers_per_node(1)`"));
        }
        check_workers(self.nodes, workers)?;
        self.limits.check()?;
        for (at, (name, data)) in self.data.iter().enumerate() {
            check_name(name)?;
            if self.data[..at].iter().any(|(other, _)| other == name) {
                let message = format!("the pool has two data sets with the name `{name}`");
                return Err(Error::new(ErrorKind::InvalidSpec, message).with_hint("give each a name of its own"));
            }
            data.check_folder()?;
        }
        let cluster = ClusterInfo::new(self.nodes.wanted(), workers)
            .accelerator(self.requirements.accelerator.clone())
            .cpus(self.requirements.cpus)
            .shared_host(self.provider.capabilities().shared_host)
            .elastic(self.nodes.is_elastic())
            .storage(self.storage.is_some());
        self.plugins.check(&cluster)?;
        if let Some(misfit) = self.misfits.first() {
            return Err(misfit.clone());
        }
        let mut image = self.image.clone();
        for (at, source) in self.sources.iter().enumerate() {
            let merged = Metadata::read(source.main_text()).and_then(|metadata| metadata.merge_into(image));
            image = merged.map_err(|error| {
                let error = error.with_context("payload", source.main());
                let others: Vec<_> = self.sources[..at].iter().map(|other| other.main()).collect();
                if others.is_empty() { error } else { error.with_context("payloads before it", others.join(", ")) }
            })?;
        }
        let decorated = Decorated::find(&self.sources)?;
        let joined = Decorated::joined(decorated.as_ref(), &self.plugins, &cluster)?;
        if joined && self.is_mixed {
            let what = "the pool may have nodes with different environments, and a plugin or the decorator of a payload joins its workers into one world";
            return Err(Error::new(ErrorKind::InvalidSpec, what).with_hint(
                "the ranks of a world exchange pickled objects and the data of one build of a framework: remove `.mixed_environments(true)`",
            ));
        }
        // Plugins read the devices that the workers will have, so they are set before; plugins may
        // also set the same variables, so the devices are set again after.
        let with_devices = |image| match self.cpu_devices {
            Some(devices) => with_cpu_devices(image, devices),
            None => image,
        };
        let image = with_devices(image);
        let declared = Declared { image: image.clone(), joined, decorated };
        let image = with_devices(self.plugins.transform(image, &cluster)?);
        image.validate()?;
        Ok(Blueprint {
            provider: Checked::new(Arc::clone(&self.provider)).deadline(self.limits.start).assuming(self.assumed),
            nodes: self.nodes,
            requirements: self.requirements.clone(),
            cluster,
            image,
            plugins: self.plugins.clone(),
            declared,
            labels: self.labels.clone(),
            owner: owner(),
        })
    }
}

/// The user who starts pools in this process, for people who read a provider's list:
/// `ada@workstation`.
fn owner() -> String {
    let user =
        ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", client::host_name())
}

#[cfg(test)]
mod tests {
    use crate::compute::PendingCompute;
    use crate::error::ErrorKind;
    use crate::payload::{Payload, Source};
    use crate::pool::{Pool, PoolBuilder};

    /// A builder with payloads that have these settings of uv.
    fn with(settings: &[(&'static str, &str)]) -> PoolBuilder {
        settings.iter().fold(Pool::builder(), |builder, (path, uv)| {
            let text = format!("# /// script\n# dependencies = [\"a\"]\n# [tool.uv]\n# {uv}\n# ///\ndef f(): ...\n");
            let call: PendingCompute<()> = Payload::new(Source::file(*path, text, "f").into()).into();
            builder.payload_of(&call)
        })
    }

    #[test]
    fn settings_of_payloads_are_checked_before_anything_starts() {
        let first = ("first.py", "exclude-newer = \"2024-01-01\"");
        with(&[first, ("second.py", "prerelease = \"allow\"")]).check().unwrap();
        for (other, words) in [
            ("exclude-newer = \"2025-01-01\"", "two payloads of the pool disagree about `exclude-newer`"),
            ("sources = { a = { path = \"../a\" } }", "`sources.a`"),
            ("exclude-newr = \"2024-01-01\"", "`exclude-newr`"),
        ] {
            let error = with(&[first, ("second.py", other)]).check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert!(error.message().contains(words) && error.hint().is_some(), "{error}");
            for fact in [("payload", "second.py"), ("payloads before it", "first.py")] {
                assert!(error.context().contains(&(fact.0, fact.1.to_owned())), "{error}");
            }
        }
    }
}
