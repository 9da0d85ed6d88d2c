//! The suites of the testkit: a correct provider, plugin or remote passes every clause, and each
//! clause finds the fault that breaks it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod broken_plugin;
mod broken_provider;
mod broken_remote;

use indoc::indoc;
use skyward_core::plugin::plugin;
use skyward_core::provider::Local;
use skyward_core::testkit::{plugin_suite, provider_suite};

#[tokio::test]
async fn the_local_provider_meets_its_contract() {
    let folder = Folder::new();
    let again = Local::new().runtime_dir(&folder.0);
    provider_suite::all(&folder.local(), &again).await.unwrap();
}

#[test]
fn plugins_made_from_values_meet_their_contract() {
    let full = plugin("timing")
        .pip(["psutil>=6"])
        .apt(["numactl"])
        .env("TIMING", "1")
        .bootstrap("mkdir -p \"$HOME/timing\" && touch \"$HOME/timing/begun\"")
        .around_app(indoc! {"
            def around_app(config):
                yield
        "})
        .around_task(indoc! {"
            import time

            def around_task(config):
                yield time.perf_counter()
        "})
        .config(serde_json::json!({"unit": "ms"}));
    plugin_suite::all(&full).unwrap();
    plugin_suite::all(&plugin("nothing")).unwrap();
}

/// A folder for machines of this host, removed at the end of the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("skyc{:08x}", rand::random::<u32>())))
    }

    fn local(&self) -> Local {
        Local::new().runtime_dir(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
