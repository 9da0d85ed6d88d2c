//! What a pool reports, and what it conceals: traces, metrics and secrets, with real Python on this
//! host.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

#[path = "../common/mod.rs"]
mod common;
mod metrics;
#[path = "../../skyward-core/tests/support/printed.rs"]
mod printed;
#[path = "../common/recorder.rs"]
mod recorder;
mod secrets;
mod spans;
#[path = "../common/traces.rs"]
mod traces;

use std::sync::OnceLock;

use common::user::ROLE;
use common::{limits, pool};
use indoc::indoc;
use traces::Traces;

/// Raises an error at once.
const RAISES: &str = indoc! {"
    def f():
        raise ValueError('no')
"};

/// Everything that this program traces.
fn traces() -> &'static Traces {
    static TRACES: OnceLock<Traces> = OnceLock::new();
    TRACES.get_or_init(Traces::of_program)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_task_comes_before_its_outcome() {
    let pool = pool(2).start().await.unwrap();
    printed::printed_before_outcome(&pool, 30).await;
    pool.shutdown(limits().shutdown).await.unwrap();
}

/// The role in which the tests start this program.
#[tokio::test]
#[ignore = "a role that the other tests play"]
async fn client() {
    assert_eq!(std::env::var(ROLE).unwrap(), "service");
    secrets::service().await;
}
