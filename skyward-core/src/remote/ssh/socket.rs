//! Streams to Unix sockets on a host: forwarded by its server, or else through a program on it.

use russh::{ChannelMsg, ChannelOpenFailure};
use tokio::time::Instant;

use super::connection::{Connection, Refusal};
use super::exec::{quoted, start};
use super::prelude::{Before, Instead, head};
use super::stream::Stream;
use super::timing::{BRIDGED, LOGIN};

/// Why there is no stream.
pub(super) enum NoStream {
    Refused(Refusal),
    /// Nothing listens there; the host's own words.
    Nobody(String),
    /// The server forbids it, and the host has no program that can replace it.
    NoBridge,
    /// An unexpected answer.
    Strange(String),
    /// The login did something else than to run a program.
    Instead(Instead),
    /// The program did not answer in time.
    Late,
}

/// Whether the server forbids forwarding, rather than that nothing listens. None where the answer
/// does not show which.
pub(super) fn forbids(failure: &ChannelOpenFailure) -> Option<bool> {
    match failure {
        ChannelOpenFailure::AdministrativelyProhibited | ChannelOpenFailure::UnknownChannelType => Some(true),
        // OpenSSH answers the same when it forbids forwarding and when nothing listens.
        ChannelOpenFailure::ConnectFailed => None,
        _ => Some(false),
    }
}

/// A stream through a program on the host that connects its input and output with the socket.
pub(super) async fn bridge(connection: &Connection, socket: &str) -> Result<Stream, NoStream> {
    let (mut read, half) = connection.session().await.map_err(NoStream::Refused)?.split();
    let running = connection.running(half, false);
    let lost = || NoStream::Refused(Refusal::Lost(connection.reason()));
    let Some(half) = running.half() else { return Err(lost()) };
    let values = quoted(socket).and_then(|socket| Ok((socket, quoted(BRIDGE)?, quoted(SCRIPT)?)));
    let (name, program, script) = values.map_err(NoStream::Nobody)?;
    let head = head(1, "all", &format!("socket={name}; bridge={program}; eval {script}"));
    let (mut before, mut complaint) = (Some(Before::default()), Some(Before::default()));
    let (mut output, mut complaints) = (Vec::new(), Vec::new());
    let rest = {
        let mut start = std::pin::pin!(start(half, head));
        let mut end = std::pin::pin!(tokio::time::sleep(LOGIN));
        let (mut started, mut status) = (false, 0);
        loop {
            let message = tokio::select! {
                biased;
                () = &mut end => return Err(match before {
                    Some(before) => NoStream::Instead(Instead::new(None, before, complaint.unwrap_or_default())),
                    None => NoStream::Late,
                }),
                message = read.wait() => message,
                _ = &mut start, if !started => {
                    started = true;
                    continue;
                }
            };
            match message {
                Some(ChannelMsg::Data { data }) => match &mut before {
                    None => output.extend_from_slice(&data),
                    Some(login) => {
                        if let Some(rest) = login.push(&data) {
                            output = rest;
                            before = None;
                            end.as_mut().reset(Instant::now() + BRIDGED);
                        }
                    }
                },
                Some(ChannelMsg::ExtendedData { data, .. }) => match &mut complaint {
                    None => complaints.extend_from_slice(&data),
                    Some(login) => {
                        if let Some(rest) = login.push(&data) {
                            complaints = rest;
                            complaint = None;
                        }
                    }
                },
                Some(ChannelMsg::ExitStatus { exit_status }) => status = i32::try_from(exit_status).unwrap_or(-1),
                Some(ChannelMsg::Failure) => return Err(NoStream::NoBridge),
                // The exit status may come after the end of the output.
                Some(ChannelMsg::Eof) if before.is_some() => {}
                Some(ChannelMsg::Eof | ChannelMsg::Close) => {
                    let last = last_line(&complaints).or(last_line(&output));
                    return Err(match before {
                        Some(before) => {
                            NoStream::Instead(Instead::new(Some(status), before, complaint.unwrap_or_default()))
                        }
                        None => NoStream::Strange(last.unwrap_or_else(|| "nothing".into())),
                    });
                }
                Some(_) => {}
                None => return Err(lost()),
            }
            if output.len() + complaints.len() > MOST {
                return Err(NoStream::Strange(format!("more than {MOST} bytes that are no answer")));
            }
            let Some((line, rest)) = split_line(&output) else { continue };
            if line == b"skyward-open" {
                break rest.to_vec();
            }
            let line = String::from_utf8_lossy(line).into_owned();
            return Err(match line.strip_prefix("skyward-refused ") {
                Some(why) => NoStream::Nobody(why.to_owned()),
                None if line == "skyward-none" => NoStream::NoBridge,
                None => NoStream::Strange(line),
            });
        }
    };
    Ok(Stream::new(read, running, connection.lost(), rest.into()))
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn last_line(bytes: &[u8]) -> Option<String> {
    String::from_utf8_lossy(bytes).lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

const SCRIPT: &str = include_str!("scripts/bridge.sh");
const BRIDGE: &str = include_str!("scripts/bridge.py");
/// How much may be written before the first line of the bridge, in bytes.
const MOST: usize = 64 << 10;
