//! The volumes that keep environments for later containers.

use std::collections::HashMap;

use bollard::query_parameters::{ListVolumesOptionsBuilder, RemoveVolumeOptions};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::image::ImageFacts;
use crate::error::Result;
use crate::remote::docker::{Engine, Fault, fault};
use crate::spec::hex;

/// The volume for containers of an image: an environment built in one of them fits the others.
pub(super) fn volume(image: &ImageFacts) -> String {
    let content = format!("{}\n{}\n{LAYOUT}", image.id, image.user);
    format!("skyward-cache-{}", hex(&Sha256::digest(content)[..8]))
}

/// Removes the volumes that no container uses, and returns how many were removed.
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
            Err(error) => return super::provider(Err(engine.failed("remove a volume", &error))),
        }
    }
    Ok(removed)
}

/// The label of each of these volumes; its value is the image.
pub(super) const LABEL: &str = "skyward.cache";
/// Part of the volume's name. It changes whenever other containers may write to a volume: nodes
/// never read a volume that payloads could write to.
const LAYOUT: u32 = 2;
