//! Whether an image has the shell that its containers need.
//!
//! Below `docker-init`, a container without a shell starts and ends at once, and the engine removes
//! it with the reason.

use bollard::query_parameters::{ContainerArchiveInfoOptionsBuilder, InspectContainerOptions};

use crate::error::{Error, ErrorKind, Result};
use crate::remote::docker::{Engine, Fault, fault};

/// Checks that a container, which need not run, has a shell.
///
/// # Errors
///
/// [`ErrorKind::Provider`] where the engine reports that there is none. An engine that cannot tell
/// is no reason not to start the container.
pub(super) async fn check(engine: &Engine, container: &str, image: &str) -> Result<()> {
    if !is_missing(engine, container, "/bin/sh").await? {
        return Ok(());
    }
    let asked = engine.api().await?.inspect_container(container, None::<InspectContainerOptions>).await;
    // Somebody may have removed the container.
    let Ok(found) = asked else { return Ok(()) };
    let env = found.config.and_then(|config| config.env).unwrap_or_default();
    let path = env.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or(USUAL);
    for folder in path.split(':').filter(|folder| folder.starts_with('/')) {
        if !is_missing(engine, container, &format!("{}/sh", folder.trim_end_matches('/'))).await? {
            return Ok(());
        }
    }
    let message = format!("the image {image} has no shell: there is no `sh` in /bin nor in its PATH, {path}");
    Err(Error::new(ErrorKind::Provider, message).with_hint(
        "a node needs a POSIX shell, `sh`, with the usual tools: take an image with a base system, such as \
         python:3.13-slim or debian:stable-slim, and not `scratch` or a distroless one",
    ))
}

async fn is_missing(engine: &Engine, container: &str, path: &str) -> Result<bool> {
    let options = ContainerArchiveInfoOptionsBuilder::new().path(path).build();
    let asked = engine.api().await?.get_container_archive_info(container, Some(options)).await;
    Ok(asked.is_err_and(|error| fault(&error) == Fault::Gone))
}

/// The search path of an image that declares none.
const USUAL: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
