//! The suites of the testkit: a correct provider, plugin or remote passes every clause, and each
//! clause finds the fault that breaks it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod broken_cloud;
mod broken_plugin;
mod broken_provider;
mod broken_remote;
mod center;
mod cloud;

use std::sync::Arc;

use async_trait::async_trait;
use indoc::indoc;
use skyward_core::ids::PoolId;
use skyward_core::plugin::plugin;
use skyward_core::provider::{Local, Provider};
use skyward_core::testkit::provider_suite::Service;
use skyward_core::testkit::{plugin_suite, provider_suite};

#[tokio::test]
async fn the_local_provider_meets_its_contract() {
    let folder = Folder::new();
    provider_suite::all_with(&folder.local(), &folder.local(), &folder).await.unwrap();
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
#[derive(Debug)]
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("skyc{:08x}", rand::random::<u32>())))
    }

    fn local(&self) -> Local {
        Local::new().runtime_dir(&self.0)
    }
}

#[async_trait]
impl Service for Folder {
    async fn leftovers(&self, pool: &PoolId) -> Option<Vec<String>> {
        let pool = self.0.join(pool.as_str());
        Some(pool.exists().then(|| pool.display().to_string()).into_iter().collect())
    }

    fn elsewhere(&self) -> Option<Arc<dyn Provider>> {
        Some(Arc::new(Local::new().runtime_dir(self.0.with_extension("other"))))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
