//! What a launch returns for EC2's error codes.

use std::time::Duration;

use skyward_aws_testkit::{CloudOptions, Phases, Rule};
use skyward_core::error::Refusal;
use skyward_core::ids::{Attempt, LaunchId, MachineNumber, PoolId};
use skyward_core::provider::{LaunchBatch, LaunchRequest, Offer, Provider};

use crate::scene::{Scene, torn_down};

/// A code of each kind, with the status that EC2 gives it and the refusal that a pool acts by; none
/// where the same call may succeed later.
const CODES: [(&str, u16, Option<Refusal>); 9] = [
    ("InsufficientInstanceCapacity", 500, Some(Refusal::Capacity)),
    ("SpotMaxPriceTooLow", 400, Some(Refusal::Capacity)),
    ("Unsupported", 400, Some(Refusal::NotOffered)),
    ("RequestLimitExceeded", 503, Some(Refusal::Throttled(None))),
    ("InternalError", 500, None),
    ("InvalidGroup.NotFound", 400, None),
    ("UnauthorizedOperation", 403, Some(Refusal::Denied)),
    ("PendingVerification", 400, Some(Refusal::Denied)),
    ("InvalidParameterValue", 400, Some(Refusal::Misconfigured)),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_launch_is_refused_by_the_meaning_of_the_code() {
    let scene = Scene::of(CloudOptions::new().without_machines().phases(Phases::NONE)).await;
    let zone = scene.cloud.subnets().keys().next().unwrap();
    let quota = ("VcpuLimitExceeded", 400, Some(Refusal::Quota("L-DB2E81BA".to_owned())));
    for (code, status, refusal) in CODES.into_iter().chain([quota]) {
        let (pool, number) = (PoolId::new(format!("p-{}", code.to_lowercase().replace('.', "-"))), MachineNumber(0));
        let request = LaunchRequest::new(LaunchId::of(&pool, number, Attempt(1)), pool.clone(), number, LEASE);
        let batch = LaunchBatch::one(Offer::new("g5.xlarge", zone, 4, 16).quota("L-DB2E81BA"), request);
        scene.cloud.rules().clear();
        scene.cloud.rules().add(Rule::error("RunInstances", status, code, "words").when(|call| !call.is_dry_run()));
        let aws = scene.aws();
        let error = aws.launch(&batch).await.remove(0).unwrap_err();
        assert_eq!(error.refusal(), refusal.as_ref(), "{code}: {error:?}");
        if refusal.is_none() {
            assert!(error.is_temporary(), "{code}: {error:?}");
        }
        torn_down(&aws, &pool).await;
    }
    scene.assert_nothing_left().await;
}

const LEASE: Duration = Duration::from_secs(60);
