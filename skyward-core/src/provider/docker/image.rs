//! The image of the containers, pulled where the engine does not have it.

use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::stream::StreamExt;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::container::Options;
use super::soon;
use super::timing::PULL_LOG_PAUSE;
use crate::error::{Error, ErrorKind, Result};
use crate::remote::docker::{Engine, reason};

/// The properties of an image that matter for its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageFacts {
    /// The id, which is a digest of the content.
    pub(super) id: String,
    /// The user that its commands run as; empty for the superuser.
    pub(super) user: String,
}

/// The properties of the image. Pulls it if the engine does not have it, once for all callers.
pub(super) async fn ensure(engine: &Engine, options: &Options, alone: &Mutex<()>) -> Result<ImageFacts> {
    if let Some(facts) = facts(engine, options).await? {
        return Ok(facts);
    }
    let _alone = alone.lock().await;
    if let Some(facts) = facts(engine, options).await? {
        return Ok(facts);
    }
    pull(engine, &options.image).await?;
    facts(engine, options).await?.ok_or_else(|| {
        Error::new(
            ErrorKind::Provider,
            format!("the image {} was pulled, but the engine does not list it", options.image),
        )
        .temporary()
    })
}

async fn facts(engine: &Engine, options: &Options) -> Result<Option<ImageFacts>> {
    let deadline = soon();
    let name = options.image.as_str();
    let inspected = engine.ask("inspect an image", deadline, |docker| async move { docker.inspect_image(name).await });
    match inspected.await {
        Ok(found) => {
            let user = options.user.clone().or_else(|| found.config.and_then(|config| config.user)).unwrap_or_default();
            Ok(Some(ImageFacts { id: found.id.unwrap_or_else(|| name.to_owned()), user }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn pull(engine: &Engine, image: &str) -> Result<()> {
    tracing::info!(image, "the engine does not have the image; pulling it");
    let (name, tag) = split(image);
    let options = CreateImageOptionsBuilder::new().from_image(name).tag(tag).build();
    let mut steps = engine.api().await?.create_image(Some(options), None, None);
    let mut logged = Instant::now();
    let failed = |why: &str| {
        Error::new(ErrorKind::Provider, format!("the engine does not have the image {image}, and cannot pull it: {why}")).with_hint(
            "check the image's name; for a registry with accounts, run `docker login` and `docker pull` first; on a machine without a registry, use `docker load` or `docker import`",
        )
    };
    while let Some(step) = steps.next().await {
        let step = step.map_err(|error| failed(&reason(&error)))?;
        if let Some(error) = step.error_detail.and_then(|detail| detail.message) {
            return Err(failed(&error));
        }
        let progress = step.progress_detail.and_then(|progress| Some((progress.current?, progress.total?)));
        if logged.elapsed() >= PULL_LOG_PAUSE {
            logged = Instant::now();
            let (current, total) = progress.unwrap_or_default();
            tracing::info!(image, layer = step.id, current, total, "{}", step.status.unwrap_or_default());
        }
    }
    Ok(())
}

/// Splits a name from its tag, which may be a digest. Without a tag, an engine would pull all of
/// them.
fn split(image: &str) -> (&str, &str) {
    if let Some((name, digest)) = image.split_once('@') {
        return (name, digest);
    }
    match image.rsplit_once(':') {
        // The port of a registry is no tag.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn names_have_tags_digests_and_ports() {
        assert_eq!(split("python"), ("python", "latest"));
        assert_eq!(split("python:3.13-slim"), ("python", "3.13-slim"));
        assert_eq!(split("localhost:5000/team/node"), ("localhost:5000/team/node", "latest"));
        assert_eq!(split("localhost:5000/node:2"), ("localhost:5000/node", "2"));
        assert_eq!(split("node:2@sha256:00"), ("node:2", "sha256:00"));
    }
}
