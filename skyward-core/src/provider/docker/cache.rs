//! The volumes in which environments stay for the next container.

use std::collections::HashMap;

use bollard::query_parameters::{ListVolumesOptionsBuilder, RemoveVolumeOptions};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::image::ImageFacts;
use crate::error::Result;
use crate::remote::docker::{Engine, Fault, fault};
use crate::spec::hex;

/// The volume for containers of an image: what is built in one of them fits the others.
pub(super) fn volume(image: &ImageFacts) -> String {
    let content = format!("{}\n{}\n{LAYOUT}", image.id, image.user);
    format!("skyward-cache-{}", hex(&Sha256::digest(content)[..8]))
}

/// Removes those that no container uses; how many.
pub(super) async fn clear(engine: &Engine, deadline: Instant) -> Result<usize> {
    let filters = HashMap::from([("label".to_owned(), vec![LABEL.to_owned()])]);
    let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
    let listed = engine.ask("list its volumes", deadline, |docker| {
        let options = options.clone();
        async move { docker.list_volumes(Some(options)).await }
    });
    let mut removed = 0;
    for volume in super::provider(listed.await)?.volumes.unwrap_or_default() {
        match engine.api().await?.remove_volume(&volume.name, None::<RemoveVolumeOptions>).await {
            Ok(()) => removed += 1,
            Err(error) if matches!(fault(&error), Fault::Busy | Fault::Gone) => {}
            Err(error) => return super::provider(Err(engine.told("remove a volume", &error))),
        }
    }
    Ok(removed)
}

/// On each of these volumes; its value is the image.
pub(super) const LABEL: &str = "skyward.cache";
/// Changes with who can write to a volume: nothing is read from one that payloads could write to.
const LAYOUT: u32 = 2;
