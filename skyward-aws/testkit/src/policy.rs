//! Policies: makes moto verify signatures and the actions of calls, and evaluates here what moto does
//! not know of: the resources of calls that change something, and conditions by tags.

mod document;
mod requests;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use anyhow::{Context as _, Result, bail};
use hyper::Request;

pub(crate) use self::document::Policy;
use crate::http::{self, Body};
use crate::proxy::{Call, Reply};
use crate::shims::Backend;

impl Backend {
    /// Makes a user with a policy, and turns moto's checks on. Returns the user's key and its
    /// secret.
    pub(crate) async fn enforce(&self, policy: &str) -> Result<(String, String)> {
        let evaluated = Policy::parse(policy)?;
        let policy = &actions_alone(policy)?;
        let user = ("UserName", "client");
        self.ask("iam", "CreateUser", &[user]).await?;
        let document = [user, ("PolicyName", "client"), ("PolicyDocument", policy)];
        self.ask("iam", "PutUserPolicy", &document).await?;
        let answer = self.ask("iam", "CreateAccessKey", &[user]).await?;
        let key = |name| answer.at(&["CreateAccessKeyResult", "AccessKey", name]).to_owned();
        let request = Request::post("/moto-api/reset-auth").header("host", self.moto.to_string());
        let answer = http::send(self.moto, request.header("content-type", "text/plain").body(Body::from("0"))?).await?;
        if !answer.status().is_success() {
            bail!("moto does not verify signatures: {}", answer.status());
        }
        self.is_enforcing.store(true, Ordering::Relaxed);
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(evaluated));
        Ok((key("AccessKeyId"), key("SecretAccessKey")))
    }
}

impl Backend {
    /// EC2's refusal of a call that the policy does not allow for one of its resources.
    pub(crate) async fn forbidden(&self, call: &Call) -> Result<Option<Reply>> {
        let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(policy) = policy.filter(|_| call.service == "ec2") else { return Ok(None) };
        let wanted = self.wanted(call).await?.unwrap_or_default();
        let Some(refused) = wanted.iter().find(|request| !policy.allows(request)) else { return Ok(None) };
        let message = format!(
            "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/client is not \
             authorized to perform: {} on resource: {} because no identity-based policy allows the {} action.",
            refused.action, refused.resource, refused.action
        );
        Ok(Some(Reply::error(call, 403, "UnauthorizedOperation", &message)))
    }
}

/// The policy reduced to its actions. moto checks each call of EC2 for the resource `*`, which a
/// policy for some kinds of resources does not allow, and it supports no conditions.
fn actions_alone(policy: &str) -> Result<String> {
    let mut policy: serde_json::Value = serde_json::from_str(policy).context("the policy is no JSON")?;
    let statements = policy["Statement"].as_array_mut().context("the policy has no statements")?;
    for statement in statements {
        statement["Resource"] = "*".into();
        statement.as_object_mut().context("a statement is no object")?.remove("Condition");
    }
    Ok(policy.to_string())
}
