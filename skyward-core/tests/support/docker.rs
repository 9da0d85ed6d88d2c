//! Helpers of tests, benches and demos for a Docker engine: its images, and a look at the engine
//! from outside. Uses the standard library alone.

#![allow(dead_code, reason = "each user needs a part")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// The image for nodes that `cargo xtask image` makes.
pub(crate) fn node_image() -> String {
    image("skyward-node")
}

/// The image for nodes without Python.
pub(crate) fn bare_image() -> String {
    image("skyward-bare")
}

fn image(name: &str) -> String {
    let listed = ask(&["image", "ls", "--format", "{{.Repository}}:{{.Tag}}", name])
        .unwrap_or_else(|why| panic!("there is no Docker engine; install one and start it: {why}"));
    // The engine lists the newest image first.
    let newest = listed.lines().next().map(str::to_owned);
    newest.unwrap_or_else(|| panic!("the engine has no image {name}; make it: cargo xtask image"))
}

/// The engine's answer to a command.
pub(crate) fn ask(args: &[&str]) -> Result<String, String> {
    let output =
        Command::new("docker").args(args).stdin(Stdio::null()).output().map_err(|error| format!("{error:#}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The containers and networks that are left of a pool.
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

/// The output of a script that runs in a container, as its default user.
pub(crate) fn inside(container: &str, script: &str) -> Result<String, String> {
    ask(&["exec", container, "sh", "-c", script])
}

/// The ids of the commands that the engine runs in a container.
pub(crate) fn execs(container: &str) -> Vec<String> {
    let listed = ask(&["inspect", "--format", "{{range .ExecIDs}}{{println .}}{{end}}", container]);
    listed.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The answer of the engine's API.
pub(crate) fn get(path: &str) -> std::io::Result<String> {
    let host = std::env::var("DOCKER_HOST").ok();
    let socket = host.as_deref().and_then(|host| host.strip_prefix("unix://")).unwrap_or("/var/run/docker.sock");
    let mut stream = UnixStream::connect(socket)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
