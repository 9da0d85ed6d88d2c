//! The provider of the example meets the provider contract.

#[path = "../examples/custom_provider.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's own pool is not started here")]
mod example;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use example::Folders;
use skyward::ids::PoolId;
use skyward::provider::Provider;
use skyward::testkit::provider_suite::{self, Service};

/// The folder of the machines, as the test sees it without the provider.
#[derive(Debug)]
struct Root(PathBuf);

#[async_trait]
impl Service for Root {
    async fn leftovers(&self, pool: &PoolId) -> Option<Vec<String>> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Some(names.filter(|name| name.starts_with(pool.as_str())).collect())
    }

    fn elsewhere(&self) -> Option<Arc<dyn Provider>> {
        Some(Arc::new(Folders::new(self.0.with_extension("other"))))
    }
}

#[tokio::test]
async fn the_example_provider_passes_the_suite() {
    let root = std::env::temp_dir().join(format!("skyf{}", std::process::id()));
    let checked = provider_suite::all_with(&Folders::new(&root), &Folders::new(&root), &Root(root.clone())).await;
    std::fs::remove_dir_all(&root).unwrap();
    checked.unwrap();
}
