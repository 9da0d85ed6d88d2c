//! What tests, benches and demos need of a Docker engine beside the library: its images, and a look at it from outside. Of the standard library alone.

#![allow(dead_code, reason = "each user needs a part")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// The image for nodes that `cargo xtask image` makes; without an engine or the image it prints why there is none.
pub(crate) fn node_image() -> Option<String> {
    image("skyward-node")
}

/// The same without Python.
pub(crate) fn bare_image() -> Option<String> {
    image("skyward-bare")
}

fn image(name: &str) -> Option<String> {
    let listed = match ask(&["image", "ls", "--format", "{{.Repository}}:{{.Tag}}", name]) {
        Ok(listed) => listed,
        Err(why) => {
            println!("SKIPPED: there is no Docker engine: {}", why.lines().last().unwrap_or("no word of it"));
            return None;
        }
    };
    // The newest comes first.
    let newest = listed.lines().next().map(str::to_owned);
    if newest.is_none() {
        println!("SKIPPED: the engine has no image {name}; `cargo xtask image` makes it");
    }
    newest
}

/// What the engine answers to a command.
pub(crate) fn ask(args: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(args).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// What is left of a pool: containers and networks.
pub(crate) fn left(pool: &str) -> Vec<String> {
    let filter = format!("label=skyward.pool={pool}");
    let asked = [
        ask(&["ps", "-a", "--filter", &filter, "--format", "container {{.Names}} {{.Status}}"]),
        ask(&["network", "ls", "--filter", &filter, "--format", "network {{.Name}}"]),
    ];
    asked
        .into_iter()
        .flat_map(|answer| match answer {
            Ok(lines) => lines.lines().map(str::to_owned).collect(),
            Err(why) => vec![why],
        })
        .collect()
}

/// What a script says that runs in a container, as its first user.
pub(crate) fn inside(container: &str, script: &str) -> Result<String, String> {
    ask(&["exec", container, "sh", "-c", script])
}

/// The commands that run in a container by the engine's hand.
pub(crate) fn execs(container: &str) -> Vec<String> {
    let listed = ask(&["inspect", "--format", "{{range .ExecIDs}}{{println .}}{{end}}", container]);
    listed.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// What the engine's API answers.
pub(crate) fn get(path: &str) -> std::io::Result<String> {
    let host = std::env::var("DOCKER_HOST").ok();
    let socket = host.as_deref().and_then(|host| host.strip_prefix("unix://")).unwrap_or("/var/run/docker.sock");
    let mut stream = UnixStream::connect(socket)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
