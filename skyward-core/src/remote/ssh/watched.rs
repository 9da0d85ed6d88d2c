//! A connection whose writes do not wait for ever, and which ends with the dial that opens it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

/// Fails when the other side takes no bytes for too long. While the session writes, it does nothing
/// else, so its own keepalive would not notice that.
///
/// Until the login is done, it also fails when its dial is given up: during the key exchange the
/// session waits for the server alone, and a silent server would keep the session, and the
/// connection, for ever.
pub(super) struct Watched<S> {
    inner: S,
    longest: Duration,
    /// Set while a write waits.
    limit: Pin<Box<Sleep>>,
    is_waiting: bool,
    /// None after the login.
    dial: Option<oneshot::Receiver<()>>,
}

/// A dial in progress. Dropping it ends the connection that it opens.
pub(super) struct Dial(oneshot::Sender<()>);

impl Dial {
    /// The connection is established, and lives as long as its session.
    pub(super) fn done(self) {
        // A connection that is gone needs no message.
        let _ = self.0.send(());
    }
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, longest: Duration) -> (Self, Dial) {
        let (dial, given_up) = oneshot::channel();
        let limit = Box::pin(sleep(longest));
        (Self { inner, longest, limit, is_waiting: false, dial: Some(given_up) }, Dial(dial))
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
        let message = format!("it accepted no bytes for {:?}", self.longest);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(dial) = &mut self.dial
            && let Poll::Ready(done) = Pin::new(dial).poll(context)
        {
            if done.is_err() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "connecting was given up")));
            }
            self.dial = None;
        }
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_without_progress_fails_and_a_slow_one_does_not() {
        let (near, mut far) = tokio::io::duplex(4);
        let (mut near, _dial) = Watched::new(near, Duration::from_secs(10));
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
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begin.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_a_dial_ends_its_connection_unless_the_dial_is_done() {
        for done in [true, false] {
            let (near, mut far) = tokio::io::duplex(4);
            let (mut near, dial) = Watched::new(near, Duration::from_secs(10));
            let read = tokio::spawn(async move { near.read_u8().await });
            tokio::task::yield_now().await;
            if done {
                dial.done()
            } else {
                drop(dial)
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(read.is_finished(), !done);
            let written = far.write_u8(7).await;
            let read = read.await.unwrap().map_err(|error| error.kind());
            assert_eq!(read, if done { Ok(7) } else { Err(io::ErrorKind::ConnectionAborted) });
            assert_eq!(written.is_ok(), done, "it is closed");
        }
    }
}
