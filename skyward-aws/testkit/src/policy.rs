//! Policies: makes moto verify signatures and permissions.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, bail};
use hyper::Request;

use crate::http::{self, Body};
use crate::shims::Backend;

impl Backend {
    /// Makes a user with a policy, and turns moto's checks on. Returns the user's key and its
    /// secret.
    pub(crate) async fn enforce(&self, policy: &str) -> Result<(String, String)> {
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
        Ok((key("AccessKeyId"), key("SecretAccessKey")))
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
