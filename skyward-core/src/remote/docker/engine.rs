//! A Docker engine: its address, and the meanings of its errors.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bollard::{ClientVersion, Docker};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Error, ErrorKind, Result};
use crate::remote::timing::{CONNECT_PAUSE, ENGINE_REQUEST, LONGEST_CONNECT_PAUSE};

/// A Docker engine. The first request connects to it. Each request has a connection of its own, so
/// a broken connection does not affect the next request.
#[derive(Clone)]
pub(crate) struct Engine {
    url: Arc<str>,
    docker: Arc<OnceCell<Docker>>,
}

/// The meaning of an engine's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The engine itself cannot be reached, temporarily or at all.
    Unreachable,
    /// The named object does not exist, or a container does not run any more.
    Gone,
    /// A conflict with another request, or a paused container.
    Busy,
    /// The request failed, or was refused.
    Refused,
}

impl Engine {
    /// The engine at this URL, or else the one that `DOCKER_HOST` names, or else this host's.
    pub(crate) fn new(url: Option<&str>) -> Self {
        let named = || std::env::var("DOCKER_HOST").ok().filter(|url| !url.is_empty());
        let url = url.map(str::to_owned).or_else(named).unwrap_or_else(|| DEFAULT.to_owned());
        Self { url: url.into(), docker: Arc::default() }
    }

    /// The engine's URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The engine's API.
    pub(crate) async fn api(&self) -> Result<&Docker> {
        self.docker.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Docker> {
        let Some(path) = self.url.strip_prefix("unix://") else {
            let message = format!("cannot reach a Docker engine at {}: only Unix sockets are supported", self.url);
            return Err(Error::new(ErrorKind::Provider, message).with_hint(
                "forward the socket of a remote engine through SSH, which authenticates both sides: `ssh -N -L /tmp/docker.sock:/var/run/docker.sock user@host`, then set DOCKER_HOST=unix:///tmp/docker.sock",
            ));
        };
        if !Path::new(path).exists() {
            return Err(self.unreachable(io::ErrorKind::NotFound).with_context("tried", "to connect"));
        }
        let oldest = ClientVersion { major_version: OLDEST.0, minor_version: OLDEST.1 };
        let docker = Docker::connect_with_unix(path, ENGINE_REQUEST.as_secs(), &oldest)
            .map_err(|error| self.failed("accept a connection", &error))?;
        let version = docker.version().await.map_err(|error| self.failed("report its version", &error))?;
        let newest = version.api_version.as_deref().and_then(numbers);
        if newest.is_some_and(|newest| newest < OLDEST) {
            let message = format!(
                "the Docker engine at {} has version {} of the API, but {}.{} is needed",
                self.url,
                version.api_version.unwrap_or_default(),
                OLDEST.0,
                OLDEST.1
            );
            return Err(Error::new(ErrorKind::Provider, message).with_hint("Docker Engine 20.10 and newer have it"));
        }
        // Engines drop old versions over time. From the oldest version that this engine accepts on,
        // everything that is used here has the same meaning.
        let least = version.min_api_version.as_deref().and_then(numbers).unwrap_or(OLDEST).max(OLDEST);
        let spoken = ClientVersion { major_version: least.0, minor_version: least.1 };
        Docker::connect_with_unix(path, ENGINE_REQUEST.as_secs(), &spoken)
            .map_err(|error| self.failed("accept a connection", &error))
    }

    /// Sends a request that may be repeated while the engine cannot be reached, until the deadline.
    pub(crate) async fn ask<T, F>(&self, what: &str, deadline: Instant, request: impl Fn(Docker) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, bollard::errors::Error>>,
    {
        let mut pause = CONNECT_PAUSE;
        loop {
            let asked = async {
                let docker = self.api().await?.clone();
                request(docker).await.map_err(|error| self.failed(what, &error))
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match timeout(left, asked).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => {
                    let message = format!("the Docker engine at {} did not {what} in time", self.url);
                    return Err(Error::new(ErrorKind::Timeout, message).temporary());
                }
            };
            if error.kind() != ErrorKind::Io || Instant::now() + pause >= deadline {
                return Err(error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_CONNECT_PAUSE);
        }
    }

    /// The error of a failed request. [`ErrorKind::Io`]: the engine could not be reached;
    /// [`ErrorKind::NotFound`]: the named object is gone.
    pub(crate) fn failed(&self, what: &str, error: &bollard::errors::Error) -> Error {
        let failed = |kind, why| Error::new(kind, format!("the Docker engine at {} did not {what}: {why}", self.url));
        match fault(error) {
            Fault::Unreachable => self
                .unreachable(io_kind(error).unwrap_or(io::ErrorKind::Other))
                .with_context("tried", format!("to {what}")),
            Fault::Gone => failed(ErrorKind::NotFound, reason(error)),
            Fault::Busy => failed(ErrorKind::Provider, reason(error)).temporary(),
            Fault::Refused => failed(ErrorKind::Provider, reason(error)),
        }
    }

    fn unreachable(&self, kind: io::ErrorKind) -> Error {
        let message = format!("cannot reach the Docker engine at {}", self.url);
        let error = |why: &str| Error::new(ErrorKind::Io, format!("{message}: {why}"));
        match kind {
            io::ErrorKind::NotFound => Error::new(ErrorKind::Provider, format!("{message}: there is no such socket"))
                .with_hint("check with `docker info` that Docker is installed and runs; DOCKER_HOST=unix://PATH names another socket"),
            io::ErrorKind::PermissionDenied => {
                Error::new(ErrorKind::Provider, format!("{message}: this user may not use it"))
                    .with_hint("add the user to the group `docker` and log in again, or use a rootless engine and name its socket: DOCKER_HOST=unix://$XDG_RUNTIME_DIR/docker.sock")
            }
            io::ErrorKind::ConnectionRefused => error("nothing listens there").temporary().with_hint("check that the engine runs: `systemctl status docker`"),
            _ => error("the connection broke").temporary(),
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.url)
    }
}

/// The meaning of an engine's error.
pub(crate) fn fault(error: &bollard::errors::Error) -> Fault {
    use bollard::errors::Error as Answer;
    match error {
        Answer::DockerResponseServerError { status_code: 404, .. } => Fault::Gone,
        Answer::DockerResponseServerError { status_code: 409, message } if message.contains("is not running") => {
            Fault::Gone
        }
        Answer::DockerResponseServerError { status_code: 409, .. } => Fault::Busy,
        Answer::RequestTimeoutError => Fault::Busy,
        Answer::SocketNotFoundError(_) => Fault::Unreachable,
        other if io_kind(other).is_some() => Fault::Unreachable,
        _ => Fault::Refused,
    }
}

/// The engine's own words.
pub(crate) fn reason(error: &bollard::errors::Error) -> String {
    match error {
        bollard::errors::Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        other => other.to_string(),
    }
}

/// The I/O error of the connection to the engine, if that is what failed.
fn io_kind(error: &bollard::errors::Error) -> Option<io::ErrorKind> {
    // This variant is transparent, so the chain of sources skips the I/O error itself.
    if let bollard::errors::Error::IOError { err } = error {
        return Some(err.kind());
    }
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = error.source();
    }
    None
}

fn numbers(version: &str) -> Option<(usize, usize)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

const DEFAULT: &str = "unix:///var/run/docker.sock";
/// The API version of Docker Engine 20.10.
const OLDEST: (usize, usize) = (1, 41);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_error_of_an_engine_that_does_not_run_says_what_to_do() {
        let folder = std::env::temp_dir().join(format!("skye{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("s");
        let url = format!("unix://{}", socket.display());
        let refused = async |url: &str| {
            let soon = Instant::now() + Duration::from_millis(200);
            Engine::new(Some(url))
                .ask("answer", soon, |docker| async move { docker.version().await })
                .await
                .unwrap_err()
        };
        let absent = refused(&url).await;
        assert_eq!(absent.message(), format!("cannot reach the Docker engine at {url}: there is no such socket"));
        assert!(absent.hint().unwrap().contains("docker info"), "{absent}");
        // Bound and dropped: the file exists, but nobody listens.
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let silent = refused(&url).await;
        assert!(silent.message().ends_with("nothing listens there"), "{silent}");
        assert!(silent.is_temporary());
        std::fs::remove_dir_all(&folder).unwrap();
        let remote = refused("tcp://127.0.0.1:2375").await;
        assert!(
            remote.message().contains("only Unix sockets") && remote.hint().unwrap().contains("ssh -N -L"),
            "{remote}"
        );
    }

    #[test]
    fn kinds_of_refusals_are_distinguished() {
        let answer = |status_code, message: &str| {
            let message = message.to_owned();
            fault(&bollard::errors::Error::DockerResponseServerError { status_code, message })
        };
        assert_eq!(answer(404, "No such container: x"), Fault::Gone);
        assert_eq!(answer(409, "Container 1 is not running"), Fault::Gone);
        assert_eq!(answer(409, "Container 1 is paused, unpause the container before exec"), Fault::Busy);
        assert_eq!(answer(500, "no space left on device"), Fault::Refused);
        let denied = bollard::errors::Error::IOError { err: io::ErrorKind::PermissionDenied.into() };
        assert_eq!(fault(&denied), Fault::Unreachable);
        assert!(Engine::new(Some("unix:///x")).failed("answer", &denied).hint().unwrap().contains("group `docker`"));
    }
}
