//! A program's standard input and output as one byte stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ExecStreams;

/// A byte stream through a program. What it writes to standard error becomes the error of the
/// stream's end.
pub(super) struct ExecByteStream {
    streams: ExecStreams,
    complaint: Vec<u8>,
    complains: bool,
    gathered: Vec<u8>,
}

impl ExecByteStream {
    pub(super) fn new(streams: ExecStreams) -> Self {
        Self { streams, complaint: Vec::new(), complains: true, gathered: Vec::new() }
    }

    /// Reads what has arrived on standard error, which must not fill up.
    fn listen(&mut self, context: &mut Context<'_>) {
        let mut room = [0; 512];
        while self.complains {
            let mut words = ReadBuf::new(&mut room);
            match self.streams.stderr.as_mut().poll_read(context, &mut words) {
                Poll::Ready(Ok(())) if !words.filled().is_empty() => {
                    let left = COMPLAINT.saturating_sub(self.complaint.len());
                    self.complaint.extend_from_slice(&words.filled()[..words.filled().len().min(left)]);
                }
                Poll::Ready(_) => self.complains = false,
                Poll::Pending => return,
            }
        }
    }
}

impl AsyncRead for ExecByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.streams.stdout.as_mut().poll_read(context, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            return read;
        }
        self.listen(context);
        ready!(read)?;
        match String::from_utf8_lossy(&std::mem::take(&mut self.complaint)).trim() {
            "" => Poll::Ready(Ok(())),
            words => Poll::Ready(Err(io::Error::other(words.to_owned()))),
        }
    }
}

impl AsyncWrite for ExecByteStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.streams.stdin.as_mut().poll_write(context, bytes)
    }

    /// Writes small pieces together, because some services pass on each write as a message.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.streams.stdin.is_write_vectored() {
            return self.streams.stdin.as_mut().poll_write_vectored(context, slices);
        }
        let Some(first) = slices.iter().find(|slice| !slice.is_empty()) else { return Poll::Ready(Ok(0)) };
        if slices.len() == 1 || first.len() >= GATHERED {
            return self.streams.stdin.as_mut().poll_write(context, first);
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
        let written = self.streams.stdin.as_mut().poll_write(context, &gathered);
        self.gathered = gathered;
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.streams.stdin.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.streams.stdin.as_mut().poll_shutdown(context)
    }
}

/// The size of one write of several pieces.
const GATHERED: usize = 64 << 10;
const COMPLAINT: usize = 4 << 10;
