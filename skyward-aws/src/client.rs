//! The clients of AWS's services, with the credentials and the region of the SDK's default chain.

use std::sync::Arc;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::timeout::TimeoutConfig;
use skyward_core::error::{Error, ErrorKind, Result};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::cache::Cache;
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::errors::{CHAIN, Failure, chain};
use crate::options::{CacheIn, Options};
use crate::partition::Partition;
use crate::prices::on_demand::OnDemand;
use crate::proxy::{self, Proxy};
use crate::quota::Quotas;
use crate::timing::{CALL, CALL_ATTEMPT, CREDENTIALS, LAUNCH_CALL};

/// The account's clients, which are made when they are first needed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    clients: Arc<OnceCell<Clients>>,
    clock: Clock,
}

/// The clients of one account in one region.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) ec2: aws_sdk_ec2::Client,
    /// The instance types of the region.
    pub(crate) catalog: Catalog,
    /// Their prices on demand.
    pub(crate) on_demand: OnDemand,
    /// The quotas; none unless the user wants them looked up.
    pub(crate) quotas: Option<Quotas>,
    /// The time of the services.
    pub(crate) clock: Clock,
    /// The account's id, of 12 digits.
    pub(crate) account: String,
    pub(crate) region: String,
    /// The caller's identity, for errors: `arn:aws:iam::123456789012:user/ada`.
    pub(crate) caller: String,
}

impl Account {
    /// The clients, when credentials and region are there and valid.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`] without them; [`ErrorKind::Identity`] when the account is not the
    /// one that is expected.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub(crate) async fn clients(&self, options: &Options) -> Result<&Clients> {
        self.clients.get_or_try_init(|| Clients::load(options, self.clock.clone())).await
    }

    /// The time of its services.
    pub(crate) fn clock(&self) -> Clock {
        self.clock.clone()
    }
}

impl Clients {
    async fn load(options: &Options, clock: Clock) -> Result<Self> {
        let config = config(options).await?;
        let region = config.region().map(ToString::to_string).ok_or_else(no_region)?;
        let provider =
            config.credentials_provider().ok_or_else(|| no_credentials("no source of credentials is configured"))?;
        // The SDK asks for an instance's role at an address that does not answer outside of EC2.
        match timeout(CREDENTIALS, provider.provide_credentials()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(no_credentials(&chain(&error))),
            Err(_) => {
                let late = format!("the source did not return them within {CREDENTIALS:?}");
                return Err(no_credentials(&late).temporary());
            }
        }
        let sts = aws_sdk_sts::config::Builder::from(&config).interceptor(clock.clone()).build();
        let sts = aws_sdk_sts::Client::from_conf(sts);
        let identity = sts.get_caller_identity().send().await;
        let identity = identity.map_err(|error| {
            let error = Failure::of("GetCallerIdentity", error).into_error();
            error.with_context("region", &region)
        })?;
        let account = identity.account().unwrap_or_default().to_owned();
        let caller = identity.arn().unwrap_or("an unknown caller").to_owned();
        if let Some(expected) = options.expect_account.as_ref().filter(|expected| **expected != account) {
            let message = format!("the credentials belong to account {account}, but the provider expects {expected}");
            return Err(Error::new(ErrorKind::Provider, message).with_context("caller", caller).with_hint(
                "choose the profile of that account, `.profile(\"…\")` or AWS_PROFILE; `aws sts get-caller-identity` shows whose credentials are used",
            ));
        }
        let of_region = |region: &str| {
            let region = Region::new(region.to_owned());
            config.clone().into_builder().region(region).build()
        };
        let cache = match &options.cache {
            CacheIn::Folder(folder) => Cache::within(folder, &account, &region),
            // The answers of another service than AWS must not be used for AWS.
            CacheIn::User if options.endpoint_url.is_none() && std::env::var_os("AWS_ENDPOINT_URL").is_none() => {
                Cache::of_user(&account, &region)
            }
            CacheIn::User | CacheIn::Memory => Cache::off(),
        };
        let ec2 = aws_sdk_ec2::config::Builder::from(&config).interceptor(clock.clone()).build();
        let ec2 = aws_sdk_ec2::Client::from_conf(ec2);
        let pricing = Partition::of(&region).price_list();
        let pricing = pricing.map(|region| aws_sdk_pricing::Client::new(&of_region(region)));
        Ok(Self {
            catalog: Catalog::new(ec2.clone(), cache.clone()),
            on_demand: OnDemand::new(pricing, &region, cache),
            quotas: options.look_up_quotas.then(|| Quotas::new(aws_sdk_servicequotas::Client::new(&config))),
            ec2,
            clock,
            account,
            region,
            caller,
        })
    }

    /// The configuration of a call that the SDK must not repeat, because its caller does so with
    /// the same token.
    pub(crate) fn once() -> aws_sdk_ec2::config::Builder {
        let timeouts =
            TimeoutConfig::builder().operation_attempt_timeout(LAUNCH_CALL).operation_timeout(LAUNCH_CALL).build();
        aws_sdk_ec2::Config::builder().retry_config(RetryConfig::disabled()).timeout_config(timeouts)
    }
}

async fn config(options: &Options) -> Result<SdkConfig> {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(CALL_ATTEMPT).operation_timeout(CALL).build();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .timeout_config(timeouts)
        .http_client(proxy::http_client(Proxy::of_environment().as_ref())?);
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(profile) = &options.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(given) = &options.credentials {
        let token = given.session_token.as_ref().map(|token| token.expose().to_owned());
        let secret = given.secret_access_key.expose();
        loader = loader.credentials_provider(Credentials::new(&given.access_key_id, secret, token, None, "skyward"));
    }
    if let Some(endpoint) = &options.endpoint_url {
        loader = loader.endpoint_url(endpoint);
    }
    Ok(loader.load().await)
}

fn no_region() -> Error {
    Error::new(ErrorKind::Provider, "no AWS region is set").with_hint(
        "name one: `.region(\"eu-west-1\")`, the variable AWS_REGION, or `region` of the profile in ~/.aws/config",
    )
}

fn no_credentials(why: &str) -> Error {
    Error::new(ErrorKind::Provider, format!("no AWS credentials were found: {why}"))
        .with_context("looked in", CHAIN)
        .with_hint("make some: `aws configure`, `aws configure sso` and then `aws sso login`, or `aws login`; or name another profile, `.profile(\"…\")`")
}
