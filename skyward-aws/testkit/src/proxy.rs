//! The proxy in front of moto: logs calls, plays the faults of the rules, and lets the shims
//! answer.
//!
//! It changes no request, so that signatures stay valid where moto verifies them.

mod call;
mod log;
mod reply;
mod times;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::DATE;
use hyper::http::request::Parts;
use hyper::{Request, Response};

pub use self::call::Call;
pub use self::log::Calls;
pub(crate) use self::reply::Reply;
pub(crate) use self::times::Skew;
use crate::http::{self, Abort, Body, Closed};
use crate::rules::{End, Rules};
use crate::shims::{self, Backend};

/// A listening proxy, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    pub(crate) rules: Rules,
    pub(crate) calls: Calls,
    _listener: Abort<()>,
}

impl Proxy {
    pub(crate) async fn start(backend: Arc<Backend>) -> Result<Self> {
        let (rules, calls) = (Rules::default(), Calls::default());
        let own = (rules.clone(), calls.clone());
        let handler = move |request| {
            let (rules, calls) = own.clone();
            answer(request, Arc::clone(&backend), rules, calls)
        };
        let (address, listener) = http::serve(Ipv4Addr::LOCALHOST.into(), 0, handler).await?;
        Ok(Self { address, rules, calls, _listener: listener })
    }
}

async fn answer(
    request: Request<Incoming>,
    backend: Arc<Backend>,
    rules: Rules,
    calls: Calls,
) -> Result<Response<Body>, Closed> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    let call = Call::read(&head.headers, &body);
    calls.add(call.clone());
    let skew = backend.settings().skew;
    let fate = rules.take(&call);
    tokio::time::sleep(fate.delay).await;
    match fate.end {
        End::DropBefore => return Err(Closed),
        End::HangBefore => return std::future::pending().await,
        End::Error { status, code, message } => {
            return Ok(dated(Reply::error(&call, status, &code, &message), skew));
        }
        End::Answer | End::DropAfter | End::HangAfter => {}
    }
    if let Some(refusal) = times::expired(&call, &head.headers, skew.now()) {
        return Ok(dated(refusal, skew));
    }
    // In a task of its own, so that a call takes effect even if the client does not wait for its
    // answer.
    let mut reply = tokio::spawn(serve(backend, call, head, body)).await.map_err(|_| Closed)?;
    match fate.end {
        End::DropAfter => return Err(Closed),
        End::HangAfter => return std::future::pending().await,
        _ => {}
    }
    for rewrite in fate.rewrites {
        let body = rewrite(&String::from_utf8_lossy(&reply.body));
        reply = reply.with_body(body);
    }
    Ok(dated(reply, skew))
}

/// The answer with the service's time.
fn dated(reply: Reply, skew: Skew) -> Response<Body> {
    let mut response = reply.into_response();
    if let Some(date) = skew.date() {
        response.headers_mut().insert(DATE, date);
    }
    response
}

async fn serve(backend: Arc<Backend>, call: Call, head: Parts, body: Bytes) -> Reply {
    let answer = shims::answer(&backend, &call, shims::Original { head, body }).await;
    answer.unwrap_or_else(|error| Reply::error(&call, 500, "InternalError", &format!("the loopback EC2: {error:#}")))
}
