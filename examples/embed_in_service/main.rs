//! A service around one pool: trainings come in over HTTP, are followed as server-sent events, and
//! share the pool's workers.
//!
//! ```sh
//! cargo run --example embed_in_service              # prints its address, and runs until SIGINT or SIGTERM
//! cargo run --example embed_in_service -- --once    # sends requests to itself, prints the answers, and ends
//!
//! curl -i -d '{"epochs": 20}' $ADDRESS/trainings    # 202, with the training's address
//! curl -N $ADDRESS/trainings/ID/events              # follows it
//! curl $ADDRESS/trainings/ID                        # its state and result
//! curl -X DELETE $ADDRESS/trainings/ID              # cancels it
//! curl $ADDRESS/health
//! ```
//!
//! `docs/embedding.md` explains the code.

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
use tokio::sync::oneshot;
use training::Train;
use trainings::Trainings;

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    run_service(&Options::read(std::env::args().skip(1))).await
}

/// Starts a pool, and serves until a signal or the end of the pool.
pub(crate) async fn run_service(options: &Options) -> Result<ExitCode, Failure> {
    // First, end what an earlier instance of the service left when it was killed.
    let reaped = skyward::reap([]).await?;
    println!("{reaped}");
    let builder = Pool::builder()
        .nodes(options.nodes)
        .payload::<Train>()
        // The workers share one host, so each takes one thread.
        .image(Image::new().env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1"))
        .until(skyward::interrupted());
    let pool = match builder.start().await {
        Ok(pool) => pool,
        Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(error.into()),
    };
    println!("pool {}", pool.id());
    let served = serve(&pool, options).await;
    // Wait for the end of the pool, also after an error.
    let ended = pool.shutdown(SHUTDOWN).await;
    let code = served?;
    ended?;
    println!("ended");
    Ok(code)
}

/// Serves until a signal, or until the pool fails.
async fn serve(pool: &Pool, options: &Options) -> Result<ExitCode, Failure> {
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
        () = skyward::interrupted() => (ExitCode::SUCCESS, "a signal"),
        // The log has the reason. The service's supervisor starts it again, with a new pool.
        Some(_) = pool.failed() => (ExitCode::FAILURE, "the pool has failed"),
        told = story::tell(Client(address)), if options.once => told.map(|()| (ExitCode::SUCCESS, "that was all"))?,
    };
    // In this order: refuse new trainings; wait for those that run, and end the rest with the pool;
    // let followers read the last events; close the connections.
    trainings.stop();
    println!("stopping, {why}: trainings get {} s", options.drain.as_secs());
    tokio::select! {
        _ = trainings.idle(options.drain) => {}
        () = skyward::interrupted() => println!("a second signal: not waiting any longer"),
    }
    pool.shutdown(SHUTDOWN).await?;
    trainings.idle(LAST_WORDS).await;
    let _ = close.send(());
    // Do not wait for followers that do not read.
    let _ = tokio::time::timeout(LAST_WORDS, server).await;
    Ok(code)
}

/// How long the pool may take to end its machines.
const SHUTDOWN: Duration = Duration::from_secs(30);
const LAST_WORDS: Duration = Duration::from_secs(2);
