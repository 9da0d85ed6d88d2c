//! One connection with the three streams of a program, taken apart.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bollard::container::LogOutput;
use bollard::errors::Error as Broken;
use bytes::{Buf, Bytes};
use futures_core::Stream;
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::remote::exec::ExecStreams;

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Broken>> + Send>>;

/// The streams of a program. Dropping them closes its input, and ends nothing by itself.
pub(super) fn of(output: Output, input: impl AsyncWrite + Send + 'static) -> ExecStreams {
    let readers = Arc::new(Readers::default());
    let waker = Waker::from(Arc::clone(&readers));
    let both = Arc::new(Both { readers, waker, state: Mutex::new(State::new(output)) });
    let half = |which| Half { both: Arc::clone(&both), which };
    let (stdout, stderr) = (half(OUT), half(ERR));
    ExecStreams::new(input, stdout, stderr, async move { Err(both.lock().reason()) })
}

/// Both outputs of a program.
struct Both {
    readers: Arc<Readers>,
    /// Wakes the readers.
    waker: Waker,
    state: Mutex<State>,
}

/// The readers of the outputs. Either may have to read the connection next, so both wait for it.
#[derive(Default)]
struct Readers([AtomicWaker; 2]);

impl Wake for Readers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.iter().for_each(AtomicWaker::wake);
    }
}

struct State {
    output: Output,
    /// What has arrived and was not read yet.
    arrived: [Arrived; 2],
    end: Option<StreamsEnd>,
}

enum StreamsEnd {
    Closed,
    Broken(String),
    /// The engine's words instead of the program's: the program could not be started.
    Refused(String),
}

#[derive(Default)]
struct Arrived {
    pieces: VecDeque<Bytes>,
    length: usize,
}

/// One output of a program.
struct Half {
    both: Arc<Both>,
    which: usize,
}

impl Both {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(output: Output) -> Self {
        Self { output, arrived: Default::default(), end: None }
    }

    /// Why there is no exit status. The engine could report one, but not for a connection that has
    /// ended too early.
    fn reason(&self) -> Error {
        match &self.end {
            Some(StreamsEnd::Refused(words)) => Error::new(ErrorKind::Bootstrap, words)
                .with_hint("the image needs a POSIX shell, `sh`, with the usual tools"),
            _ => Error::new(ErrorKind::Io, "the container or its engine ended before there was an answer").temporary(),
        }
    }
}

impl AsyncRead for Half {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { both, which } = &*self;
        both.readers.0[*which].register(context.waker());
        let mut state = both.lock();
        let State { output, arrived, end } = &mut *state;
        let other = 1 - which;
        let before = buffer.filled().len();
        loop {
            let was_full = arrived[*which].is_full();
            arrived[*which].read(buffer);
            if was_full && !arrived[*which].is_full() {
                both.readers.0[other].wake();
            }
            // Bytes that have arrived are passed on.
            let passed = buffer.filled().len() > before;
            match end {
                _ if buffer.remaining() == 0 => return Poll::Ready(Ok(())),
                Some(StreamsEnd::Broken(why)) if !passed => return Poll::Ready(Err(io::Error::other(why.clone()))),
                Some(_) => return Poll::Ready(Ok(())),
                None => {}
            }
            let next = match arrived[other].is_full() {
                true => Poll::Pending,
                false => output.as_mut().poll_next(&mut Context::from_waker(&both.waker)),
            };
            let (place, piece) = match next {
                Poll::Pending if passed => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(LogOutput::StdOut { message }))) => (OUT, message),
                Poll::Ready(Some(Ok(LogOutput::StdErr { message }))) => (ERR, message),
                Poll::Ready(ended) => {
                    *end = Some(match ended {
                        Some(Ok(other)) => {
                            StreamsEnd::Refused(String::from_utf8_lossy(&other.into_bytes()).trim().to_owned())
                        }
                        Some(Err(error)) => StreamsEnd::Broken(error.to_string()),
                        None => StreamsEnd::Closed,
                    });
                    both.readers.0[other].wake();
                    continue;
                }
            };
            arrived[place].length += piece.len();
            arrived[place].pieces.push_back(piece);
            if place == other {
                both.readers.0[other].wake();
            }
        }
    }
}

impl Arrived {
    fn is_full(&self) -> bool {
        self.length >= MOST
    }

    fn read(&mut self, buffer: &mut ReadBuf<'_>) {
        while let Some(piece) = self.pieces.front_mut() {
            let count = piece.len().min(buffer.remaining());
            buffer.put_slice(&piece[..count]);
            piece.advance(count);
            self.length -= count;
            if !piece.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
    }
}

const OUT: usize = 0;
const ERR: usize = 1;
/// How many bytes of one output wait for its reader before the other is not read further.
const MOST: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncReadExt;
    use tokio::sync::mpsc;

    use super::*;

    /// The streams of a program whose outputs arrive by a channel.
    fn program() -> (mpsc::UnboundedSender<Result<LogOutput, Broken>>, ExecStreams) {
        let (send, mut receive) = mpsc::unbounded_channel();
        let output = futures_util::stream::poll_fn(move |context| receive.poll_recv(context));
        (send, of(Box::pin(output), tokio::io::sink()))
    }

    fn out(message: impl Into<Bytes>) -> Result<LogOutput, Broken> {
        Ok(LogOutput::StdOut { message: message.into() })
    }

    fn err(message: impl Into<Bytes>) -> Result<LogOutput, Broken> {
        Ok(LogOutput::StdErr { message: message.into() })
    }

    #[tokio::test]
    async fn each_output_gets_its_bytes_whoever_reads_the_connection() {
        let (send, mut streams) = program();
        let read = async |mut half: Pin<Box<dyn AsyncRead + Send>>| {
            let mut all = Vec::new();
            half.read_to_end(&mut all).await.map(|_| String::from_utf8(all).unwrap())
        };
        // In tasks of their own, so that each has a waker of its own.
        let readers = [streams.stdout, streams.stderr].map(|half| tokio::spawn(read(half)));
        for number in 0..100 {
            let piece = format!("{number} ");
            send.send(if number % 3 == 0 { err(piece) } else { out(piece) }).unwrap();
            tokio::task::yield_now().await;
        }
        drop(send);
        let told =
            |of_err: bool| (0..100).filter(|n| (n % 3 == 0) == of_err).map(|n| format!("{n} ")).collect::<String>();
        for (reader, of_err) in readers.into_iter().zip([false, true]) {
            assert_eq!(reader.await.unwrap().unwrap(), told(of_err));
        }
        let end = streams.exit.as_mut().await.unwrap_err();
        assert_eq!(end.message(), "the container or its engine ended before there was an answer");
    }

    #[tokio::test]
    async fn an_output_that_nobody_reads_is_not_kept_without_end() {
        let (send, mut streams) = program();
        for _ in 0..3 {
            send.send(err(vec![0; MOST])).unwrap();
        }
        send.send(out("after")).unwrap();
        let mut room = vec![0; 4 * MOST];
        assert!(streams.stdout.read(&mut room).now_or_never().is_none());
        for _ in 0..3 {
            assert!(streams.stderr.read_exact(&mut room[..MOST]).now_or_never().is_some());
        }
        assert_eq!(streams.stdout.read(&mut room).await.unwrap(), "after".len());
    }

    #[tokio::test]
    async fn the_words_of_the_engine_are_the_reason_of_the_end() {
        let (send, mut streams) = program();
        send.send(Ok(LogOutput::Console { message: "no `sh`\n".into() })).unwrap();
        let mut all = Vec::new();
        assert_eq!(streams.stdout.read_to_end(&mut all).await.unwrap(), 0);
        assert_eq!(streams.stderr.read_to_end(&mut all).await.unwrap(), 0);
        let end = streams.exit.as_mut().await.unwrap_err();
        assert_eq!(end.message(), "no `sh`");
        assert!(end.hint().is_some());
    }
}
