//! The provider of the example meets the provider contract.

#[path = "../examples/custom_provider.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's own pool is not started here")]
mod example;

use example::Folders;
use skyward::testkit::provider_suite;

#[tokio::test]
async fn the_example_provider_passes_the_suite() {
    let root = std::env::temp_dir().join(format!("skyf{}", std::process::id()));
    let checked = provider_suite::all(&Folders::new(&root), &Folders::new(&root)).await;
    std::fs::remove_dir_all(&root).unwrap();
    checked.unwrap();
}
