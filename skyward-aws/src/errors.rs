//! What the errors of EC2 mean: which refusal each is for the pool, and what a user can do.

mod codes;

use std::fmt;

use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use skyward_core::error::{Error, ErrorKind, Refusal, Result};

use self::codes::SPOT_ROLE;
pub(crate) use self::codes::{Class, class, is_of_free_plan};
use crate::quota;

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
        let message = match error.message() {
            Some(message) => message.to_owned(),
            None => chain(&error),
        };
        let class = match &error {
            SdkError::ServiceError(_) => class(code.as_deref(), status, &message),
            _ if lacks_credentials(&error) => Class::Credentials,
            SdkError::ConstructionFailure(_) => Class::Wrong,
            _ => Class::Transient,
        };
        let hint = hint(class, code.as_deref(), &message);
        Self { class, hint, code, message, answered, call }
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
            Class::Quota => Error::refused(Refusal::Quota(self.code.clone().unwrap_or_default()), message),
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

fn hint(class: Class, code: Option<&str>, message: &str) -> Option<String> {
    let hint = match (class, code) {
        (Class::NotOffered, code) if is_of_free_plan(code, message) => FREE_PLAN.to_owned(),
        (Class::NotOffered, Some(SPOT_ROLE)) => {
            "the account has no role for spot instances yet, and these credentials may not make it: somebody who may \
             runs `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com` once"
                .to_owned()
        }
        (Class::Quota, Some(code)) => return quota::Resource::of(code).map(|resource| resource.hint(None)),
        (Class::Credentials, None) => format!(
            "no credentials were found. The SDK looks for {CHAIN}; make some with `aws configure`, \
             `aws configure sso` and `aws sso login`, or `aws login`"
        ),
        (Class::Credentials, Some("ExpiredToken" | "ExpiredTokenException" | "RequestExpired")) => {
            "the credentials have expired: log in again, `aws sso login` or `aws login`; and check this host's clock"
                .to_owned()
        }
        (Class::Credentials, Some("InvalidSecurity.RequestHasExpired")) => {
            "set this host's clock: EC2 takes the request for an old one".to_owned()
        }
        (Class::Credentials, Some(_)) => {
            "the credentials are not valid in this region: `aws sts get-caller-identity` shows whose they are"
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
        (Class::Wrong, Some("InvalidAMIID.NotFound" | "InvalidAMIID.Unavailable")) => {
            "the image was removed, or the account's setting Allowed AMIs leaves it out: name another image, \
             `.image(\"ami-…\")`, or have its owner allowed"
                .to_owned()
        }
        (Class::Wrong, Some("CustomerKeyHasBeenRevoked")) => {
            "disks are encrypted with the account's default key, which cannot be used: enable that key of KMS, or \
             choose another as the default, `aws ec2 modify-ebs-default-kms-key-id`"
                .to_owned()
        }
        (Class::Wrong, Some("TagPolicyViolation" | "TagLimitExceeded" | "InvalidTagKey.Malformed")) => {
            "the pool's labels and the provider's `.tag(…)` are tags in EC2: change those that the message names"
                .to_owned()
        }
        _ => return None,
    };
    Some(hint)
}

/// What to do about the Free plan:
/// <https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/free-tier-plans.html>.
const FREE_PLAN: &str = "the account has AWS's Free plan, which allows a few small types and none with an accelerator: upgrade the account to the Paid plan in the console, under Billing and Cost Management; accelerators need a quota as well";

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

#[cfg(test)]
mod tests;
