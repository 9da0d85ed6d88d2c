//! What the errors of EC2 mean: one table from codes to what the pool does next.
//!
//! The codes are those of
//! <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html>.

use std::fmt;

use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use skyward_core::error::{Error, ErrorKind, Refusal, Result};

/// What an error code says about the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// This type is sold out in this zone and market.
    Capacity,
    /// This type is not sold in this zone.
    NotOffered,
    /// The account's quota for this family is used up.
    Quota,
    /// Too many calls.
    Throttled,
    /// The same call succeeds later.
    Transient,
    /// Something that the call names does not exist.
    NotFound,
    /// What the call makes exists already.
    Duplicate,
    /// Something else still uses what the call removes.
    InUse,
    /// These credentials may not do this.
    Denied,
    /// The credentials are not valid, or not any more.
    Credentials,
    /// The account itself cannot be used.
    Account,
    /// The call is wrong.
    Wrong,
}

const CODES: &[(&str, Class)] = &[
    ("InsufficientInstanceCapacity", Class::Capacity),
    ("InsufficientCapacity", Class::Capacity),
    ("InsufficientHostCapacity", Class::Capacity),
    ("InsufficientReservedInstanceCapacity", Class::Capacity),
    ("ReservationCapacityExceeded", Class::Capacity),
    ("UnfulfillableCapacity", Class::Capacity),
    ("SpotMaxPriceTooLow", Class::Capacity),
    // The subnet is full: another zone has another subnet.
    ("InsufficientFreeAddressesInSubnet", Class::Capacity),
    ("InsufficientAddressCapacity", Class::Capacity),
    ("Unsupported", Class::NotOffered),
    ("UnsupportedOperation", Class::NotOffered),
    ("InvalidAvailabilityZone", Class::NotOffered),
    ("VcpuLimitExceeded", Class::Quota),
    ("InstanceLimitExceeded", Class::Quota),
    ("MaxSpotInstanceCountExceeded", Class::Quota),
    ("VolumeLimitExceeded", Class::Quota),
    ("MaxIOPSLimitExceeded", Class::Quota),
    ("AddressLimitExceeded", Class::Quota),
    ("RequestLimitExceeded", Class::Throttled),
    ("Throttling", Class::Throttled),
    ("ThrottlingException", Class::Throttled),
    ("ThrottledException", Class::Throttled),
    ("EC2ThrottledException", Class::Throttled),
    ("TooManyRequestsException", Class::Throttled),
    ("ResourceCountExceeded", Class::Throttled),
    ("InternalError", Class::Transient),
    ("InternalFailure", Class::Transient),
    ("Unavailable", Class::Transient),
    ("ServiceUnavailable", Class::Transient),
    ("ServerInternal", Class::Transient),
    ("IncorrectState", Class::Transient),
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
    ("InvalidPermission.NotFound", Class::NotFound),
    ("InvalidPlacementGroup.Unknown", Class::NotFound),
    ("UnauthorizedOperation", Class::Denied),
    ("AccessDenied", Class::Denied),
    ("AccessDeniedException", Class::Denied),
    ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", Class::Denied),
    ("AuthFailure", Class::Credentials),
    ("InvalidClientTokenId", Class::Credentials),
    ("UnrecognizedClientException", Class::Credentials),
    ("SignatureDoesNotMatch", Class::Credentials),
    ("MissingAuthenticationToken", Class::Credentials),
    ("ExpiredToken", Class::Credentials),
    ("ExpiredTokenException", Class::Credentials),
    ("RequestExpired", Class::Credentials),
    ("PendingVerification", Class::Account),
    ("OptInRequired", Class::Account),
    ("Blocked", Class::Account),
];

/// The class of an error by its code; by its HTTP status where the table does not have the code.
pub(crate) fn class(code: Option<&str>, status: Option<u16>) -> Class {
    let known = code.and_then(|code| CODES.iter().find(|(known, _)| *known == code));
    match (known, status) {
        (Some((_, class)), _) => *class,
        // An unknown error may pass if the service blames itself, and not if it blames the call.
        (None, Some(500..)) | (None, None) => Class::Transient,
        (None, _) => Class::Wrong,
    }
}

/// The parts of an error that EC2 answered with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    /// Whether the call reached the service, which refused it.
    pub(crate) answered: bool,
    call: &'static str,
    hint: Option<String>,
}

impl Failure {
    /// Takes an error of the SDK apart.
    pub(crate) fn of<E>(call: &'static str, error: SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let status = error.raw_response().map(|response| response.status().as_u16());
        let answered = matches!(error, SdkError::ServiceError(_));
        let code = error.code().map(str::to_owned);
        let class = match &error {
            SdkError::ServiceError(_) => class(code.as_deref(), status),
            _ if lacks_credentials(&error) => Class::Credentials,
            SdkError::ConstructionFailure(_) => Class::Wrong,
            _ => Class::Transient,
        };
        let message = match error.message() {
            Some(message) => message.to_owned(),
            None => chain(&error),
        };
        Self { class, hint: hint(class, code.as_deref()), code, message, answered, call }
    }

    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// The error of a call that starts machines. It has a refusal where the call has started
    /// nothing. `quota` is the name of the quota that the offer counts against.
    pub(crate) fn of_launch(self, quota: Option<&str>) -> Error {
        let message = self.to_string();
        let refusal = match self.class {
            Class::Capacity => Refusal::Capacity,
            Class::NotOffered => Refusal::NotOffered,
            Class::Quota => {
                let code = self.code.as_deref().unwrap_or_default();
                Refusal::Quota(quota.map_or_else(|| code.to_owned(), str::to_owned))
            }
            Class::Throttled => Refusal::Throttled(None),
            Class::Denied | Class::Credentials | Class::Account => Refusal::Denied,
            Class::Wrong | Class::NotFound | Class::Duplicate | Class::InUse if self.answered => Refusal::Misconfigured,
            _ => return self.into_error(),
        };
        self.hinted(Error::refused(refusal, message))
    }

    /// The error of any other call.
    pub(crate) fn into_error(self) -> Error {
        let message = self.to_string();
        let error = match self.class {
            Class::Throttled => Error::refused(Refusal::Throttled(None), message),
            Class::Transient | Class::InUse => Error::new(ErrorKind::Provider, message).temporary(),
            _ => Error::new(ErrorKind::Provider, message),
        };
        self.hinted(error)
    }

    fn hinted(self, error: Error) -> Error {
        match self.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.code {
            Some(code) => write!(f, "AWS refused {}: {} ({code})", self.call, self.message),
            None => write!(f, "{} failed: {}", self.call, self.message),
        }
    }
}

/// The result of a call that starts no machine.
pub(crate) fn called<T, E>(call: &'static str, answer: Result<T, SdkError<E>>) -> Result<T>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    answer.map_err(|error| Failure::of(call, error).into_error())
}

fn hint(class: Class, code: Option<&str>) -> Option<String> {
    let hint = match (class, code) {
        (Class::Credentials, None) => format!(
            "no credentials were found. The SDK looks for {CHAIN}; make some with `aws configure`, \
             `aws configure sso` and `aws sso login`, or `aws login`"
        ),
        (Class::Credentials, Some("ExpiredToken" | "ExpiredTokenException" | "RequestExpired")) => {
            "the credentials have expired: log in again, `aws sso login` or `aws login`; and check this host's clock"
                .to_owned()
        }
        (Class::Credentials, Some(_)) => {
            "the credentials are not valid in this region: `aws sts get-caller-identity` shows whose they are"
                .to_owned()
        }
        (Class::Denied, Some("AuthFailure.ServiceLinkedRoleCreationNotPermitted")) => {
            "the account has no role for spot instances yet, and these credentials may not make it: somebody who may \
             runs `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com` once"
                .to_owned()
        }
        (Class::Denied, _) => {
            "the policy that these credentials need is docs/aws-policy.json: attach it to the user or role".to_owned()
        }
        (Class::Account, Some("PendingVerification")) => {
            "AWS verifies the account for this region, mostly for some minutes: try again later".to_owned()
        }
        (Class::Account, Some("OptInRequired")) => {
            "the account has not enabled this region: enable it in the console under Account, or choose another, \
             `.region(\"…\")`"
                .to_owned()
        }
        (Class::Account, _) => "AWS has blocked the account: its support centre says why".to_owned(),
        _ => return None,
    };
    Some(hint)
}

/// Where the default chain of the SDK looks, in its order.
pub(crate) const CHAIN: &str = "the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile that AWS_PROFILE names in ~/.aws/config and ~/.aws/credentials, a web identity token, a container's credentials, and the instance's role";

fn lacks_credentials(error: &(dyn std::error::Error + 'static)) -> bool {
    use aws_credential_types::provider::error::CredentialsError;
    let mut source = error.source();
    while let Some(error) = source {
        if error.downcast_ref::<CredentialsError>().is_some() {
            return true;
        }
        source = error.source();
    }
    false
}

/// An error with its causes, each once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = vec![error.to_string()];
    let mut source = error.source();
    while let Some(error) = source {
        let word = error.to_string();
        if words.last() != Some(&word) {
            words.push(word);
        }
        source = error.source();
    }
    words.join(": ")
}
