//! A policy of IAM: its statements, and what they allow. No I/O.
//!
//! It has what policies for EC2 need: effects, actions, resources and conditions by tags. Everything
//! else is an error, so that no part of a policy is overlooked.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// A policy.
#[derive(Debug)]
pub(crate) struct Policy(Vec<Statement>);

#[derive(Debug)]
struct Statement {
    is_allowing: bool,
    actions: Vec<String>,
    resources: Vec<String>,
    conditions: Vec<Condition>,
}

/// A condition: one of the values has to be that of the key.
#[derive(Debug)]
struct Condition {
    /// Whether all values of the key have to be among those of the condition, and none is enough.
    is_for_all: bool,
    key: Key,
    values: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Key {
    RequestTag(String),
    ResourceTag(String),
    TagKeys,
    CreateAction,
    /// Of a service whose calls are not looked at here.
    Foreign,
}

/// What a call wants of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// With its service: `ec2:RunInstances`.
    pub(crate) action: String,
    /// The resource's name in AWS, its ARN.
    pub(crate) resource: String,
    /// The tags that the call gives the resource.
    pub(crate) request_tags: BTreeMap<String, String>,
    /// The tags that the resource has.
    pub(crate) resource_tags: BTreeMap<String, String>,
    /// The action that makes the resource, where it is tagged at once.
    pub(crate) create_action: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Document {
    #[serde(rename = "Version")]
    _version: String,
    statement: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Written {
    #[serde(rename = "Sid", default)]
    _sid: Option<String>,
    effect: Effect,
    action: Texts,
    resource: Texts,
    #[serde(default)]
    condition: BTreeMap<String, BTreeMap<String, Texts>>,
}

#[derive(Deserialize)]
enum Effect {
    Allow,
    Deny,
}

/// A text or a list of texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    fn all(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

impl Policy {
    /// Reads a policy in JSON.
    ///
    /// # Errors
    /// When it has anything that is not evaluated here.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let document: Document = serde_json::from_str(text)
            .context("the policy is none, or has an element that the testkit does not know")?;
        let statements = document.statement.into_iter().map(|written| {
            let mut conditions = Vec::new();
            for (operator, keys) in written.condition {
                let is_for_all = match operator.as_str() {
                    "StringEquals" => false,
                    "ForAllValues:StringEquals" => true,
                    other => bail!("the testkit does not know the operator {other:?} of a condition"),
                };
                for (key, values) in keys {
                    conditions.push(Condition { is_for_all, key: Key::parse(&key)?, values: values.all() });
                }
            }
            let is_allowing = matches!(written.effect, Effect::Allow);
            let (actions, resources) = (written.action.all(), written.resource.all());
            Ok(Statement { is_allowing, actions, resources, conditions })
        });
        Ok(Self(statements.collect::<Result<_>>()?))
    }

    /// Whether a statement allows it and none denies it.
    pub(crate) fn allows(&self, request: &Request) -> bool {
        let mut matching = self.0.iter().filter(|statement| statement.matches(request)).peekable();
        matching.peek().is_some() && matching.all(|statement| statement.is_allowing)
    }
}

impl Statement {
    fn matches(&self, request: &Request) -> bool {
        let action = request.action.to_ascii_lowercase();
        self.actions.iter().any(|pattern| is_like(&action, &pattern.to_ascii_lowercase()))
            && self.resources.iter().any(|pattern| is_like(&request.resource, pattern))
            && self.conditions.iter().all(|condition| condition.holds(request))
    }
}

impl Condition {
    fn holds(&self, request: &Request) -> bool {
        let given: BTreeSet<&str> = match &self.key {
            Key::RequestTag(key) => request.request_tags.get(key).map(String::as_str).into_iter().collect(),
            Key::ResourceTag(key) => request.resource_tags.get(key).map(String::as_str).into_iter().collect(),
            Key::TagKeys => request.request_tags.keys().map(String::as_str).collect(),
            Key::CreateAction => request.create_action.as_deref().into_iter().collect(),
            Key::Foreign => BTreeSet::new(),
        };
        let mut known = given.iter().map(|given| self.values.iter().any(|value| value == given));
        if self.is_for_all { known.all(|is_known| is_known) } else { known.any(|is_known| is_known) }
    }
}

impl Key {
    fn parse(text: &str) -> Result<Self> {
        let (name, tag) = text.split_once('/').unwrap_or((text, ""));
        Ok(match (name, tag) {
            ("aws:RequestTag", key) if !key.is_empty() => Self::RequestTag(key.to_owned()),
            ("aws:ResourceTag" | "ec2:ResourceTag", key) if !key.is_empty() => Self::ResourceTag(key.to_owned()),
            ("aws:TagKeys", "") => Self::TagKeys,
            ("ec2:CreateAction", "") => Self::CreateAction,
            ("iam:AWSServiceName", "") => Self::Foreign,
            _ => bail!("the testkit does not know the key {text:?} of a condition"),
        })
    }
}

/// Whether a text is like a pattern, in which `*` stands for anything and `?` for one character.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            let ends = text.char_indices().map(|(index, _)| index).chain([text.len()]);
            let mut tails = ends.map(|index| &text[index..]);
            tails.any(|tail| is_like(tail, rest.as_str()))
        }
        Some(wanted) => {
            let mut given = text.chars();
            given.next().is_some_and(|one| wanted == '?' || one == wanted) && is_like(given.as_str(), rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn shipped() -> Policy {
        Policy::parse(include_str!("../../../../docs/aws-policy.json")).unwrap()
    }

    fn request(action: &str, resource: &str) -> Request {
        let resource = format!("arn:aws:ec2:us-east-1:123456789012:{resource}");
        Request { action: format!("ec2:{action}"), resource, ..Request::default() }
    }

    #[test]
    fn what_is_launched_has_to_be_tagged() {
        let own = tags(&[("skyward:managed", "true")]);
        let launch = |resource: &str, request_tags| Request { request_tags, ..request("RunInstances", resource) };
        assert!(shipped().allows(&launch("instance/*", own.clone())));
        assert!(!shipped().allows(&launch("instance/*", tags(&[("skyward:managed", "no")]))));
        assert!(!shipped().allows(&launch("volume/*", tags(&[]))));
        assert!(shipped().allows(&launch("subnet/subnet-1", tags(&[]))));
        assert!(!shipped().allows(&launch("key-pair/mine", own)));
    }

    #[test]
    fn what_is_ended_has_to_be_tagged_and_only_its_expiry_is_changed() {
        let own = tags(&[("skyward:managed", "true")]);
        let end = |resource_tags| Request { resource_tags, ..request("TerminateInstances", "instance/i-1") };
        assert!(shipped().allows(&end(own.clone())));
        assert!(!shipped().allows(&end(tags(&[("Name", "mine")]))));
        let tag = |key: &str, resource_tags| {
            let request_tags = tags(&[(key, "1")]);
            Request { request_tags, resource_tags, ..request("CreateTags", "instance/i-1") }
        };
        assert!(shipped().allows(&tag("skyward:expires-at", own.clone())));
        assert!(!shipped().allows(&tag("skyward:expires-at", tags(&[]))));
        assert!(!shipped().allows(&tag("skyward:managed", own)));
        let made = Request { create_action: Some("RunInstances".into()), ..tag("skyward:managed", tags(&[])) };
        assert!(shipped().allows(&made));
    }

    #[test]
    fn what_is_not_known_is_an_error_and_a_denial_wins() {
        let policy = |more: &str| {
            format!(
                r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Action":"ec2:*","Resource":"*"}},
                {{"Effect":"Deny","Action":["ec2:run?nstances"],"Resource":"*"{more}}}]}}"#
            )
        };
        let plain = Policy::parse(&policy("")).unwrap();
        assert!(plain.allows(&request("CreateTags", "instance/i-1")) && !plain.allows(&request("RunInstances", "x")));
        for more in [
            r#","NotAction":"ec2:X""#,
            r#","Condition":{"StringNotEquals":{"aws:TagKeys":"x"}}"#,
            r#","Condition":{"StringEquals":{"aws:SourceIp":"x"}}"#,
        ] {
            assert!(Policy::parse(&policy(more)).is_err(), "{more}");
        }
    }
}
