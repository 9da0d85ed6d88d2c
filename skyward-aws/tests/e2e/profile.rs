//! The role of the instances.

use skyward_core::error::Refusal;
use skyward_core::pool::Pool;

use crate::scene::{PATIENCE, Scene, limits};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn an_instance_profile_is_given_to_the_instances_by_its_name_or_its_arn() {
    let scene = Scene::new().await;
    let arn = scene.cloud.make_instance_profile("training").await.unwrap();
    for (given, parameter, other) in [
        ("training", "IamInstanceProfile.Name", "IamInstanceProfile.Arn"),
        (arn.as_str(), "IamInstanceProfile.Arn", "IamInstanceProfile.Name"),
    ] {
        scene.cloud.calls().forget();
        let aws = scene.aws().instance_profile(given);
        let pool = Pool::builder().provider(aws).limits(limits()).start().await.unwrap();
        let launches = scene.launches();
        assert_eq!(launches[0].get(parameter), given);
        assert_eq!(launches[0].get(other), "");
        pool.shutdown(PATIENCE).await.unwrap();
    }
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn an_instance_profile_that_is_not_there_is_refused_by_its_name_and_nothing_is_left() {
    let scene = Scene::new().await;
    for given in ["nobody", "arn:aws:iam::123456789012:instance-profile/nobody"] {
        let aws = scene.aws().instance_profile(given);
        let error = Pool::builder().provider(aws).limits(limits()).start().await.unwrap_err();
        assert!(matches!(error.refusal(), Some(Refusal::Misconfigured)), "{error:?}");
        assert!(format!("{error:#}").contains(given), "{error}");
        let left = scene.left().await;
        assert!(left.is_empty(), "{left:?}");
    }
    // No other type or zone would have it.
    assert!(scene.cloud.calls().count("RunInstances") <= 4, "{:?}", scene.cloud.calls().actions());
    assert!(scene.instances().is_empty());
}
