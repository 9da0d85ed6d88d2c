//! Payloads are imported before a pool is ready, and no timeout counts an import.

use std::time::Duration;

use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::ErrorKind;
use skyward::payload::RetryPolicy;

use crate::common::{limits, pool, python};

/// Takes a while to be imported, and nothing to run.
const SLOW: &str = indoc! {"
    import time
    time.sleep(2)
    def f():
        return 1
"};

/// Is never imported.
const ENDLESS: &str = indoc! {"
    import time
    time.sleep(3600)
    def f():
        return 1
"};

/// Needs what nobody has installed.
const MISSING: &str = indoc! {"
    import nowhere_to_be_found
    def f():
        return 1
"};

fn call(text: &'static str) -> PendingCompute<u32> {
    PendingCompute::from(python(text)).timeout(Duration::from_millis(500)).retry(RetryPolicy::never())
}

#[tokio::test]
async fn a_timeout_counts_no_import() {
    let slow = call(SLOW);
    for builder in [pool(1), pool(1).payload_of(&slow), pool(1).payload_of(&slow).lazily()] {
        assert_eq!(builder.scope(async |pool| slow.clone().run(pool).await).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_payload_that_cannot_be_imported_fails_the_start_unless_it_is_imported_lazily() {
    let missing = call(MISSING);
    let error = pool(1).payload_of(&missing).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Raised, "{error:#}");
    let text = format!("{error:#}");
    assert!(text.contains("importing payload.py before the pool is ready"), "{text}");
    assert!(text.contains("No module named 'nowhere_to_be_found'"), "{text}");
    let later = pool(1).payload_of(&missing).lazily().scope(async |pool| missing.clone().run(pool).await).await;
    assert_eq!(later.unwrap_err().kind(), ErrorKind::Raised);
}

#[tokio::test]
async fn an_import_without_an_end_has_the_time_of_hooks() {
    let mut limits = limits();
    limits.hooks = Duration::from_secs(3);
    let endless = call(ENDLESS);
    let error = pool(1).limits(limits).payload_of(&endless).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hook, "{error:#}");
    assert!(error.message().contains("(hooks: none; payloads: payload.py)"), "{error:#}");
    let error = pool(1).limits(limits).scope(async |pool| endless.clone().run(pool).await).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:#}");
    assert_eq!(error.message(), "the payload of the task was not imported within 3s");
}
