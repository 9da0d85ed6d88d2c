//! A plugin of your own: with the trait, and with the builder for small plugins.
//!
//! ```sh
//! cargo run --example custom_plugin
//! cargo run --example custom_plugin -- --plan   # shows what would be launched, and launches nothing
//! ```
//!
//! `tests/custom_plugin.rs` runs the testkit's conformance suite on both plugins;
//! `docs/plugins-writing.md` explains the code.

use skyward::prelude::*;

/// Keeps a cache that lives as long as the worker, and counts the tasks of each worker.
#[derive(Debug)]
pub struct TaskCounter {
    /// The number at which the count begins.
    pub first: u64,
}

impl Plugin for TaskCounter {
    fn name(&self) -> &str {
        "task_counter"
    }

    fn transform(&self, image: Image, _: &ClusterInfo) -> skyward::Result<Image> {
        Ok(image.env("TASK_COUNTER", "on"))
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<Hook> {
        let config = serde_json::json!({ "first": self.first });
        Some(Hook::new(HookKind::App, "task_counter.py", HOOKS, "around_app").config(config))
    }

    fn around_task(&self, _: &ClusterInfo) -> Option<Hook> {
        Some(Hook::new(HookKind::Task, "task_counter.py", HOOKS, "around_task"))
    }
}

const HOOKS: &str = r#"
import builtins
from contextlib import contextmanager


@contextmanager
def around_app(config):
    builtins.task_count = config["first"]
    yield


@contextmanager
def around_task(config):
    builtins.task_count += 1
    yield
"#;

/// A small plugin made with the builder, without a type of its own.
pub fn greeting() -> impl Plugin {
    plugin("greeting").env("GREETING", "hi").around_app(
        "
        def around_app(config):
            print('the worker begins')
            yield
            print('the worker ends')
        ",
    )
}

#[skyward::compute]
fn count() -> (u64, String, String) {
    r#"
    import builtins, os

    return builtins.task_count, os.environ["TASK_COUNTER"], os.environ["GREETING"]
    "#
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let builder = Pool::builder().plugin(TaskCounter { first: 10 }).plugin(greeting()).terminal(Terminal::auto());
    if std::env::args().any(|word| word == "--plan") {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    builder
        .scope(async |pool| {
            for wanted in 11..14 {
                let (tasks, switch, greeting) = count().run(pool).await?;
                assert_eq!(tasks, wanted);
                assert_eq!(switch.as_str(), "on");
                assert_eq!(greeting.as_str(), "hi");
                println!("task {tasks} of this worker; the greeting is `{greeting}`");
            }
            Ok(())
        })
        .await
}
