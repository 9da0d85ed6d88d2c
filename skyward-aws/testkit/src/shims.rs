//! Shims: behaviour of EC2 that moto lacks. They are always on, and each documents what AWS says
//! and what moto does.
//!
//! A shim looks at a call and at moto's answer, changes the answer, or gives one of its own.
//! Changes that would need another call are in `moto/moto_loopback.py`, which takes parameters in
//! headers that are not signed.

mod capacity;
mod ends;
mod groups;
mod instances;
mod interfaces;
mod launch;
mod pages;
mod placement;
mod prices;
mod quotas;
mod reach;
mod spot;
mod types;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Request, header};
use tokio::sync::Notify;

use crate::firewall::Firewall;
use crate::http::{self, Body};
use crate::hypervisor::Consoles;
use crate::moto::{Moto, TRUSTED_KEY};
use crate::phases::Phases;
use crate::policy::Policy;
use crate::proxy::{Call, Reply, Skew};
use crate::records::{Market, Records};
use crate::reservation::Reservation;
use crate::xml::Element;
pub(crate) use placement::PlacementGroup;

/// The state that the shims share.
#[derive(Debug)]
pub(crate) struct Backend {
    /// The address of moto.
    pub(crate) moto: SocketAddr,
    /// The log of moto.
    log: PathBuf,
    pub(crate) region: String,
    pub(crate) zones: Vec<String>,
    pub(crate) records: Records,
    pub(crate) consoles: Consoles,
    /// Notified when an instance may have been launched or ended.
    pub(crate) changed: Notify,
    /// Notified when an instance was terminated.
    pub(crate) terminated: Notify,
    /// Whether moto verifies signatures and policies.
    pub(crate) is_enforcing: AtomicBool,
    /// The policy of the client, where it has one.
    pub(crate) policy: Mutex<Option<Arc<Policy>>>,
    /// What enforces the rules of security groups, where this host can.
    pub(crate) firewall: Option<Arc<Firewall>>,
    /// Held while the firewall's tables are updated from EC2's state.
    refreshing: tokio::sync::Mutex<()>,
    settings: Mutex<Settings>,
    launches: launch::Launches,
    types: types::Types,
}

/// The settings of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) phases: Phases,
    /// How many instances of a type can exist at once, in a zone and market. Everything else is
    /// unlimited.
    pub(crate) capacity: BTreeMap<(String, String, Market), u32>,
    /// The account's reservations, by id.
    pub(crate) reservations: BTreeMap<String, Reservation>,
    /// The placement groups, by name.
    pub(crate) placement_groups: BTreeMap<String, PlacementGroup>,
    /// The largest page, if a test makes it smaller than EC2's.
    pub(crate) page: Option<usize>,
    /// How many more deletions of a security group are refused.
    pub(crate) dependency_violations: u32,
    /// On-demand prices in USD per hour, in place of the table's.
    pub(crate) prices: HashMap<String, f64>,
    /// Values of quotas by code, in place of the table's.
    pub(crate) quotas: HashMap<String, f64>,
    /// The clock of the services.
    pub(crate) skew: Skew,
}

/// A client's call.
#[derive(Debug, Clone)]
pub(crate) struct Original {
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
}

impl Backend {
    pub(crate) fn new(moto: &Moto, region: &str, zones: Vec<String>, firewall: Option<Arc<Firewall>>) -> Self {
        Self {
            moto: moto.address,
            log: moto.log.clone(),
            region: region.to_owned(),
            zones,
            records: Records::default(),
            consoles: Consoles::default(),
            changed: Notify::new(),
            terminated: Notify::new(),
            is_enforcing: AtomicBool::new(false),
            policy: Mutex::default(),
            firewall,
            refreshing: tokio::sync::Mutex::default(),
            settings: Mutex::default(),
            launches: launch::Launches::default(),
            types: types::Types::default(),
        }
    }

    pub(crate) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the launch or end that is under way, and keeps others from beginning.
    pub(crate) async fn settled(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.launches.settled().await
    }

    /// Forwards a call unchanged.
    pub(crate) async fn forward(&self, original: Original) -> Result<Reply> {
        self.forward_with(original, &[]).await
    }

    /// The same, with headers that change what moto does.
    async fn forward_with(&self, original: Original, headers: &[(&'static str, String)]) -> Result<Reply> {
        let mut request = Request::from_parts(original.head, Body::new(original.body));
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse()?);
        }
        // Headers of the client's connection do not apply to the connection to moto.
        request.headers_mut().remove(header::CONNECTION);
        let reply = Reply::of(http::send(self.moto, request).await?);
        if reply.status == 500 && reply.body.starts_with(b"<!doctype html>") {
            // moto logs the reason after its answer.
            tokio::time::sleep(Duration::from_millis(200)).await;
            anyhow::bail!("moto broke: {}", self.last_error());
        }
        Ok(reply)
    }

    /// The last line of moto's last traceback. moto answers unknown calls and its own faults with a
    /// page of HTML.
    fn last_error(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let traceback = lines.iter().rposition(|line| line.starts_with("Traceback")).unwrap_or(lines.len());
        let words = lines[traceback..].iter().skip(1).find(|line| !line.starts_with(' ') && !line.is_empty());
        words.map_or_else(|| "it wrote no traceback".to_owned(), |line| (*line).to_owned())
    }

    /// Calls moto past the proxy, with the access key that moto trusts.
    pub(crate) async fn ask(&self, service: &str, action: &str, parameters: &[(&str, &str)]) -> Result<Element> {
        let version = if service == "iam" { "2010-05-08" } else { "2016-11-15" };
        let form = {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair("Action", action).append_pair("Version", version).extend_pairs(parameters);
            form.finish()
        };
        let scope = format!("{}/20260101/{}/{service}/aws4_request", TRUSTED_KEY, self.region);
        let request = Request::builder()
            .method(Method::POST)
            .uri("/")
            .header(header::HOST, self.moto.to_string())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded; charset=utf-8")
            .header(
                header::AUTHORIZATION,
                format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"),
            )
            .body(Body::from(form))?;
        let reply = Reply::of(http::send(self.moto, request).await?);
        let root = reply.parse();
        if !reply.is_success() {
            let code = root.map(|root| root.to_string()).unwrap_or_default();
            anyhow::bail!("moto answers {action} with {}: {code}", reply.status);
        }
        root
    }
}

/// Answers a call of a client.
pub(crate) async fn answer(backend: &Arc<Backend>, call: &Call, original: Original) -> Result<Reply> {
    if let Some(refusal) = backend.forbidden(call).await? {
        return Ok(refusal);
    }
    let reply = dispatch(backend, call, original).await?;
    if reply.is_success() && reach::changes(&call.action) {
        backend.refresh().await?;
    }
    // AWS documents: EC2 refuses calls without a permission with UnauthorizedOperation. moto
    // answers AccessDenied, as other services do.
    if reply.status == 403 && call.service == "ec2" {
        let body = String::from_utf8_lossy(&reply.body).replace(">AccessDenied<", ">UnauthorizedOperation<");
        return Ok(reply.with_body(body));
    }
    Ok(reply)
}

async fn dispatch(backend: &Arc<Backend>, call: &Call, original: Original) -> Result<Reply> {
    match call.action.as_str() {
        "RunInstances" => launch::run(backend, call, original).await,
        "DescribeCapacityReservations" => capacity::describe(backend, call, original).await,
        "CreatePlacementGroup" | "DeletePlacementGroup" => placement::change(backend, call, original).await,
        "DescribePlacementGroups" => placement::describe(backend, call, original).await,
        "DescribeInstances" => instances::describe(backend, call, original).await,
        "DescribeInstanceStatus" => instances::status(backend, call, original).await,
        "TerminateInstances" => ends::terminate(backend, call, original).await,
        "StopInstances" | "StartInstances" => instances::change(backend, call, original).await,
        "DescribeNetworkInterfaces" => interfaces::describe(backend, original).await,
        "ModifyNetworkInterfaceAttribute" => interfaces::modify(backend, call, original).await,
        "GetConsoleOutput" => instances::console(backend, call, original).await,
        "DescribeInstanceTypes" => types::describe(backend, call, original).await,
        "DescribeSpotPriceHistory" => spot::history(backend, call, original).await,
        "DeleteSecurityGroup" => groups::delete(backend, call, original).await,
        "GetProducts" => Ok(prices::products(backend, call)),
        "GetServiceQuota" => Ok(quotas::get(backend, call)),
        _ => backend.forward(original).await,
    }
}

/// Whether moto's policies would refuse the call; for calls that a shim answers in place of moto.
async fn refused(backend: &Backend, original: Original) -> Result<Option<Reply>> {
    if !backend.is_enforcing.load(Ordering::Relaxed) {
        return Ok(None);
    }
    // moto breaks at a call that its policies allow and that it does not implement.
    let Ok(reply) = backend.forward(original).await else { return Ok(None) };
    Ok((reply.status == 401 || reply.status == 403).then_some(reply))
}
