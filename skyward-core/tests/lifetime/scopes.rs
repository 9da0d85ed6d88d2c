//! Scopes and starts that end from outside, that are watched, and whose bodies have errors of their
//! own.

use std::fmt;
use std::future::pending;

use skyward_core::error::{Error, ErrorKind};
use skyward_core::event::{EventItem, PoolEvent};
use skyward_core::pool::Pool;
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::time::{sleep, timeout};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The error of a program.
#[derive(Debug)]
enum Failure {
    Skyward(Error),
    Own(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Skyward(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skyward(error) => error.fmt(f),
            Self::Own(text) => f.write_str(text),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_fails_with_the_error_of_its_program_and_the_machines_end() {
    let provider = FakeProvider::new(Machines::default());
    let builder = Pool::builder().provider(provider.clone());
    let own = builder.clone().try_scope(async |pool| {
        echo(1).run(pool).await?;
        Err::<(), _>(Failure::Own("the disk is full"))
    });
    assert_eq!(own.await.unwrap_err().to_string(), "the disk is full");
    assert_eq!(provider.machines(), []);
    let not_started = builder.clone().nodes(0).try_scope(async |_| Ok::<_, Failure>(7));
    assert!(
        matches!(not_started.await.unwrap_err(), Failure::Skyward(error) if error.kind() == ErrorKind::InvalidSpec)
    );
    assert_eq!(builder.try_scope(async |_| Ok::<_, Failure>(7)).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_scope_ends_when_its_future_completes_at_any_time() {
    let provider = FakeProvider::new(Machines { hooks: 10 * SECOND, ..Machines::default() });
    for after in [0, 1, 5, 20, 300] {
        let builder = Pool::builder().provider(provider.clone()).until(sleep(after * SECOND));
        let body = async |pool: &Pool| {
            echo(1).run(pool).await?;
            pending::<skyward_core::Result<()>>().await
        };
        let error = timeout(400 * SECOND, builder.scope(body)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        assert_eq!(provider.machines(), [], "after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_that_completes_later_ends_neither_a_scope_nor_a_started_pool() {
    let provider = FakeProvider::new(Machines::default());
    let builder = Pool::builder().provider(provider.clone()).until(sleep(60 * SECOND));
    builder.clone().scope(async |pool| echo(1).run(pool).await).await.unwrap();
    let pool = builder.start().await.unwrap();
    sleep(120 * SECOND).await;
    echo(1).run(&pool).await.unwrap();
    pool.shutdown(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_builder_begin_with_the_first_and_end_with_the_pool() {
    let provider = FakeProvider::new(Machines::default());
    let builder = Pool::builder().provider(provider);
    let (mut events, mut of_the_clone) = (builder.events(), builder.clone().events());
    assert!(of_the_clone.next().await.is_none(), "nobody can start that pool");
    builder.scope(async |_| Ok(())).await.unwrap();
    let mut all = Vec::new();
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else { panic!("events are missing") };
        all.push(event);
    }
    assert!(matches!(**all.first().unwrap(), PoolEvent::NodeLaunching { .. }), "{all:?}");
    assert!(all.iter().any(|event| matches!(**event, PoolEvent::PoolReady { .. })));
    assert!(matches!(**all.last().unwrap(), PoolEvent::Closed));
    // A start that is refused ends the stream, too.
    let refused = Pool::builder().nodes(0);
    let mut events = refused.events();
    refused.start().await.unwrap_err();
    assert!(events.next().await.is_none());
}
