//! The metadata service of a machine, in its second version: nothing without a token.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use serde_json::json;

use super::machine::Facts;
use super::user_data;
use crate::http::{self, Abort, Body};

/// The service. It ends with this.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) address: SocketAddr,
    notices: Arc<Mutex<Notices>>,
    _listener: Abort<()>,
}

/// EC2's notices of the machine's end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notices {
    /// When EC2 takes the machine back.
    pub(crate) action: Option<String>,
    /// When EC2 recommended a rebalance.
    pub(crate) rebalance: Option<String>,
    /// Scheduled events, as JSON.
    pub(crate) events: Vec<serde_json::Value>,
}

impl Metadata {
    pub(crate) async fn start(address: IpAddr, facts: Arc<Facts>) -> Result<Self> {
        let notices = Arc::new(Mutex::new(Notices::default()));
        let tokens = Arc::new(Mutex::new(HashSet::new()));
        let own = Arc::clone(&notices);
        let handler = move |request: Request<Incoming>| {
            let notices = own.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let answer = answer(&request, &facts, &notices, &mut tokens.lock().unwrap_or_else(PoisonError::into_inner));
            std::future::ready(Ok(answer))
        };
        let (address, listener) = http::serve(address, 0, handler).await?;
        Ok(Self { address, notices, _listener: listener })
    }

    pub(crate) fn notify(&self, change: impl FnOnce(&mut Notices)) {
        change(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn answer(
    request: &Request<Incoming>,
    facts: &Facts,
    notices: &Notices,
    tokens: &mut HashSet<String>,
) -> Response<Body> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let path = request.uri().path();
    if request.method() == Method::PUT && path == "/latest/api/token" {
        let seconds: u32 = header("x-aws-ec2-metadata-token-ttl-seconds").parse().unwrap_or(0);
        if !(1..=21_600).contains(&seconds) {
            return say(StatusCode::BAD_REQUEST, "");
        }
        let token = format!("AQAEA{:016x}{:04}", facts.secret(), tokens.len());
        tokens.insert(token.clone());
        return say(StatusCode::OK, &token);
    }
    if !tokens.contains(header("x-aws-ec2-metadata-token")) {
        return say(StatusCode::UNAUTHORIZED, "");
    }
    if request.method() != Method::GET {
        return say(StatusCode::METHOD_NOT_ALLOWED, "");
    }
    match look_up(path.strip_prefix("/latest/").unwrap_or_default(), facts, notices) {
        Some(text) => say(StatusCode::OK, &text),
        None => say(StatusCode::NOT_FOUND, "404 - Not Found"),
    }
}

fn look_up(path: &str, facts: &Facts, notices: &Notices) -> Option<String> {
    let text = match path.trim_end_matches('/') {
        "meta-data/instance-id" => facts.id.clone(),
        "meta-data/instance-type" => facts.instance_type.clone(),
        "meta-data/instance-life-cycle" => if facts.is_spot { "spot" } else { "on-demand" }.to_owned(),
        "meta-data/local-ipv4" => facts.private.clone(),
        "meta-data/public-ipv4" => facts.public.clone()?,
        "meta-data/local-hostname" | "meta-data/hostname" => facts.name(),
        "meta-data/placement/availability-zone" => facts.zone.clone(),
        "meta-data/placement/region" => facts.region.clone(),
        "meta-data/spot/instance-action" => {
            json!({ "action": "terminate", "time": notices.action.as_ref()? }).to_string()
        }
        "meta-data/spot/termination-time" => notices.action.clone()?,
        "meta-data/events/recommendations/rebalance" => {
            json!({ "noticeTime": notices.rebalance.as_ref()? }).to_string()
        }
        "meta-data/events/maintenance/scheduled" => serde_json::Value::from(notices.events.clone()).to_string(),
        "user-data" => user_data::decode(&facts.user_data).ok().filter(|text| !text.is_empty())?,
        "dynamic/instance-identity/document" => json!({
            "accountId": "123456789012",
            "availabilityZone": facts.zone,
            "instanceId": facts.id,
            "instanceType": facts.instance_type,
            "privateIp": facts.private,
            "region": facts.region,
            "version": "2017-09-30",
        })
        .to_string(),
        _ => return None,
    };
    Some(text)
}

fn say(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    response
}
