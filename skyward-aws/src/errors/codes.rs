//! The table of EC2's error codes.
//!
//! Unless a row names another source, its code and meaning are those of
//! <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html>.

/// What an error code says about the call, and so what the pool does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// There is no room for this offer now. Next: another offer, and this one again later.
    Capacity,
    /// This offer is not sold to the account. Next: another offer, and never this one.
    NotOffered,
    /// A limit of the account is reached. Next: an offer that does not count against the limit, and
    /// the others later.
    Quota,
    /// Too many calls. Next: the same call.
    Throttled,
    /// Next: the same call, which may succeed later.
    Transient,
    /// Something that the call names does not exist, or is not known everywhere yet. Next: it is
    /// looked for, made if it is gone, and named in a new call.
    NotFound,
    /// What the call makes exists already.
    Duplicate,
    /// Something else still uses what the call removes. Next: the same call.
    InUse,
    /// These credentials may not do this. Next: nothing.
    Denied,
    /// The credentials are not valid, or not any more. Next: nothing.
    Credentials,
    /// The account itself cannot be used. Next: nothing.
    Account,
    /// The call is wrong. Next: nothing.
    Wrong,
}

pub(super) const CODES: &[(&str, Class)] = &[
    ("InsufficientInstanceCapacity", Class::Capacity),
    ("InsufficientCapacity", Class::Capacity),
    ("InsufficientHostCapacity", Class::Capacity),
    ("InsufficientReservedInstanceCapacity", Class::Capacity),
    // The zone has no room for the disk.
    ("InsufficientVolumeCapacity", Class::Capacity),
    ("ReservationCapacityExceeded", Class::Capacity),
    ("InvalidCapacityReservationState.PendingActivation", Class::Capacity),
    ("UnfulfillableCapacity", Class::Capacity),
    ("SpotMaxPriceTooLow", Class::Capacity),
    // The subnet is full: another zone has another subnet.
    ("InsufficientFreeAddressesInSubnet", Class::Capacity),
    ("InsufficientAddressCapacity", Class::Capacity),
    // The machine of the call has ended already, so nothing of it lives, and its token is used up.
    // The next launch has another token.
    ("IdempotentInstanceTerminated", Class::Capacity),
    ("Unsupported", Class::NotOffered),
    ("UnsupportedOperation", Class::NotOffered),
    ("InvalidInstanceType", Class::NotOffered),
    ("InvalidAvailabilityZone", Class::NotOffered),
    ("InvalidZone.NotFound", Class::NotOffered),
    ("VolumeTypeNotAvailableInZone", Class::NotOffered),
    // Types differ in how many disks and interfaces they take, and older ones encrypt no disks.
    ("AttachmentLimitExceeded", Class::NotOffered),
    ("EncryptedVolumesNotSupported", Class::NotOffered),
    // Only spot instances need the role:
    // <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html>.
    (SPOT_ROLE, Class::NotOffered),
    ("VcpuLimitExceeded", Class::Quota),
    ("InstanceLimitExceeded", Class::Quota),
    ("MaxSpotInstanceCountExceeded", Class::Quota),
    ("VolumeLimitExceeded", Class::Quota),
    ("MaxIOPSLimitExceeded", Class::Quota),
    ("AddressLimitExceeded", Class::Quota),
    ("NetworkInterfaceLimitExceeded", Class::Quota),
    ("SecurityGroupLimitExceeded", Class::Quota),
    ("SecurityGroupsPerInstanceLimitExceeded", Class::Quota),
    ("SecurityGroupsPerInterfaceLimitExceeded", Class::Quota),
    ("RulesPerSecurityGroupLimitExceeded", Class::Quota),
    ("PlacementGroupLimitExceeded", Class::Quota),
    ("ResourceLimitExceeded", Class::Quota),
    // Too many instances in one call.
    ("ResourceCountExceeded", Class::Quota),
    ("RequestResourceCountExceeded", Class::Quota),
    ("RequestLimitExceeded", Class::Throttled),
    // The codes of other services:
    // <https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html>.
    ("Throttling", Class::Throttled),
    ("ThrottlingException", Class::Throttled),
    ("ThrottledException", Class::Throttled),
    ("EC2ThrottledException", Class::Throttled),
    ("TooManyRequestsException", Class::Throttled),
    ("InternalError", Class::Transient),
    ("InternalFailure", Class::Transient),
    ("Unavailable", Class::Transient),
    ("ServiceUnavailable", Class::Transient),
    ("ServerInternal", Class::Transient),
    ("IncorrectState", Class::Transient),
    ("ConcurrentTagAccess", Class::Transient),
    ("RetryableError", Class::Transient),
    ("DependencyViolation", Class::InUse),
    ("InvalidGroup.InUse", Class::InUse),
    ("InvalidPlacementGroup.InUse", Class::InUse),
    ("InvalidGroup.Duplicate", Class::Duplicate),
    ("InvalidPermission.Duplicate", Class::Duplicate),
    ("InvalidPlacementGroup.Duplicate", Class::Duplicate),
    ("InvalidInstanceID.NotFound", Class::NotFound),
    ("InvalidInstanceID.Malformed", Class::NotFound),
    ("InvalidGroup.NotFound", Class::NotFound),
    ("InvalidGroupId.Malformed", Class::NotFound),
    ("InvalidSecurityGroupID.NotFound", Class::NotFound),
    ("InvalidPermission.NotFound", Class::NotFound),
    ("InvalidPlacementGroup.Unknown", Class::NotFound),
    ("UnauthorizedOperation", Class::Denied),
    ("AccessDenied", Class::Denied),
    ("AccessDeniedException", Class::Denied),
    ("AuthFailure", Class::Credentials),
    ("InvalidClientTokenId", Class::Credentials),
    ("UnrecognizedClientException", Class::Credentials),
    ("SignatureDoesNotMatch", Class::Credentials),
    ("InvalidSignatureException", Class::Credentials),
    ("IncompleteSignature", Class::Credentials),
    ("MissingAuthenticationToken", Class::Credentials),
    ("ExpiredToken", Class::Credentials),
    ("ExpiredTokenException", Class::Credentials),
    ("RequestExpired", Class::Credentials),
    ("InvalidSecurity.RequestHasExpired", Class::Credentials),
    ("PendingVerification", Class::Account),
    ("OptInRequired", Class::Account),
    ("Blocked", Class::Account),
    ("AccountDisabled", Class::Account),
    ("InvalidAMIID.NotFound", Class::Wrong),
    ("InvalidAMIID.Unavailable", Class::Wrong),
    ("InvalidSubnetID.NotFound", Class::Wrong),
    ("CustomerKeyHasBeenRevoked", Class::Wrong),
    ("TagPolicyViolation", Class::Wrong),
    ("TagLimitExceeded", Class::Wrong),
    ("InvalidTagKey.Malformed", Class::Wrong),
    ("InvalidParameterCombination", Class::Wrong),
    ("InvalidParameterValue", Class::Wrong),
    ("InvalidBlockDeviceMapping", Class::Wrong),
];

/// The class of an error by its code; by its HTTP status where the table does not have the code.
/// The message tells apart what one code means by the plan of the account.
pub(crate) fn class(code: Option<&str>, status: Option<u16>, message: &str) -> Class {
    if is_of_free_plan(code, message) {
        // A few types are sold to accounts of the plan.
        return Class::NotOffered;
    }
    let known = code.and_then(|code| CODES.iter().find(|(known, _)| *known == code));
    match (known, status) {
        (Some((_, class)), _) => *class,
        // An unknown error may pass if the service blames itself, and not if it blames the call.
        (None, Some(500..)) | (None, None) => Class::Transient,
        (None, _) => Class::Wrong,
    }
}

/// Whether EC2 refuses a type because the account has the Free plan:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-free-tier-usage.html>. Its message is
/// `The specified instance type is not eligible for Free Tier.`
pub(crate) fn is_of_free_plan(code: Option<&str>, message: &str) -> bool {
    code == Some("InvalidParameterCombination") && message.contains("not eligible for Free Tier")
}

/// The account has no role for spot instances, and the credentials may not make it.
pub(super) const SPOT_ROLE: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
