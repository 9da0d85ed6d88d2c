use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use futures_util::stream::{self, StreamExt};
use skyward_core::ids::{LaunchId, MachineNumber, PoolId};
use skyward_core::pool::Pool;
use skyward_core::provider::{LaunchBatch, LaunchRequest, Market, Provider, Requirements};
use skyward_core::spec::Limits;

use super::codes::CODES;
use super::*;
use crate::loopback::{Loopback, ec2};
use crate::timing::LISTED_LATE;

/// What the pool tries after a refusal of the first offer, which is a spot offer in zone a.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The spot offer in zone b.
    Offer,
    /// The offer on demand in zone a, because no other spot offer has room in the quota.
    Quota,
    /// The same call with the same token.
    Call,
    /// A new call for the same offer.
    NewCall,
    Nothing,
}

/// Codes with what each means to a launch: its refusal, what is tried next, and words of its hint.
type Expected = (&'static [&'static str], Option<Refusal>, Next, &'static [&'static str]);

const SPOT_QUOTA: &str = "L-34B43A08";
const SIGN_IN: [&str; 1] = ["get-caller-identity"];

fn expected() -> Vec<Expected> {
    use Refusal::{Capacity, Denied, Misconfigured, NotOffered, Throttled};

    let quota = |name: &str| Some(Refusal::Quota(name.to_owned()));
    vec![
        (
            &[
                "InsufficientInstanceCapacity",
                "InsufficientCapacity",
                "InsufficientHostCapacity",
                "InsufficientReservedInstanceCapacity",
                "InsufficientVolumeCapacity",
                "ReservationCapacityExceeded",
                "InvalidCapacityReservationState.PendingActivation",
                "UnfulfillableCapacity",
                "SpotMaxPriceTooLow",
                "InsufficientFreeAddressesInSubnet",
                "InsufficientAddressCapacity",
            ],
            Some(Capacity),
            Next::Offer,
            &[],
        ),
        (&["IdempotentInstanceTerminated"], Some(Capacity), Next::Offer, &["describe-instances"]),
        (
            &[
                "Unsupported",
                "UnsupportedOperation",
                "InvalidInstanceType",
                "InvalidAvailabilityZone",
                "InvalidZone.NotFound",
                "VolumeTypeNotAvailableInZone",
                "AttachmentLimitExceeded",
                "EncryptedVolumesNotSupported",
            ],
            Some(NotOffered),
            Next::Offer,
            &[],
        ),
        (&[codes::SPOT_ROLE], Some(NotOffered), Next::Offer, &["create-service-linked-role"]),
        (
            &["VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded"],
            quota(SPOT_QUOTA),
            Next::Quota,
            &["request-service-quota-increase", SPOT_QUOTA],
        ),
        (&["VolumeLimitExceeded"], quota("VolumeLimitExceeded"), Next::Offer, &["disks", "/services/ebs/"]),
        (&["MaxIOPSLimitExceeded"], quota("MaxIOPSLimitExceeded"), Next::Offer, &["disks", "/services/ebs/"]),
        (&["AddressLimitExceeded"], quota("AddressLimitExceeded"), Next::Offer, &["addresses", "/services/ec2/"]),
        (
            &["NetworkInterfaceLimitExceeded"],
            quota("NetworkInterfaceLimitExceeded"),
            Next::Offer,
            &["network interfaces", "/services/vpc/"],
        ),
        (
            &["SecurityGroupLimitExceeded"],
            quota("SecurityGroupLimitExceeded"),
            Next::Offer,
            &["groups", "/services/vpc/"],
        ),
        (
            &["SecurityGroupsPerInstanceLimitExceeded"],
            quota("SecurityGroupsPerInstanceLimitExceeded"),
            Next::Offer,
            &["security groups", "/services/vpc/"],
        ),
        (
            &["SecurityGroupsPerInterfaceLimitExceeded"],
            quota("SecurityGroupsPerInterfaceLimitExceeded"),
            Next::Offer,
            &["security groups", "/services/vpc/"],
        ),
        (
            &["RulesPerSecurityGroupLimitExceeded"],
            quota("RulesPerSecurityGroupLimitExceeded"),
            Next::Offer,
            &["rules", "/services/vpc/"],
        ),
        (
            &["PlacementGroupLimitExceeded"],
            quota("PlacementGroupLimitExceeded"),
            Next::Offer,
            &["placement groups", "/services/ec2/"],
        ),
        (&["ResourceLimitExceeded"], quota("ResourceLimitExceeded"), Next::Offer, &["/services/ec2/"]),
        (&["ResourceCountExceeded"], quota("ResourceCountExceeded"), Next::Offer, &["fewer machines in one call"]),
        (
            &["RequestResourceCountExceeded"],
            quota("RequestResourceCountExceeded"),
            Next::Offer,
            &["fewer machines in one call"],
        ),
        (
            &[
                "RequestLimitExceeded",
                "Throttling",
                "ThrottlingException",
                "ThrottledException",
                "EC2ThrottledException",
                "TooManyRequestsException",
            ],
            Some(Throttled(None)),
            Next::Call,
            &[],
        ),
        (
            &[
                "InternalError",
                "InternalFailure",
                "Unavailable",
                "ServiceUnavailable",
                "ServerInternal",
                "IncorrectState",
                "ConcurrentTagAccess",
                "RetryableError",
            ],
            None,
            Next::Call,
            &[],
        ),
        (
            &[
                "InvalidInstanceID.NotFound",
                "InvalidInstanceID.Malformed",
                "InvalidGroup.NotFound",
                "InvalidGroupId.Malformed",
                "InvalidSecurityGroupID.NotFound",
                "InvalidPermission.NotFound",
                "InvalidPlacementGroup.Unknown",
            ],
            None,
            Next::NewCall,
            &[],
        ),
        (
            &["UnauthorizedOperation", "AccessDenied", "AccessDeniedException"],
            Some(Denied),
            Next::Nothing,
            &["aws-policy.json"],
        ),
        (
            &[
                "AuthFailure",
                "InvalidClientTokenId",
                "UnrecognizedClientException",
                "SignatureDoesNotMatch",
                "InvalidSignatureException",
                "IncompleteSignature",
                "MissingAuthenticationToken",
            ],
            Some(Denied),
            Next::Nothing,
            &SIGN_IN,
        ),
        (&["ExpiredToken", "ExpiredTokenException", "RequestExpired"], Some(Denied), Next::Nothing, &["log in again"]),
        (&["InvalidSecurity.RequestHasExpired"], Some(Denied), Next::Nothing, &["clock"]),
        (&["PendingVerification"], Some(Denied), Next::Nothing, &["try again later"]),
        (&["OptInRequired"], Some(Denied), Next::Nothing, &["enable"]),
        (&["Blocked", "AccountDisabled"], Some(Denied), Next::Nothing, &["support"]),
        (&["InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"], Some(Misconfigured), Next::Nothing, &["Allowed AMIs"]),
        (&["CustomerKeyHasBeenRevoked"], Some(Misconfigured), Next::Nothing, &["KMS"]),
        (
            &["TagPolicyViolation", "TagLimitExceeded", "InvalidTagKey.Malformed"],
            Some(Misconfigured),
            Next::Nothing,
            &[".tag("],
        ),
        // No launch is answered with those of the first line.
        (
            &[
                "DependencyViolation",
                "InvalidGroup.InUse",
                "InvalidPlacementGroup.InUse",
                "InvalidGroup.Duplicate",
                "InvalidPermission.Duplicate",
                "InvalidPlacementGroup.Duplicate",
                "InvalidSubnetID.NotFound",
                "InvalidParameterCombination",
                "InvalidParameterValue",
                "InvalidBlockDeviceMapping",
            ],
            Some(Misconfigured),
            Next::Nothing,
            &[],
        ),
    ]
}

#[test]
fn each_code_of_the_table_is_expected_once() {
    let mut expected: Vec<&str> = expected().into_iter().flat_map(|(codes, ..)| codes.iter().copied()).collect();
    let mut table: Vec<&str> = CODES.iter().map(|(code, _)| *code).collect();
    expected.sort_unstable();
    table.sort_unstable();
    assert_eq!(expected, table);
    assert_eq!(table.iter().collect::<BTreeSet<_>>().len(), table.len());
}

/// EC2 refuses the first launch so, and those after it for good.
fn refusing(code: &'static str, message: &'static str) -> Loopback {
    let first = Mutex::new(true);
    Loopback::start(move |body| {
        let is_launch = body.contains("Action=RunInstances&") && !body.contains("DryRun=true");
        match is_launch && std::mem::take(&mut *first.lock().unwrap()) {
            // The status says that the service is to blame, which the code overrides.
            true => (if code.starts_with("Insufficient") { 500 } else { 400 }, ec2::error(code, message)),
            false => ec2::answer(body),
        }
    })
}

/// The error of a launch that EC2 refuses so.
async fn refused(code: &'static str, message: &'static str) -> Error {
    let aws = refusing(code, message).aws();
    let offers = aws.offers(&Requirements::default().market(Market::SpotOrOnDemand)).await.unwrap();
    let offer = offers.into_iter().find(|offer| offer.spot).unwrap();
    let pool = PoolId::new("p-refused");
    let request = LaunchRequest::new(LaunchId::new("p-refused-n0-a1"), pool, MachineNumber(0), LISTED_LATE);
    aws.launch(&LaunchBatch::one(offer, request)).await.remove(0).unwrap_err()
}

/// What a pool tries next.
async fn next(code: &'static str, message: &'static str) -> Next {
    let service = refusing(code, message);
    let mut limits = Limits::default();
    limits.start = std::time::Duration::from_secs(60);
    let pool = Pool::builder().provider(service.aws()).limits(limits).market(Market::SpotOrOnDemand);
    let error = pool.start().await.map(drop).unwrap_err();
    let launches: Vec<_> =
        service.asked_of("RunInstances").into_iter().filter(|call| !call.contains_key("DryRun")).collect();
    let get = |call: &BTreeMap<String, String>, name: &str| call.get(name).cloned().unwrap_or_default();
    let offer = |call| (get(call, "NetworkInterface.1.SubnetId"), get(call, "InstanceMarketOptions.MarketType"));
    assert_eq!(offer(&launches[0]), ("subnet-a".to_owned(), "spot".to_owned()), "{code}: {error:?}");
    let Some(second) = launches.get(1) else { return Next::Nothing };
    let is_same = get(second, "ClientToken") == get(&launches[0], "ClientToken");
    match (offer(second), is_same) {
        (first, true) if first == offer(&launches[0]) => Next::Call,
        (first, false) if first == offer(&launches[0]) => Next::NewCall,
        ((subnet, market), false) if subnet == "subnet-b" && market == "spot" => Next::Offer,
        ((subnet, market), false) if subnet == "subnet-a" && market.is_empty() => Next::Quota,
        other => panic!("{code}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_code_is_the_refusal_the_hint_and_the_next_try_of_the_table() {
    let rows = expected()
        .into_iter()
        .flat_map(|(codes, refusal, next, words)| codes.iter().map(move |code| (*code, refusal.clone(), next, words)));
    let walked = rows.map(|(code, refusal, expected, words)| async move {
        let error = refused(code, "EC2 says so.").await;
        let hint = error.hint().unwrap_or_default();
        let tried = next(code, "EC2 says so.").await;
        let is_right = error.refusal() == refusal.as_ref()
            && error.message().contains("EC2 says so.")
            && words.iter().all(|word| hint.contains(word))
            && words.is_empty() == hint.is_empty()
            && tried == expected;
        (!is_right).then(|| format!("{code}: {tried:?} after {error:#}, {:?}; not {expected:?}", error.refusal()))
    });
    let wrong: Vec<Option<String>> = stream::iter(walked).buffer_unordered(24).collect().await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_role_for_spot_instances_a_pool_falls_to_on_demand_or_says_how_to_make_the_role() {
    for (market, tried) in [(Market::SpotOrOnDemand, &["spot", "spot", ""][..]), (Market::Spot, &["spot", "spot"])] {
        let service = Loopback::start(|body| match body.contains("MarketType=spot") && !body.contains("DryRun=true") {
            true => (403, ec2::error(codes::SPOT_ROLE, "The provided credentials do not have permission.")),
            false => ec2::answer(body),
        });
        let error = Pool::builder().provider(service.aws()).market(market).start().await.map(drop).unwrap_err();
        let launches = service.asked_of("RunInstances");
        let launches = launches.iter().filter(|call| !call.contains_key("DryRun"));
        let markets: Vec<_> =
            launches.map(|call| call.get("InstanceMarketOptions.MarketType").cloned().unwrap_or_default()).collect();
        assert_eq!(markets, tried, "{error:?}");
        if market == Market::Spot {
            assert!(error.hint().is_some_and(|hint| hint.contains("create-service-linked-role")), "{error:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_the_free_plan_does_not_have_is_left_out_with_how_to_leave_the_plan() {
    const CODE: &str = "InvalidParameterCombination";
    const MESSAGE: &str = "The specified instance type is not eligible for Free Tier. For a list of Free Tier instance \
                           types, run 'describe-instance-types' with the filter 'free-tier-eligible=true'.";
    let error = refused(CODE, MESSAGE).await;
    assert_eq!(error.refusal(), Some(&Refusal::NotOffered));
    assert!(error.hint().unwrap().contains("upgrade the account to the Paid plan"), "{error:#}");
    assert_eq!(next(CODE, MESSAGE).await, Next::Offer);
}

#[tokio::test]
async fn a_limit_on_what_a_pool_makes_before_its_machines_is_named_with_its_link() {
    let service = Loopback::start(|body| match body.contains("Action=CreateSecurityGroup&") {
        true => (400, ec2::error("SecurityGroupLimitExceeded", "The maximum number of groups has been reached.")),
        false => ec2::answer(body),
    });
    let error = Pool::builder().provider(service.aws()).start().await.map(drop).unwrap_err();
    let told = format!("{error:#}");
    assert!(told.contains("SecurityGroupLimitExceeded") && told.contains("/services/vpc/quotas"), "{told}");
}

#[test]
fn a_code_that_the_table_lacks_is_of_the_call_or_of_the_service_by_its_status() {
    assert_eq!(class(Some("NewIn2030"), Some(400), ""), Class::Wrong);
    assert_eq!(class(Some("NewIn2030"), Some(503), ""), Class::Transient);
    assert_eq!(class(None, None, ""), Class::Transient);
}
