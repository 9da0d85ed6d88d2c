//! The output of a task is emitted before its outcome, however the task ends.

use std::sync::Arc;

use futures_util::FutureExt;
use skyward_core::compute::PendingCompute;
use skyward_core::event::{EventItem, Events, PoolEvent};
use skyward_core::payload::{Args, Output, RetryPolicy, Source, Streaming};
use skyward_core::pool::Pool;

const PRINTS: &str = r"
import os
import sys


def call(text, how):
    if how == 'err':
        print(text, file=sys.stderr)
    elif how == 'large':
        sys.stdout.write('x' * (1 << 20) + text)
    elif how == 'native':
        os.write(1, text.encode())
    else:
        print(text)
    if how == 'raise':
        raise ValueError(text)
    if how == 'die':
        os._exit(1)


def stream(text, how):
    yield how
    sys.stdout.write(text)
";

fn task<T: Output>(entry: &'static str, text: &str, how: &str) -> PendingCompute<T> {
    let args = Args::new().with("text", &text.to_owned()).with("how", &how.to_owned());
    PendingCompute::new(Arc::new(Source::file("prints.py", PRINTS, entry)), args)
}

/// Runs tasks that print and end in each way, and checks what was emitted by the time their futures
/// resolve.
pub(crate) async fn printed_before_outcome(pool: &Pool, rounds: u32) {
    let mut events = pool.events();
    for round in 0..rounds {
        for how in ["line", "native", "err", "large", "raise", "stream"] {
            let text = format!("{how} of round {round}");
            if how == "stream" {
                let mut items = task::<Streaming<String>>("stream", &text, how).run(pool).await.unwrap();
                while let Some(item) = items.next().await {
                    assert_eq!(item.unwrap(), how);
                }
            } else {
                let ended = task::<()>("call", &text, how).run(pool).await;
                assert_eq!(ended.is_err(), how == "raise", "{ended:?}");
            }
            assert_printed(&mut events, &text);
        }
    }
    let text = "the last words";
    task::<()>("call", text, "die").retry(RetryPolicy::never()).run(pool).await.unwrap_err();
    assert_printed(&mut events, text);
}

/// Checks that all output has been emitted, and the task's outcome after it.
fn assert_printed(events: &mut Events, text: &str) {
    let (mut written, mut ended) = (Vec::new(), false);
    while let Some(Some(item)) = events.next().now_or_never() {
        let EventItem::Event(event) = item else { panic!("{text}: {item:?}") };
        match &*event {
            PoolEvent::Output(output) => {
                assert!(!ended, "{text}: {output:?} came after the task's end");
                written.extend_from_slice(&output.bytes);
            }
            PoolEvent::TaskFinished { .. } | PoolEvent::TaskFailed { .. } => ended = true,
            _ => {}
        }
    }
    assert!(written.trim_ascii_end().ends_with(text.as_bytes()), "{text}: only {} bytes were emitted", written.len());
    assert!(ended, "{text}");
}
