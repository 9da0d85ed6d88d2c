//! Moves frames over a byte stream: a sender that writes at once where possible, and a reader.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncReadExt, AsyncWrite, ReadHalf, WriteHalf};

use super::codec::{Decoder, Frame, INLINE_BODY, Room};
use super::timing::FRAME_STALLED;
use crate::error::{Error, ErrorKind, Result};
use crate::remote::ByteStream;

/// Sends frames. A small frame usually is in the kernel when [`flush`](Self::flush) returns,
/// without waking another task. The link ends with its last sender.
#[derive(Clone)]
pub struct Sender(Arc<Senders>);

/// What all clones of a sender share.
struct Senders(Arc<Mutex<Outbox>>);

/// Reads frames.
pub struct Reader {
    stream: ReadHalf<ByteStream>,
    decoder: Decoder,
}

/// Writes what could not be written at once. A task must run it until the link ends.
pub struct Writer(Arc<Mutex<Outbox>>);

struct Outbox {
    stream: Option<WriteHalf<ByteStream>>,
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Set while the writer waits for work.
    writer: Option<Waker>,
}

/// Splits a stream into a sender, its writer and a reader.
pub fn link(stream: ByteStream, max_frame_bytes: usize) -> (Sender, Writer, Reader) {
    let (read, write) = tokio::io::split(stream);
    let outbox = Outbox { stream: Some(write), queue: VecDeque::new(), queued: 0, writer: None };
    let outbox = Arc::new(Mutex::new(outbox));
    (
        Sender(Arc::new(Senders(Arc::clone(&outbox)))),
        Writer(outbox),
        Reader { stream: read, decoder: Decoder::new(max_frame_bytes) },
    )
}

impl Sender {
    /// Queues a frame. Call [`flush`](Self::flush) after the last one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Payload`] for a head or body that is too large for a frame.
    pub fn push(&self, head: &[u8], body: Bytes) -> Result<()> {
        self.push_in_parts(head, [body])
    }

    /// The same, for a body in several parts. Large parts are not copied.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn push_in_parts<const N: usize>(&self, head: &[u8], body: [Bytes; N]) -> Result<()> {
        let length = body.iter().map(Bytes::len).sum();
        let mut bytes = Frame::prefix(head, length)?;
        let mut outbox = lock(&self.0.0);
        for part in body {
            if part.len() <= INLINE_BODY {
                bytes.extend_from_slice(&part);
            } else {
                outbox.push(bytes.split().freeze());
                outbox.push(part);
            }
        }
        if !bytes.is_empty() {
            outbox.push(bytes.freeze());
        }
        Ok(())
    }

    /// Writes what the kernel accepts now; the writer does the rest.
    pub fn flush(&self) {
        let mut outbox = lock(&self.0.0);
        // The writer registers its own waker when it is woken below, so this poll needs none.
        let polled = outbox.poll_write(&mut Context::from_waker(Waker::noop()));
        if (polled.is_pending() || outbox.stream.is_none())
            && let Some(writer) = outbox.writer.take()
        {
            writer.wake();
        }
    }

    /// The number of bytes that wait to be written.
    pub fn queued(&self) -> usize {
        lock(&self.0.0).queued
    }

    /// Ends the link: nothing more is written, and the writer returns.
    pub fn close(&self) {
        lock(&self.0.0).close();
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        // Otherwise the writer would wait for work, and keep the connection, for ever.
        lock(&self.0).close();
    }
}

impl Writer {
    /// Writes until the link is closed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when the other side is gone.
    ///
    /// # Cancel safety
    ///
    /// No bytes are written twice: written bytes are removed from the queue.
    pub async fn run(self) -> Result<()> {
        std::future::poll_fn(|context| {
            let mut outbox = lock(&self.0);
            if let Poll::Ready(Err(error)) = outbox.poll_write(context) {
                outbox.stream = None;
                return Poll::Ready(Err(lost("write to").with_source(error)));
            }
            if outbox.stream.is_none() {
                return Poll::Ready(Ok(()));
            }
            outbox.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Reader {
    /// Waits for bytes, and passes on every complete frame among them. Returns `false` at the
    /// stream's end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when the connection is lost, also in the middle of a frame, or when the
    /// rest of a frame does not arrive; [`ErrorKind::Protocol`] for bytes that are no frame.
    ///
    /// # Cancel safety
    ///
    /// No byte is lost.
    pub async fn read(&mut self, frames: &mut Vec<Frame>) -> Result<bool> {
        loop {
            while let Some(frame) = self.decoder.next_frame()? {
                frames.push(frame);
            }
            if !frames.is_empty() {
                return Ok(true);
            }
            let in_frame = self.decoder.is_mid_frame();
            let read = self.receive();
            let read = if in_frame {
                // Each side writes a frame at once. A missing rest means that the bytes are no
                // frame, or that the connection is blocked, and another connection helps.
                tokio::time::timeout(FRAME_STALLED, read).await.map_err(|_| stalled())?
            } else {
                read.await
            };
            let read = read.map_err(|error| lost("read from").with_source(error))?;
            if read == 0 {
                return if self.decoder.is_mid_frame() { Err(lost("read from")) } else { Ok(false) };
            }
        }
    }

    /// Passes frames to `take` as they arrive, until the stream ends, or the link or `take` fails.
    /// Returns that failure, if there is one.
    ///
    /// # Cancel safety
    ///
    /// No byte is lost.
    pub(crate) async fn each(&mut self, mut take: impl FnMut(&mut Vec<Frame>) -> Result<()>) -> Option<Error> {
        let mut frames = Vec::new();
        loop {
            match self.read(&mut frames).await {
                Ok(true) => {
                    if let Err(error) = take(&mut frames) {
                        return Some(error);
                    }
                }
                Ok(false) => return None,
                Err(error) => return Some(error),
            }
        }
    }

    /// Whether a frame has begun to arrive.
    pub(crate) fn is_mid_frame(&self) -> bool {
        self.decoder.is_mid_frame()
    }

    async fn receive(&mut self) -> std::io::Result<usize> {
        match self.decoder.room() {
            Room::Buffer(buffer) => self.stream.read_buf(buffer).await,
            Room::Body(rest) => {
                let count = self.stream.read(rest).await?;
                self.decoder.advance(count);
                Ok(count)
            }
        }
    }

    /// The next frame, for exchanges of one frame at a time.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); the stream's end is an error too.
    ///
    /// # Cancel safety
    ///
    /// No byte is lost.
    pub async fn next(&mut self, waiting: &mut VecDeque<Frame>) -> Result<Frame> {
        let mut frames = Vec::new();
        loop {
            if let Some(frame) = waiting.pop_front() {
                return Ok(frame);
            }
            if !self.read(&mut frames).await? {
                return Err(lost("read from"));
            }
            waiting.extend(frames.drain(..));
        }
    }
}

impl Outbox {
    fn close(&mut self) {
        self.stream = None;
        self.queue.clear();
        self.queued = 0;
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    fn push(&mut self, bytes: Bytes) {
        self.queued += bytes.len();
        self.queue.push_back(bytes);
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(&self.queue) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            let written = std::task::ready!(Pin::new(&mut *stream).poll_write_vectored(context, &slices[..count]))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.queued -= written;
            advance(&mut self.queue, written);
        }
        Pin::new(stream).poll_flush(context)
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

fn advance(queue: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(front) = queue.front_mut() {
        if written < front.len() {
            front.advance(written);
            return;
        }
        written -= front.len();
        queue.pop_front();
    }
}

fn lost(verb: &str) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {verb} the node: the connection is lost")).temporary()
}

fn stalled() -> Error {
    let message = format!("cannot read from the node: a message broke off, and no byte arrived for {FRAME_STALLED:?}");
    Error::new(ErrorKind::Io, message).temporary()
}

/// A panic while the lock is held leaves the queue in order.
fn lock(outbox: &Mutex<Outbox>) -> std::sync::MutexGuard<'_, Outbox> {
    outbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The largest number of frames in one system call.
const SLICES: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn frames_of_all_sizes_arrive_in_order_through_a_narrow_pipe() {
        let (near, far) = tokio::io::duplex(1000);
        let (sender, writer, _reader) = link(Box::new(near), 1 << 24);
        let (_sender, _writer, mut reader) = link(Box::new(far), 1 << 24);
        let sizes = [0, 1, 5000, INLINE_BODY, INLINE_BODY + 1, 300_000];
        let send = async {
            for (index, size) in sizes.iter().enumerate() {
                sender.push(&[0x91, index as u8], vec![index as u8; *size].into()).unwrap();
                sender.flush();
            }
            assert!(sender.queued() > 0, "the pipe is too narrow for all");
        };
        let receive = async {
            let mut waiting = VecDeque::new();
            for (index, size) in sizes.iter().enumerate() {
                let frame = reader.next(&mut waiting).await.unwrap();
                assert_eq!(frame.head[1], index as u8);
                assert_eq!(frame.body.len(), *size);
            }
            sender.close();
        };
        let (written, (), ()) = tokio::join!(writer.run(), send, receive);
        written.unwrap();
    }

    #[tokio::test]
    async fn the_writer_ends_with_the_last_sender() {
        let (near, _far) = tokio::io::duplex(100);
        let (sender, writer, _reader) = link(Box::new(near), 1 << 20);
        let other = sender.clone();
        let mut written = std::pin::pin!(writer.run());
        drop(sender);
        assert!(futures_util::FutureExt::now_or_never(written.as_mut()).is_none());
        drop(other);
        assert!(futures_util::FutureExt::now_or_never(written).unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_stream_that_ends_within_a_frame_is_an_error() {
        let (mut near, far) = tokio::io::duplex(100);
        let (_sender, _writer, mut reader) = link(Box::new(far), 1 << 20);
        tokio::io::AsyncWriteExt::write_all(&mut near, &[1, 0, 0]).await.unwrap();
        drop(near);
        assert_eq!(reader.read(&mut Vec::new()).await.unwrap_err().kind(), ErrorKind::Io);
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_without_progress_is_an_error_and_a_slow_one_is_not() {
        let (mut near, far) = tokio::io::duplex(100);
        let (_sender, _writer, mut reader) = link(Box::new(far), 1 << 20);
        let slow = async {
            for byte in [1_u8, 0, 0, 0, 0, 0, 0, 0, 0x91, 2, 0, 0] {
                tokio::time::sleep(FRAME_STALLED - Duration::from_millis(1)).await;
                tokio::io::AsyncWriteExt::write_all(&mut near, &[byte]).await.unwrap();
            }
        };
        let mut frames = Vec::new();
        let (read, ()) = tokio::join!(reader.read(&mut frames), slow);
        assert!(read.unwrap() && frames.remove(0).head[..] == [0x91]);
        let begin = tokio::time::Instant::now();
        let error = reader.read(&mut frames).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(begin.elapsed(), FRAME_STALLED);
        assert!(error.message().contains("broke off"), "{error}");
    }
}
