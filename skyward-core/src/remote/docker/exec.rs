//! One command in a container, with its three streams over one connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bollard::container::LogOutput;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use bytes::{Buf, Bytes};
use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::engine::Engine;
use crate::error::{Error, ErrorKind, Result};

/// A command that runs in a container: its output, and its standard input.
pub(super) struct Exec {
    output: Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    input: Pin<Box<dyn AsyncWrite + Send>>,
}

/// A piece of output.
pub(super) enum Written {
    Out(Bytes),
    Err(Bytes),
    /// The engine's words instead of the command's: the command could not be started.
    Refusal(String),
}

impl Exec {
    /// Starts a command. Dropping the result closes its standard input, and ends nothing by itself.
    pub(super) async fn start(
        engine: &Engine,
        container: &str,
        user: &str,
        env: Vec<String>,
        argv: Vec<String>,
        deadline: Instant,
    ) -> Result<Self> {
        let config = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            user: Some(user.to_owned()),
            env: Some(env),
            cmd: Some(argv),
            ..ExecConfig::default()
        };
        let create = |docker: bollard::Docker| {
            let config = config.clone();
            async move { docker.create_exec(container, config).await }
        };
        let made = engine.ask("start a command", deadline, create).await?;
        let options = StartExecOptions { detach: false, tty: false, output_capacity: Some(READ) };
        // Not repeated: it may have been started.
        let started = engine.api().await?.start_exec(&made.id, Some(options));
        match tokio::time::timeout_at(deadline, started).await {
            Ok(Ok(StartExecResults::Attached { output, input })) => Ok(Self { output, input }),
            Ok(Ok(StartExecResults::Detached)) => {
                let message = format!("the Docker engine at {} started a command without its streams", engine.url());
                Err(Error::new(ErrorKind::Protocol, message))
            }
            Ok(Err(error)) => Err(engine.failed("start a command", &error)),
            Err(_) => {
                let message = format!("the Docker engine at {} did not start a command in time", engine.url());
                Err(Error::new(ErrorKind::Timeout, message).temporary())
            }
        }
    }

    /// The next piece of output; none when all streams have ended.
    pub(super) fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Written>>> {
        let next = ready!(self.output.as_mut().poll_next(context));
        Poll::Ready(next.map(|next| match next {
            Ok(LogOutput::StdOut { message }) => Ok(Written::Out(message)),
            Ok(LogOutput::StdErr { message }) => Ok(Written::Err(message)),
            Ok(LogOutput::Console { message } | LogOutput::StdIn { message }) => {
                Ok(Written::Refusal(String::from_utf8_lossy(&message).trim().to_owned()))
            }
            Err(error) => Err(io::Error::other(error)),
        }))
    }

    /// The async form of `poll_written`.
    pub(super) async fn written(&mut self) -> Option<io::Result<Written>> {
        std::future::poll_fn(|context| self.poll_written(context)).await
    }

    /// The command's standard input.
    pub(super) fn input(&mut self) -> Pin<&mut (dyn AsyncWrite + Send)> {
        self.input.as_mut()
    }
}

/// A command's standard input and output as one byte stream. What it writes to standard error
/// becomes the error of the stream's end.
pub(super) struct ExecStream {
    exec: Exec,
    rest: Bytes,
    complaint: Vec<u8>,
    gathered: Vec<u8>,
}

impl ExecStream {
    /// The stream of a command that has written `rest` already.
    pub(super) fn new(exec: Exec, rest: Bytes) -> Self {
        Self { exec, rest, complaint: Vec::new(), gathered: Vec::new() }
    }
}

impl AsyncRead for ExecStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        loop {
            let count = self.rest.len().min(buffer.remaining());
            buffer.put_slice(&self.rest[..count]);
            self.rest.advance(count);
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            match self.exec.poll_written(context) {
                // Bytes that have arrived are passed on.
                Poll::Pending if buffer.filled().len() > before => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(Written::Out(bytes)))) => self.rest = bytes,
                Poll::Ready(Some(Ok(Written::Err(bytes)))) => {
                    let room = COMPLAINT.saturating_sub(self.complaint.len());
                    self.complaint.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
                Poll::Ready(Some(Ok(Written::Refusal(text)))) => return Poll::Ready(Err(io::Error::other(text))),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) if buffer.filled().len() > before || self.complaint.is_empty() => {
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(None) => {
                    let text = String::from_utf8_lossy(&std::mem::take(&mut self.complaint)).trim().to_owned();
                    return Poll::Ready(Err(io::Error::other(text)));
                }
            }
        }
    }
}

impl AsyncWrite for ExecStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.exec.input().poll_write(context, bytes)
    }

    /// Writes small pieces together, because the engine passes on each write as a message.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(first) = slices.iter().find(|slice| !slice.is_empty()) else { return Poll::Ready(Ok(0)) };
        if slices.len() == 1 || first.len() >= GATHERED {
            return self.exec.input().poll_write(context, first);
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        for slice in slices {
            let room = GATHERED - gathered.len();
            gathered.extend_from_slice(&slice[..slice.len().min(room)]);
            if gathered.len() == GATHERED {
                break;
            }
        }
        let written = self.exec.input().poll_write(context, &gathered);
        self.gathered = gathered;
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.exec.input().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.exec.input().poll_shutdown(context)
    }
}

/// The size of one read: two of the engine's messages.
const READ: usize = 64 << 10;
/// The size of one write of several pieces.
const GATHERED: usize = 64 << 10;
const COMPLAINT: usize = 4 << 10;
