//! A service around one pool: trainings come in over HTTP, are followed as server-sent events, and share the pool's workers.
//!
//! ```sh
//! cargo run --example embed_in_service              # prints its address, and runs until SIGINT or SIGTERM
//! cargo run --example embed_in_service -- --once    # asks itself once, prints the story, and ends
//!
//! curl -i -d '{"epochs": 20}' $ADDRESS/trainings    # 202, with the place of the training
//! curl -N $ADDRESS/trainings/ID/events              # follows it
//! curl $ADDRESS/trainings/ID                        # its state and result
//! curl -X DELETE $ADDRESS/trainings/ID              # cancels it
//! curl $ADDRESS/health
//! ```
//!
//! `docs/embedding.md` goes through it.

pub(crate) mod client;
pub(crate) mod http;
pub(crate) mod journal;
pub(crate) mod options;
pub(crate) mod problem;
pub(crate) mod run;
pub(crate) mod story;
pub(crate) mod training;
pub(crate) mod trainings;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Failure};
use options::Options;
use skyward::prelude::*;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use training::Train;
use trainings::Trainings;

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let options = Options::read();
    let mut signals = Signals::new()?;
    // What an instance before this one left when it was killed is ended first.
    let reaped = skyward::reap([]).await?;
    println!("{reaped}");
    let builder = Pool::builder()
        .nodes(options.nodes)
        .payload::<Train>()
        // Several workers on one host take a thread each.
        .image(Image::new().env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1"));
    let Some(pool) = builder.start_unless(signals.next()).await? else { return Ok(ExitCode::SUCCESS) };
    println!("pool {}", pool.id());
    let served = serve(&pool, &options, &mut signals).await;
    // Whatever happened, the end of the pool is waited for.
    let ended = pool.shutdown(SHUTDOWN).await;
    let code = served?;
    ended?;
    println!("ended");
    Ok(code)
}

/// Serves until a signal, or until the pool is lost.
async fn serve(pool: &Pool, options: &Options, signals: &mut Signals) -> Result<ExitCode, Failure> {
    let trainings = Trainings::new(Arc::new(pool.clone()), options.bounds);
    let listener = TcpListener::bind(options.address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    let (close, closed) = oneshot::channel::<()>();
    let server = axum::serve(listener, http::router(trainings.clone())).with_graceful_shutdown(async {
        let _ = closed.await;
    });
    let server = tokio::spawn(server.into_future());

    let (code, why) = tokio::select! {
        () = signals.next() => (ExitCode::SUCCESS, "a signal"),
        // Whoever supervises the service starts it again, with a pool that works.
        () = trainings.pool_lost() => (ExitCode::FAILURE, "the pool takes no more tasks"),
        told = story::tell(Client(address)), if options.once => told.map(|()| (ExitCode::SUCCESS, "that was all"))?,
    };
    // In this order: no new trainings; those that are there end, or are ended with the pool; their followers hear of it; the connections end.
    trainings.stop();
    println!("stopping, {why}: trainings get {} s", options.drain.as_secs());
    tokio::select! {
        _ = trainings.idle(options.drain) => {}
        () = signals.next() => println!("a second signal: not waiting any longer"),
    }
    pool.shutdown(SHUTDOWN).await?;
    trainings.idle(LAST_WORDS).await;
    let _ = close.send(());
    // A follower that does not read is not waited for.
    let _ = tokio::time::timeout(LAST_WORDS, server).await;
    Ok(code)
}

/// SIGTERM and SIGINT.
struct Signals([Signal; 2]);

impl Signals {
    /// From here on the signals do not end the process by themselves.
    fn new() -> std::io::Result<Self> {
        Ok(Self([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]))
    }

    async fn next(&mut self) {
        let [terminate, interrupt] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// What the pool gets to end its machines.
const SHUTDOWN: Duration = Duration::from_secs(30);
const LAST_WORDS: Duration = Duration::from_secs(2);
