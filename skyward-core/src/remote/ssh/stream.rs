//! A channel as a byte stream.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use russh::{ChannelMsg, ChannelReadHalf};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::{Lost, Running, reason};

/// A byte stream to the other end of a channel. When the connection is lost, reads and writes fail.
/// When the other side closes the stream, reads return its end.
pub(super) struct Stream {
    read: ChannelReadHalf,
    /// Bytes that were received and not read yet.
    chunk: Bytes,
    is_at_end: bool,
    write: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    /// A buffer in which several small pieces become one packet.
    gathered: Vec<u8>,
    lost: Pin<Box<dyn Future<Output = ()> + Send>>,
    why: Lost,
    /// Closes the channel when dropped.
    _running: Running,
}

impl Stream {
    pub(super) fn new(read: ChannelReadHalf, running: Running, why: Lost, chunk: Bytes) -> Self {
        let write = running.half().map(|half| Box::pin(half.make_writer()) as Pin<Box<dyn AsyncWrite + Send>>);
        let mut lost = why.clone();
        // The sender is dropped with the session, so this wait always ends.
        let lost = Box::pin(async move {
            let _ = lost.wait_for(Option::is_some).await;
        });
        Self { read, chunk, is_at_end: false, write, gathered: Vec::new(), lost, why, _running: running }
    }

    fn broken(&self) -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionReset, format!("the connection is lost: {}", reason(&self.why)))
    }

    fn poll_out<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut (dyn AsyncWrite + Send)>, &mut Context<'_>, &mut Vec<u8>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(write) = &mut self.write else { return Poll::Ready(Err(self.broken())) };
        match poll(write.as_mut(), context, &mut self.gathered) {
            Poll::Ready(Ok(done)) => Poll::Ready(Ok(done)),
            Poll::Ready(Err(_)) => {
                self.write = None;
                Poll::Ready(Err(self.broken()))
            }
            // Without the session nothing wakes a writer that waits for room.
            Poll::Pending => {
                ready!(self.lost.as_mut().poll(context));
                self.write = None;
                Poll::Ready(Err(self.broken()))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.is_at_end {
                return Poll::Ready(Ok(()));
            }
            if !this.chunk.is_empty() {
                let count = this.chunk.len().min(buffer.remaining());
                buffer.put_slice(&this.chunk[..count]);
                this.chunk.advance(count);
                return Poll::Ready(Ok(()));
            }
            // Dropping a pending receive loses nothing, and its wake-up stays registered.
            let message = ready!(pin!(this.read.wait()).poll(context));
            match message {
                Some(ChannelMsg::Data { data }) => this.chunk = data,
                Some(ChannelMsg::Eof | ChannelMsg::Close) => this.is_at_end = true,
                Some(_) => {}
                None => return Poll::Ready(Err(this.broken())),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_out(context, |write, context, _| write.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(context, |write, context, gathered| {
            let mut filled = slices.iter().filter(|slice| !slice.is_empty());
            let (Some(first), second) = (filled.next(), filled.next()) else { return Poll::Ready(Ok(0)) };
            if first.len() >= GATHER || second.is_none() {
                return write.poll_write(context, first);
            }
            // A pending write is repeated with the same first bytes.
            gathered.clear();
            for slice in slices {
                let room = GATHER - gathered.len();
                gathered.extend_from_slice(&slice[..slice.len().min(room)]);
            }
            write.poll_write(context, gathered)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_out(context, |write, context, _| write.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_out(context, |write, context, _| write.poll_shutdown(context))
    }
}

/// The size of a packet that combines small pieces; a server accepts 32 KiB in one.
const GATHER: usize = 32 << 10;
