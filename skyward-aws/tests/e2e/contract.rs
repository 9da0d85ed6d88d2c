//! The provider's contract, clause by clause.

use skyward_core::testkit::provider_suite;

use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn the_provider_holds_its_contract() {
    let scene = Scene::new().await;
    let broken = provider_suite::all(&scene.aws(), &scene.aws()).await;
    assert!(broken.is_ok(), "{:#?}", broken.unwrap_err());
    scene.until_nothing_left().await;
}
