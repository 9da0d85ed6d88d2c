//! A connection whose writes do not wait for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Fails when the other side takes nothing for too long. While the session writes it does nothing else, so its own keepalive would not see that.
pub(super) struct Watched<S> {
    inner: S,
    longest: Duration,
    /// Set while a write waits.
    limit: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, longest: Duration) -> Self {
        Self { inner, longest, limit: Box::pin(sleep(longest)), is_waiting: false }
    }

    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.is_waiting = false;
            return polled;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.limit.as_mut().reset(Instant::now() + self.longest);
        }
        std::task::ready!(self.limit.as_mut().poll(context));
        let message = format!("it took nothing for {:?}", self.longest);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_does_not_move_fails_and_one_that_moves_does_not() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Watched::new(near, Duration::from_secs(10));
        let slow = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                tokio::io::AsyncReadExt::read_exact(&mut far, &mut [0; 4]).await.unwrap();
            }
        };
        tokio::join!(async { near.write_all(&[0; 20]).await.unwrap() }, slow);
        near.write_all(&[0; 4]).await.unwrap();
        let begin = Instant::now();
        let error = near.write_all(&[0; 4]).await.unwrap_err();
        assert_eq!((error.kind(), begin.elapsed().as_secs()), (io::ErrorKind::TimedOut, 10));
    }
}
